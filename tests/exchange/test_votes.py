"""Budgets of bytes and thresholds that are quantiles, beside a replica that keeps every row."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from graphs import cut, make_graph
from halo_rows import COUNTS, exchanged, sent_to
from training import ends_of, make_config

from distgnn.comm.threads import run_ranks
from distgnn.exchange.rule import HaloRule, Rule
from distgnn.exchange.spared import Gate, Spared
from distgnn.exchange.votes import Governor
from distgnn.training.loop.trainer import Trainer

WIDTH = 4
EPOCHS = 80
MANY = 16 * COUNTS


def walks(counts, num_epochs=EPOCHS, seed=0):
    """Rows that walk at random, each at a pace of its own."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for count in counts.sum(axis=1):
        start = torch.randn(int(count), WIDTH, generator=generator)
        paces = 10 ** (-3 * torch.rand(int(count), 1, generator=generator))
        steps = paces * torch.randn(num_epochs, int(count), WIDTH, generator=generator)
        rows.append(start + steps.cumsum(0))
    return rows


def both(rule, **more):
    return HaloRule(forward=rule, backward=rule, **more)


class Replica:
    """Rows that a budget lets through, written down lane by lane."""

    def __init__(self, rows, counts, limit):
        self.rows, self.counts, self.limit = rows, counts, limit
        self.threshold, self.allowed = 0.05, limit
        self.used = [torch.zeros_like(own[0]) for own in rows]

    def epoch(self, epoch):
        """Return how many rows wanted to travel, and how many did."""
        wanted = sent = 0
        for sender, own in enumerate(self.counts):
            for receiver, count in enumerate(own):
                mine = slice(int(own[:receiver].sum()), int(own[: receiver + 1].sum()))
                now, used = self.rows[sender][epoch][mine], self.used[sender][mine]
                far = ((now - used).norm(dim=1) / used.norm(dim=1)).nan_to_num(0, math.inf)
                first = sorted(range(count), key=lambda row, far=far: -float(far[row]))
                above = [row for row in first if float(far[row]) > self.threshold]
                leave = above[: max(math.ceil(self.allowed * count), 0)]
                used[leave] = now[leave]
                wanted, sent = wanted + len(above), sent + len(leave)
        total = int(self.counts.sum())
        self.allowed = min(self.allowed - sent / total, self.limit) + self.limit
        ratio = min(max(wanted / total / self.limit, 0.25), 4.0)
        self.threshold = min(max(self.threshold * ratio**0.5, 1e-4), 1e4)
        return wanted, sent


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("limit", [0.05, 0.3, 0.8])
@pytest.mark.parametrize("is_backward", [False, True])
def test_rows_are_those_of_a_replica(limit, size, is_backward):
    counts = MANY[:size, :size]
    rows = walks(counts, num_epochs=12)
    rule = both(Rule(spared=Spared(limit=limit)))
    got = exchanged(rule, rows, counts=counts, num_epochs=12, is_backward=is_backward)
    replica = Replica(rows, counts, limit)
    expected = 12 * (size * (size - 1) * rule.vote_bytes + int((-(-counts // 8)).sum()))
    for epoch in range(12):
        _, sent = replica.epoch(epoch) if size > 1 else (0, 0)
        expected += sent * WIDTH * 4
        for receiver in range(size):
            there = sent_to([used[None] for used in replica.used], receiver, 0, counts)
            assert torch.equal(got[receiver][0][epoch], there)
    assert sum(sent for _, sent, _ in got) == expected


@pytest.mark.parametrize("limit", [0.05, 0.1, 0.3, 0.8])
@pytest.mark.parametrize("burst", [1.0, 30.0])
def test_no_run_sends_more_than_its_budgets_nor_any_epochs_more_than_one_besides(limit, burst):
    rows = walks(MANY)
    for own in rows:
        # All rows move at once, after a time in which nothing did.
        own[30:40] = own[30]
        own[40:] *= burst
    replica, total = Replica(rows, MANY, limit), int(MANY.sum())
    sent = [replica.epoch(epoch)[1] for epoch in range(EPOCHS)]
    # A row a message, where the share is not a whole number of rows.
    spare = int((MANY > 0).sum())
    assert max(sent) <= 2 * limit * total + spare
    assert bool((np.cumsum(sent) <= limit * total * np.arange(1, EPOCHS + 1) + spare).all())
    sums = np.concatenate([[0], np.cumsum(sent)])
    for first in range(EPOCHS):
        for last in range(first, EPOCHS):
            assert sums[last + 1] - sums[first] <= limit * total * (last - first + 2) + spare


@pytest.mark.parametrize("limit", [0.05, 0.1, 0.3])
def test_the_budget_is_used(limit):
    replica, total = Replica(walks(MANY), MANY, limit), int(MANY.sum())
    sent = [replica.epoch(epoch)[1] for epoch in range(EPOCHS)]
    assert 0.75 * limit * total <= np.mean(sent[20:]) <= 1.02 * limit * total


def test_nothing_travels_while_nothing_changes():
    rows = [own[:1].expand(EPOCHS, -1, -1).contiguous() for own in walks(COUNTS)]
    rule = both(Rule(spared=Spared(limit=0.5)), warm_up_epochs=1)
    got = exchanged(rule, rows, num_epochs=EPOCHS)
    votes = 12 * EPOCHS * rule.vote_bytes
    masks = (EPOCHS - 1) * int((-(-COUNTS // 8)).sum())
    whole = int(COUNTS.sum()) * WIDTH * 4
    assert sum(sent for _, sent, _ in got) == whole + masks + votes


def test_rows_that_are_not_finite_changed_most():
    governor = Governor(0.25)
    known = torch.ones(4, 2)
    now = torch.tensor([[1.0, 1], [9.0, 9], [math.nan, 1], [1.0, 1]])
    assert governor.choose(now, known, [(1, 0, 4)], 8).tolist() == [False, False, True, False]
    assert governor.take_own() == [16, 8, 32]
    assert governor.take_own() == [0, 0, 0]


def test_a_quantile_opens_a_share_of_the_epochs():
    generator = torch.Generator().manual_seed(0)
    scales = 0.02 + 0.2 * torch.rand(EPOCHS, generator=generator)
    rows = []
    for own in walks(COUNTS):
        steps = torch.randn(own.shape, generator=generator) * scales[:, None, None]
        rows.append(own[:1] + steps)
    rule = both(Rule(gate=Gate(0.0, "mean", quantile=0.75)))
    got = exchanged(rule, rows, num_epochs=EPOCHS)
    sent = sum(sent for _, sent, _ in got) - 12 * EPOCHS * rule.vote_bytes
    share = sent / (EPOCHS * int(COUNTS.sum()) * WIDTH * 4)
    assert 0.15 < share < 0.4


def test_the_threshold_of_a_quantile_is_that_of_the_epochs_before():
    past = [[0.1, 0.5], [0.2, 0.4], [0.3, 0.9]]
    assert Gate(0.7).threshold_after(past) == 0.7
    assert Gate(0.0, quantile=0.5).threshold_after([]) == 0
    assert Gate(0.0, quantile=0.5).threshold_after(past) == pytest.approx(0.35)
    assert Gate(0.0, "mean", quantile=0.5).threshold_after(past) == pytest.approx(0.3)


def test_a_run_with_a_budget_sends_no_more_than_it_and_learns():
    graph = make_graph(num_vertices=120)
    parts = cut(graph, 3)
    options = {"model": "gcn", "hidden": 20, "layers": 3, "epochs": 30, "static_input": False}

    def records(halo):
        config = make_config(**options, halo=halo)

        def on_rank(group):
            trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
            return list(trainer.epochs())

        return run_ranks(3, on_rank)[0]

    exact, kept = records("exact"), records("warmup(1)+budget(0.3)")
    whole = exact[0]["halo_bytes_sent"]
    assert kept[0]["halo_bytes_sent"] == whole + 6 * 48
    sent = np.cumsum([record["halo_bytes_sent"] for record in kept[1:]])
    # Bits of rows, votes, and a row a message, which is much of messages as short as these.
    spare = 0.1 * whole
    assert bool((sent <= (0.3 + 0.05) * whole * np.arange(1, 30) + spare).all())
    learned, possible = (found[0]["loss"] - found[-1]["loss"] for found in (kept, exact))
    assert learned > 0.3 * possible
