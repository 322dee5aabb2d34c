from __future__ import annotations

import numpy as np
import pytest
import reference
from fronts import Fronts
from on_device import INTERPRETED, hub_graph, put

from distgnn.kernels import maxima

maxima = Fronts(maxima)

NUM_SOURCES = 15
GRAPHS = {
    "random": reference.random_csr(20, NUM_SOURCES, 60, seed=1),
    "hub": hub_graph(20, NUM_SOURCES, 40 if INTERPRETED else 600, seed=2),
    "no-edges": reference.random_csr(4, NUM_SOURCES, 0, seed=3),
}


def values_with_ties(rng, shape):
    """Few distinct values, among them NaN and both infinities."""
    values = np.array([-np.inf, -1, 0, 0, 2, np.inf, np.nan], np.float32)
    return rng.choice(values, shape)


@pytest.mark.parametrize(
    ("name", "width", "is_max"),
    [("random", width, True) for width in (1, 3, 16, 33, 100)]
    + [("random", 3, False), ("hub", 3, True), ("hub", 16, False), ("no-edges", 3, True)],
)
def test_the_first_of_the_best_wins(name, width, is_max, device):
    graph = GRAPHS[name]
    x = values_with_ties(np.random.default_rng(width), (NUM_SOURCES, width))
    value, winner = reference.spmm_extreme(graph, x, is_max=is_max)
    tensors = put(device, graph.indptr, graph.indices, x, np.full_like(value, 7))
    (source,) = put(device, np.full_like(winner, 7))
    maxima.spmm_extreme(*tensors, source=source, is_max=is_max)
    np.testing.assert_array_equal(tensors[3].cpu().numpy(), value)
    np.testing.assert_array_equal(source.cpu().numpy(), winner)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_gradient_goes_to_the_winner_once(name, accumulate, device):
    graph, rng = GRAPHS[name], np.random.default_rng(3)
    x, num_rows = rng.integers(0, 4, (NUM_SOURCES, 5)).astype(np.float64), graph.indptr.size - 1
    winner = reference.spmm_extreme(graph, x, is_max=True)[1]
    grad, start = rng.standard_normal((num_rows, 5)), rng.standard_normal((NUM_SOURCES, 5))
    expected = reference.spmm_extreme_backward(winner, grad, start if accumulate else start * 0)
    transposed = reference.transpose(graph, NUM_SOURCES)
    shifted = np.where(winner < 0, winner, winner + 4)
    arrays = transposed.indptr, transposed.indices, shifted.astype(np.int32), grad
    *tensors, out = put(device, *arrays, start)
    options = {"accumulate": accumulate, "first_source": 4}
    maxima.spmm_extreme_backward(*tensors, out=out, **options)
    np.testing.assert_allclose(out.cpu().numpy(), expected, atol=1e-12)


def test_merged_blocks_have_the_larger_values_and_the_smaller_ids(device):
    rng = np.random.default_rng(8)
    shape, ids = (40, 6), rng.permutation(30).astype(np.int64)
    value, other = values_with_ties(rng, shape), values_with_ties(rng, shape)
    source = rng.integers(0, 18, shape).astype(np.int32)
    other_source = rng.integers(0, 12, shape).astype(np.int32)
    value[:5], source[:5], other[3:9], other_source[3:9] = 0, -1, 0, -1
    given = [value, source, other, other_source]
    expected = merged_in_python(*given, ids, 18)
    tensors = put(device, *given)
    (source_id,) = put(device, ids)
    maxima.merge_max(*tensors, source_id=source_id, first_source=18)
    np.testing.assert_array_equal(tensors[0].cpu().numpy(), expected[0])
    np.testing.assert_array_equal(tensors[1].cpu().numpy(), expected[1])


def beats(new, new_id, old, old_id):
    """Whether a value replaces another; a NaN beats numbers, the smaller id among equals."""
    if np.isnan(new) or np.isnan(old):
        is_tie = np.isnan(new) and np.isnan(old)
        return new_id < old_id if is_tie else bool(np.isnan(new))
    return new > old or (new == old and new_id < old_id)


def merged_in_python(value, source, other, other_source, ids, first):
    value, source = value.copy(), source.copy()
    for at in np.ndindex(value.shape):
        new = other_source[at] + first
        if other_source[at] < 0:
            continue
        if source[at] < 0 or beats(other[at], ids[new], value[at], ids[source[at]]):
            value[at], source[at] = other[at], new
    return value, source


def test_received_maxima_win_by_value_then_by_id(device):
    rng = np.random.default_rng(9)
    ids, rows = rng.permutation(20).astype(np.int64), rng.integers(0, 6, 15).astype(np.int32)
    value, received = values_with_ties(rng, (7, 4)), values_with_ties(rng, (15, 4))
    source = rng.integers(-1, 20, (7, 4)).astype(np.int32)
    value[source < 0] = 0
    received_id = rng.permutation(np.arange(1000))[:60].reshape(15, 4) % 41
    tensors = put(device, value, source, rows, received, received_id)
    (source_id,) = put(device, ids)
    maxima.merge_received_max(*tensors, source_id=source_id)
    expected, winner = value.copy(), source.copy()
    for k, row in enumerate(rows):
        for j in range(4):
            old = winner[row, j]
            old_id = received_id[-2 - old, j] if old < -1 else ids[old] + 1
            new = received[k, j], received_id[k, j]
            if new[1] and (old == -1 or beats(*new, expected[row, j], old_id)):
                expected[row, j], winner[row, j] = received[k, j], -2 - k
    np.testing.assert_array_equal(tensors[0].cpu().numpy(), expected)
    np.testing.assert_array_equal(tensors[1].cpu().numpy(), winner)
