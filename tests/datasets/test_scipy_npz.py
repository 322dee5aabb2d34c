from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from distgnn import datasets
from distgnn.datasets import InputError

DENSE = np.array([[0, 1, 0], [0, 1, 1], [0, 0, 0]], dtype=np.float32)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_entries_are_edges_from_row_to_column(tmp_path: Path, form: str) -> None:
    scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.csr_matrix(DENSE).asformat(form))
    graph = datasets.load(tmp_path / "a.npz")
    edges = set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    assert edges == {(0, 1), (1, 1), (1, 2)}
    assert (graph.num_vertices, graph.edge_weight) == (3, None)


def test_other_entries_than_one_are_weights(tmp_path: Path) -> None:
    scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.csr_matrix(2 * DENSE))
    weight = datasets.load(tmp_path / "a.npz").edge_weight
    assert weight is not None
    assert weight.tolist() == [2, 2, 2]


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"format": np.array(b"dia")}, r"a\.npz: the matrix has format 'dia'; save it as csr"),
    ({"indptr": None}, "the array 'indptr' of a csr matrix is missing"),
    ({"shape": np.array([3, 4])}, r"is square, this one has shape \[3, 4\]"),
    ({"shape": np.array(["3", "3"])}, r"is square, this one has shape \['3', '3'\]"),
    ({"shape": np.array([3.0, 3.0])}, r"is square, this one has shape \[3.0, 3.0\]"),
    ({"indptr": np.array([0, 1, 3])}, "indptr does not fit shape and indices"),
    ({"indptr": np.array([0, 2, 1, 3])}, "indptr does not fit shape and indices"),
    ({"indptr": np.array([0, 3 << 61, -(3 << 61), 3])}, "indptr does not fit shape and indices"),
    ({"indices": np.ones(3)}, "indices and indptr must hold integers"),
    ({"indices": np.array([0, 1, 7])}, "edge 2 points to vertex 7, but the graph has 3"),
    ({"data": np.ones(2)}, "the matrix has 3 places and 2 values"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES)
def test_wrong_files_are_one_sentence(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.csr_matrix(DENSE))
    with np.load(tmp_path / "a.npz") as archive:
        arrays = {**archive, **change}
    np.savez(tmp_path / "a.npz", **{key: v for key, v in arrays.items() if v is not None})
    with pytest.raises(InputError, match=message):
        datasets.load(tmp_path / "a.npz")
