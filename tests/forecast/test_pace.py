"""Seconds of an epoch, modelled from what an epoch computes and sends."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import cut, make_graph
from training import make_config

from distgnn.aggregate.traffic import sum_traffic
from distgnn.exchange.rule import delayed
from distgnn.forecast.pace import (
    Link,
    Pace,
    compute_seconds,
    probe,
    reduce_seconds,
    toll_seconds,
    wire_seconds,
)
from distgnn.forecast.traffic import Forecast, LayerRows
from distgnn.machine.loopback import MessageCost
from distgnn.nn.models import GNN

READ = np.array([[0, 3], [5, 0]])
WRITE = np.array([[0, 2], [1, 0]])


def epoch(*, num_bins=1):
    """Two layers of a GCN over two ranks that send 5 columns each way."""
    rows = LayerRows(READ, WRITE, np.array([100, 40]), np.array([10, 20]))
    delays = delayed(num_bins=num_bins)
    model = GNN(make_config(model="gcn", hidden=8).model, 5, 3)
    layers = (sum_traffic(5).without_gradient(), sum_traffic(3))
    return Forecast(model, layers, (rows, rows), layers, rows, delays, (1.0, 1.0), ())


def test_a_rank_computes_its_edges_and_its_products():
    found = epoch()
    seconds = compute_seconds(found, found.model, Pace(edge_s=1.0, product_s=0.0))
    assert seconds.tolist() == [100 * (5 + 2 * 3), 40 * (5 + 2 * 3)]
    seconds = compute_seconds(found, found.model, Pace(edge_s=0.0, product_s=1.0), density=0.5)
    assert seconds.tolist() == [n * (2 * 0.5 * 5 * 8 + 3 * 8 * 3) for n in (10, 20)]


def test_a_rank_waits_for_what_is_more_sent_or_received_and_for_each_half_of_an_exchange():
    found = epoch()
    # Forward both layers, backward the second: rows of roots go out, partials come in, and back.
    sent = [(3 + 1) * 4 * (5 + 3) + (2 + 5) * 4 * 3, (5 + 2) * 4 * (5 + 3) + (1 + 3) * 4 * 3]
    assert found.bytes_between.sum(axis=1).tolist() == sent
    received = sent[::-1]
    expected = [max(pair) / 10 for pair in zip(sent, received, strict=True)]
    assert wire_seconds(found, Link(10.0, 0.0)).tolist() == expected
    with_latency = wire_seconds(found, Link(10.0, 2.0))
    assert with_latency.tolist() == [value + 6 * 2.0 for value in expected]
    assert wire_seconds(epoch(num_bins=2), Link(10.0, 0.0))[0] == expected[0] / 2


def test_a_rank_pays_for_all_that_it_sends_and_receives():
    found = epoch()
    assert found.messages_between.tolist() == [[0, 6], [6, 0]]
    assert toll_seconds(found, MessageCost(2.0, 0.0)).tolist() == [12 * 2.0] * 2
    num_bytes = int(found.bytes_between.sum())
    assert toll_seconds(found, MessageCost(0.0, 3.0)).tolist() == [num_bytes * 3.0] * 2
    assert toll_seconds(epoch(num_bins=2), MessageCost(0.0, 3.0))[0] == num_bytes * 1.5


def test_what_sends_no_rows_is_no_step():
    rows = LayerRows(READ, np.zeros_like(WRITE), np.array([100, 40]), np.array([10, 20]))
    layers = (sum_traffic(5), sum_traffic(3))
    found = Forecast(None, layers, (rows, rows), layers, rows, delayed(), (1.0, 1.0), ())
    assert (epoch().num_steps, found.num_steps) == (6, 4)
    assert found.messages_between.tolist() == [[0, 4], [4, 0]]


def test_a_ring_sends_all_values_twice_but_for_the_share_of_a_rank():
    assert reduce_seconds(400, 4, Link(10.0, 0.0)) == pytest.approx(2 * 300 / 10)
    assert reduce_seconds(400, 4, Link(10.0, 2.0)) == pytest.approx(2 * 300 / 10 + 6 * 2.0)


@pytest.mark.parametrize("kind", ["random", "few-edges"])
def test_a_trial_gives_positive_seconds_and_edges_make_no_difference_to_products(kind):
    part = cut(make_graph(kind), 2)[0]
    pace = probe(part, 16, columns=(6, 8))
    assert 0 < pace.product_s < 1
    assert 0 < pace.edge_s < 1


def test_a_part_without_edges_can_be_tried():
    part = cut(make_graph("random"), 2, how="empty-part")[1]
    assert part.num_edges == 0
    assert probe(part, 16, columns=(6, 8)).edge_s >= 0
