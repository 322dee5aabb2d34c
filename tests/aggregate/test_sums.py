"""Aggregation across a cut, against dense matrices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from graphs import CUTS, KINDS, adjacency, cut, make_graph

from distgnn.aggregate import sums
from distgnn.aggregate.overlap import reduce_to_roots, send_to_leaves
from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.edges.blocks import plan_blocks
from distgnn.edges.walk_orders import Chooser, WalkOrders, Way
from distgnn.exchange.base import Synchronous
from distgnn.graph.local_graph import LocalGraph
from distgnn.nn.gcn import normalised
from distgnn.partition.assignment import Assignment
from distgnn.partition.build import build_parts

RANKS = (1, 2, 3, 4, 7)


def spread(parts, rows):
    """Rows of each part's roots."""
    return [torch.from_numpy(rows[part.global_id[: part.num_roots]]) for part in parts]


def collect(parts, results):
    """Put each part's root rows back into the order of the graph."""
    whole = np.zeros((sum(part.num_roots for part in parts), results[0].shape[1]))
    for part, rows in zip(parts, results, strict=True):
        whole[part.global_id[: part.num_roots]] = rows.detach().numpy()
    return whole


def aggregate_everywhere(parts, rows, grad, reduce):
    """Forward and backward on ranks as threads; returns both in the order of the graph."""
    shares, grads = spread(parts, rows), spread(parts, grad)

    def on_rank(group):
        graph = LocalGraph.exact(parts[group.rank], group)
        own = shares[group.rank].clone().requires_grad_()
        result = graph.aggregate(own, reduce)
        result.backward(grads[group.rank])
        graph.end_epoch()
        return result, own.grad

    results = run_ranks(len(parts), on_rank)
    return collect(parts, [r for r, _ in results]), collect(parts, [g for _, g in results])


def dense_max(graph, rows, grad):
    """Maximum and its gradient, one entry at a time; the smallest source wins a tie."""
    out, back = np.zeros_like(rows), np.zeros_like(rows)
    for vertex in range(graph.num_vertices):
        sources = np.unique(graph.src[graph.dst == vertex])
        for column in range(rows.shape[1]):
            if len(sources):
                winner = sources[np.argmax(rows[sources, column])]
                out[vertex, column] = rows[winner, column]
                back[winner, column] += grad[vertex, column]
    return out, back


def test_a_rank_that_gets_nothing_multiplies_what_it_gives():
    graph = replace(
        make_graph("random", num_vertices=8), src=np.array([1, 2]), dst=np.array([0, 0])
    )
    root_part = np.array([0, *[1] * 7], dtype=np.int32)
    parts = list(build_parts(graph, Assignment(2, np.array([1, 1], dtype=np.int32), root_part)))
    rows, grad = np.random.default_rng(1).normal(size=(2, 8, 5))
    _, back = aggregate_everywhere(parts, rows, grad, "mean")
    np.testing.assert_allclose(back, adjacency(graph).T @ grad / 2, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("num_parts", RANKS)
@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_sum_equals_a_dense_product_and_its_transpose(kind, how, num_parts):
    graph = make_graph(kind)
    rng = np.random.default_rng(1)
    rows, grad = rng.normal(size=(2, graph.num_vertices, 5))
    out, back = aggregate_everywhere(cut(graph, num_parts, how=how), rows, grad, "sum")
    np.testing.assert_allclose(out, adjacency(graph) @ rows, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(back, adjacency(graph).T @ grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("num_parts", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_mean_divides_by_the_number_of_in_edges_of_the_whole_graph(kind, num_parts):
    graph = make_graph(kind)
    rng = np.random.default_rng(2)
    rows, grad = rng.normal(size=(2, graph.num_vertices, 4))
    out, back = aggregate_everywhere(cut(graph, num_parts), rows, grad, "mean")
    degree = np.bincount(graph.dst, minlength=graph.num_vertices).clip(1)[:, None]
    np.testing.assert_allclose(out, adjacency(graph) @ rows / degree, atol=1e-12)
    np.testing.assert_allclose(back, adjacency(graph).T @ (grad / degree), atol=1e-12)


@pytest.mark.parametrize("num_parts", RANKS)
@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("has_ties", [False, True])
def test_max_and_its_gradient_do_not_depend_on_the_cut(how, num_parts, has_ties):
    graph = make_graph("loops")
    rng = np.random.default_rng(3)
    rows, grad = rng.normal(size=(2, graph.num_vertices, 4))
    if has_ties:
        rows = rng.integers(-1, 2, rows.shape).astype(float)
    out, back = aggregate_everywhere(cut(graph, num_parts, how=how), rows, grad, "max")
    expected, expected_back = dense_max(graph, rows, grad)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_allclose(back, expected_back, atol=1e-12)


@pytest.mark.parametrize("num_parts", RANKS)
@pytest.mark.parametrize("half", ["send", "reduce"])
def test_the_two_halves_are_adjoint(half, num_parts):
    graph = make_graph("random")
    parts = cut(graph, num_parts)

    def on_rank(group):
        part = parts[group.rank]
        lane = getattr(plan_blocks(part, group).forward, half)
        exchange = Synchronous(group)
        generator = torch.Generator().manual_seed(group.rank)
        x = torch.randn(part.num_roots, 3, generator=generator, dtype=torch.float64)
        y = torch.randn(lane.num_leaves, 3, generator=generator, dtype=torch.float64)
        sent = send_to_leaves(lane, exchange, x).wait()
        received = reduce_to_roots(lane, exchange, y).wait()
        back = torch.zeros_like(x).index_add_(0, lane.root_rows.long(), received)
        return float((sent * y).sum()), float((x * back).sum())

    left, right = np.sum(run_ranks(num_parts, on_rank), axis=0)
    assert left == pytest.approx(right, rel=1e-12)
    assert num_parts == 1 or left != 0


def test_bytes_counted_are_the_rows_that_travel():
    graph = make_graph("random")
    parts = cut(graph, 3)

    def on_rank(group):
        local = LocalGraph.exact(parts[group.rank], group)
        rows = torch.randn(local.num_rows, 5, requires_grad=True)
        local.aggregate(rows).sum().backward()
        return local.exchange.take_bytes()

    halo_rows = sum(int(p.is_reading.sum() + p.is_writing.sum()) for p in parts)
    assert sum(run_ranks(3, on_rank)) == 2 * halo_rows * 5 * 4


def test_an_isolated_graph_sends_nothing_and_sees_its_own_edges_only():
    graph = make_graph("random")
    parts = cut(graph, 3)
    rows = np.random.default_rng(4).normal(size=(graph.num_vertices, 5))

    def on_rank(group):
        part = parts[group.rank]
        local = LocalGraph.isolated(part, group)
        own = torch.from_numpy(rows[part.global_id])
        return local.aggregate(own), local.in_degree, local.exchange.take_bytes()

    for part, (result, degree, sent) in zip(parts, run_ranks(3, on_rank), strict=True):
        matrix = np.zeros((part.num_clones, part.num_clones))
        targets = np.repeat(np.arange(part.num_clones), np.diff(part.indptr))
        np.add.at(matrix, (targets, part.indices), 1)
        np.testing.assert_allclose(result.numpy(), matrix @ rows[part.global_id], atol=1e-12)
        np.testing.assert_array_equal(degree[:, 0], matrix.sum(axis=1))
        assert sent == 0


def test_in_weight_and_self_loops_are_those_of_the_whole_graph():
    graph = make_graph("weighted")
    parts = cut(graph, 3)

    def on_rank(group):
        local = LocalGraph.exact(parts[group.rank], group)
        return local.in_weight.double(), local.self_loops.double()

    results = run_ranks(3, on_rank)
    weights = collect(parts, [w for w, _ in results])
    loops = collect(parts, [s for _, s in results])
    np.testing.assert_allclose(weights[:, 0], adjacency(graph).sum(axis=1), rtol=1e-5)
    is_loop = graph.src == graph.dst
    expected = np.bincount(graph.src[is_loop], minlength=graph.num_vertices)
    np.testing.assert_array_equal(loops[:, 0], expected)


@pytest.mark.parametrize("num_parts", RANKS)
@pytest.mark.parametrize("how", CUTS)
def test_a_nan_wins_a_maximum_on_whatever_part_it_is(how, num_parts):
    graph = make_graph("random")
    rows = np.random.default_rng(6).normal(size=(graph.num_vertices, 3))
    rows[[2, 9], 1] = np.nan
    out, _ = aggregate_everywhere(cut(graph, num_parts, how=how), rows, np.zeros_like(rows), "max")
    expected = np.zeros(graph.num_vertices, dtype=bool)
    expected[graph.dst[np.isin(graph.src, (2, 9))]] = True
    np.testing.assert_array_equal(np.isnan(out[:, 1]), expected)
    assert not np.isnan(out[:, [0, 2]]).any()


def test_gradients_of_gradients_are_refused():
    part = cut(make_graph("random"), 1)[0]

    def on_rank(group):
        graph = LocalGraph.exact(part, group)
        rows = torch.randn(graph.num_rows, 2, requires_grad=True)
        (grad,) = torch.autograd.grad(graph.aggregate(rows).square().sum(), rows, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            grad.sum().backward()

    run_ranks(1, on_rank)


def test_a_block_that_is_large_enough_to_have_a_walk_order_has_the_same_sums():
    graph = make_graph("random", num_vertices=250_000)
    parts = cut(graph, 2, how="at-destination")
    rows = np.random.default_rng(7).normal(size=(graph.num_vertices, 4))
    out, back = aggregate_everywhere(parts, rows, rows, "sum")
    ones = np.ones(graph.num_edges)
    matrix = sp.csr_matrix((ones, (graph.dst, graph.src)), shape=(graph.num_vertices,) * 2)
    np.testing.assert_allclose(out, matrix @ rows, atol=1e-10)
    np.testing.assert_allclose(back, matrix.T @ rows, atol=1e-10)

    def on_rank(group):
        blocks = plan_blocks(parts[group.rank], group)
        return blocks.forward.root_from_root.order, blocks.forward.leaf_from_leaf.order

    for large, empty in run_ranks(2, on_rank):
        assert large is not None
        assert large.describe()["num_tasks"] >= 1
        assert empty is None


@pytest.mark.parametrize(("width", "is_ordered"), [(4, False), (16, True)])
def test_the_gradient_of_a_maximum_is_ordered_where_it_walks_the_edges(width, is_ordered):
    class Always(Chooser):
        def choose(self, block):
            return Way()

    part = cut(make_graph("random"), 1)[0]
    group = SingleGroup()
    blocks = plan_blocks(part, group, walk_orders=WalkOrders(chooser=Always()))
    graph = LocalGraph(part, blocks, Synchronous(group))
    graph.aggregate(torch.randn(graph.num_rows, width, requires_grad=True), "max").sum().backward()
    assert "order" in vars(blocks.forward.root_from_root)
    assert ("order" in vars(blocks.backward.root_from_root)) == is_ordered


@pytest.mark.parametrize(
    ("dtype", "width", "num_scaled"),
    [
        (torch.float32, 16, 1),
        (torch.float32, 17, 0),
        (torch.float64, 8, 1),
        (torch.bfloat16, 16, 0),
    ],
)
def test_rows_of_a_line_are_scaled_before_a_sum_with_the_same_bits(
    dtype, width, num_scaled, monkeypatch
):
    graph = LocalGraph.exact(cut(make_graph("random"), 1)[0], SingleGroup())
    rows = torch.randn(graph.num_rows, width, generator=torch.Generator().manual_seed(0)).to(dtype)
    expected = normalised("in")(graph, rows)
    scaled = []
    inner = sums.kernels.scale_rows

    def watched(given, *more):
        scaled.append(given is rows)
        return inner(given, *more)

    monkeypatch.setattr(sums.kernels, "scale_rows", watched)
    # The graph has 160 edges, without the loops, and 40 vertices.
    monkeypatch.setattr(sums, "_READ_OFTEN", 4)
    assert torch.equal(normalised("in")(graph, rows), expected)
    assert sum(scaled) == num_scaled


@pytest.mark.parametrize(("degree", "num_scaled"), [(8, 0), (20, 1)])
def test_rows_of_a_line_are_scaled_where_that_was_measured_to_be_faster(
    degree, num_scaled, monkeypatch
):
    # Every copy of the edges adds 4 a vertex.
    plain, copies = make_graph("random"), degree // 4
    edges = {"src": np.tile(plain.src, copies), "dst": np.tile(plain.dst, copies)}
    graph = LocalGraph.exact(cut(replace(plain, **edges), 1)[0], SingleGroup())
    rows, scaled = torch.randn(graph.num_rows, 16), []
    inner = sums.kernels.scale_rows

    def watched(given, *more):
        scaled.append(given is rows)
        return inner(given, *more)

    monkeypatch.setattr(sums.kernels, "scale_rows", watched)
    normalised("in")(graph, rows)
    assert sum(scaled) == num_scaled
