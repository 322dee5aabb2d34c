from __future__ import annotations

import errno
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from distgnn.datasets import Graph, InputError
from distgnn.partition import assign
from distgnn.partition.assignment import Assignment
from distgnn.partition.build import build_parts
from distgnn.partition.quality import measure
from distgnn.partition.store import (
    Manifest,
    check_target,
    is_partition_directory,
    read_manifest,
    read_part,
    write,
)


def example(kind: str = "dense") -> Graph:
    """A graph of 12 vertices with data of one kind."""
    generator = np.random.default_rng(5)
    src, dst = generator.integers(0, 12, (2, 40))
    split = np.arange(12) % 3
    data: dict[str, Any] = {}
    if kind != "bare":
        data = {
            "labels": generator.integers(0, 3, 12),
            **{
                f"{name}_mask": (split == k)[None]
                for k, name in enumerate(("train", "val", "test"))
            },
        }
    if kind == "dense":
        data["features"] = generator.random((12, 4), dtype=np.float32)
        data["vertex_id"] = np.array([f"vertex {v}" for v in range(12)])
    if kind == "sparse":
        data["features"] = sp.random(12, 9, 0.3, format="csr", dtype=np.float32, random_state=0)
        data["edge_weight"] = generator.random(40, dtype=np.float32)
        data["vertex_id"] = np.arange(12) * 10
    if kind == "edge-features":
        data["edge_features"] = generator.random((40, 3), dtype=np.float32)
    if kind == "typed":
        data["edge_type"] = generator.integers(0, 3, 40)
        data["vertex_type"] = generator.integers(0, 2, 12)
        data["relation_names"] = ("cites", "owns", "writes", "never used")
    if kind == "multilabel":
        data["labels"] = generator.integers(0, 2, (12, 5)).astype(np.uint8)
    return Graph(name="example", num_vertices=12, src=src, dst=dst, source="a.npz", **data)


def save(directory: Path, graph: Graph, **options: Any) -> Manifest:
    assignment = assign("metis", graph, 3)
    return write(
        directory,
        graph,
        assignment,
        method="metis",
        options={"objective": "volume"},
        seed=0,
        quality=measure(graph, assignment),
        **options,
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(tmp_path / "parts", example())
    return tmp_path / "parts"


def edit_manifest(directory: Path, **changes: Any) -> None:
    path = directory / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def replace_array(directory: Path, relative: str, array: np.ndarray) -> None:
    """Store another array with the right checksum, so that only its content is wrong."""
    np.save(directory / relative, array)
    content = (directory / relative).read_bytes()
    files = json.loads((directory / "manifest.json").read_text())["files"]
    files[relative] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    edit_manifest(directory, files=files)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(
    "kind", ["bare", "dense", "sparse", "multilabel", "typed", "edge-features"]
)
def test_parts_come_back_as_they_were(kind: str, verify: bool, tmp_path: Path) -> None:
    graph = example(kind)
    manifest = save(tmp_path / "parts", graph)
    assert read_manifest(tmp_path / "parts").to_json() == manifest.to_json()
    for built in build_parts(graph, assign("metis", graph, 3)):
        read = read_part(tmp_path / "parts", built.part, verify=verify)
        for name, value in vars(built).items():
            again = getattr(read, name)
            if sp.issparse(value):
                assert (value != again).nnz == 0
            elif isinstance(value, np.ndarray):
                assert again.dtype == value.dtype, name
                assert np.array_equal(again, value), name
            else:
                assert again == value, name


def test_the_manifest_tells_what_is_inside(tmp_path: Path) -> None:
    manifest = save(tmp_path / "parts", example("sparse"))
    assert (manifest.num_parts, manifest.num_vertices, manifest.num_edges) == (3, 12, 40)
    assert manifest.has_sparse_features
    assert manifest.num_train == (4,)
    assert sum(part.num_roots for part in manifest.parts) == 12
    assert sum(part.num_edges for part in manifest.parts) == 40
    assert sum(part.feature_nnz for part in manifest.parts) == example("sparse").features.nnz  # type: ignore[union-attr]
    assert (manifest.method, manifest.options) == ("metis", {"objective": "volume"})
    assert manifest.estimate([8]).halo_bytes_per_epoch == 8 * 8 * manifest.quality["halo_rows"]


def test_the_manifest_counts_and_names_types(tmp_path: Path) -> None:
    manifest = save(tmp_path / "parts", example("typed"))
    assert (manifest.num_relations, manifest.num_vertex_types) == (4, 2)
    assert manifest.relation_names == ("cites", "owns", "writes", "never used")


def test_features_of_edges_that_are_counted_otherwise_are_an_error(tmp_path: Path) -> None:
    save(tmp_path / "parts", example("edge-features"))
    assert read_manifest(tmp_path / "parts").num_edge_features == 3
    edit_manifest(tmp_path / "parts", num_edge_features=4)
    with pytest.raises(InputError, match=r"edge_features.npy' has shape \(\d+, 3\), not \(\d+, 4"):
        read_part(tmp_path / "parts", 0)
    edit_manifest(tmp_path / "parts", num_edge_features=1 << 40)
    with pytest.raises(InputError, match="its 'num_edge_features' is 1099511627776, but at most"):
        read_manifest(tmp_path / "parts")


def test_a_directory_of_an_earlier_version_has_no_types(saved: Path) -> None:
    values = json.loads((saved / "manifest.json").read_text())
    for name in ("num_relations", "num_vertex_types", "relation_names"):
        del values[name]
    (saved / "manifest.json").write_text(json.dumps(values))
    manifest = read_manifest(saved)
    assert (manifest.num_relations, manifest.relation_names) == (0, ())
    part = read_part(saved, 0)
    assert part.edge_type is part.relation_degree is part.vertex_type is None


@pytest.mark.parametrize(("name", "count"), [("edge_type", 4), ("vertex_type", 2)])
def test_an_unknown_type_is_an_error(tmp_path: Path, name: str, count: int) -> None:
    save(tmp_path / "parts", example("typed"))
    array = getattr(read_part(tmp_path / "parts", 0), name) + count
    replace_array(tmp_path / "parts", f"part-0000/{name}.npy", array)
    with pytest.raises(InputError, match=rf"{name} holds .* may hold 0\.\.{count - 1}"):
        read_part(tmp_path / "parts", 0)


def test_types_of_vertices_that_are_counted_but_not_listed_are_an_error(tmp_path: Path) -> None:
    save(tmp_path / "parts", example("typed"))
    files = json.loads((tmp_path / "parts" / "manifest.json").read_text())["files"]
    del files["part-0000/vertex_type.npy"]
    edit_manifest(tmp_path / "parts", files=files)
    with pytest.raises(InputError, match=r"does not list 'part-0000/vertex_type.npy'; partition"):
        read_part(tmp_path / "parts", 0)


def test_a_part_needs_no_file_of_another_part(saved: Path) -> None:
    for path in (saved / "part-0001").iterdir():
        path.unlink()
    assert read_part(saved, 0).num_parts == 3


def test_writing_to_a_part_leaves_its_file_alone(saved: Path) -> None:
    read_part(saved, 0).global_id[:] = -5
    assert read_part(saved, 0).global_id.min() >= 0


def test_each_part_is_reported(tmp_path: Path) -> None:
    lines: list[str] = []
    save(tmp_path / "parts", example(), progress=lines.append)
    assert [line.split(":")[0] for line in lines] == [f"part {k} of 3" for k in (1, 2, 3)]


def test_empty_parts_are_stored(tmp_path: Path) -> None:
    graph = example()
    nowhere = Assignment(4, np.zeros(40, np.int32), np.zeros(12, np.int32))
    quality = measure(graph, nowhere)
    write(tmp_path / "p", graph, nowhere, method="own", options={}, seed=0, quality=quality)
    part = read_part(tmp_path / "p", 3)
    assert (part.num_clones, part.num_edges) == (0, 0)


def test_an_existing_partition_is_kept_unless_overwriting_is_allowed(saved: Path) -> None:
    before = (saved / "manifest.json").read_bytes()
    with pytest.raises(InputError, match="already holds a partition; allow overwriting or choose"):
        save(saved, example("sparse"))
    assert (saved / "manifest.json").read_bytes() == before
    save(saved, example("sparse"), overwrite=True)
    assert read_manifest(saved).has_sparse_features
    assert [path.name for path in saved.parent.iterdir()] == ["parts"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_anything_else_is_left_alone(overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("notes", "file"):
        with pytest.raises(InputError, match="exists and is not a partition directory, so it is"):
            save(tmp_path / name, example(), overwrite=overwrite)


def test_an_empty_directory_and_missing_parents_are_used(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    save(tmp_path / "empty", example())
    save(tmp_path / "a" / "b" / "parts", example())
    assert is_partition_directory(tmp_path / "empty")
    assert is_partition_directory(tmp_path / "a" / "b" / "parts")


def test_a_place_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write partition directory .* not a writable dir"):
        check_target(tmp_path / "file" / "parts", overwrite=False)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    def fill_disk(line: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(InputError, match=r"cannot write partition .* No space left on device; "):
        save(tmp_path / "new" / "parts", example(), progress=fill_disk)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing_behind_and_keeps_the_old_partition(saved: Path) -> None:
    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    before = (saved / "manifest.json").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        save(saved, example("sparse"), overwrite=True, progress=interrupt)
    assert (saved / "manifest.json").read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["parts"]


@pytest.mark.parametrize("is_put_back", [True, False])
def test_an_interrupt_between_two_renames_does_not_lose_the_old_partition(
    is_put_back: bool, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (saved / "manifest.json").read_bytes()
    rename = Path.rename

    def interrupt(path: Path, target: Path) -> Path:
        if path.name != "previous" or is_put_back:
            rename(path, target)
        if "previous" in (path.name, target.name):
            raise KeyboardInterrupt
        return target

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", interrupt)
        with pytest.raises(KeyboardInterrupt):
            save(saved, example("sparse"), overwrite=True)
    kept = saved if is_put_back else next(saved.parent.glob(".parts.*/previous"))
    assert (kept / "manifest.json").read_bytes() == before


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
        ("global_id", lambda a: a - 100, "global_id holds a negative id"),
    ],
)
def test_rows_out_of_range_are_an_error(saved: Path, name: str, change: Any, message: str) -> None:
    array = change(getattr(read_part(saved, 0), name))
    replace_array(saved, f"part-0000/{name}.npy", array)
    with pytest.raises(InputError, match=f"contradict each other: {message}"):
        read_part(saved, 0)
