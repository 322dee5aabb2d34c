"""Calls of a user's own layers: the same on one process and on parts, and refused when wrong."""

from __future__ import annotations

import pytest
import torch
from graphs import KINDS, cut, make_graph

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets.errors import InputError
from distgnn.graph.local_graph import LocalGraph
from distgnn.nn.gcn import GCNConv


def dense_gcn(graph):
    """D^-1/2 (A + I) D^-1/2, as a matrix of targets by sources."""
    count = graph.num_vertices
    adjacency, loops = torch.zeros(count, count, dtype=torch.float64), torch.zeros(count)
    weight = torch.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    for src, dst, value in zip(graph.src, graph.dst, weight, strict=True):
        adjacency[dst, src] += float(value)
        loops[dst] += src == dst
    adjacency += torch.diag((loops == 0).double())
    scale = adjacency.sum(dim=1).rsqrt()
    return scale[:, None] * adjacency * scale


@pytest.mark.parametrize("kind", ["random", "weighted", "loops"])
@pytest.mark.parametrize("num_parts", [1, 3])
def test_gcn_weights_are_those_of_kipf_and_welling(kind, num_parts):
    graph = make_graph(kind)
    x = torch.rand(graph.num_vertices, 4, generator=torch.Generator().manual_seed(0))
    expected = dense_gcn(graph).float() @ x
    expected_grad = dense_gcn(graph).float().t() @ expected
    parts = cut(graph, num_parts)

    def on_rank(group):
        local = LocalGraph.exact(parts[group.rank], group)
        rows = x[local.row_id].requires_grad_()
        result = local.aggregate(rows, "sum", "gcn")
        result.square().sum().div(2).backward()
        torch.testing.assert_close(result, expected[local.row_id], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(rows.grad, expected_grad[local.row_id], rtol=1e-5, atol=1e-5)
        conv = GCNConv(4, 4)
        with torch.no_grad():
            conv.linear.weight.copy_(torch.eye(4))
            torch.testing.assert_close(conv(local, rows), result)

    run_ranks(num_parts, on_rank)


def attention(graph, x):
    scores = x[:, :2].cumsum(dim=1)
    return graph.attend(x, source_score=scores, target_score=-scores)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "sparse-features"])
def test_sums_means_maxima_and_attention_are_the_same_on_parts(kind):
    graph = make_graph(kind)
    x = torch.randn(graph.num_vertices, 6, generator=torch.Generator().manual_seed(0))

    def results(local):
        rows = x[local.row_id].requires_grad_()
        found = [local.aggregate(rows, reduce) for reduce in ("sum", "mean", "max")]
        found.append(attention(local, rows))
        (sum(one.square().sum() for one in found)).backward()
        return local.row_id, [*(one.detach() for one in found), rows.grad]

    whole_ids, whole = results(LocalGraph.exact(cut(graph, 1)[0], SingleGroup()))
    assert torch.equal(whole_ids, torch.arange(graph.num_vertices))
    parts = cut(graph, 3)
    for ids, found in run_ranks(3, lambda g: results(LocalGraph.exact(parts[g.rank], g))):
        for one, other in zip(found, whole, strict=True):
            torch.testing.assert_close(one, other[ids], rtol=1e-4, atol=1e-5)


def test_dropout_draws_nothing_outside_of_training():
    graph = LocalGraph.exact(cut(make_graph(), 1)[0], SingleGroup())
    rows = torch.ones(graph.num_rows, 3)
    assert graph.dropout(rows, 0.5, training=False) is rows
    assert graph.dropout(rows, 0.0) is rows
    assert graph.mask_seeds.num_drawn == 0
    assert set(graph.dropout(rows, 0.5).unique().tolist()) == {0, 2}


CALLS = {
    r"rows must have 40 rows, one for each vertex of graph\.row_id, got 39": lambda g, x: (
        g.aggregate(x[1:])
    ),
    r"tensor of floats, got shape \(40, 6\) of torch\.int64; convert it": lambda g, x: g.aggregate(
        x.long()
    ),
    r"tensor of floats, got shape \(40,\)": lambda g, x: g.aggregate(x[:, 0]),
    "tensor of floats, got list": lambda g, x: g.aggregate([1.0]),
    "got reduce 'min' and weight None": lambda g, x: g.aggregate(x, "min"),
    "got reduce 'mean' and weight 'gcn'": lambda g, x: g.aggregate(x, "mean", "gcn"),
    "got reduce 'sum' and weight 'degree'": lambda g, x: g.aggregate(x, weight="degree"),
    "source_score must have 40 rows": lambda g, x: g.attend(
        x, source_score=x[1:, :2], target_score=x[:, :2]
    ),
    "target_score must have 40 rows": lambda g, x: g.attend(
        x, source_score=x[:, :2], target_score=x[1:, :2]
    ),
    r"got shapes \(40, 6\), \(40, 4\) and \(40, 4\)": lambda g, x: g.attend(
        x, source_score=x[:, :4], target_score=x[:, :4]
    ),
    r"got shapes \(40, 6\), \(40, 2\) and \(40, 3\)": lambda g, x: g.attend(
        x, source_score=x[:, :2], target_score=x[:, :3]
    ),
}


@pytest.mark.parametrize("sentence", CALLS)
def test_calls_that_do_not_fit_are_refused(sentence):
    graph = LocalGraph.exact(cut(make_graph(), 1)[0], SingleGroup())
    with pytest.raises(InputError, match=sentence):
        CALLS[sentence](graph, torch.ones(graph.num_rows, 6))
