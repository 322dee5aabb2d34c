from __future__ import annotations

import numpy as np
import ordered_graphs
import pytest
import reference
import torch
from fronts import Fronts

from distgnn import kernels
from distgnn.kernels import edge_values

edge_values = Fronts(edge_values)

WIDTHS = [1, 3, 4, 7, 8, 16, 33, 100, 602]
NUM_HEADS = [1, 3, 4, 8, 19]
CASES = {
    "no rows": (0, 3, 0),
    "no edges": (5, 4, 0),
    "short rows": (90, 40, 200),
    "a row of several pieces": (2, 30, 1500),
}


def hub_graph():
    """Row 7 has half of all edges, and some rows have none."""
    rng = np.random.default_rng(3)
    rows = np.concatenate([np.full(35_000, 7), rng.integers(0, 900, 35_000)])
    return reference.csr_of(rng.integers(0, 1000, rows.size), rows, 1000)


def graph_of(graph):
    return torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices)


def ends_of(graph):
    """Source and destination of every edge."""
    rows = np.repeat(np.arange(graph.indptr.size - 1), np.diff(graph.indptr))
    return torch.from_numpy(graph.indices).long(), torch.from_numpy(rows)


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_a_dot_product_per_head_is_that_of_dense_rows(case, dtype):
    num_rows, num_sources, num_edges = CASES[case]
    graph = reference.random_csr(num_rows, num_sources, num_edges, seed=1)
    source, row = ends_of(graph)
    for num_heads in NUM_HEADS if num_edges < 1000 else [3, 4]:
        for width in WIDTHS if num_heads < 8 else [1, 7, 33]:
            x = random(num_sources, num_heads * width, dtype=dtype)
            y = random(num_rows, num_heads * width, dtype=dtype, seed=1)
            out = torch.full((num_edges, num_heads), torch.nan, dtype=dtype)
            edge_values.sddmm_dot(*graph_of(graph), x, y, out)
            product = x.double()[source] * y.double()[row]
            expected = product.view(num_edges, num_heads, width).sum(2)
            tolerance = 1e-6 * width**0.5 if dtype == torch.float32 else 1e-14 * width**0.5
            torch.testing.assert_close(out.double(), expected, rtol=0, atol=4 * tolerance)


def leaky_case(case, num_heads, width, dtype):
    """A graph, its rows at both ends, a factor and gradients of scores; and all sums of ends."""
    num_rows, num_sources, num_edges = CASES[case]
    graph = reference.random_csr(num_rows, num_sources, num_edges, seed=1)
    x, y, factor, grad = (
        random(*shape, dtype=dtype, seed=seed)
        for seed, shape in enumerate(
            [
                (num_sources, num_heads * width),
                (num_rows, num_heads * width),
                (num_heads * width,),
                (num_edges, num_heads),
            ]
        )
    )
    source, row = ends_of(graph)
    return graph, x, y, factor, grad, x.double()[source] + y.double()[row]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_leaky_scores_and_their_gradients_are_those_of_dense_rows(case, dtype):
    num_edges = CASES[case][-1]
    for num_heads in NUM_HEADS if num_edges < 1000 else [3, 4]:
        for width in WIDTHS if num_heads < 8 else [1, 7, 8, 33]:
            graph, x, y, factor, grad, total = leaky_case(case, num_heads, width, dtype)
            given = *graph_of(graph), x, y
            scores = torch.full((num_edges, num_heads), torch.nan, dtype=dtype)
            edge_values.sddmm_leaky(*given, factor, scores, slope=0.2)
            terms = torch.nn.functional.leaky_relu(total, 0.2) * factor
            expected = terms.view(num_edges, num_heads, width).sum(2)
            tolerance = {"rtol": 0, "atol": (1e-5 if dtype == torch.float32 else 1e-13) * width}
            torch.testing.assert_close(scores.double(), expected, **tolerance)

            wide = grad.double().repeat_interleave(width, 1) * torch.where(total > 0, 1, 0.2)
            of_rows = torch.full_like(y, torch.nan)
            edge_values.sddmm_leaky_backward(*graph_of(graph), None, grad, x, y, of_rows, slope=0.2)
            source, row = ends_of(graph)
            expected = torch.zeros(y.shape, dtype=torch.float64).index_add_(0, row, wide)
            torch.testing.assert_close(of_rows.double(), expected, rtol=1e-4, atol=1e-4)

            by_source = source.argsort(stable=True)
            indptr = torch.searchsorted(source[by_source], torch.arange(len(x) + 1))
            of_sources = torch.full_like(x, torch.nan)
            transposed = indptr, row[by_source].int(), by_source
            edge_values.sddmm_leaky_backward(*transposed, grad, y, x, of_sources, slope=0.2)
            expected = torch.zeros(x.shape, dtype=torch.float64).index_add_(0, source, wide)
            torch.testing.assert_close(of_sources.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_a_sum_of_both_ends_is_exact(case, dtype):
    num_rows, num_sources, num_edges = CASES[case]
    graph = reference.random_csr(num_rows, num_sources, num_edges, seed=2)
    source, row = ends_of(graph)
    for num_heads in NUM_HEADS:
        x = random(num_sources, num_heads, dtype=dtype)
        y = random(num_rows, num_heads, dtype=dtype, seed=1)
        out = torch.full((num_edges, num_heads), torch.nan, dtype=dtype)
        edge_values.sddmm_add(*graph_of(graph), x, y, out)
        assert torch.equal(out, x[source] + y[row])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("accumulate", [False, True])
def test_a_sum_with_a_weight_per_head_has_the_bits_of_one_sum_per_head(case, dtype, accumulate):
    num_rows, num_sources, num_edges = CASES[case]
    graph = reference.random_csr(num_rows, num_sources, num_edges, seed=3)
    rng = np.random.default_rng(4)
    for num_heads in NUM_HEADS if num_edges < 1000 else [3, 4]:
        for width in WIDTHS if num_heads < 8 else [1, 16]:
            x = rng.standard_normal((num_sources, num_heads, width)).astype(dtype)
            weight = rng.standard_normal((num_edges, num_heads)).astype(dtype)
            start = rng.standard_normal((num_rows, num_heads, width)).astype(dtype)
            out = start.copy() if accumulate else np.full_like(start, np.nan)
            edge_values.spmm_heads(
                *graph_of(graph),
                torch.from_numpy(weight),
                torch.from_numpy(x).flatten(1),
                torch.from_numpy(out).view(num_rows, num_heads * width),
                accumulate=accumulate,
            )
            first = start if accumulate else np.zeros_like(start)
            for h in range(num_heads):
                expected = reference.spmm_sum(graph, weight[:, h], x[:, h], first[:, h])
                np.testing.assert_array_equal(out[:, h], expected)


@pytest.mark.parametrize(("num_heads", "width"), [(1, 3), (8, 4), (4, 16), (3, 33), (19, 2)])
def test_walk_orders_and_threads_change_no_bit_of_a_hub(num_heads, width):
    graph = hub_graph()
    walk = kernels.WalkOrder(*graph_of(graph), num_sources=1000)
    assert walk.describe()["num_long"] == 1
    x, y = random(1000, num_heads * width), random(1000, num_heads * width, seed=1)
    found = []
    before = torch.get_num_threads()
    for num_threads, chosen in ((1, None), (1, walk), (3, walk)):
        torch.set_num_threads(num_threads)
        weight, total = torch.empty(graph.indices.size, num_heads), torch.empty_like(x)
        added = torch.empty_like(weight)
        edge_values.sddmm_dot(*graph_of(graph), x, y, weight, order=chosen)
        edge_values.spmm_heads(*graph_of(graph), weight, x, total, accumulate=False, order=chosen)
        ends = x[:, :num_heads].contiguous(), y[:, :num_heads].contiguous()
        edge_values.sddmm_add(*graph_of(graph), *ends, added, order=chosen)
        leaky, sums = torch.empty_like(weight), torch.empty_like(x)
        given = *graph_of(graph), x, y
        edge_values.sddmm_leaky(*given, x[0], leaky, slope=0.2, order=chosen)
        ends = *given[:2], None, leaky, x, y
        edge_values.sddmm_leaky_backward(*ends, sums, slope=0.2, order=chosen)
        found.append((weight, total, added, leaky, sums))
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


def test_heads_without_columns_have_dot_products_of_zero():
    graph = reference.random_csr(4, 4, 8, seed=5)
    out = torch.full((8, 2), torch.nan)
    ends = *graph_of(graph), torch.empty(4, 0), torch.empty(4, 0)
    edge_values.sddmm_dot(*ends, out)
    assert not out.any()
    out.fill_(torch.nan)
    edge_values.sddmm_leaky(*ends, torch.empty(0), out, slope=0.2)
    assert not out.any()


def leaky(indptr, indices, x, y, out):
    edge_values.sddmm_leaky(indptr, indices, x, y, torch.ones(2), out, slope=0.2)


@pytest.mark.parametrize("function", [edge_values.sddmm_dot, edge_values.sddmm_add, leaky])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(0, 2)}, "the edges read from no rows"),
        ({"y": torch.zeros(3, 2)}, "y has the wrong number of rows, got 3, expected 2"),
        ({"y": torch.zeros(2, 3)}, "y has the wrong width, got 3, expected 2"),
        ({"out": torch.zeros(3, 2)}, "out has the wrong number of rows, got 3, expected 4"),
    ],
)
def test_values_of_edges_from_arrays_that_do_not_fit_are_refused(function, changes, message):
    given = {
        "indptr": torch.tensor([0, 4, 4]),
        "indices": torch.zeros(4, dtype=torch.int32),
        "x": torch.zeros(3, 2),
        "y": torch.zeros(2, 2),
        "out": torch.zeros(4, 2),
    }
    with pytest.raises(ValueError, match=message):
        function(**(given | changes))


def test_a_factor_of_another_width_is_refused():
    graph, x = (torch.tensor([0, 1]), torch.zeros(1, dtype=torch.int32)), torch.zeros(1, 4)
    with pytest.raises(ValueError, match="factor has the wrong size, got 3, expected 4"):
        edge_values.sddmm_leaky(*graph, x, x, torch.zeros(3), torch.zeros(1, 2), slope=0.2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(0, 4)}, "the edges read from no rows"),
        ({"y": torch.zeros(3, 4)}, "y has the wrong number of rows, got 3, expected 2"),
        ({"value": torch.zeros(3, 2)}, "value has the wrong number of rows, got 3, expected 4"),
        (
            {"position": torch.zeros(3, dtype=torch.int64)},
            "edge has the wrong size, got 3, expected 4",
        ),
        ({"out": torch.zeros(2, 3)}, "out has the wrong width, got 3, expected 4"),
    ],
)
def test_gradients_of_leaky_scores_from_arrays_that_do_not_fit_are_refused(changes, message):
    given = {
        "indptr": torch.tensor([0, 4, 4]),
        "indices": torch.zeros(4, dtype=torch.int32),
        "position": None,
        "value": torch.zeros(4, 2),
        "x": torch.zeros(3, 4),
        "y": torch.zeros(2, 4),
        "out": torch.zeros(2, 4),
    }
    with pytest.raises(ValueError, match=message):
        edge_values.sddmm_leaky_backward(**(given | changes), slope=0.2)


def test_heads_that_do_not_divide_the_columns_are_refused():
    graph = torch.tensor([0, 1]), torch.zeros(1, dtype=torch.int32)
    x = torch.zeros(1, 5)
    with pytest.raises(ValueError, match="no multiple of the heads: remainder, got 1, expected 0"):
        edge_values.sddmm_dot(*graph, x, x, torch.zeros(1, 2))
    with pytest.raises(ValueError, match="there are no heads, expected at least 1"):
        edge_values.sddmm_dot(*graph, x, x, torch.zeros(1, 0))
    with pytest.raises(ValueError, match="out has the wrong width, got 4, expected 5"):
        edge_values.sddmm_add(*graph, x, x, torch.zeros(1, 4))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(0, 4)}, "the edges read from no rows"),
        ({"weight": torch.zeros(3, 2)}, "weight has the wrong number of rows, got 3, expected 4"),
        ({"weight": torch.zeros(4, 3)}, "no multiple of the heads: remainder, got 1, expected 0"),
        ({"out": torch.zeros(3, 4)}, "out has the wrong number of rows, got 3, expected 2"),
        ({"out": torch.zeros(2, 3)}, "out has the wrong width, got 3, expected 4"),
    ],
)
def test_a_weighted_sum_over_arrays_that_do_not_fit_is_refused(changes, message):
    given = {
        "indptr": torch.tensor([0, 4, 4]),
        "indices": torch.zeros(4, dtype=torch.int32),
        "weight": torch.zeros(4, 2),
        "x": torch.zeros(3, 4),
        "out": torch.zeros(2, 4),
    }
    with pytest.raises(ValueError, match=message):
        edge_values.spmm_heads(**(given | changes), accumulate=False)


@pytest.mark.parametrize(("num_heads", "width"), [(4, 4), (4, 7), (2, 33), (19, 2)])
@pytest.mark.parametrize("case", ["clustered", "cut", "hub"])
def test_no_walk_order_changes_a_bit_of_values_of_edges(case, num_heads, width):
    graph = ordered_graphs.GRAPHS[case]()
    num_rows, num_edges = graph.indptr.size - 1, graph.indices.size
    x, y = (random(num_rows, num_heads * width, seed=seed) for seed in (0, 1))
    position = torch.randperm(num_edges, generator=torch.Generator().manual_seed(2))
    found = []
    for walk in (None, ordered_graphs.walk_order_of(graph)):
        ends = *graph_of(graph), x, y
        dots, scores = torch.empty(2, num_edges, num_heads)
        edge_values.sddmm_dot(*ends, dots, order=walk)
        edge_values.sddmm_leaky(*ends, x[3], scores, slope=0.2, order=walk)
        sums = torch.full_like(x, torch.nan)
        given = *ends[:2], position, scores, x, y
        edge_values.sddmm_leaky_backward(*given, sums, slope=0.2, order=walk)
        found.append((dots, scores, sums))
    assert all(map(torch.equal, *found))
