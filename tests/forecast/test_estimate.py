"""Seconds of an epoch, estimated from a rehearsal."""

from __future__ import annotations

import pytest
from graphs import cut, make_graph
from training import ends_of, make_config

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.forecast import estimate, rehearsal
from distgnn.forecast.estimate import estimate_epoch
from distgnn.forecast.pace import Link, Pace
from distgnn.forecast.rehearsal import rehearse, walked
from distgnn.training.loop.trainer import Trainer

NUM_RANKS = 2


@pytest.fixture(autouse=True)
def _shortly(monkeypatch):
    monkeypatch.setattr(rehearsal, "_LEAST_S", 0.0)


@pytest.fixture
def _trials(monkeypatch):
    """Computing and messages that took nothing."""
    monkeypatch.setattr(estimate, "_compute_seconds", lambda trainer, part, ends: 0.0)
    monkeypatch.setattr(estimate, "_try_link", lambda group: Link(1e30, 0.0))


def estimated(kind="random", num_ranks=NUM_RANKS, **options):
    """The estimate on every rank, and what each is about to send."""
    graph = make_graph(kind)
    parts = cut(graph, num_ranks)
    config = make_config(**options)

    def on_rank(group):
        part, ends = parts[group.rank], ends_of(graph)
        trainer = Trainer(config, ends, part, group)
        seconds = estimate_epoch(trainer, part, ends)
        trainer.train_epoch()
        return seconds, trainer.graph.exchange.take_bytes(), len(trainer.model.hidden) + 1

    return run_ranks(num_ranks, on_rank)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("random", {}),
        ("random", {"model": "gat", "overlap": False}),
        ("random", {"algorithm": "cd-2", "epochs": 6}),
        ("random", {"algorithm": "0c"}),
        ("sparse-features", {"model": "gcn", "layers": 3}),
        ("few-edges", {"norm": "batch"}),
        ("typed", {"model": "rgcn"}),
    ],
)
def test_every_rank_hears_the_same_positive_time(kind, options):
    first, second = estimated(kind, **options)
    assert first[0] == second[0]
    assert 1e-6 < first[0] < 5


@pytest.mark.usefixtures("_trials")
def test_computing_is_that_of_the_slowest_rank(monkeypatch):
    monkeypatch.setattr(estimate, "_compute_seconds", lambda trainer, *_: 7.0 * trainer.group.rank)
    assert estimated()[0][0] == 7.0


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_rehearsal_of_a_sample_is_scaled_by_sums_and_products(share, monkeypatch):
    graph = make_graph("random")
    (part,), ends = cut(graph, 1), ends_of(graph)
    trainer = Trainer(make_config(receptive_field=False), ends, part, SingleGroup())
    monkeypatch.setattr(estimate, "probe", lambda part, width, columns: Pace(1.0, 0.0))
    monkeypatch.setattr(estimate, "_MAX_EDGES", int(share * part.num_edges))
    whole = walked(trainer)[0].rows[0].edges
    tried = []

    def epoch_seconds(sample, *, least_s):
        tried.append((walked(sample)[0].rows[0].edges / whole).item())
        return 0.2 + 0.8 * tried[-1]

    monkeypatch.setattr(rehearsal, "epoch_seconds", epoch_seconds)
    assert estimate_epoch(trainer, part, ends) == pytest.approx(1.0, rel=0.1)
    assert tried == pytest.approx([0.0, share], abs=0.1)


@pytest.mark.usefixtures("_trials")
@pytest.mark.parametrize("overlap", [True, False])
def test_rows_hide_computing_only_where_they_may(overlap, monkeypatch):
    monkeypatch.setattr(estimate, "_compute_seconds", lambda trainer, part, ends: 3.0)
    monkeypatch.setattr(estimate, "_try_link", lambda group: Link(2.0, 0.0))
    monkeypatch.setattr(estimate, "reduce_seconds", lambda num_bytes, size, link: 11.0)
    ranks = estimated(overlap=overlap)
    rows_s = max(sent for _, sent, _ in ranks) / 2.0
    assert rows_s > 3.0
    assert ranks[0][0] == pytest.approx((rows_s if overlap else rows_s + 3.0) + 11.0)


@pytest.mark.usefixtures("_trials")
def test_each_half_of_an_exchange_has_a_latency(monkeypatch):
    monkeypatch.setattr(estimate, "_try_link", lambda group: Link(1e30, 1.0))
    # The second layer's two halves, forward and backward, and the ring.
    assert estimated()[0][0] == pytest.approx(4 + 2 * (NUM_RANKS - 1))
    assert estimated(algorithm="0c")[0][0] == pytest.approx(2 * (NUM_RANKS - 1))


@pytest.mark.parametrize("num_ranks", [1, NUM_RANKS])
def test_a_run_has_the_same_bits_with_and_without_an_estimate(num_ranks):
    graph, config = make_graph("random"), make_config(dropout=0.5)
    parts, ends = cut(graph, num_ranks), ends_of(graph)

    def losses(has_estimate):
        def on_rank(group):
            part = parts[group.rank]
            trainer = Trainer(config, ends, part, group)
            if has_estimate:
                estimate_epoch(trainer, part, ends)
            return [trainer.train_epoch() for _ in range(3)]

        return run_ranks(num_ranks, on_rank)

    assert losses(has_estimate=True) == losses(has_estimate=False)


@pytest.mark.parametrize("kind", ["random", "sparse-features"])
def test_a_sample_has_few_input_rows_where_they_are_wide(kind, monkeypatch):
    wanted = []

    def rehearse_and_note(part, ends, config, *, max_edges):
        wanted.append(max_edges)
        return rehearse(part, ends, config, max_edges=max_edges)

    monkeypatch.setattr(estimate, "rehearse", rehearse_and_note)
    estimated(kind, num_ranks=1)
    monkeypatch.setattr(estimate, "_MAX_INPUT_BYTES", 100)
    estimated(kind, num_ranks=1)
    assert wanted[0] > 100
    assert 0 < wanted[1] < 100
