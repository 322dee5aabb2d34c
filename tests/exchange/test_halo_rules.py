"""Rules of halos beside a replica that keeps every row: deals, refreshes, codes, memories."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from delayed import WIDTH, clone_matrix, problem, run
from halo_rows import COUNTS, EPOCHS, WIDE, exchanged, made, sent_to
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.exchange.base import Synchronous
from distgnn.exchange.codec import CodecSpec
from distgnn.exchange.rule import HaloRule, Rota, Rule

NEAR = CodecSpec(bits=8, is_random=False)


def travels(deal, receiver, epoch):
    """Whether each row that a receiver gets has its turn, by the definition of the deal."""
    size, found, first = len(COUNTS), [], 0
    numbers = {}
    for sender in range(size):
        for other in range(size):
            numbers[sender, other] = first + np.arange(COUNTS[sender][other])
            first += COUNTS[sender][other]
    for sender in range(size):
        own = numbers[sender, receiver]
        if deal.period == 0:
            turn = np.zeros(len(own), bool)
        elif deal.how == "rows":
            turn = own % deal.period == epoch % deal.period
        elif deal.how == "together":
            turn = np.full(len(own), epoch % deal.period < deal.open_for)
        else:
            pair = (min(sender, receiver), max(sender, receiver))
            turn = np.full(
                len(own), pair in MEETINGS and MEETINGS[pair] % deal.period == epoch % deal.period
            )
        found.append(turn)
    return torch.from_numpy(np.concatenate(found))


MEETINGS = {(0, 3): 0, (1, 2): 0, (0, 1): 1, (2, 3): 1, (0, 2): 2, (1, 3): 2}
"""Rounds of a tournament of four, written down."""
DEALS = [
    Rota(),
    Rota(period=3),
    Rota("peers", 3),
    Rota("peers", 2),
    Rota("together", 4),
    Rota("together", 5, 2),
    Rota(period=0),
]


@pytest.mark.parametrize("deal", DEALS)
@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("refresh", [0, 5])
@pytest.mark.parametrize("is_cached", [True, False])
def test_rows_are_those_of_a_replica(deal, delay, refresh, is_cached):
    rows = made()
    rule = Rule(deal=deal, delay=delay, refresh=refresh, is_cached=is_cached)
    halo = HaloRule(forward=rule, warm_up_epochs=2)
    got = exchanged(halo, rows)
    for receiver in range(len(COUNTS)):
        used = torch.zeros_like(sent_to(rows, receiver, 0))
        whole_at = None
        for epoch in range(EPOCHS):
            if epoch < 2 or (refresh and epoch % refresh == 0):
                used, whole_at = sent_to(rows, receiver, epoch).clone(), epoch
            else:
                if not is_cached:
                    used = torch.zeros_like(used)
                sent_at = epoch - delay
                # What was under way when all rows arrived whole is older than they are.
                source = sent_at if sent_at > whole_at else (None if is_cached else whole_at)
                if source is not None and sent_at >= 0 - delay:
                    turn = travels(deal, receiver, sent_at)
                    used[turn] = sent_to(rows, receiver, source)[turn]
            torch.testing.assert_close(got[receiver][0][epoch], used, rtol=0, atol=0)


@pytest.mark.parametrize("deal", [*DEALS, Rota("random", 3)])
@pytest.mark.parametrize("refresh", [0, 5])
def test_rows_and_bytes_are_those_that_the_forecast_counts(deal, refresh):
    rule = HaloRule(
        forward=Rule(deal=deal, refresh=refresh, is_cached=False, codec=NEAR), warm_up_epochs=1
    )
    got = exchanged(rule, made())
    expected = 0
    for epoch in range(EPOCHS):
        codec = rule.codec_in(epoch, is_backward=False)
        count = rule.num_rows(COUNTS, epoch, is_backward=False)
        expected += codec.row_bytes(WIDE, 4) * count
    assert sum(sent for _, sent, _ in got) == expected


def test_a_random_deal_draws_its_share_and_both_ends_agree():
    deal = Rota("random", 4)
    counts = [deal.num_rows(np.array([[0, 5000], [5000, 0]]), epoch) for epoch in range(20)]
    assert abs(np.mean(counts) / 10000 - 0.25) < 0.01
    assert len(set(counts)) > 5
    rows = made()
    rule = HaloRule(forward=Rule(deal=deal, is_cached=False, is_scaled=True))
    for receiver, (found, _, _) in enumerate(exchanged(rule, rows)):
        for epoch in range(EPOCHS):
            true = 4 * sent_to(rows, receiver, epoch)
            is_there = found[epoch].abs().sum(dim=1) > 0
            torch.testing.assert_close(found[epoch][is_there], true[is_there])


@pytest.mark.parametrize("remembers", ["nothing", "error", "value"])
@pytest.mark.parametrize("bits", [8, 4, 1])
def test_codes_and_their_memories_are_those_of_a_replica(remembers, bits):
    """x' = x + e, e' = x' - Q(x'); or told' = told + Q(x - told), which the receiver has, too."""
    rows = made()
    spec = CodecSpec(bits=bits, is_random=False)
    rule = Rule(deal=Rota(period=2), codec=spec, remembers=remembers, delay=1)
    got = exchanged(HaloRule(forward=rule), rows)
    for sender, counts in enumerate(COUNTS):
        memory = torch.zeros(int(counts.sum()), WIDE)
        for receiver in range(len(COUNTS)):
            start = int(counts[:receiver].sum())
            mine = slice(start, start + int(counts[receiver]))
            before = int(COUNTS[:sender, receiver].sum())
            theirs = slice(before, before + int(counts[receiver]))
            used = torch.zeros(int(counts[receiver]), WIDE)
            for epoch in range(1, EPOCHS):
                turn = travels(Rota(period=2), receiver, epoch - 1)[theirs]
                now = rows[sender][epoch - 1][mine][turn]
                old = memory[mine][turn]
                value = now + old if remembers == "error" else now - old
                value = now if remembers == "nothing" else value
                read = _coded(value, bits)
                kept = memory[mine]
                if remembers == "error":
                    kept[turn] = value - read
                if remembers == "value":
                    kept[turn] = old + read
                    read = used[turn] + read
                used[turn] = read
                torch.testing.assert_close(
                    got[receiver][0][epoch][theirs], used, rtol=1e-5, atol=1e-5
                )


def _coded(rows, bits):
    """Code rows and read them back, by the kernel that is tested elsewhere."""
    from distgnn.exchange.coder import coder_of
    from distgnn.kernels.devices import PROCESSOR
    from distgnn.ops.buffers import Buffers

    coder = coder_of(CodecSpec(bits=bits, is_random=False), rows, 0, Buffers(PROCESSOR))
    return coder.unpack(coder.pack(rows.contiguous(), None, len(rows), 0)).clone()


def test_what_was_told_is_what_was_received_after_many_epochs():
    rows = made(num_epochs=300)
    rule = Rule(codec=CodecSpec(bits=2), remembers="value", refresh=70)
    got = exchanged(HaloRule(forward=rule), rows, num_epochs=300, stops=(50, 71, 200))
    for receiver, (_, _, state) in enumerate(got):
        for sender, counts in enumerate(COUNTS):
            start = int(counts[:receiver].sum())
            before = int(COUNTS[:sender, receiver].sum())
            count = int(counts[receiver])
            told = got[sender][2]["0.told"][start : start + count]
            assert torch.equal(told, state["0.received"][before : before + count])


def test_feedback_loses_nothing_in_the_long_run():
    """The sum of what was decoded is the sum of the rows, less the error that is left."""
    rows = made(num_epochs=60)
    rule = Rule(codec=CodecSpec(bits=1), remembers="error")
    got = exchanged(HaloRule(forward=rule), rows, num_epochs=60)
    for receiver, (found, _, _) in enumerate(got):
        decoded = torch.stack(found).sum(0)
        true = sum(sent_to(rows, receiver, epoch) for epoch in range(60))
        error = torch.cat(
            [
                got[sender][2]["0.told"][
                    int(counts[:receiver].sum()) : int(counts[: receiver + 1].sum())
                ]
                for sender, counts in enumerate(COUNTS)
            ]
        )
        torch.testing.assert_close(decoded, true - error, rtol=1e-3, atol=1e-3)


STATEFUL = [
    Rule(deal=Rota(period=3), delay=2, codec=CodecSpec(bits=4), remembers="error"),
    Rule(deal=Rota("peers", 3), delay=1, codec=CodecSpec(bits=8), remembers="value"),
    Rule(deal=Rota("random", 2), is_cached=False, is_scaled=True, codec=CodecSpec(bits=2)),
    Rule(deal=Rota("together", 3), codec=CodecSpec(bits=1), refresh=4),
    Rule(delay=1, smoothing=0.5, codec=CodecSpec(bits=8)),
]


@pytest.mark.parametrize("rule", STATEFUL)
@pytest.mark.parametrize("stops", [(1,), (4, 5), (8,)])
def test_a_checkpoint_changes_no_bit(rule, stops):
    halo = HaloRule(forward=rule, backward=rule, warm_up_epochs=2)
    rows = made()
    straight, resumed = exchanged(halo, rows), exchanged(halo, rows, stops=stops)
    for one, other in zip(straight, resumed, strict=True):
        for mine, theirs in zip(one[0], other[0], strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    "rule",
    [
        HaloRule(),
        HaloRule(forward=Rule(deal=Rota("together", 1)), backward=Rule(deal=Rota("peers", 1))),
        HaloRule(forward=Rule(deal=Rota(period=3), refresh=1), backward=Rule(refresh=1)),
        HaloRule(forward=Rule(deal=Rota(period=0)), warm_up_epochs=99),
    ],
)
def test_settings_that_change_nothing_have_the_synchronous_bits(rule):
    _, parts, inputs, grads = problem("anywhere")
    got, staleness, sent = run(parts, inputs, grads, rule=rule)
    expected, _, all_sent = run(parts, inputs, grads, exchange_of=Synchronous)
    np.testing.assert_array_equal(got, expected)
    assert (staleness, sent) == (0, all_sent)


def test_rows_that_travel_in_refreshes_alone_have_an_age():
    _, parts, inputs, grads = problem("anywhere")
    rule = Rule(deal=Rota(period=0), refresh=4)
    found, staleness, _ = run(parts, inputs, grads, rule=HaloRule(forward=rule, backward=rule))
    every = Rule(deal=Rota("together", period=4))
    expected, oldest, _ = run(parts, inputs, grads, rule=HaloRule(forward=every, backward=every))
    np.testing.assert_array_equal(found, expected)
    assert staleness == oldest == 3


def test_directions_have_rules_of_their_own():
    _, parts, inputs, grads = problem("anywhere")
    rule = HaloRule(backward=Rule(deal=Rota(period=0)))
    got, _, _ = run(parts, inputs, grads, rule=rule)
    exact, _, _ = run(parts, inputs, grads, exchange_of=Synchronous)
    for (out, back), (true_out, true_back) in zip(got, exact, strict=True):
        np.testing.assert_array_equal(out, true_out)
        assert not np.allclose(back, true_back)
    # No gradient crosses the cut: each part's own edges remain.
    for part in parts:
        rows = np.zeros((part.num_clones, WIDTH))
        own = part.global_id[: part.num_roots]
        rows[: part.num_roots] = grads[0][own]
        alone = (clone_matrix(part).T @ rows)[: part.num_roots]
        np.testing.assert_allclose(got[0][1][own], alone, atol=1e-12)


@pytest.mark.parametrize("deal", [*DEALS, Rota("together", 1000, 500)])
def test_index_lists_are_made_once_for_each_turn(deal):
    firsts = deal.first_epochs
    assert len(firsts) == (2 if deal.how == "together" else max(deal.period, 1))
    for epoch in range(13):
        same = firsts[deal.turn_of(epoch)]
        assert deal.num_rows(COUNTS, epoch) == deal.num_rows(COUNTS, same)


@given(st.integers(2, 9))
@settings(max_examples=8)
def test_in_a_tournament_every_pair_meets_once(num_ranks):
    from distgnn.exchange.rule import round_of

    num_rounds = num_ranks - 1 + num_ranks % 2
    for number in range(num_rounds):
        met = [
            (one, other)
            for one in range(num_ranks)
            for other in range(one + 1, num_ranks)
            if round_of(one, other, num_ranks) == number
        ]
        players = [player for pair in met for player in pair]
        assert len(players) == len(set(players))
    assert all(
        round_of(one, other, num_ranks) == round_of(other, one, num_ranks) < num_rounds
        for one in range(num_ranks)
        for other in range(num_ranks)
        if one != other
    )


def test_a_rule_knows_what_it_keeps():
    assert not Rule(codec=NEAR).keeps_rows
    assert HaloRule(forward=Rule(codec=NEAR)).is_synchronous
    assert not HaloRule(forward=Rule(codec=NEAR), warm_up_epochs=2).is_synchronous
    assert HaloRule(warm_up_epochs=2).is_synchronous
    for rule in (*STATEFUL, Rule(codec=NEAR, remembers="error"), replace(Rule(), smoothing=0.5)):
        assert rule.keeps_rows


@pytest.mark.parametrize("how", ["rows", "peers", "together"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_turns_of_pairs_are_those_of_their_epochs(how, size):
    deal = Rota(how, 4, open_for=3) if how == "together" else Rota(how, 4)
    assert deal.most == (1.0 if how == "together" else 0.25)
    epochs = [epoch for epoch in range(12) if epoch % 3]
    ones = np.ones((size, size), np.int64)
    turns = deal.turns_between(epochs, size)
    if how == "rows":
        assert (turns == len(epochs) / 4).all()
    else:
        assert np.array_equal(turns, sum(deal.rows_between(ones, epoch) for epoch in epochs))
    assert not deal.turns_between([], size).any()
