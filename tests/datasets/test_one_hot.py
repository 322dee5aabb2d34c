"""A column of its own for each vertex without features."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from distgnn import datasets
from distgnn.datasets.graph import Graph
from distgnn.datasets.npz import write_npz
from distgnn.datasets.one_hot import add_one_hot

ROWS = np.array([[1, 0], [0, 0], [0, 2], [0, 0]], dtype=np.float32)


def graph(features) -> Graph:
    src, dst = np.array([0, 1, 2]), np.array([1, 2, 3])
    return Graph(num_vertices=4, src=src, dst=dst, features=features, name="four")


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_rows_of_zeros_get_a_column_each(kind) -> None:
    found = add_one_hot(graph(kind(ROWS))).features
    assert scipy.sparse.issparse(found)
    assert found.dtype == np.float32
    own = [[0, 0], [1, 0], [0, 0], [0, 1]]
    assert np.array_equal(found.toarray(), np.hstack([ROWS, own]))


def test_a_stored_zero_is_no_feature() -> None:
    stored = scipy.sparse.csr_matrix(ROWS + 0)
    stored.data[:] = 0
    assert add_one_hot(graph(stored)).features.shape == (4, 6)


def test_a_graph_without_features_gets_the_identity() -> None:
    assert np.array_equal(add_one_hot(graph(None)).features.toarray(), np.eye(4))


def test_a_graph_whose_vertices_all_have_features_stays_as_it_is() -> None:
    full = graph(np.ones((4, 2), dtype=np.float32))
    assert add_one_hot(full) is full


def test_load_adds_them_on_request(tmp_path) -> None:
    path = tmp_path / "four.npz"
    write_npz(graph(ROWS), path)
    assert datasets.load(path, one_hot=True).num_features == 4
    assert datasets.load(path).num_features == 2
