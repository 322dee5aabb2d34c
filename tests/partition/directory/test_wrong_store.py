from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stored_parts import edit_manifest, replace_array

from distgnn.datasets import InputError
from distgnn.partition.directory.store import (
    is_partition_directory,
    read_manifest,
    read_part,
)


def test_no_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no partition directory .*nowhere'; make one"):
        read_manifest(tmp_path / "nowhere")
    assert not is_partition_directory(tmp_path / "nowhere")


def test_a_missing_manifest_is_an_error(saved: Path) -> None:
    (saved / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"manifest.json' cannot be read: No such file"):
        read_manifest(saved)


@pytest.mark.parametrize("content", [b'{"format": ', b"\xff\xfe\x00"])
def test_a_manifest_that_is_not_json_is_an_error(saved: Path, content: bytes) -> None:
    (saved / "manifest.json").write_bytes(content)
    with pytest.raises(InputError, match=r"manifest.json' is not JSON: .*partition the graph"):
        read_manifest(saved)


RECORD = {"bytes": 1, "sha256": ""}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "it is not a distgnn-partition manifest"),
        ({"format_version": 99}, "it has format_version 99, but this version of distgnn reads 1"),
        ({"num_edges": "many"}, "its 'num_edges' is not of type int"),
        ({"num_edges": True}, "its 'num_edges' is not of type int"),
        ({"num_edges": -1}, "its 'num_edges' holds something that is no count"),
        ({"format_version": "1"}, "its 'format_version' is not a number"),
        ({"num_vertices": 2**63}, "its 'num_vertices' holds something that is no count"),
        ({"num_vertices": 13}, "its 'num_vertices' is 13, but what it lists adds up to 12"),
        ({"num_edges": 39}, "its 'num_edges' is 39, but what it lists adds up to 40"),
        ({"num_splits": 2}, "its 'num_splits' is 2, but what it lists adds up to 1"),
        ({"num_features": 2**40}, "its 'num_features' is 1099511627776, but at most 2147483647"),
        ({"num_classes": 2**31}, "its 'num_classes' is 2147483648, but at most 2147483647"),
        ({"options": {"objective": ["x"]}}, "its option 'objective' is neither a number nor text"),
        ({"quality": {}}, "quality lacks replication_factor, .*, write_rows; partition the"),
        ({"order": None}, "its 'order' is not of type str"),
        ({"num_train": [1.5]}, "its 'num_train' holds something that is no count"),
        ({"class_names": ["one"]}, "its 'class_names' are not .* names"),
        ({"class_names": [1, 2, 3]}, "its 'class_names' are not .* names"),
        ({"relation_names": ["one"]}, "its 'relation_names' are not 0 names"),
        ({"num_relations": 2**31}, "its 'num_relations' is 2147483648, but at most 2147483647"),
        ({"num_parts": 4}, "its 'parts' does not give num_roots, .* of 4 parts"),
        ({"files": {"../../etc/x.npy": RECORD}}, "it names the file '../../etc/x.npy', which is"),
        ({"files": {"/part-0000/x.npy": RECORD}}, "which is not of the form part-0000/name.npy"),
        ({"files": {"part-0000/x.npy": {"bytes": 1}}}, "lacks the size or the checksum of"),
    ],
)
def test_a_wrong_manifest_is_an_error(saved: Path, changes: dict[str, Any], message: str) -> None:
    edit_manifest(saved, **changes)
    with pytest.raises(InputError, match=f"manifest.json' cannot be used: .*{message}"):
        read_manifest(saved)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("edge_balance", "much", "quality 'edge_balance' is not a number"),
        ("edge_balance", None, "quality 'edge_balance' is not a number"),
        ("halo_rows", 1.5, "quality 'halo_rows' is not a count"),
        ("halo_rows", -1, "quality 'halo_rows' is not a count"),
        ("halo_rows", 10**30, "quality 'halo_rows' is not a count"),
        ("num_edges", None, r"quality 'num_edges' is not counts of shape \(0,\)"),
        ("num_roots", [1, "2", 3], r"quality 'num_roots' is not counts of shape \(3,\)"),
        ("read_rows", [[1], [2, 3]], r"quality 'read_rows' is not counts of shape \(3, 3\)"),
        ("num_leaves", [99, 99, 99], "its 'quality' and its 'parts' differ in 'num_leaves'"),
    ],
)
def test_a_wrong_quality_is_an_error(saved: Path, name: str, value: Any, message: str) -> None:
    quality = json.loads((saved / "manifest.json").read_text())["quality"]
    edit_manifest(saved, quality={**quality, name: value})
    with pytest.raises(InputError, match=f"manifest.json' cannot be used: {message}; partition"):
        read_manifest(saved)


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_an_error(saved: Path, text: str) -> None:
    path = saved / "manifest.json"
    path.write_text(path.read_text().replace('"seed": 0', f'"seed": {text}'))
    with pytest.raises(InputError, match=f"is not JSON: {text} is not a finite number; partition"):
        read_manifest(saved)


def test_a_manifest_without_a_field_is_an_error(saved: Path) -> None:
    values = json.loads((saved / "manifest.json").read_text())
    del values["num_splits"]
    (saved / "manifest.json").write_text(json.dumps(values))
    with pytest.raises(InputError, match="it lacks 'num_splits'; partition the graph again"):
        read_manifest(saved)


@pytest.mark.parametrize("part", [-1, 3])
def test_a_part_that_does_not_exist_is_an_error(saved: Path, part: int) -> None:
    with pytest.raises(InputError, match=f"part {part} does not exist in .* start 3 ranks"):
        read_part(saved, part)


def test_a_missing_file_is_an_error(saved: Path) -> None:
    (saved / "part-0001" / "indices.npy").unlink()
    with pytest.raises(InputError, match=r"part-0001/indices.npy' .* cannot be read: No such"):
        read_part(saved, 1)


@pytest.mark.parametrize("verify", [True, False])
def test_a_truncated_file_is_an_error(saved: Path, verify: bool) -> None:
    path = saved / "part-0001" / "features.npy"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError, match=r"features.npy' has \d+ bytes, but the manifest says"):
        read_part(saved, 1, verify=verify)


def test_an_altered_file_is_an_error(saved: Path) -> None:
    path = saved / "part-0001" / "features.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"features.npy' was altered: its sha256 is not that"):
        read_part(saved, 1)
    assert read_part(saved, 0).num_parts == 3


def test_an_unlisted_file_is_an_error(saved: Path) -> None:
    files = json.loads((saved / "manifest.json").read_text())["files"]
    del files["part-0000/indptr.npy"]
    edit_manifest(saved, files=files)
    with pytest.raises(InputError, match=r"does not list 'part-0000/indptr.npy'; partition the"):
        read_part(saved, 0)


def test_a_link_out_of_the_directory_is_an_error(saved: Path, tmp_path: Path) -> None:
    path = saved / "part-0000" / "indptr.npy"
    path.rename(tmp_path / "outside.npy")
    path.symlink_to(tmp_path / "outside.npy")
    with pytest.raises(InputError, match=r"indptr.npy' is a link out of its partition directory"):
        read_part(saved, 0)


def test_a_file_that_is_no_array_is_an_error(saved: Path) -> None:
    relative = "part-0000/self_loops.npy"
    replace_array(saved, relative, np.array([{}], object))
    with pytest.raises(InputError, match=r"self_loops.npy' is not a plain .npy array"):
        read_part(saved, 0)


def test_a_column_by_column_array_is_an_error(saved: Path) -> None:
    features = np.asfortranarray(read_part(saved, 0).features)
    replace_array(saved, "part-0000/features.npy", features)
    with pytest.raises(InputError, match=r"features.npy' is not stored row by row"):
        read_part(saved, 0)


def test_a_wrong_dtype_is_an_error(saved: Path) -> None:
    indices = read_part(saved, 0).indices.astype(np.int64)
    replace_array(saved, "part-0000/indices.npy", indices)
    with pytest.raises(InputError, match=r"the array in .*indices.npy' is int64, not int32"):
        read_part(saved, 0)


def test_a_wrong_shape_is_an_error(saved: Path) -> None:
    replace_array(saved, "part-0000/features.npy", np.zeros((2, 4), np.float32))
    with pytest.raises(InputError, match=r"features.npy' has shape \(2, 4\), not \(\d+, 4\)"):
        read_part(saved, 0)


WRAPPING = np.array([2**62, 2**63 - 1, 2**62 + 1])
"""Adds up to 0 in int64."""


def wrap_round(pointers: np.ndarray) -> np.ndarray:
    """Make every difference positive in int64, though the pointers fall."""
    return np.array([0, 2**63 - 1, -(2**63), *[-1] * (len(pointers) - 4), pointers[-1]])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("indices", lambda a: a + 100, r"indices holds \d+\.\.\d+, but may hold 0\.\."),
        ("send_rows", lambda a: a - 100, r"send_rows holds -\d+\.\.-\d+, but may hold"),
        ("indptr", lambda a: a[::-1].copy(), "indptr does not ascend from 0 to"),
        ("indptr", wrap_round, "indptr does not ascend from 0 to"),
        ("send_counts", lambda a: a + 1, "send_counts does not add up to"),
        ("send_counts", lambda a: a + WRAPPING, "send_counts does not add up to"),
        ("global_id", lambda a: a - 100, r"global_id holds -\d+\.\.-?\d+, but may hold 0\.\."),
        ("global_id", lambda a: a + 100, r"global_id holds \d+\.\.\d+, but may hold 0\.\."),
    ],
)
def test_rows_out_of_range_are_an_error(saved: Path, name: str, change: Any, message: str) -> None:
    array = change(getattr(read_part(saved, 0), name))
    replace_array(saved, f"part-0000/{name}.npy", array)
    with pytest.raises(InputError, match=f"contradict each other: {message}"):
        read_part(saved, 0)
