"""Sums over typed edges, mapped by their relations, against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import CUTS, TYPED_KINDS, cut, make_graph

from distgnn.aggregate.relations import relations_of
from distgnn.comm.threads import run_ranks
from distgnn.edges.blocks import isolated_part, plan_blocks
from distgnn.exchange.base import Synchronous
from distgnn.graph.local_graph import LocalGraph
from distgnn.partition.directory.whole import whole_part

ROW_BYTES = 8


def dense(graph, rows, weight, *, is_mean):
    """Sum A_r X W_r over relations, A_r dense, its rows divided by their counts."""
    shape = (graph.num_vertices, graph.num_vertices)
    weights = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    total = 0
    for number in range(graph.num_relations):
        edges = graph.edge_type == number
        matrix, count = np.zeros(shape), np.zeros(graph.num_vertices)
        np.add.at(matrix, (graph.dst[edges], graph.src[edges]), weights[edges])
        np.add.at(count, graph.dst[edges], 1)
        if is_mean:
            matrix /= np.maximum(count, 1)[:, None]
        total = total + torch.from_numpy(matrix) @ rows @ weight[number]
    return total


def local(part, group):
    blocks = plan_blocks(part, group, has_types=True)
    return LocalGraph(part, blocks, Synchronous(group))


def drawn(graph, in_width, out_width):
    generator = torch.Generator().manual_seed(1)
    shapes = ((40, in_width), (graph.num_relations, in_width, out_width), (40, out_width))
    return [torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in shapes]


@pytest.mark.parametrize("widths", [(5, 3), (3, 7)])
@pytest.mark.parametrize("is_mean", [True, False])
@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("kind", TYPED_KINDS)
def test_values_and_gradients_are_those_of_dense_matrices(kind, how, is_mean, widths):
    graph = make_graph(kind)
    rows, weight, grad = drawn(graph, *widths)
    leaves = [tensor.clone().requires_grad_() for tensor in (rows, weight)]
    expected = dense(graph, *leaves, is_mean=is_mean)
    expected.backward(grad)

    def on_rank(group):
        part = parts[group.rank]
        ids = part.global_id[: part.num_roots]
        own = [tensor.clone().requires_grad_() for tensor in (rows[ids], weight)]
        graph_here = local(part, group)
        total = graph_here.aggregate_relations(*own, is_mean=is_mean)
        total.backward(grad[ids])
        sent = graph_here.exchange.bytes_sent
        return ids, total.detach(), own[0].grad, own[1].grad, sent, part

    for num_parts in (1, 3):
        parts = cut(graph, num_parts, how=how)
        of_weight = 0
        for ids, total, of_rows, part_of_weight, sent, part in run_ranks(num_parts, on_rank):
            # The shares of means are float32.
            for got, wanted in ((total, expected), (of_rows, leaves[0].grad)):
                torch.testing.assert_close(got, wanted[ids].detach(), rtol=1e-5, atol=1e-5)
            of_weight = of_weight + part_of_weight
            # Rows of the input and partials of the output, there and back: none for a relation.
            read, write = int(part.is_reading.sum()), int(part.is_writing.sum())
            out = len(part.send_rows) * widths[0] + write * widths[1]
            back = len(part.reduce_rows) * widths[1] + read * widths[0]
            assert sent == ROW_BYTES * (out + back)
        torch.testing.assert_close(of_weight, leaves[1].grad, rtol=1e-5, atol=1e-5)


def test_gradients_of_float64_are_those_of_differences():
    graph = make_graph("featureless", num_vertices=12)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(12, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    weight = torch.randn(3, 2, 3, dtype=torch.float64, generator=generator, requires_grad=True)

    def on_rank(group):
        here = local(whole_part(graph), group)

        def summed(rows, weight):
            return here.aggregate_relations(rows, weight, is_mean=True)

        return torch.autograd.gradcheck(summed, (rows, weight))

    assert run_ranks(1, on_rank) == [True]


def test_relations_hold_the_vertices_they_touch_and_are_made_once():
    graph = make_graph("typed")

    def on_rank(group):
        block = local(whole_part(graph), group).blocks.forward.root_from_root
        found = relations_of(block, is_mean=True)
        assert relations_of(block, is_mean=True) is found
        return found

    (found,) = run_ranks(1, on_rank)
    assert [one.number for one in found] == [0, 2], "nobody has edges of relation 1"
    for one in found:
        edges = graph.edge_type == one.number
        assert one.sources.tolist() == np.unique(graph.src[edges]).tolist()
        assert one.targets.tolist() == np.unique(graph.dst[edges]).tolist()
        assert one.forward.num_edges == one.backward.num_edges == edges.sum()
    tall, flat = torch.zeros(2, 90), torch.zeros(90, 2)
    assert found[0].maps_first(flat)
    assert not found[0].maps_first(tall)


def test_a_part_alone_divides_by_the_edges_it_has():
    graph = make_graph("typed")
    for part in cut(graph, 3):
        alone = isolated_part(part)
        row = np.repeat(np.arange(alone.num_roots), np.diff(alone.indptr))
        for edge in range(alone.num_edges):
            same = (row == row[edge]) & (alone.edge_type == alone.edge_type[edge])
            assert alone.relation_degree[edge] == same.sum() <= part.relation_degree[edge]
