"""Attention across a cut, against autograd on the edge list of the whole graph."""

from __future__ import annotations

import math
from types import SimpleNamespace

import attention as reference
import numpy as np
import pytest
import torch
from graphs import CUTS, KINDS, cut, make_graph

from distgnn.aggregate.scores import State, _rescale
from distgnn.comm.threads import run_ranks
from distgnn.datasets import Graph
from distgnn.edges.blocks import plan_blocks
from distgnn.exchange.base import Synchronous
from distgnn.exchange.codec import CodecSpec, HaloCodecs
from distgnn.exchange.delayed import Delayed
from distgnn.exchange.rule import delayed
from distgnn.graph.local_graph import LocalGraph
from distgnn.partition.assignment import Assignment
from distgnn.partition.build import build_parts

RANKS = (1, 2, 3, 4, 7)
HEADS, WIDTH, SLOPE = 3, 2, 0.2


def random_inputs(num_vertices, *, scale=1.0):
    """Rows, scores of sources and targets, and a gradient, in the order of the graph."""
    generator = torch.Generator().manual_seed(1)
    columns = (HEADS * WIDTH, HEADS, HEADS, HEADS * WIDTH)
    drawn = [
        torch.randn(num_vertices, n, generator=generator, dtype=torch.float64) for n in columns
    ]
    return drawn[0], scale * drawn[1], scale * drawn[2], drawn[3]


def expected_of(edges, inputs):
    """Result and the three gradients by autograd."""
    *leaves, grad = (part.clone().requires_grad_() for part in inputs)
    result = reference.attend(edges, *leaves, SLOPE)
    return [result.detach(), *torch.autograd.grad(result, leaves, grad)]


def one_epoch(graph, own, inputs):
    """Result and gradients of a rank's roots."""
    *leaves, grad = (part[own].requires_grad_() for part in inputs)
    x, source_score, target_score = leaves
    result = graph.attend(x, source_score=source_score, target_score=target_score, slope=SLOPE)
    result.backward(grad)
    graph.end_epoch()
    return [result.detach(), *(leaf.grad for leaf in leaves)]


def collect(parts, results):
    """Put each part's rows back into the order of the graph."""
    whole = [torch.zeros(sum(p.num_roots for p in parts), r.shape[1]).double() for r in results[0]]
    for part, rows in zip(parts, results, strict=True):
        for into, piece in zip(whole, rows, strict=True):
            into[part.global_id[: part.num_roots]] = piece
    return whole


def on_ranks(parts, inputs):
    def on_rank(group):
        part = parts[group.rank]
        own = torch.from_numpy(part.global_id[: part.num_roots].astype(np.int64))
        return one_epoch(LocalGraph.exact(part, group), own, inputs)

    return collect(parts, run_ranks(len(parts), on_rank))


def check_equal(got, expected):
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("num_parts", RANKS)
@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_all_gradients_are_those_of_the_edge_list(kind, how, num_parts):
    graph = make_graph(kind)
    inputs = random_inputs(graph.num_vertices)
    check_equal(
        on_ranks(cut(graph, num_parts, how=how), inputs),
        expected_of(reference.looped_edges(graph), inputs),
    )


@pytest.mark.parametrize("num_parts", [1, 3])
def test_scores_whose_exponentials_overflow_are_no_trouble(num_parts):
    graph = make_graph("loops")
    inputs = random_inputs(graph.num_vertices, scale=1e4)
    check_equal(
        on_ranks(cut(graph, num_parts), inputs), expected_of(reference.looped_edges(graph), inputs)
    )


def test_a_vertex_that_nobody_points_to_keeps_its_row():
    graph = make_graph("random")
    inputs = random_inputs(graph.num_vertices)
    result = on_ranks(cut(graph, 3), inputs)[0]
    torch.testing.assert_close(result[-3:], inputs[0][-3:])


def test_bytes_counted_are_the_rows_that_travel():
    graph = make_graph("random")
    parts = cut(graph, 3)
    inputs = random_inputs(graph.num_vertices)

    def on_rank(group):
        local = LocalGraph.exact(parts[group.rank], group)
        one_epoch(local, parts[group.rank].global_id[: local.num_rows], inputs)
        return local.exchange.take_bytes()

    reading = sum(int(part.is_reading.sum()) for part in parts)
    writing = sum(int(part.is_writing.sum()) for part in parts)
    columns = reading * 2 * (WIDTH + 1) + writing * (1 + (WIDTH + 1) + (WIDTH + 2) + 1)
    assert sum(run_ranks(3, on_rank)) == columns * HEADS * 8


def test_sums_and_attention_run_on_one_graph():
    graph = make_graph("random")
    part = cut(graph, 1)[0]
    inputs = random_inputs(graph.num_vertices)

    def on_rank(group):
        local = LocalGraph.exact(part, group)
        before = local.aggregate(inputs[0])
        one_epoch(local, part.global_id, inputs)
        assert torch.equal(local.aggregate(inputs[0]), before), "loops are of attention alone"

    run_ranks(1, on_rank)


def delayed_epochs(parts, inputs, num_epochs, **options):
    def on_rank(group):
        part = parts[group.rank]
        own = torch.from_numpy(part.global_id[: part.num_roots].astype(np.int64))
        graph = LocalGraph(part, plan_blocks(part, group), Delayed(group, delayed(**options)))
        return [one_epoch(graph, own, inputs) for _ in range(num_epochs)]

    results = run_ranks(len(parts), on_rank)
    return [collect(parts, [rank[epoch] for rank in results]) for epoch in range(num_epochs)]


@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("warm_up", [0, 1])
def test_delayed_rows_are_numbers_at_any_time_and_exact_once_all_have_arrived(how, scale, warm_up):
    graph = make_graph("random")
    inputs = random_inputs(graph.num_vertices, scale=scale)
    epochs = delayed_epochs(
        cut(graph, 3, how=how), inputs, 13, num_bins=2, delay=2, warm_up_epochs=warm_up
    )
    for values in epochs:
        assert all(value.isfinite().all() for value in values)
    expected = expected_of(reference.looped_edges(graph), inputs)
    # A warm-up fills the caches, so that constant rows are exact from the start.
    for values in epochs if warm_up else epochs[-1:]:
        check_equal(values, expected)


@pytest.mark.parametrize("end", ["src", "dst"])
def test_what_never_arrived_is_no_partial_no_gradient_and_a_row_of_zeros(end):
    graph = make_graph("random")
    num_vertices = graph.num_vertices
    root_part = np.random.default_rng(3).integers(0, 3, num_vertices).astype(np.int32)
    edge_part = root_part[getattr(graph, end)]
    parts = list(build_parts(graph, Assignment(3, edge_part, root_part)))
    inputs = random_inputs(num_vertices)
    first = delayed_epochs(parts, inputs, 1, num_bins=1, delay=1)[0]

    src, dst = reference.looped_edges(graph)
    is_cut = torch.from_numpy(root_part[src] != root_part[dst])
    if end == "src":
        edges = src[~is_cut], dst[~is_cut]
    else:
        edges = torch.where(is_cut, num_vertices, src), dst
    # The last vertex stands for sources that never arrived.
    padded = [torch.cat([part, torch.zeros_like(part[:1])]) for part in inputs]
    expected = expected_of(edges, padded)
    check_equal(first, [part[:num_vertices] for part in expected])


def test_an_isolated_graph_attends_to_its_own_edges_only():
    graph = make_graph("loops")
    parts = cut(graph, 3)
    inputs = random_inputs(graph.num_vertices)

    def on_rank(group):
        part = parts[group.rank]
        local = LocalGraph.isolated(part, group)
        return one_epoch(local, part.global_id, inputs), local.exchange.take_bytes()

    for part, (got, sent) in zip(parts, run_ranks(3, on_rank), strict=True):
        dst = np.repeat(np.arange(part.num_clones), np.diff(part.indptr))
        edges = reference.with_loops(part.indices, dst, part.num_clones)
        check_equal(got, expected_of(edges, [rows[part.global_id] for rows in inputs]))
        assert sent == 0


def test_gradients_of_scores_cancel_out_whatever_the_code():
    graph = make_graph("random")
    parts, width = cut(graph, 3), 8
    generator = torch.Generator().manual_seed(1)
    x, grad = torch.randn(2, graph.num_vertices, HEADS * width, generator=generator)
    scores = torch.randn(2, graph.num_vertices, HEADS, generator=generator)

    def on_rank(group):
        part = parts[group.rank]
        own = torch.from_numpy(part.global_id[: part.num_roots].astype(np.int64))
        exchange = Synchronous(group, HaloCodecs(CodecSpec(2, is_random=False)))
        local = LocalGraph(part, plan_blocks(part, group), exchange)
        source_score, target_score = scores[0, own], scores[1, own].requires_grad_()
        # A slope of 1 below 0: what a vertex as a target adds to all its scores changes nothing.
        given = {"source_score": source_score, "target_score": target_score, "slope": 1.0}
        local.attend(x[own].requires_grad_(), **given).backward(grad[own])
        return [target_score.grad.double()]

    (got,) = collect(parts, run_ranks(3, on_rank))
    step = (x.max() - x.min()) / 255
    weight = grad.view(len(grad), HEADS, width).abs().sum(2)
    assert (got.abs() <= step * weight + 1e-4).all()


def test_a_code_rounds_heads_that_look_at_few_no_worse_than_heads_that_look_at_all():
    num_sources, width = 200, 16
    dst = np.zeros(num_sources, np.int64)
    graph = Graph(name="star", num_vertices=num_sources + 1, src=dst + np.arange(1, 201), dst=dst)
    # The sources and all edges are of another part than the target.
    root_part = (np.arange(num_sources + 1) > 0).astype(np.int32)
    parts = list(build_parts(graph, Assignment(2, root_part[graph.src], root_part)))
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(num_sources + 1, 2 * width, generator=generator)
    # The first head adds up 200 rows of one sign, the second takes that of vertex 1.
    x[:, :width] = x[:, :width].abs()
    score = torch.zeros(num_sources + 1, 2)
    score[1, 1] = 30

    def on_rank(group):
        part = parts[group.rank]
        own = torch.from_numpy(part.global_id[: part.num_roots].astype(np.int64))
        exchange = Synchronous(group, HaloCodecs(CodecSpec(4, is_random=False)))
        graph = LocalGraph(part, plan_blocks(part, group), exchange)
        rows, zeros = x[own], torch.zeros(len(own), 2)
        return graph.attend(rows, source_score=score[own], target_score=zeros, slope=SLOPE)

    got = run_ranks(2, on_rank)[0][0]
    loops = reference.looped_edges(graph)
    row = reference.attend(loops, x, score, torch.zeros_like(score), SLOPE)[0]
    unit = (row.max() - row.min()) / 15
    assert (got - row).abs().max() < 0.6 * unit


def test_a_row_of_edges_without_a_finite_score_is_no_number():
    """It is where scores need no features, too: 0 would hide that a run has diverged."""
    block = SimpleNamespace(indptr=torch.tensor([0, 1, 1]))
    state = State(torch.zeros(2, 3), torch.zeros(2, 1), torch.ones(2, 1))
    _rescale(block, torch.tensor([[-math.inf]]), state, accumulate=False)
    assert state.maximum.tolist() == [[-math.inf], [0.0]]
