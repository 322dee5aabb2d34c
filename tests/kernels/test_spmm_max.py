from __future__ import annotations

import numpy as np
import pytest
import reference
import torch

from distgnn import kernels

WIDTHS = [1, 3, 7, 16, 17, 33, 100]
CASES = {
    "no rows": (0, 3, 0),
    "no edges": (5, 4, 0),
    "short rows": (50, 20, 80),
    "long rows": (4, 30, 200),
    "several blocks of rows": (300, 100, 700),
}


def max_of(graph, key, x, *, edge_offset=0, start=None):
    if start is None:
        shape = (graph.indptr.size - 1, x.shape[1])
        state = reference.Maximum(np.full(shape, 7, x.dtype), np.full(shape, 7), np.full(shape, 7))
    else:
        state = reference.Maximum(*(part.copy() for part in start))
    value, arg, arg_key = (torch.from_numpy(part) for part in state)
    kernels.spmm_max(
        *(torch.from_numpy(part) for part in (graph.indptr, graph.indices, key, x)),
        value,
        arg=arg,
        arg_key=arg_key,
        edge_offset=edge_offset,
        accumulate=start is not None,
    )
    return state


def assert_same(found, expected):
    np.testing.assert_array_equal(found.value, expected.value)
    np.testing.assert_array_equal(found.arg, expected.arg)
    has_edge = expected.arg >= 0
    np.testing.assert_array_equal(found.key[has_edge], expected.key[has_edge])


def values_with_ties(rng, shape, dtype):
    """Few distinct values, among them NaN and both infinities."""
    return rng.choice(np.array([-np.inf, -1, 0, 0, 2, np.inf, np.nan], dtype), shape)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
def test_max_finds_value_and_winner_of_the_reference(case, dtype, num_threads):
    num_rows, num_sources, num_edges = CASES[case]
    graph = reference.random_csr(num_rows, num_sources, num_edges, seed=1)
    rng = np.random.default_rng(2)
    for width in WIDTHS if num_rows < 100 else [17]:
        key = rng.permutation(num_sources)
        x = values_with_ties(rng, (num_sources, width), dtype)
        start = reference.no_maximum(num_rows, width, dtype)
        expected = reference.spmm_max(graph, key, x, start, 0)
        assert_same(max_of(graph, key, x), expected)


@pytest.mark.parametrize("first_offset", [0, 1000])
@pytest.mark.parametrize("width", WIDTHS)
def test_merging_two_halves_in_any_order_finds_the_winner_of_all_edges(width, first_offset):
    rng = np.random.default_rng(width)
    halves = [reference.random_csr(30, 20, 60, seed=seed) for seed in (3, 4)]
    offsets = [first_offset, 1000 - first_offset]
    key = rng.integers(0, 6, 20)  # several sources share a key, so that positions decide
    x = values_with_ties(rng, (20, width), np.float32)
    expected = reference.no_maximum(30, width, np.float32)
    for half, offset in zip(halves, offsets, strict=True):
        expected = reference.spmm_max(half, key, x, expected, offset)
    found = max_of(halves[0], key, x, edge_offset=offsets[0])
    found = max_of(halves[1], key, x, edge_offset=offsets[1], start=found)
    assert_same(found, expected)


def test_of_equal_values_the_smaller_key_wins_whatever_the_order_of_the_edges():
    graph = reference.csr_of(np.array([0, 1, 2]), np.array([0, 0, 0]), 1)
    x = np.ones((3, 2), np.float32)
    assert max_of(graph, np.array([30, 10, 20]), x).arg.tolist() == [[1, 1]]


def test_a_row_without_edges_has_maximum_zero_and_no_winner():
    graph = reference.csr_of(np.array([0]), np.array([0]), 2)
    found = max_of(graph, np.array([0]), np.full((1, 2), -5, np.float32))
    assert found.value.tolist() == [[-5, -5], [0, 0]]
    assert found.arg.tolist() == [[0, 0], [-1, -1]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("accumulate", [False, True])
def test_backward_gives_each_gradient_to_the_winner(dtype, accumulate, num_threads):
    rng = np.random.default_rng(5)
    graph = reference.random_csr(60, 25, 300, seed=6)
    transposed = reference.transpose(graph, 25)
    for width in WIDTHS:
        x = rng.standard_normal((25, width)).astype(dtype)
        start = rng.standard_normal((25, width)).astype(dtype)
        grad = rng.standard_normal((60, width)).astype(dtype)
        forward = max_of(graph, np.arange(25), x, edge_offset=11)
        out = start.copy()
        kernels.spmm_max_backward(
            *(torch.from_numpy(part) for part in (*transposed, forward.arg, grad)),
            out=torch.from_numpy(out),
            edge_offset=11,
            accumulate=accumulate,
        )
        begin = start if accumulate else np.zeros_like(start)
        expected = reference.spmm_max_backward(transposed, forward.arg, grad, begin, 11)
        np.testing.assert_array_equal(out, expected)
        if not accumulate:
            given = np.where(forward.arg >= 0, grad, 0)
            np.testing.assert_allclose(out.sum(0), given.sum(0), rtol=1e-3, atol=1e-4)
