"""The number of ranks does not matter: loss, gradients, scores and dropout are one process's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import CUTS, KINDS, cut, make_graph
from training import MODELS, check_equal, first_step, make_config

from distgnn.partition import METHODS, assign
from distgnn.partition.build import build_parts
from distgnn.partition.orders import ORDERS, arrange
from distgnn.training.loop.graphs import why_not_restricted


@pytest.mark.parametrize("num_parts", [2, 3, 4, 7])
@pytest.mark.parametrize("model", MODELS)
def test_any_model_on_any_number_of_ranks(model, num_parts):
    graph = make_graph("random")
    expected = first_step(cut(graph, 1), graph, model)
    check_equal(first_step(cut(graph, num_parts), graph, model), expected)


# Largest part of a gradient by which rounded rows may change it: codes are fine, but a value may
# end up on the other side of a ReLU or lose a maximum.
SMOOTH, KINKED = 0.02, 0.15


@pytest.mark.parametrize("num_parts", [2, 3, 7])
@pytest.mark.parametrize(
    ("model", "most"),
    [
        ("gcn", SMOOTH),
        ("sage-mean", SMOOTH),
        ("sage-max", KINKED),
        ("gin", KINKED),
        ("gat", KINKED),
        ("gatv2-dropout", KINKED),
    ],
)
def test_coded_rows_train_as_exact_ones_but_for_their_rounding(model, most, num_parts):
    graph, options = make_graph("random"), {"hidden": 20, "layers": 3}
    (expected,), (gradient,) = first_step(cut(graph, 1), graph, model, **options)
    for halo in ("bf16", "int8", "int8(round=near)"):
        (got,), (coded,) = first_step(cut(graph, num_parts), graph, model, halo=halo, **options)
        assert got["loss"] == pytest.approx(expected["loss"], rel=0.005)
        assert 0 < got["codec_error"] < 0.02
        changes = [coded[name] - grad for name, grad in gradient.items()]
        assert _norm(changes) < most * _norm(list(gradient.values())), halo


def _norm(tensors):
    return float(sum(tensor.square().sum() for tensor in tensors)) ** 0.5


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_any_graph_and_any_cut(kind, how):
    graph = make_graph(kind)
    for model in ("gcn-dropout", "sage-max", "gat", "gin-learned", "gatv2-dropout"):
        # Adam makes full steps of rounding, which is all the gradient that some biases have.
        expected = first_step(cut(graph, 1), graph, model, optimizer="sgd")
        check_equal(first_step(cut(graph, 3, how=how), graph, model, optimizer="sgd"), expected)


@pytest.mark.parametrize("model", ["sage-dropout", "gat-dropout"])
@pytest.mark.parametrize("method", METHODS)
def test_any_partitioner(method, model):
    graph = make_graph("random", num_vertices=60)
    parts = list(build_parts(graph, assign(method, graph, 4, seed=1)))
    expected = first_step(cut(graph, 1), graph, model)
    check_equal(first_step(parts, graph, model), expected)


@pytest.mark.parametrize("num_parts", [1, 2, 4])
@pytest.mark.parametrize("order", ORDERS)
def test_any_order_inside_a_part(order, num_parts):
    graph = make_graph("random", num_vertices=60)
    assignment = assign("metis", graph, num_parts)
    arranged = arrange(order, graph, assignment)
    parts = list(build_parts(graph, assignment, order=arranged))
    for model in ("sage-dropout", "sage-max"):
        expected = first_step(cut(graph, 1), graph, model, num_epochs=2)
        check_equal(first_step(parts, graph, model, num_epochs=2), expected)


def test_more_ranks_than_edges_and_ranks_without_training_vertices():
    graph = make_graph("few-edges", num_vertices=12)
    parts = cut(graph, 7)
    assert any(part.num_edges == 0 for part in parts)
    assert any(not part.train_mask[0].any() for part in parts)
    for model in ("gcn-batch-residual", "sage-mean", "gat"):
        expected = first_step(cut(graph, 1), graph, model)
        check_equal(first_step(parts, graph, model), expected)


@pytest.mark.parametrize("feature_norm", ["row", "standard"])
def test_features_are_normalised_over_the_whole_graph(feature_norm):
    graph = make_graph("random")
    # Rows that sum to nearly zero would blow up rounding, which is not what is tested.
    np.abs(graph.features, out=graph.features)
    expected = first_step(cut(graph, 1), graph, "gcn", feature_norm=feature_norm)
    check_equal(first_step(cut(graph, 3), graph, "gcn", feature_norm=feature_norm), expected)


def test_losses_agree_for_fifty_epochs():
    graph = make_graph("random", num_vertices=120)
    expected, _ = first_step(cut(graph, 1), graph, "gcn", num_epochs=50)
    for num_parts in (2, 4):
        got, _ = first_step(cut(graph, num_parts), graph, "gcn", num_epochs=50)
        for one, other in zip(got, expected, strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)


def test_the_same_seed_gives_the_same_bits():
    graph = make_graph("random")
    parts = cut(graph, 3)
    one, two = (first_step(parts, graph, "gcn-dropout", num_epochs=5) for _ in range(2))
    assert [r["loss"] for r in one[0]] == [r["loss"] for r in two[0]]
    for left, right in zip(one[1], two[1], strict=True):
        assert all(torch.equal(left[name], right[name]) for name in left)


def test_another_seed_and_another_epoch_draw_other_masks():
    graph = make_graph("random")
    parts = cut(graph, 1)
    one, _ = first_step(parts, graph, "gcn-dropout", num_epochs=2, lr=1e-12, weight_decay=0.0)
    assert one[0]["loss"] != pytest.approx(one[1]["loss"], rel=1e-4)


SAVING = (
    "gcn",
    "sage-mean",
    "sage-max",
    "sage-pool",
    "gat",
    "gatv2-dropout",
    "gat-dropout",
    "gin",
    "sgc",
    "sgc-near",
    "appnp",
)


@pytest.mark.parametrize("num_parts", [1, 3])
@pytest.mark.parametrize("model", [*SAVING, "sage-dropout", "gcn-dropout"])
@pytest.mark.parametrize("kind", ["random", "sparse-features"])
def test_the_exact_savings_change_nothing_beyond_rounding(kind, model, num_parts):
    graph = make_graph(kind, num_vertices=80)
    parts = cut(graph, num_parts)
    off = {"static_input": False, "receptive_field": False}
    expected = first_step(parts, graph, model, num_epochs=3, **off)
    for static_input, receptive_field in ((True, True), (True, False), (False, True)):
        switches = {"static_input": static_input, "receptive_field": receptive_field}
        check_equal(first_step(parts, graph, model, num_epochs=3, **switches), expected)


def test_layers_that_read_one_edge_far_run_on_what_the_loss_reads():
    assert why_not_restricted(make_config(model="sgc", hops=1)) == ""
    far = make_config(model="sgc", hops=2)
    assert why_not_restricted(far) == "a layer reads what is up to 2 edges away"


@pytest.mark.parametrize("num_parts", [1, 3])
def test_training_vertices_with_all_edges_need_not_be_all_vertices(num_parts):
    graph = make_graph("random", num_vertices=80)
    has_edges = np.bincount(graph.dst, minlength=80) > 0
    others = np.flatnonzero(~has_edges)
    masks = [np.isin(np.arange(80), others[half::2])[None] for half in (0, 1)]
    graph = replace(graph, train_mask=has_edges[None], val_mask=masks[0], test_mask=masks[1])
    parts = cut(graph, num_parts)
    expected = first_step(parts, graph, "gcn", num_epochs=3, receptive_field=False)
    check_equal(first_step(parts, graph, "gcn", num_epochs=3), expected)
