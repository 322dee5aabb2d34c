from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from fronts import Fronts
from on_device import INTERPRETED, hub_graph, put

from distgnn import kernels
from distgnn.kernels import attention, edge_values

kernels = Fronts(kernels)
edge_values = Fronts(edge_values)

WIDTHS = [1, 3, 16, 33, 100]
NUM_SOURCES = 15
GRAPHS = {
    "random": reference.random_csr(20, NUM_SOURCES, 60, seed=1),
    "hub": hub_graph(20, NUM_SOURCES, 40 if INTERPRETED else 600, seed=2),
    "no-edges": reference.random_csr(4, NUM_SOURCES, 0, seed=3),
    "no-rows": reference.random_csr(0, NUM_SOURCES, 0, seed=4),
}


def sum_of(device, graph, x, *, weight=None, start=None, out_dtype=None, **factors):
    """Return the result of the front for numpy arrays; rows are tensors, for bfloat16."""
    num_rows, accumulate = graph.indptr.size - 1, start is not None
    out = torch.full((num_rows, x.shape[1]), torch.nan, device=device, dtype=out_dtype or x.dtype)
    if start is not None:
        out.copy_(torch.from_numpy(start))
    indptr, indices, weight = put(device, graph.indptr, graph.indices, weight)
    named = {name: put(device, value)[0] for name, value in factors.items()}
    kernels.spmm_sum(indptr, indices, weight, x.to(device), out, accumulate=accumulate, **named)
    return out.cpu()


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_sum_is_the_one_of_the_reference(name, width, is_weighted, device):
    graph, rng = GRAPHS[name], np.random.default_rng(width)
    x = rng.standard_normal((NUM_SOURCES, width)).astype(np.float32)
    weight = rng.standard_normal(graph.indices.size).astype(np.float32) if is_weighted else None
    # The long row is added in two passes: compared with what no order of additions changes.
    start = np.zeros((graph.indptr.size - 1, width))
    expected = reference.spmm_sum(graph, weight, x.astype(np.float64), start)
    got = sum_of(device, graph, torch.from_numpy(x), weight=weight)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_a_sum_starts_where_it_is_told_and_takes_factors(device):
    graph, rng = GRAPHS["hub"], np.random.default_rng(0)
    x, start = rng.standard_normal((NUM_SOURCES, 3)), rng.standard_normal((20, 3))
    row_factor, source_factor = rng.standard_normal(20), rng.standard_normal(NUM_SOURCES)
    expected = reference.spmm_sum(graph, source_factor[graph.indices], x, start)
    factors = {"row_factor": row_factor, "source_factor": source_factor}
    got = sum_of(device, graph, torch.from_numpy(x), start=start, **factors)
    np.testing.assert_allclose(got.numpy(), expected * row_factor[:, None], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["random", "hub"])
def test_rows_of_bfloat16_are_summed_in_float32_and_rounded_once(name, out_dtype, device):
    graph, rng = GRAPHS[name], np.random.default_rng(7)
    x = torch.from_numpy(rng.standard_normal((NUM_SOURCES, 33)).astype(np.float32)).bfloat16()
    if name == "random":
        # Sums that are exact in float32 whatever their order, but not in bfloat16.
        x = (x * 64).round() / 64
    start = np.zeros((20, 33), np.float32)
    expected = torch.from_numpy(reference.spmm_sum(graph, None, x.float().numpy(), start))
    got = sum_of(device, graph, x, out_dtype=out_dtype)
    if name == "random":
        assert torch.equal(got, expected.to(out_dtype))
    elif out_dtype == torch.float32:
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    else:
        torch.testing.assert_close(got, expected.to(out_dtype))


def test_two_sums_have_the_same_bits(device):
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((NUM_SOURCES, 16)))
    first, second = (sum_of(device, GRAPHS["hub"], x.float()) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize(("num_heads", "width"), [(1, 1), (3, 1), (2, 8), (4, 33)])
@pytest.mark.parametrize("name", ["random", "hub", "no-edges"])
def test_each_head_is_summed_with_its_own_weight(name, num_heads, width, device):
    graph, rng = GRAPHS[name], np.random.default_rng(width)
    x = rng.standard_normal((NUM_SOURCES, num_heads, width))
    weight = rng.standard_normal((graph.indices.size, num_heads))
    start = np.zeros((graph.indptr.size - 1, width))
    expected = [
        reference.spmm_sum(graph, weight[:, head], x[:, head], start) for head in range(num_heads)
    ]
    tensors = put(device, graph.indptr, graph.indices, weight, x.reshape(NUM_SOURCES, -1))
    out = torch.full((start.shape[0], num_heads * width), torch.nan, dtype=torch.float64)
    out = out.to(device)
    edge_values.spmm_heads(*tensors, out, accumulate=False)
    np.testing.assert_allclose(out.cpu().numpy(), np.concatenate(expected, 1), atol=1e-10)


@pytest.mark.parametrize("accumulate", [False, True])
def test_values_of_edges_are_summed_by_row(accumulate, device):
    graph, rng = GRAPHS["hub"], np.random.default_rng(5)
    value, start = rng.standard_normal((graph.indices.size, 3)), rng.standard_normal((20, 3))
    every = graph._replace(indices=np.arange(graph.indices.size, dtype=np.int32))
    expected = reference.spmm_sum(every, None, value, start if accumulate else start * 0)
    indptr, values, out = put(device, graph.indptr, value, start)
    attention.edge_sum(indptr, values, out, accumulate=accumulate)
    np.testing.assert_allclose(out.cpu().numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_of_a_buffer_are_added_where_they_belong(dtype, device):
    rng = np.random.default_rng(6)
    rows = rng.integers(0, 9, 40).astype(np.int32)
    x = torch.from_numpy(rng.standard_normal((40, 33)).astype(np.float32)).to(dtype)
    start = rng.standard_normal((9, 33)).astype(np.float32)
    expected = reference.scatter_add_rows(x.float().numpy(), rows, start)
    numbers, out = put(device, rows, start)
    kernels.scatter_add_rows(x.to(device), numbers, out)
    np.testing.assert_allclose(out.cpu().numpy(), expected, atol=1e-5)


def test_a_sparse_row_adds_nothing_to_others(device):
    numbers, out = put(device, np.zeros(0, np.int32), np.ones((3, 2), np.float32))
    kernels.scatter_add_rows(torch.zeros(0, 2, device=device), numbers, out)
    assert torch.equal(out.cpu(), torch.ones(3, 2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"out": (3, 2)}, r"out must have shape \(20, 2\), got \(3, 2\)"),
        ({"weight": 5}, r"weight must have shape \(60,\), got \(5,\)"),
        ({"row_factor": 5}, r"row_factor must have shape \(20,\), got \(5,\)"),
        ({"source_factor": 5}, r"source_factor must have shape \(15,\), got \(5,\)"),
        ({"weight": 60, "source_factor": 15}, "source_factor must be None where there is a weight"),
    ],
)
def test_what_would_be_read_past_is_refused(change, message, device):
    indptr, indices = put(device, GRAPHS["random"].indptr, GRAPHS["random"].indices)
    made = {name: torch.zeros(shape, device=device) for name, shape in change.items()}
    out = made.pop("out", torch.zeros(20, 2, device=device))
    weight, x = made.pop("weight", None), torch.zeros(15, 2, device=device)
    with pytest.raises(ValueError, match=message):
        kernels.spmm_sum(indptr, indices, weight, x, out, accumulate=False, **made)


def test_heads_of_unequal_width_are_refused(device):
    indptr, indices = put(device, GRAPHS["random"].indptr, GRAPHS["random"].indices)
    weight, x, out = (torch.zeros(n, w, device=device) for n, w in ((60, 2), (15, 3), (20, 3)))
    with pytest.raises(ValueError, match="x must have 2 heads of equal width, got 3 columns"):
        edge_values.spmm_heads(indptr, indices, weight, x, out, accumulate=False)
