"""Typed models train to the same weights on any number of ranks."""

from __future__ import annotations

import pytest
from graphs import TYPED_KINDS, cut, make_graph
from training import TYPED_MODELS, check_equal, first_step


@pytest.mark.parametrize("kind", TYPED_KINDS)
@pytest.mark.parametrize("model", TYPED_MODELS)
def test_any_number_of_ranks(model, kind):
    graph = make_graph(kind)
    # The bias before a batch norm has no gradient but rounding, of which Adam makes whole steps.
    num_epochs = 1 if "batch" in model else 2
    expected = first_step(cut(graph, 1), graph, model, num_epochs=num_epochs)
    for num_parts, how in ((2, "either-end"), (3, "anywhere"), (4, "empty-part"), (7, "anywhere")):
        parts = cut(graph, num_parts, how=how)
        check_equal(first_step(parts, graph, model, num_epochs=num_epochs), expected)


@pytest.mark.parametrize("kind", TYPED_KINDS)
@pytest.mark.parametrize("num_parts", [1, 3])
def test_savings_change_nothing_beyond_rounding(kind, num_parts):
    graph = make_graph(kind, num_vertices=80)
    parts = cut(graph, num_parts)
    off = first_step(parts, graph, "rgcn-dropout", num_epochs=3, receptive_field=False)
    check_equal(first_step(parts, graph, "rgcn-dropout", num_epochs=3), off)
    check_equal(first_step(parts, graph, "rgcn-dropout", num_epochs=3, recompute=True), off)


def test_few_edges_and_parts_alone():
    graph = make_graph("typed")
    for algorithm in ("cd-2", "0c"):
        records, _ = first_step(
            cut(graph, 3), graph, "rgcn", num_epochs=12, algorithm=algorithm, eval_every=12
        )
        assert records[-1]["loss"] < records[0]["loss"]
