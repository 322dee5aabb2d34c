from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distgnn.datasets import InputError
from distgnn.datasets.edge_file import EdgeFile, from_array_folder
from distgnn.datasets.flat_array import FlatWriter, open_flat, read_header

EDGES = np.array([[0, 1, 2, 3, 3], [1, 2, 0, 3, 0]], np.int32)


def save(folder: Path, **arrays: Any) -> Path:
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def read(edges: EdgeFile, size: int) -> list[list[int]]:
    found: list[list[int]] = [[], []]
    expected = 0
    for start, *ends in edges.chunks(size):
        assert start == expected
        expected += ends[0].size
        for side, ids in zip(found, ends, strict=True):
            side += ids.tolist()
    return found


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_slices_of_any_size_are_all_edges_in_order(
    tmp_path: Path, dtype: type, is_split: bool, size: int
) -> None:
    ends = EDGES.astype(dtype)
    arrays = {"src": ends[0], "dst": ends[1]} if is_split else {"edge_index": ends}
    edges = from_array_folder(save(tmp_path, **arrays))
    assert (edges.num_vertices, edges.num_edges, edges.src.dtype) == (4, 5, np.dtype(dtype))
    assert read(edges, size) == EDGES.tolist()


def test_edges_can_be_sent_to_another_process(tmp_path: Path) -> None:
    edges = from_array_folder(save(tmp_path, edge_index=EDGES))
    again = pickle.loads(pickle.dumps(edges))
    assert again == edges
    assert read(again, 2) == EDGES.tolist()


@pytest.mark.parametrize(
    "arrays",
    [
        {"num_vertices": np.array(7)},
        {"features": np.zeros((7, 2), np.float32)},
        {"features_shape": np.array([7, 2])},
        {"labels": np.zeros(7, np.int64)},
        {"train_mask": np.zeros((2, 7), np.bool_)},
    ],
)
def test_other_arrays_tell_the_number_of_vertices(tmp_path: Path, arrays: dict[str, Any]) -> None:
    assert from_array_folder(save(tmp_path, edge_index=EDGES, **arrays)).num_vertices == 7


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"edge_index": EDGES, "num_vertices": np.array(3)},
            r"edge 3 has vertex 3, but vertices are 0..2; correct",
        ),
        ({"edge_index": -EDGES}, r"edge 1 has vertex -1, but vertices are 0, 1, 2, ...; correct"),
        ({"edge_index": EDGES[:, :0]}, "has neither edges nor num_vertices.npy; add one of them"),
        (
            {"edge_index": EDGES, "num_vertices": np.array(0)},
            r"num_vertices.npy must hold one whole number of at least 1, got array\(0\)",
        ),
        ({"edge_index": EDGES.T.copy()}, r"must have shape \(2, num_edges\), got \(5, 2\)"),
        ({"edge_index": np.asfortranarray(EDGES)}, "is stored column by column, which cannot be"),
        ({"edge_index": EDGES.astype(">i4")}, "is stored in another byte order, which cannot be"),
        ({"edge_index": EDGES[None]}, r"must have shape \(2, num_edges\), got \(1, 2, 5\)"),
        ({"edge_index": EDGES[0]}, r"must have shape \(2, num_edges\), got \(5,\); put sources"),
        (
            {"src": EDGES.T.copy(), "dst": EDGES[1]},
            r"src.npy must have shape \(num_edges,\), got \(5, 2\); write one id for each edge",
        ),
        ({}, r"src.npy: there is no such file"),
    ],
)
def test_what_cannot_be_read_slice_by_slice_is_an_input_error(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        from_array_folder(save(tmp_path, **arrays))


def test_more_dimensions_than_two_are_an_input_error(tmp_path: Path) -> None:
    save(tmp_path, labels=EDGES[None])
    with pytest.raises(InputError, match=r"has the shape \(1, 2, 5\), but one or two dimensions"):
        open_flat(tmp_path / "labels.npy")


@pytest.mark.parametrize("name", ["edge_index", "src"])
def test_a_transposed_array_of_edges_is_refused_before_its_rows_are_opened(
    tmp_path: Path, name: str
) -> None:
    save(tmp_path, **{name: np.zeros((50_000, 2), np.int32)})
    tracemalloc.start()
    with pytest.raises(InputError, match=r"got \(50000, 2\)"):
        from_array_folder(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_file_that_becomes_shorter_is_an_input_error(tmp_path: Path) -> None:
    edges = from_array_folder(save(tmp_path, edge_index=EDGES))
    file = tmp_path / "edge_index.npy"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(InputError, match=r"edge_index.npy cannot be read any more \(4 bytes are"):
        read(edges, 3)


def test_a_file_written_slice_by_slice_is_an_npy_file(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    with FlatWriter(path, np.dtype(np.int64)) as writer:
        assert not path.exists()
        writer.append(np.array([1, 2], np.int32))
        writer.append(np.arange(10)[::4])
    assert np.load(path).tolist() == [1, 2, 0, 4, 8]
    assert writer.written.read(1, 4).tolist() == [2, 0, 4]
    assert open_flat(path) == [writer.written]
    assert read_header(path).shape == (5,)
    assert list(tmp_path.iterdir()) == [path]


def test_rows_are_written_slice_by_slice(tmp_path: Path) -> None:
    with FlatWriter(tmp_path / "x.npy", np.dtype(np.float32), num_columns=3) as writer:
        writer.append(np.zeros((2, 3)))
        writer.append(np.ones((1, 3)))
    rows = np.load(tmp_path / "x.npy")
    assert rows.dtype == np.float32
    assert rows.tolist() == [[0, 0, 0], [0, 0, 0], [1, 1, 1]]


def test_an_unfinished_file_is_removed(tmp_path: Path) -> None:
    def write() -> None:
        with FlatWriter(tmp_path / "x.npy", np.dtype(np.int32)) as writer:
            writer.append(np.arange(3))
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        write()
    assert list(tmp_path.iterdir()) == []
