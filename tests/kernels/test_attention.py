from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from fronts import Fronts

from distgnn.kernels import attention

attention = Fronts(attention)

SLOPE = 0.2
CASES = {
    "no rows": (0, 3, 0),
    "no edges": (5, 4, 0),
    "short rows": (40, 20, 80),
    "long rows": (3, 30, 300),
}
# (heads, columns of a head)
SHAPES = [(1, 1), (3, 1), (8, 3), (4, 4), (4, 7), (2, 8), (20, 8), (1, 16), (4, 16), (3, 33)]
SHAPES += [(4, 100), (1, 602)]


def values_of(num_sources, num_rows, num_heads, width, dtype, *, seed=0):
    rng = np.random.default_rng(seed)
    shapes = [(num_sources, num_heads), (num_rows, num_heads), (num_sources, num_heads * width)]
    return [3 * rng.standard_normal(shape).astype(dtype) for shape in shapes]


def tensors(*arrays):
    return [torch.from_numpy(array) for array in arrays]


def attend(graph, s, t, x, *, start=None, order=None, **edges):
    """Run the kernel into arrays of rubbish, or from a state."""
    num_rows, num_heads = t.shape
    state = reference.Attention(
        np.full((num_rows, x.shape[1]), np.nan, x.dtype),
        np.full((num_rows, num_heads), np.nan, x.dtype),
        np.full((num_rows, num_heads), np.nan, x.dtype),
    )
    if start is not None:
        state = reference.Attention(*(part.copy() for part in start))
    names = ("out", "maximum", "denominator")
    attention.attend(
        *tensors(graph.indptr, graph.indices, s, t, x),
        **dict(zip(names, tensors(*state), strict=True)),
        slope=SLOPE,
        accumulate=start is not None,
        order=order,
        **edges,
    )
    return state


def assert_close(found, expected, tolerance):
    for part, other in zip(found, expected, strict=True):
        scale = max(float(np.abs(other).max(initial=0)), 1.0)
        np.testing.assert_allclose(part, other, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-6), (np.float64, 1e-14)])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("has_start", [False, True])
def test_attention_has_the_state_of_the_reference(case, has_start, dtype, tolerance):
    num_rows, num_sources, num_edges = CASES[case]
    graph = reference.random_csr(num_rows, num_sources, num_edges, seed=1)
    for num_heads, width in SHAPES:
        s, t, x = values_of(num_sources, num_rows, num_heads, width, dtype)
        start = reference.no_attention(num_rows, num_heads, width, dtype)
        if has_start:
            rng = np.random.default_rng(2)
            start.out[:] = rng.standard_normal(start.out.shape)
            start.maximum[:] = 3 * rng.standard_normal(t.shape)
            start.denominator[:] = rng.integers(0, 3, t.shape)
        expected = reference.attend(
            graph, s.astype(float), t.astype(float), x.astype(float), start, SLOPE
        )
        found = attend(graph, s, t, x, start=start if has_start else None)
        assert_close(found, expected, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 3e-6), (np.float64, 1e-14)])
@pytest.mark.parametrize("sizes", [*CASES.values(), (2, 30, 9000)])
def test_edges_may_add_scores_of_their_own_and_drop_weights(sizes, dtype, tolerance):
    num_rows, num_sources, num_edges = sizes
    graph = reference.random_csr(*sizes, seed=1)
    # A row of more edges than are weighed at a time, once.
    for num_heads, width in SHAPES if num_edges < 9000 else [(2, 3)]:
        s, t, x = values_of(num_sources, num_rows, num_heads, width, dtype)
        edges = reference.EdgeValues.random(num_edges, num_heads, dtype)
        start = reference.no_attention(num_rows, num_heads, width, dtype)
        wide = (s.astype(float), t.astype(float), x.astype(float))
        expected = reference.attend(graph, *wide, start, SLOPE, edges)
        score, key = tensors(edges.score, edges.key)
        mask = attention.EdgeMask(key, *edges[2:])
        for given in (None, start):
            found = attend(graph, s, t, x, start=given, edge_score=score, mask=mask)
            assert_close(found, expected, tolerance)


def test_a_state_of_nothing_is_ignored_whatever_it_holds():
    graph = reference.random_csr(6, 5, 12, seed=3)
    s, t, x = values_of(5, 6, 2, 17, np.float32)
    empty = reference.no_attention(6, 2, 17, np.float32)
    empty.out[:], empty.maximum[:] = np.nan, np.inf
    found, expected = attend(graph, s, t, x, start=empty), attend(graph, s, t, x)
    for part, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(part, other)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2.5e-7), (np.float64, 4.5e-16)])
def test_weights_are_exponentials_to_two_units_in_the_last_place(dtype, tolerance):
    """Every row has an edge with weight 1 to a row of zeros and one with e^score to a one."""
    smallest = -87.3 if dtype == np.float32 else -708.2
    score = np.concatenate([[0], np.linspace(smallest, 0, 100_001)])[:, None].astype(dtype)
    num_rows = score.size - 1
    sources = np.stack([np.zeros(num_rows, np.int64), np.arange(1, num_rows + 1)])
    graph = reference.csr_of(sources.ravel(), np.tile(np.arange(num_rows), 2), num_rows)
    x = np.ones_like(score)
    x[0] = 0
    state = reference.no_attention(num_rows, 1, 1, dtype)
    attention.attend(
        *tensors(graph.indptr, graph.indices, score, np.zeros((num_rows, 1), dtype), x),
        **dict(zip(state._fields, tensors(*state), strict=True)),
        slope=1.0,
        accumulate=False,
    )
    expected = np.exp(score[1:].astype(np.longdouble))
    assert float(np.abs(state.out / expected - 1).max()) < tolerance


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_without_a_finite_softmax_show_in_their_row_and_head(dtype):
    graph = reference.csr_of(np.array([0, 1, 0, 2, 2, 0]), np.array([0, 0, 1, 1, 2, 3]), 4)
    s, t, x = values_of(3, 4, 2, 3, dtype)
    s[1, 0], s[2, 1] = np.nan, -np.inf
    state = attend(graph, s, t, x)
    out = state.out.reshape(4, 2, 3)
    assert np.isnan(out[0, 0]).all()
    # One of two edges has no weight, then the only one.
    np.testing.assert_array_equal(out[1, 1], x.reshape(3, 2, 3)[0, 1])
    assert np.isnan(out[2, 1]).all()
    assert np.isfinite(out[[0, 1, 2], [1, 0, 0]]).all()
    assert np.isfinite(out[3]).all()


def test_a_weight_too_small_to_be_normal_is_zero():
    graph = reference.csr_of(np.array([0, 1]), np.array([0, 0]), 1)
    s, t = np.array([[0.0], [-500.0]], np.float32), np.zeros((1, 1), np.float32)
    state = attend(graph, s, t, np.array([[0.0], [1e30]], np.float32))
    assert state.out.item() == 0
    assert state.denominator.item() == 1


def sent(state):
    """A copy of a state as its message, (num_rows, num_heads * (width + 1))."""
    copies = (part.copy() for part in state)
    return torch.cat(attention.sendable(*tensors(*copies)), dim=1).numpy()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_merging_parts_gives_the_state_of_the_whole(dtype, num_threads):
    num_rows, num_sources, num_heads, width = 300, 40, 3, 5
    graph = reference.random_csr(num_rows, num_sources, 1200, seed=4)
    values = values_of(num_sources, num_rows, num_heads, width, dtype)
    rows = np.repeat(np.arange(num_rows), np.diff(graph.indptr))
    part = np.random.default_rng(5).integers(0, 3, rows.size)
    states = []
    for number in range(3):
        chosen = part == number
        states.append(
            attend(reference.csr_of(graph.indices[chosen], rows[chosen], num_rows), *values)
        )
    merged = states[0]
    received = np.concatenate([sent(state) for state in states[1:]])
    attention.merge_attention(
        *tensors(received, np.tile(np.arange(num_rows, dtype=np.int32), 2)),
        **dict(zip(merged._fields, tensors(*merged), strict=True)),
    )
    whole = attend(graph, *values)
    for state in (merged, whole):
        attention.finish_attention(*tensors(*state))
    assert_close(merged[:2], whole[:2], 1e-14 if dtype == np.float64 else 2e-6)


def test_merging_nothing_changes_nothing_and_the_first_state_is_taken_as_it_is():
    rng = np.random.default_rng(6)
    received = rng.standard_normal((2, 2 * (3 + 1))).astype(np.float32)
    received[0, -2:], received[1, -2:] = 0, [2, 3]
    received[0, :6] = np.nan
    state = reference.no_attention(1, 2, 3, np.float32)
    named = dict(zip(state._fields, tensors(*state), strict=True))
    rows = np.zeros(1, np.int32)
    attention.merge_attention(*tensors(received[:1].copy(), rows), **named)
    assert not any(part.any() for part in state)
    attention.merge_attention(*tensors(received[1:].copy(), rows), **named)
    np.testing.assert_array_equal(np.concatenate(state[:2], axis=1), received[1:])
    assert (state.denominator == 1).all()


def test_a_state_that_is_sent_has_a_logarithm_of_zero_only_where_it_saw_nothing():
    out, maximum = np.array([[6.0], [8.0], [5.0]]), np.array([[1.0], [0.0], [0.0]])
    denominator = np.array([[2.0], [1.0], [0.0]])
    means, log_sum = attention.sendable(*tensors(out, maximum, denominator))
    assert means[:, 0].tolist() == [3, 8, 0]
    assert log_sum[0].item() == pytest.approx(1 + np.log(2))
    assert 0 < log_sum[1].item() < 1e-300
    assert log_sum[2].item() == 0


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 3e-7), (np.float64, 6e-16)])
def test_finishing_divides_and_leaves_the_logarithm_of_the_sum(dtype, tolerance):
    rng = np.random.default_rng(7)
    denominator = np.concatenate([[0, 1], np.exp(rng.uniform(-30, 30, 2000))]).astype(dtype)
    maximum = np.zeros_like(denominator)
    out = rng.standard_normal((denominator.size, 3)).astype(dtype)
    expected = out[1:] / denominator[1:, None]
    attention.finish_attention(*tensors(out, maximum[:, None], denominator[:, None]))
    np.testing.assert_array_equal(out[1:], expected)
    assert not out[0].any()
    assert not maximum[:2].any()
    logarithm = np.log(denominator[1:].astype(np.longdouble))
    np.testing.assert_allclose(maximum[1:], logarithm.astype(dtype), rtol=tolerance)


@pytest.mark.parametrize("accumulate", [False, True])
def test_an_edge_sum_is_the_sum_of_the_reference(accumulate, num_threads):
    graph = reference.random_csr(200, 1, 900, seed=8)
    rng = np.random.default_rng(9)
    for num_heads in (1, 3, 4):
        value = rng.standard_normal((900, num_heads)).astype(np.float32)
        out = rng.standard_normal((200, num_heads)).astype(np.float32)
        expected = out.copy() if accumulate else np.zeros_like(out)
        for row in range(200):
            for k in range(graph.indptr[row], graph.indptr[row + 1]):
                expected[row] += value[k]
        attention.edge_sum(*tensors(graph.indptr, value, out), accumulate=accumulate)
        np.testing.assert_array_equal(out, expected)
