"""Promises that every preset of halos keeps, in either direction, on any number of ranks."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import torch
from graphs import make_graph
from halo_rows import exchanged, made, sent_to
from training import ends_of, make_config

from distgnn.comm.threads import run_ranks
from distgnn.exchange.base import Synchronous
from distgnn.exchange.delayed import Delayed
from distgnn.exchange.route import plan_route
from distgnn.exchange.rule import HaloRule, Rule
from distgnn.forecast.traffic import forecast
from distgnn.partition import assign
from distgnn.partition.directory.store import read_manifest, read_part, write
from distgnn.partition.quality import measure
from distgnn.training.config.codecs import halo_text, parse_halo
from distgnn.training.config.presets import PRESETS
from distgnn.training.loop.trainer import Trainer

SIZES = (1, 2, 3, 4, 8)
FEW = [pytest.param(size, marks=() if size in (1, 3) else pytest.mark.slow) for size in SIZES]
EPOCHS = 7
WORDS = {name: preset.halo for name, preset in PRESETS.items()} | {
    "budget": "warmup(1)+budget(0.25)+int4+delta",
    "quantile": "gate(q60,vote=half,most=3)+int8",
}
"""Rules of all presets, and of words that none of them has."""


def rule_of(name, *, is_backward):
    """One direction of a preset; the other one is exact. A warm-up is an epoch at most."""
    rule = parse_halo(WORDS[name])
    rule = replace(rule, warm_up_epochs=min(rule.warm_up_epochs, 1), later=())
    way = rule.of(is_backward=is_backward)
    ways = {"forward": Rule(), "backward": Rule()} | {"backward" if is_backward else "forward": way}
    return replace(rule, **ways)


def keeps(name, *, is_backward):
    return not rule_of(name, is_backward=is_backward).is_synchronous


WAYS = [
    (name, is_backward)
    for name in WORDS
    for is_backward in (False, True)
    if rule_of(name, is_backward=is_backward) != HaloRule()
    and not rule_of(name, is_backward=is_backward).is_adaptive
]
KEEPING = [
    (name, is_backward) for name, is_backward in WAYS if keeps(name, is_backward=is_backward)
]


@lru_cache
def counts_of(size):
    counts = np.random.default_rng(size).integers(1, 9, (size, size))
    np.fill_diagonal(counts, 0)
    return counts


def oldest(rule):
    """Largest age of a row under a rule that bounds it; None of one that does not."""
    if rule.deal.how == "random" or (rule.gate is not None and not rule.gate.most):
        return None
    if rule.deal.period == 0:
        return rule.refresh - 1 if rule.refresh else None
    return rule.delay + rule.deal.period - 1 + (rule.gate.most if rule.gate else 0)


@pytest.mark.parametrize("size", FEW)
@pytest.mark.parametrize(("name", "is_backward"), KEEPING)
def test_a_checkpoint_changes_no_bit_and_bytes_are_at_most_those_of_the_rule(
    name, is_backward, size
):
    counts, rule = counts_of(size), rule_of(name, is_backward=is_backward)
    rows = made(counts=counts)
    straight, resumed = (
        exchanged(rule, rows, counts=counts, is_backward=is_backward, stops=stops)
        for stops in ((), (2, 5, 10))
    )
    for one, other in zip(straight, resumed, strict=True):
        for mine, theirs in zip(one[0], other[0], strict=True):
            assert torch.equal(mine, theirs)
    num_epochs = len(straight[0][0])
    most = num_epochs * size * (size - 1) * rule.vote_bytes + sum(
        rule.num_rows(counts, epoch, is_backward=is_backward)
        * rule.codec_in(epoch, is_backward=is_backward).row_bytes(rows[0].shape[2], 4)
        + rule.mask_bytes(counts, epoch, is_backward=is_backward)
        for epoch in range(num_epochs)
    )
    sent = sum(sent for _, sent, _ in straight)
    way = rule.of(is_backward=is_backward)
    assert sent == most if way.is_counted else sent <= most
    ages = [int(state["epoch"][1]) for _, _, state in straight]
    if (limit := oldest(way)) is not None:
        assert max(ages) <= limit


@pytest.mark.parametrize("size", FEW)
@pytest.mark.parametrize(("name", "is_backward"), KEEPING)
def test_the_other_direction_keeps_every_bit(name, is_backward, size):
    counts, rule = counts_of(size), rule_of(name, is_backward=is_backward)
    rows = made(counts=counts)
    got = exchanged(rule, rows, counts=counts, is_backward=not is_backward)
    for receiver in range(size):
        for epoch in range(len(got[0][0])):
            assert torch.equal(got[receiver][0][epoch], sent_to(rows, receiver, epoch, counts))


@pytest.mark.parametrize(("name", "is_backward"), KEEPING)
def test_all_ranks_end_when_one_fails(name, is_backward):
    counts, rule = counts_of(3), rule_of(name, is_backward=is_backward)
    rows = made(counts=counts)

    def on_rank(group):
        exchange = Delayed(group, rule)
        route = plan_route(group, counts[group.rank], counts[:, group.rank])
        for epoch in range(EPOCHS):
            exchange.start_pass(is_backward=is_backward)
            arriving = exchange.begin(route, rows[group.rank][epoch], exchange.new_channel())
            if group.rank == 1 and epoch == 4:
                raise ValueError("rank 1 has had enough")
            arriving.wait()
            exchange.end_epoch()
            exchange.seeds.end_epoch()

    begun = time.monotonic()
    with pytest.raises(ValueError, match="rank 1 has had enough"):
        run_ranks(3, on_rank)
    assert time.monotonic() - begun < 10


@pytest.fixture(scope="module")
def directory_of(tmp_path_factory):
    graph = make_graph(num_vertices=48)

    @lru_cache
    def directory(size):
        folder = tmp_path_factory.mktemp("parts") / "p"
        assignment = assign("libra", graph, size, seed=1)
        quality = measure(graph, assignment)
        write(folder, graph, assignment, method="libra", options={}, seed=1, quality=quality)
        return folder

    return directory


def records_of(directory, halo):
    manifest = read_manifest(directory)
    config = make_config(
        model="gcn", hidden=20, layers=2, epochs=EPOCHS, halo=halo, static_input=False
    )

    def on_rank(group):
        part = read_part(directory, group.rank)
        return list(Trainer(config, ends_of(manifest), part, group).epochs())

    records = run_ranks(manifest.num_parts, on_rank)[0]
    found = forecast(directory, manifest, config)
    return records, [found.bytes_in_epoch(epoch) for epoch in range(EPOCHS)]


def check_training(directory, rule, size):
    """Nothing changes on one rank; on more, bytes are those of the forecast, and runs repeat."""
    records, predicted = records_of(directory, halo_text(rule))
    counted = [record["halo_bytes_sent"] for record in records]
    losses = [record["loss"] for record in records]
    assert np.isfinite(losses).all()
    if size == 1:
        assert not any(counted)
        assert losses == [record["loss"] for record in records_of(directory, "exact")[0]]
        return
    if rule.forward.is_counted and rule.backward.is_counted:
        assert counted == predicted
    else:
        assert all(sent <= most for sent, most in zip(counted, predicted, strict=True))
    assert losses == [record["loss"] for record in records_of(directory, halo_text(rule))[0]]


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("name", "is_backward"), WAYS)
def test_training_with_every_preset(name, is_backward, size, directory_of):
    check_training(directory_of(size), rule_of(name, is_backward=is_backward), size)


@pytest.mark.parametrize(
    ("name", "size"),
    [("cdfgnn", 1), ("cdfgnn", 3), ("ec-graph", 2), ("sancus", 3), ("ds-sync", 4), ("sancus", 1)],
)
def test_training_with_a_few(name, size, directory_of):
    rule = parse_halo(WORDS[name])
    check_training(directory_of(size), rule, size)


def test_the_presets_that_keep_nothing_are_synchronous():
    for name, is_backward in set(WAYS) - set(KEEPING):
        rule = rule_of(name, is_backward=is_backward)
        counts, rows = counts_of(2), made(counts=counts_of(2))

        def on_rank(group, rule=rule, counts=counts, rows=rows):
            exchange = Synchronous(group, rule.codecs)
            route = plan_route(group, counts[group.rank], counts[:, group.rank])
            exchange.begin(route, rows[group.rank][0], exchange.new_channel()).wait()
            return exchange.state()

        assert run_ranks(2, on_rank) == [{}, {}]
