from __future__ import annotations

import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from distgnn import datasets
from distgnn.datasets import InputError, layouts
from distgnn.datasets.npz import sha256
from distgnn.datasets.planetoid import read_planetoid

NUM_CLASSES = 3


def files_of(name: str = "mini") -> dict[str, Any]:
    """Eight vertices: rows 0 to 3 in allx, 2 of them trained on; 6, 4 and 7 tested; 5 is alone."""
    eye = np.eye(NUM_CLASSES, dtype=np.int32)
    allx = scipy.sparse.csr_matrix(np.arange(8, dtype=np.float32).reshape(4, 2))
    tx = scipy.sparse.csr_matrix(np.array([[60, 61], [40, 41], [70, 71]], dtype=np.float32))
    graph = {0: [1, 1, 0], 1: [0, 2], 2: [1, 6], 3: [4], 4: [3], 5: [], 6: [2], 7: [2]}
    return {
        "x": allx[:2],
        "y": eye[[0, 1]],
        "tx": tx,
        "ty": eye[[2, 0, 1]],
        "allx": allx,
        "ally": eye[[0, 1, 2, 0]],
        "graph": defaultdict(list, graph),
        "test.index": "6\n4\n7\n",
    }


def write(folder: Path, files: dict[str, Any], *, name: str = "mini", protocol: int = 2) -> Path:
    folder.mkdir(exist_ok=True)
    for part, value in files.items():
        path = folder / f"ind.{name}.{part}"
        if isinstance(value, str):
            path.write_text(value)
        else:
            path.write_bytes(pickle.dumps(value, protocol=protocol))
    return folder


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_vertices_are_in_the_order_of_allx_and_test_index(tmp_path: Path, protocol: int) -> None:
    graph = read_planetoid(write(tmp_path, files_of(), protocol=protocol))
    features: Any = graph.features
    assert graph.name == "mini"
    assert graph.num_vertices == 8
    assert features[:, 0].toarray().ravel().tolist() == [0, 2, 4, 6, 40, 0, 60, 70]
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1, 2, 0, 0, -1, 2, 1]
    masks: list[Any] = [graph.train_mask, graph.val_mask, graph.test_mask]
    assert [np.flatnonzero(mask[0]).tolist() for mask in masks] == [[0, 1], [2, 3], [4, 6, 7]]


@pytest.mark.parametrize("kind", ["<f2", ">f2", ">f4"])
@pytest.mark.parametrize("is_sparse", [True, False])
def test_features_of_two_bytes_or_another_byte_order_are_read(
    tmp_path: Path, is_sparse: bool, kind: str
) -> None:
    files = files_of()
    for part in ("x", "tx", "allx"):
        if is_sparse:
            files[part].data = files[part].data.astype(kind)
        else:
            files[part] = files[part].toarray().astype(kind)
    features: Any = read_planetoid(write(tmp_path, files)).features
    assert features.dtype == np.float32
    assert features[:, 0].toarray().ravel().tolist() == [0, 2, 4, 6, 40, 0, 60, 70]


def test_the_checksum_is_that_of_all_files_of_the_layout(tmp_path: Path) -> None:
    folder = write(tmp_path, files_of())
    (folder / "notes.txt").write_text("of nobody")
    for path in (folder, folder / "ind.mini.graph"):
        assert datasets.load(path).checksum == sha256(layouts.files_of(path))


def test_edges_go_both_ways_once_and_never_to_themselves(tmp_path: Path) -> None:
    graph = read_planetoid(write(tmp_path, files_of()))
    edges = set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    half = {(0, 1), (1, 2), (2, 6), (3, 4), (2, 7)}
    assert edges == half | {(b, a) for a, b in half}
    assert graph.num_edges == len(edges)


def test_vertices_of_nell_without_features_have_a_column_each(tmp_path: Path) -> None:
    name = "nell.0.001"
    graph = read_planetoid(write(tmp_path, files_of(), name=name))
    features: Any = graph.features
    assert graph.name == name
    assert features.shape == (8, 3)
    assert np.flatnonzero(features[:, 2].toarray()).tolist() == [5]


def test_a_file_among_several_graphs_chooses_one(tmp_path: Path) -> None:
    write(tmp_path, files_of(), name="one")
    write(tmp_path, files_of(), name="two")
    for part in ("graph", "allx", "test.index"):
        assert datasets.load(tmp_path / f"ind.two.{part}").name == "two"
    with pytest.raises(InputError, match=r"has the Planetoid graphs one, two; give one of them"):
        datasets.load(tmp_path)


@pytest.mark.parametrize("part", ["y", "tx", "ty", "allx", "ally", "graph", "test.index"])
def test_a_file_that_is_missing_or_cut_is_named(tmp_path: Path, part: str) -> None:
    folder = write(tmp_path, files_of())
    file = folder / f"ind.mini.{part}"
    data = file.read_bytes()
    if part != "test.index":
        file.write_bytes(data[: len(data) // 2])
        with pytest.raises(InputError, match=rf"ind\.mini\.{part} is damaged or is no pickle"):
            read_planetoid(folder)
    file.unlink()
    with pytest.raises(InputError, match=rf"no file .*ind\.mini\.{part}; put all of|\(none\)"):
        read_planetoid(folder)


EYE = np.eye(NUM_CLASSES)
MISTAKES = [
    ({"allx": [1]}, "allx must hold a matrix of numbers, got list"),
    ({"ally": EYE[:2]}, "allx has 4 rows and ally 2; they must be of one graph"),
    ({"ty": EYE[:2]}, "tx has 3 rows and ty 2"),
    ({"test.index": "4\n6\n"}, "tx has 3 rows, but test.index lists 2 vertices"),
    ({"test.index": "4\n6\n3\n"}, "lists vertex 3, which is a row of allx"),
    ({"test.index": "4\n6\n6\n"}, "at least one test vertex and none twice"),
    ({"test.index": "4\n-6\n7\n"}, r"line 2 of .*test\.index has '-6'; it must hold a vertex id"),
    ({"tx": np.ones((3, 5))}, "allx and tx have different numbers of columns"),
    ({"y": np.eye(2)}, r"y, ally and ty have \[2, 3\] columns"),
    ({"y": EYE[[0, 0, 0, 0]]}, "y has 4 rows and ally 4; those of y are the first"),
    ({"ally": np.ones((4, 3))}, "row 0 of ally and ty has 3 labels; it may have one"),
    ({"graph": [1, 2]}, "graph must hold a dict of lists of vertices"),
    ({"graph": {0: 1}}, "graph must hold a dict of lists of vertices"),
    ({"graph": {0: ["a"]}}, "graph must hold integers"),
    ({"graph": {0: [1.7]}}, r"graph must hold integers below 2\*\*63, got float64"),
    ({"graph": {0.5: [1]}}, r"graph must hold integers below 2\*\*63, got float64"),
    ({"graph": {0: [2**63]}}, r"graph must hold integers below 2\*\*63, got uint64"),
    ({"graph": {0: [[1]]}}, r"graph must hold integers"),
    ({"graph": {0: [[1], [1, 2]]}}, r"graph must hold integers \(.*\); it holds something else"),
    ({"test.index": "4\n6\n99999999999999999\n"}, "lists vertex 9{17}, but there are 4 rows of"),
    ({"graph": {0: [-1]}}, "graph has vertex -1; ids are 0, 1, 2"),
    ({"graph": {0: [10**12]}}, "graph has vertex 1000000000000; ids are"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES)
def test_files_that_contradict_each_other_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_planetoid(write(tmp_path, {**files_of(), **change}))
