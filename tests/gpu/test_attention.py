from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from fronts import Fronts
from on_device import INTERPRETED, hub_graph, put

from distgnn.kernels import attention
from distgnn.kernels.dense import Finish

attention = Fronts(attention)

NUM_SOURCES, SLOPE = 15, 0.2
GRAPHS = {
    "random": reference.random_csr(20, NUM_SOURCES, 60, seed=1),
    "hub": hub_graph(20, NUM_SOURCES, 40 if INTERPRETED else 600, seed=2),
    "no-edges": reference.random_csr(4, NUM_SOURCES, 0, seed=3),
}
SHAPES = [(1, 1), (1, 100), (3, 3), (4, 16), (2, 33)]


def values(graph, num_heads, width, dtype=np.float64):
    rng = np.random.default_rng(num_heads * width)
    shapes = [(NUM_SOURCES, num_heads), (graph.indptr.size - 1, num_heads)]
    shapes.append((NUM_SOURCES, num_heads * width))
    return [(3 * rng.standard_normal(shape)).astype(dtype) for shape in shapes]


def own_of(device, edges):
    """Return the values of edges as `attend` takes them."""
    if edges is None:
        return {}
    score, key = put(device, edges.score, edges.key)
    return {"edge_score": score, "mask": attention.EdgeMask(key, *edges[2:])}


def state_of(device, graph, s, t, x, *, start=None, edges=None):
    num_rows, num_heads = t.shape
    empty = reference.no_attention(num_rows, num_heads, x.shape[1] // num_heads, x.dtype)
    state = put(device, *(part + 7 for part in empty) if start is None else start)
    tensors = put(device, graph.indptr, graph.indices, s, t, x)
    named = dict(zip(("out", "maximum", "denominator"), state, strict=True))
    named |= own_of(device, edges)
    attention.attend(*tensors, **named, slope=SLOPE, accumulate=start is not None)
    return state


def check(state, expected, **tolerance):
    for part, wanted in zip(state, expected, strict=True):
        np.testing.assert_allclose(part.cpu().numpy(), wanted, **tolerance)


@pytest.mark.parametrize(
    ("num_heads", "width", "name"),
    [*((*shape, "random") for shape in SHAPES), (2, 3, "hub"), (2, 3, "no-edges")],
)
def test_a_state_is_the_one_of_the_reference(num_heads, width, name, device):
    graph = GRAPHS[name]
    s, t, x = values(graph, num_heads, width)
    empty = reference.no_attention(t.shape[0], num_heads, width, x.dtype)
    expected = reference.attend(graph, s, t, x, empty, SLOPE)
    check(state_of(device, graph, s, t, x), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("num_heads", "width", "name"),
    [(1, 100, "random"), (3, 3, "random"), (2, 3, "hub"), (2, 3, "no-edges")],
)
def test_edges_may_add_scores_of_their_own_and_drop_weights(num_heads, width, name, device):
    graph = GRAPHS[name]
    s, t, x = values(graph, num_heads, width)
    edges = reference.EdgeValues.random(graph.indices.size, num_heads, np.float64)
    start = reference.no_attention(t.shape[0], num_heads, width, x.dtype)
    expected = reference.attend(graph, s, t, x, start, SLOPE, edges)
    for given in (None, start):
        found = state_of(device, graph, s, t, x, start=given, edges=edges)
        check(found, expected, rtol=1e-10, atol=1e-10)


def test_states_of_float32_agree_to_rounding(device):
    graph = GRAPHS["hub"]
    s, t, x = values(graph, 2, 16, np.float32)
    wide = [part.astype(np.float64) for part in (s, t, x)]
    empty = reference.no_attention(20, 2, 16, np.float64)
    expected = reference.attend(graph, *wide, empty, SLOPE)
    check(state_of(device, graph, s, t, x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["hub", "no-edges"])
def test_a_state_goes_on_from_another(name, device):
    graph = GRAPHS[name]
    s, t, x = values(graph, 2, 3)
    rng = np.random.default_rng(1)
    start = reference.Attention(
        *(rng.standard_normal(shape) for shape in ((t.shape[0], 6), t.shape)), np.abs(t)
    )
    start.denominator[::3] = 0
    expected = reference.attend(graph, s, t, x, start, SLOPE)
    check(state_of(device, graph, s, t, x, start=start), expected, rtol=1e-10, atol=1e-10)


def test_states_of_others_are_merged_in_the_order_received(device):
    rng, (heads, width) = np.random.default_rng(2), (2, 3)
    received = rng.standard_normal((12, heads * (width + 1)))
    received[::4, -heads:] = 0
    rows = rng.integers(0, 5, 12).astype(np.int32)
    state = reference.no_attention(6, heads, width, np.float64)
    state.out[0], state.maximum[0], state.denominator[0] = 1, 0.5, 2
    tensors = put(device, received, rows, *state)
    attention.merge_attention(
        *tensors[:2], out=tensors[2], maximum=tensors[3], denominator=tensors[4]
    )
    for part, row in zip(received, rows, strict=True):
        means, log_sum = np.split(part, [heads * width])
        reference.add_to_attention(state, row, log_sum, log_sum != 0, means)
    check(tensors[2:], state, rtol=1e-10, atol=1e-10)


def test_what_saw_nothing_is_finished_as_zeros(device):
    out, maximum = np.arange(12.0).reshape(3, 4), np.arange(6.0).reshape(3, 2)
    denominator = np.array([[0, 2], [1, 4], [0, 0]], float)
    tensors = put(device, out, maximum, denominator)
    attention.finish_attention(*tensors)
    np.testing.assert_allclose(
        tensors[0].cpu().numpy(), [[0, 0, 1, 1.5], [4, 5, 1.5, 1.75], [0, 0, 0, 0]]
    )
    log_sum = [[0, 1 + np.log(2)], [2, 3 + np.log(4)], [0, 0]]
    np.testing.assert_allclose(tensors[1].cpu().numpy(), log_sum)


def by_autograd(graph, s, t, x, grad, edges):
    """The finished result, and the gradients of s, t, x and raw, on whole matrices of edges."""
    num_rows, num_heads = t.shape
    own = np.zeros((graph.indices.size, num_heads)) if edges is None else edges.score
    factor = np.ones_like(own) if edges is None else edges.factor
    leaves = [torch.from_numpy(value).requires_grad_() for value in (s, t, x, own)]
    rows = torch.arange(num_rows).repeat_interleave(torch.from_numpy(np.diff(graph.indptr)))
    sources = torch.from_numpy(graph.indices).long()
    raw = leaves[0][sources] + leaves[1][rows] + leaves[3]
    e = torch.nn.functional.leaky_relu(raw, SLOPE).exp()
    alpha = e / torch.zeros_like(leaves[1]).index_add(0, rows, e)[rows] * torch.from_numpy(factor)
    messages = alpha[:, :, None] * leaves[2].view(NUM_SOURCES, num_heads, -1)[sources]
    out = torch.zeros(num_rows, *messages.shape[1:], dtype=e.dtype).index_add(0, rows, messages)
    out = out.flatten(1)
    return [out.detach(), *torch.autograd.grad(out, leaves, torch.from_numpy(grad))]


@pytest.mark.parametrize("has_own", [False, True])
@pytest.mark.parametrize(
    ("num_heads", "width", "name", "accumulate"),
    [(1, 100, "random", False), (3, 3, "hub", True), (4, 16, "random", True), (1, 1, "hub", False)],
)
def test_gradients_are_those_of_autograd(num_heads, width, name, accumulate, has_own, device):
    graph = GRAPHS[name]
    num_edges = graph.indices.size
    edges = reference.EdgeValues.random(num_edges, num_heads, np.float64) if has_own else None
    s, t, x = (value / 3 for value in values(graph, num_heads, width))
    rng = np.random.default_rng(4)
    grad = rng.standard_normal((t.shape[0], x.shape[1]))
    start = rng.standard_normal(x.shape), rng.standard_normal(s.shape)
    out, *expected = by_autograd(graph, s, t, x, grad, edges)
    state = state_of(device, graph, s, t, x, edges=edges)
    attention.finish_attention(*state)
    torch.testing.assert_close(state[0].cpu(), out)
    transposed = reference.transpose(graph, NUM_SOURCES)
    tensors = put(device, *transposed, s, t, x, grad, *start)
    rows, (grad_x, grad_source) = tensors[5:7], tensors[7:]
    own = own_of(device, edges)
    # The gradients of scores take their place.
    edge_grad = own.get("edge_score", rows[0].new_full((num_edges, num_heads), torch.nan))
    delta = (rows[1] * state[0]).view(t.shape[0], num_heads, width).sum(2)
    named = {"grad_x": grad_x, "grad_source": grad_source, "edge_grad": edge_grad}
    named |= {"log_sum": state[1], "x": rows[0], "grad": rows[1], "delta": delta} | own
    # Tensors of the transpose come as (indptr, indices, position).
    attention.attend_backward(*tensors[:5], **named, slope=SLOPE, accumulate=accumulate)
    grad_target = torch.zeros_like(state[1])
    (indptr,) = put(device, graph.indptr)
    attention.edge_sum(indptr, edge_grad, grad_target, accumulate=False)
    got = [grad_source, grad_target, grad_x, edge_grad]
    if accumulate:
        expected[0], expected[2] = (
            wanted + torch.from_numpy(begin)
            for wanted, begin in ((expected[0], start[1]), (expected[2], start[0]))
        )
    for part, wanted in zip(got, expected, strict=True):
        torch.testing.assert_close(part.cpu(), wanted)


def gradients_of(device, graph, tensors, rows, *, stored):
    """Return what backward writes for rows and their gradients that are stored as given."""
    transposed = reference.transpose(graph, NUM_SOURCES)
    s, t, log_sum, delta = tensors
    x, grad = rows
    grad_x = torch.ones(x.shape, dtype=stored, device=x.device)
    grad_source, edge_grad = torch.ones_like(s), s.new_empty(graph.indices.size, s.shape[1])
    named = {"grad_x": grad_x, "grad_source": grad_source, "edge_grad": edge_grad}
    named |= {"log_sum": log_sum, "x": x, "grad": grad, "delta": delta}
    ends = put(device, *transposed)
    attention.attend_backward(*ends, s, t, **named, slope=SLOPE, accumulate=True)
    return grad_x, grad_source, edge_grad


@pytest.mark.parametrize(("num_heads", "width", "name"), [(3, 3, "hub"), (4, 16, "random")])
def test_rows_of_bfloat16_are_computed_with_as_float32(num_heads, width, name, device):
    graph = GRAPHS[name]
    s, t, x = values(graph, num_heads, width, np.float32)
    grad = np.random.default_rng(5).standard_normal((t.shape[0], x.shape[1])).astype(np.float32)
    narrow = [part.bfloat16() for part in put(device, x, grad)]
    wide = [part.float() for part in narrow]
    given = put(device, graph.indptr, graph.indices, s, t)
    states = []
    for rows in (narrow[0], wide[0]):
        state = [rows.new_empty((len(t), n), dtype=torch.float32) for n in (x.shape[1], num_heads)]
        state.append(torch.empty_like(state[1]))
        named = dict(zip(("out", "maximum", "denominator"), state, strict=True))
        attention.attend(*given, rows, **named, slope=SLOPE, accumulate=False)
        attention.finish_attention(*state)
        states.append(state)
    for part, wanted in zip(*states, strict=True):
        torch.testing.assert_close(part, wanted)
    scores = given[2], given[3], states[0][1], torch.ones_like(given[3])
    found = gradients_of(device, graph, scores, narrow, stored=torch.bfloat16)
    expected = gradients_of(device, graph, scores, wide, stored=torch.float32)
    torch.testing.assert_close(found[0], expected[0].bfloat16())
    for part, wanted in zip(found[1:], expected[1:], strict=True):
        torch.testing.assert_close(part, wanted)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_quotients_are_finished_and_stored(stored, device):
    rng = np.random.default_rng(6)
    sums, denominator = rng.standard_normal((7, 6)), np.abs(rng.standard_normal((7, 2)))
    denominator[2] = 0
    out, below, bias = (part.float() for part in put(device, sums, denominator, np.ones(6)))
    finish = Finish(bias=bias, has_relu=True)
    result = torch.empty_like(out, dtype=stored)
    divisor = below.repeat_interleave(3, dim=1)
    means = torch.where(divisor == 0, 0, out / divisor)
    attention.finish_attention(out, torch.zeros_like(below), below, result=result, finish=finish)
    torch.testing.assert_close(result, torch.relu(means + bias).to(stored))


@pytest.mark.parametrize("stored", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("num_heads", "width"), SHAPES)
def test_gradients_are_multiplied_with_what_they_are_of(num_heads, width, stored, device):
    rng = np.random.default_rng(7)
    columns = num_heads * width
    grad, result, bias = put(
        device,
        rng.standard_normal((9, columns)),
        rng.standard_normal((9, columns)),
        np.ones(columns),
    )
    dtype = torch.float64 if stored == torch.float64 else torch.float32
    grad, result, bias = grad.to(stored), result.to(stored), bias.to(dtype)
    for given, scale in ((None, 1.0), (bias, 0.6)):
        out = torch.empty((9, num_heads), dtype=dtype, device=grad.device)
        attention.attention_delta(grad, result, out, bias=given, scale=scale)
        means = result.to(dtype) * scale - (0 if given is None else given)
        expected = (grad.to(dtype) * means).view(9, num_heads, width).sum(2)
        torch.testing.assert_close(out, expected)
