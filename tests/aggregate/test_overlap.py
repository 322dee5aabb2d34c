"""cd-0 whose rows are waited for at once: the same bits, in the order that hides nothing."""

from __future__ import annotations

import pytest
import torch
from graphs import cut, make_graph
from training import check_same_values, first_step

from distgnn.comm.threads import run_ranks
from distgnn.exchange.base import Synchronous, SynchronousBlocking
from distgnn.exchange.clock import SpanClock
from distgnn.graph.local_graph import LocalGraph


@pytest.mark.parametrize("model", ["sage-mean", "sage-max", "gat-dropout"])
def test_results_have_the_bits_of_cd_0(model):
    graph = make_graph()
    parts = cut(graph, 3)
    hidden, unhidden = (
        first_step(parts, graph, model, num_epochs=2, overlap=overlap) for overlap in (True, False)
    )
    assert [record["loss"] for record in hidden[0]] == [record["loss"] for record in unhidden[0]]
    check_same_values(dict(enumerate(hidden[1])), dict(enumerate(unhidden[1])))


def phases(kind):
    """Return the actions of three ranks in one forward sum, in the order in which they ended."""
    parts = cut(make_graph(), 3)

    def on_rank(group):
        graph = LocalGraph.exact(parts[group.rank], group).with_exchange(kind(group))
        graph.exchange.clock = SpanClock()
        graph.aggregate(torch.ones(graph.num_rows, 3))
        return [span.name for span in graph.exchange.clock.take_spans()]

    return run_ranks(3, on_rank)


def test_rows_are_waited_for_before_an_edge_is_walked():
    for unhidden, hidden in zip(phases(SynchronousBlocking), phases(Synchronous), strict=True):
        assert hidden[:2] == ["pack", "aggregate"]
        assert unhidden[:2] == ["pack", "exchange_wait"]
        # One look at each of the two halves later finds that they are there.
        assert unhidden.count("exchange_wait") == hidden.count("exchange_wait") + 2
