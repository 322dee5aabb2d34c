from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from fronts import Fronts

from distgnn.kernels import attention

attention = Fronts(attention)

SLOPE = 0.2
SHAPES = [(1, 1), (3, 1), (8, 3), (4, 4), (4, 7), (2, 8), (20, 8), (1, 16), (4, 16), (3, 33)]
SHAPES += [(4, 100), (1, 602)]


def autograd_of(graph, s, t, x, grad, edges=None):
    """Gradients of s, t, x and the scores of edges by torch, on whole matrices of edges."""
    num_rows, num_heads = t.shape
    own = np.zeros((graph.indices.size, num_heads)) if edges is None else edges.score
    factor = np.ones_like(own) if edges is None else edges.factor
    values = [torch.from_numpy(value).requires_grad_() for value in (s, t, x, own)]
    rows = torch.arange(num_rows).repeat_interleave(torch.from_numpy(np.diff(graph.indptr)))
    sources = torch.from_numpy(graph.indices).long()
    e = torch.nn.functional.leaky_relu(values[0][sources] + values[1][rows] + values[3], SLOPE)
    columns = rows[:, None].expand(-1, num_heads)
    largest = torch.full_like(values[1], -torch.inf).scatter_reduce(0, columns, e, "amax")
    exponentials = torch.exp(e - largest.detach()[rows])
    total = torch.zeros_like(values[1]).index_add(0, rows, exponentials)
    alpha = exponentials / total[rows] * torch.from_numpy(factor)
    messages = alpha[:, :, None] * values[2].view(-1, num_heads, x.shape[1] // num_heads)[sources]
    out = torch.zeros(num_rows, *messages.shape[1:], dtype=messages.dtype)
    out = out.index_add(0, rows, messages).flatten(1)
    gradients = torch.autograd.grad(out, values, torch.from_numpy(grad))
    return [gradient.numpy() for gradient in gradients]


def backward_of(graph, s, t, x, grad, *, start=None, order=None, edges=None, is_in_place=False):
    """Forward and backward of ours: the gradients of s, t, x and of raw."""
    num_rows, num_heads = t.shape
    tensor = torch.from_numpy
    own = {}
    if edges is not None:
        own["edge_score"] = tensor(edges.score.copy())
        own["mask"] = attention.EdgeMask(tensor(edges.key), *edges[2:])
    state = [torch.empty(num_rows, width, dtype=tensor(x).dtype) for width in (x.shape[1],)]
    state += [torch.empty(num_rows, num_heads, dtype=tensor(x).dtype) for _ in range(2)]
    attention.attend(
        *(tensor(value) for value in (graph.indptr, graph.indices, s, t, x)),
        out=state[0],
        maximum=state[1],
        denominator=state[2],
        slope=SLOPE,
        accumulate=False,
        **own,
    )
    attention.finish_attention(*state)
    product = tensor(grad) * state[0]
    delta = product.view(num_rows, num_heads, x.shape[1] // num_heads).sum(2)
    transposed = reference.transpose(graph, x.shape[0])
    grad_x, grad_source = (np.full_like(value, np.nan) for value in (x, s))
    if start is not None:
        grad_x[:], grad_source[:] = start
    edge_grad = torch.full((graph.indices.size, num_heads), torch.nan, dtype=state[0].dtype)
    edge_grad = own["edge_score"] if is_in_place else edge_grad
    attention.attend_backward(
        tensor(transposed.indptr),
        tensor(transposed.indices),
        tensor(transposed.position),
        tensor(s),
        tensor(t),
        log_sum=state[1],
        x=tensor(x),
        grad=tensor(grad),
        delta=delta,
        grad_x=tensor(grad_x),
        grad_source=tensor(grad_source),
        edge_grad=edge_grad,
        slope=SLOPE,
        accumulate=start is not None,
        order=order,
        **own,
    )
    grad_target = torch.empty(num_rows, num_heads, dtype=state[0].dtype)
    attention.edge_sum(tensor(graph.indptr), edge_grad, grad_target, accumulate=False)
    return [grad_source, grad_target.numpy(), grad_x, edge_grad.numpy()]


def values_of(num_sources, num_rows, num_heads, width, dtype, *, seed=0):
    rng = np.random.default_rng(seed)
    columns = num_heads * width
    shapes = [(num_sources, num_heads), (num_rows, num_heads)]
    shapes += [(num_sources, columns), (num_rows, columns)]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-14)])
@pytest.mark.parametrize("sizes", [(40, 20, 100), (3, 30, 300), (4, 3, 0)])
def test_backward_has_the_gradients_of_autograd(sizes, dtype, tolerance):
    num_rows, num_sources, num_edges = sizes
    graph = reference.random_csr(num_rows, num_sources, num_edges, seed=1)
    for num_heads, width in SHAPES:
        values = values_of(num_sources, num_rows, num_heads, width, dtype)
        expected = autograd_of(graph, *(value.astype(float) for value in values))
        for part, other in zip(backward_of(graph, *values), expected, strict=True):
            scale = max(float(np.abs(other).max(initial=0)), 1.0)
            np.testing.assert_allclose(part, other, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-14)])
@pytest.mark.parametrize("sizes", [(40, 20, 100), (3, 30, 300), (4, 3, 0), (30, 2, 9000)])
def test_scores_of_edges_get_gradients_and_dropped_weights_give_none(sizes, dtype, tolerance):
    num_rows, num_sources, num_edges = sizes
    graph = reference.random_csr(*sizes, seed=1)
    for num_heads, width in SHAPES if num_edges < 9000 else [(2, 3)]:
        values = values_of(num_sources, num_rows, num_heads, width, dtype)
        edges = reference.EdgeValues.random(num_edges, num_heads, dtype)
        wide = edges._replace(score=edges.score.astype(float))
        expected = autograd_of(graph, *(value.astype(float) for value in values), wide)
        found = backward_of(graph, *values, edges=edges)
        for part, other in zip(found, expected, strict=True):
            scale = max(float(np.abs(other).max(initial=0)), 1.0)
            np.testing.assert_allclose(part, other, rtol=tolerance, atol=tolerance * scale)
        in_place = backward_of(graph, *values, edges=edges, is_in_place=True)
        for part, other in zip(in_place, found, strict=True):
            np.testing.assert_array_equal(part, other)


def test_accumulate_continues_the_gradients_of_source_and_x():
    graph = reference.random_csr(30, 20, 90, seed=2)
    values = values_of(20, 30, 2, 17, np.float64)
    rng = np.random.default_rng(3)
    start = rng.standard_normal((20, 34)), rng.standard_normal((20, 2))
    found, plain = backward_of(graph, *values, start=start), backward_of(graph, *values)
    np.testing.assert_allclose(found[0], plain[0] + start[1], atol=1e-14)
    np.testing.assert_allclose(found[2], plain[2] + start[0], atol=1e-14)
    np.testing.assert_array_equal(found[1], plain[1])
