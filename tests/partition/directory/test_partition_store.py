from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from stored_parts import edit_manifest, example, replace_array, save

from distgnn.datasets import InputError
from distgnn.partition import assign
from distgnn.partition.assignment import Assignment
from distgnn.partition.build import build_parts
from distgnn.partition.directory.store import (
    check_target,
    is_partition_directory,
    read_manifest,
    read_part,
    write,
)
from distgnn.partition.quality import measure


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


@pytest.mark.parametrize(
    "kind", ["dense", "sparse", "multilabel", "values", "typed", "edge-features", "links"]
)
def test_a_graph_in_another_byte_order_is_stored_like_one_in_that_of_the_machine(
    kind: str, tmp_path: Path
) -> None:
    graph = example(kind if kind not in ("values", "links") else "sparse")
    if kind == "values":
        graph = replace(graph, labels=np.linspace(0, 1, 12, dtype=np.float32))
    if kind == "links":
        links = {"val_links": np.array([[0, 1]]), "test_links": np.array([[1, 2]])}
        graph = replace(graph, **links)
    swapped = {}
    for name, value in vars(graph).items():
        if isinstance(value, np.ndarray):
            swapped[name] = value.astype(value.dtype.newbyteorder("S"))
        elif sp.issparse(value):
            arrays = (value.data, value.indices, value.indptr)
            arrays = tuple(array.astype(array.dtype.newbyteorder("S")) for array in arrays)
            swapped[name] = sp.csr_matrix(arrays, value.shape)
    save(tmp_path / "own", graph)
    save(tmp_path / "other", replace(graph, **swapped))
    for part in range(3):
        own, other = (read_part(tmp_path / name, part) for name in ("own", "other"))
        for name, value in vars(own).items():
            if sp.issparse(value):
                assert (value != getattr(other, name)).nnz == 0
            else:
                np.testing.assert_array_equal(getattr(other, name), value, err_msg=name)


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


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_another_process_puts_there_meanwhile_stays(tmp_path, overwrite):
    graph = example("dense")
    assignment = assign("random", graph, 2)
    quality = measure(graph, assignment)
    target = tmp_path / "p"

    def come_first(line):
        target.mkdir(exist_ok=True)
        (target / "notes").write_text("mine")

    with pytest.raises(InputError, match="is not a partition directory, so it is left alone"):
        write(
            *(target, graph, assignment),
            method="random",
            options={},
            seed=0,
            quality=quality,
            overwrite=overwrite,
            progress=come_first,
        )
    assert [path.name for path in tmp_path.iterdir()] == ["p"]
    assert (target / "notes").read_text() == "mine"
