"""Input rows of leaves: fetched once, equal to their roots' rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from graphs import CUTS, cut, make_graph

from distgnn.aggregate.input_rows import leaf_inputs, place_leaves
from distgnn.comm.threads import run_ranks
from distgnn.edges.blocks import plan_blocks
from distgnn.exchange.base import Synchronous
from distgnn.ops import SparseRows


def rows_of(graph, *, is_sparse, seed=0):
    """Rows of all vertices, some of them empty and some full."""
    rng = np.random.default_rng(seed)
    share = rng.choice([0.0, 0.3, 1.0], size=(graph.num_vertices, 1))
    rows = rng.normal(size=(graph.num_vertices, 5)) * (rng.random((graph.num_vertices, 5)) < share)
    rows = rows.astype(np.float32)
    return rows, sp.csr_matrix(rows) if is_sparse else rows


def fetch(parts, rows):
    def on_rank(group):
        part = parts[group.rank]
        own = rows[part.global_id[: part.num_roots]]
        own = SparseRows.from_scipy(own) if sp.issparse(own) else torch.from_numpy(own)
        exchange = Synchronous(group)
        leaves = leaf_inputs(plan_blocks(part, group).forward.send, exchange, own)
        is_reading = torch.from_numpy(np.array(part.is_reading))
        return leaves, place_leaves(own, leaves, is_reading), exchange.take_bytes()

    return run_ranks(len(parts), on_rank)


def dense(rows):
    return rows.to_dense().numpy() if isinstance(rows, SparseRows) else rows.numpy()


@pytest.mark.parametrize("num_parts", [1, 2, 3, 7])
@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_reading_leaf_gets_its_roots_row_and_any_other_leaf_zeros(is_sparse, how, num_parts):
    graph = make_graph("random")
    expected, rows = rows_of(graph, is_sparse=is_sparse)
    parts = cut(graph, num_parts, how=how)
    for part, (leaves, placed, _) in zip(parts, fetch(parts, rows), strict=True):
        assert isinstance(leaves, SparseRows) == isinstance(placed, SparseRows) == is_sparse
        ids = part.global_id[part.num_roots :]
        np.testing.assert_array_equal(dense(leaves), expected[ids[part.is_reading]])
        whole = expected[part.global_id].copy()
        whole[part.num_roots :][~part.is_reading] = 0
        np.testing.assert_array_equal(dense(placed), whole)


def test_more_ranks_than_edges_and_ranks_without_leaves():
    graph = make_graph("few-edges", num_vertices=12)
    parts = cut(graph, 7)
    assert any(part.num_leaves == 0 for part in parts)
    for is_sparse in (False, True):
        expected, rows = rows_of(graph, is_sparse=is_sparse)
        for part, (leaves, placed, _) in zip(parts, fetch(parts, rows), strict=True):
            ids = part.global_id[part.num_roots :][part.is_reading]
            np.testing.assert_array_equal(dense(leaves), expected[ids])
            assert placed.shape[0] == part.num_clones


def test_rows_without_any_entry_travel_as_nothing():
    graph = make_graph("random")
    parts = cut(graph, 3)
    empty = sp.csr_matrix((graph.num_vertices, 4), dtype=np.float32)
    for part, (_, placed, sent) in zip(parts, fetch(parts, empty), strict=True):
        assert placed.shape == (part.num_clones, 4)
        assert placed.values.numel() == 0
        assert sent == 8 * int(part.send_counts.sum()), "one length for each row"


def test_sparse_rows_travel_as_lengths_columns_and_values():
    graph = make_graph("random")
    parts = cut(graph, 3)
    _, rows = rows_of(graph, is_sparse=True)
    for part, (_, _, sent) in zip(parts, fetch(parts, rows), strict=True):
        roots = part.global_id[part.send_rows]
        assert sent == 8 * len(roots) + (4 + 4) * rows[roots].nnz


def test_placed_sparse_rows_multiply_as_they_should():
    rows = SparseRows.from_scipy(sp.csr_matrix(np.float32([[1, 0, 2], [0, 0, 0]])))
    leaves = SparseRows.from_scipy(sp.csr_matrix(np.float32([[0, 3, 0], [4, 0, 5]])))
    placed = place_leaves(rows, leaves, torch.tensor([False, True, True, False]))
    expected = [[1, 0, 2], [0, 0, 0], [0, 0, 0], [0, 3, 0], [4, 0, 5], [0, 0, 0]]
    assert placed.to_dense().tolist() == expected
    weight = torch.eye(3, requires_grad=True)
    product = placed.matmul(weight)
    product.backward(torch.ones(6, 3))
    assert product.tolist() == expected
    assert weight.grad[:, 0].tolist() == [5, 3, 7]
