"""Rows that are spared, gates by vote and trends, beside a replica that keeps every row."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from halo_rows import COUNTS, EPOCHS, WIDE, exchanged, made, sent_to

from distgnn.comm.single import SingleGroup
from distgnn.datasets import InputError
from distgnn.exchange.channel import Channel
from distgnn.exchange.codec import CodecSpec
from distgnn.exchange.delayed import Delayed
from distgnn.exchange.rule import HaloRule, Rota, Rule
from distgnn.exchange.spared import Gate, Spared
from distgnn.exchange.votes import Governor

SIZES = (1, 2, 3, 4)
NEAR = CodecSpec(bits=8, is_random=False)


def both(rule, **more):
    return HaloRule(forward=rule, backward=rule, **more)


def lanes(counts):
    """(sender, receiver, rows of the sender's buffer, rows of the receiver's buffer)."""
    for sender in range(len(counts)):
        for receiver in range(len(counts)):
            start, before = (
                int(part.sum()) for part in (counts[sender][:receiver], counts[:sender, receiver])
            )
            count = int(counts[sender][receiver])
            yield (
                sender,
                receiver,
                slice(start, start + count),
                slice(before, before + count),
            )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_backward", [False, True])
@pytest.mark.parametrize("threshold", [0.05, 0.3])
@pytest.mark.parametrize("decays", [False, True])
@pytest.mark.parametrize("period", [1, 3])
def test_a_row_travels_once_it_is_too_far_from_what_was_told(
    size, is_backward, threshold, decays, period
):
    counts = COUNTS[:size, :size]
    rows = made(counts=counts)
    spared = Spared(threshold=threshold, decays=decays)
    rule = both(Rule(spared=spared, deal=Rota("together", period)), warm_up_epochs=2)
    got = exchanged(rule, rows, counts=counts, is_backward=is_backward)
    expected = 0
    for sender, receiver, mine, theirs in lanes(counts):
        used = torch.zeros(mine.stop - mine.start, WIDE)
        for epoch in range(EPOCHS):
            now = rows[sender][epoch][mine]
            share = threshold / math.sqrt(max(epoch - 1, 1)) if decays else threshold
            if epoch < 2:
                used, num_sent = now.clone(), len(now)
            elif epoch % period == 0:
                is_far = (now - used).norm(dim=1) > share * used.norm(dim=1)
                used[is_far] = now[is_far]
                num_sent = int(is_far.sum())
                expected += -(-len(now) // 8)
                bound = share * used.norm(dim=1) * (1 + 1e-5)
                assert bool(((used - now).norm(dim=1) <= bound).all())
            else:
                num_sent = 0
            expected += num_sent * WIDE * 4
            assert torch.equal(got[receiver][0][epoch][theirs], used)
    assert sum(sent for _, sent, _ in got) == expected
    most = sum(
        rule.num_rows(counts, epoch, is_backward=is_backward) * WIDE * 4
        + rule.mask_bytes(counts, epoch, is_backward=is_backward)
        for epoch in range(EPOCHS)
    )
    assert expected <= most
    assert size == 1 or threshold < 0.3 or decays or expected < most


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("best_of", [2, 4, 50])
@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("period", [1, 3])
def test_of_so_many_rows_the_one_that_changed_most_travels(size, best_of, delay, period):
    counts = COUNTS[:size, :size]
    rows = made(counts=counts)
    deal = Rota("together", period)
    rule = both(Rule(spared=Spared(best_of=best_of), delay=delay, deal=deal), warm_up_epochs=1)
    got = exchanged(rule, rows, counts=counts)
    for sender, receiver, mine, theirs in lanes(counts):
        told = rows[sender][0][mine].clone()
        history = [told.clone()]
        for epoch in range(1, EPOCHS):
            if epoch % period == 0:
                now = rows[sender][epoch][mine]
                count = -(-len(now) // best_of)
                first = (now - told).norm(dim=1).sort(descending=True).indices[:count]
                told[first] = now[first]
            history.append(told.clone())
            expected = history[max(epoch - delay, 0)]
            assert torch.equal(got[receiver][0][epoch][theirs], expected)
    assert sum(sent for _, sent, _ in got) == sum(
        rule.num_rows(counts, epoch, is_backward=False) * WIDE * 4
        + rule.mask_bytes(counts, epoch, is_backward=False)
        for epoch in range(EPOCHS)
    )


@pytest.mark.parametrize("size", SIZES)
def test_without_a_threshold_rows_have_the_synchronous_bits(size):
    counts = COUNTS[:size, :size]
    rows = made(counts=counts)
    got = exchanged(both(Rule(spared=Spared(threshold=0))), rows, counts=counts)
    for receiver in range(size):
        for epoch in range(EPOCHS):
            expected = sent_to(rows, receiver, epoch, counts)
            assert torch.equal(got[receiver][0][epoch], expected)


def test_rows_that_do_not_change_cost_a_bit_each():
    rows = [start[:1].expand(EPOCHS, -1, -1).contiguous() for start in made()]
    rule = both(Rule(spared=Spared(threshold=0.05)), warm_up_epochs=1)
    got = exchanged(rule, rows)
    whole = int(COUNTS.sum()) * WIDE * 4
    masks = (EPOCHS - 1) * int((-(-COUNTS // 8)).sum())
    assert sum(sent for _, sent, _ in got) == whole + masks


@pytest.mark.parametrize("bits", [8, 2])
@pytest.mark.parametrize("remembers", ["nothing", "value"])
@pytest.mark.parametrize("spared", [Spared(threshold=0.2), Spared(best_of=3)])
def test_what_was_told_is_what_was_received(bits, remembers, spared):
    rows = made(num_epochs=100)
    rule = Rule(codec=CodecSpec(bits), remembers=remembers, spared=spared, refresh=30)
    rule = replace(rule, has_trend=spared.is_counted)
    got = exchanged(both(rule), rows, num_epochs=100, stops=(17, 31, 60))
    for sender, receiver, mine, theirs in lanes(COUNTS):
        told = got[sender][2]["0.told"][mine]
        assert torch.equal(told, got[receiver][2]["0.received"][theirs])


@pytest.mark.parametrize("more", [{"remembers": "value"}, {"spared": Spared(threshold=0.1)}])
def test_rows_behind_a_gate_that_is_shut_move_on_at_both_ends(more):
    rule = Rule(gate=Gate(9.0), codec=CodecSpec(4), refresh=10, has_trend=True, **more)
    got = exchanged(both(rule), made(num_epochs=35), num_epochs=35, stops=(17, 24))
    for sender, receiver, mine, theirs in lanes(COUNTS):
        told = got[sender][2]["0.told"][mine]
        assert torch.equal(told, got[receiver][2]["0.received"][theirs])


def test_ids_count_for_nothing_where_a_gate_measures_rows():
    state = Channel.__new__(Channel)
    state.sample = torch.full((2, 3), 10**5)
    assert state.measure(state.sample + 1) == (0.0, 0.0)


@pytest.mark.parametrize("chooses", [Spared(threshold=0.1), Governor(0.5)])
def test_columns_of_another_kind_count_by_themselves(chooses):
    """Gradients beside sums of a softmax, which are larger, and hardly move."""
    known = torch.tensor([[1e-4, 2e-4, 1.0]]).repeat(4, 1)
    now = known.clone()
    now[1, 0] *= 2  # half of the gradient
    now[2, 2] *= 2
    now[3, 2] += 1e-3
    more = (0,) if isinstance(chooses, Spared) else (12,)
    lanes = [(1, 0, 4)]
    alone = chooses.choose(now, known, lanes, *more, exact_columns=1)
    assert alone.tolist()[:3] == [False, True, True]
    assert not bool(alone[3]) or isinstance(chooses, Governor)
    if isinstance(chooses, Spared):
        assert chooses.choose(now, known, lanes, 0).tolist() == [False, False, True, False]


def test_a_row_that_is_not_finite_travels():
    rows = made()
    rows[0][5, 2] = math.nan
    got = exchanged(both(Rule(spared=Spared(threshold=10))), rows)
    assert bool(got[1][0][5][2].isnan().all())


def moved(rates, num_epochs=EPOCHS):
    """Rows that change by the same in every epoch, without rounding."""
    return [
        torch.stack([start[0].round() + epoch * rate for epoch in range(num_epochs)])
        for start, rate in zip(made(), rates, strict=True)
    ]


def test_rows_on_a_line_are_predicted_and_none_of_them_travels():
    rates = [torch.randint(-3, 4, (int(count), WIDE)) * 1.0 for count in COUNTS.sum(axis=1)]
    rows = moved(rates)
    rule = Rule(spared=Spared(threshold=0.01), refresh=4, has_trend=True, codec=NEAR)
    got = exchanged(both(rule, warm_up_epochs=2), rows)
    for receiver in range(len(COUNTS)):
        for epoch in range(EPOCHS):
            assert torch.equal(got[receiver][0][epoch], sent_to(rows, receiver, epoch))
    num_whole = 2 + 2
    whole = num_whole * int(COUNTS.sum()) * WIDE * 4
    masks = (EPOCHS - num_whole) * int((-(-COUNTS // 8)).sum())
    assert sum(sent for _, sent, _ in got) == whole + masks


def test_a_trend_is_what_a_row_changed_between_two_refreshes():
    rows = made()
    rule = Rule(deal=Rota(period=0), refresh=3, has_trend=True)
    got = exchanged(both(rule), rows)
    for receiver in range(len(COUNTS)):
        for epoch in range(EPOCHS):
            last = epoch // 3 * 3
            base = sent_to(rows, receiver, last)
            rate = (base - sent_to(rows, receiver, last - 3)) / 3 if last else 0 * base
            expected = base + (epoch - last) * rate
            torch.testing.assert_close(got[receiver][0][epoch], expected, rtol=1e-5, atol=1e-5)


def change_of(rows, sender, epoch, told):
    """Change of a sixteenth of a rank's rows since an epoch, as a share of these."""
    now, then = rows[sender][epoch][::16].double(), rows[sender][told][::16].double()
    return float((now - then).norm() / then.norm()) if len(then) else 0.0


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_backward", [False, True])
@pytest.mark.parametrize(
    "gate", [Gate(0.2), Gate(0.25, "half"), Gate(0.2, "mean"), Gate(9.0, "any", 3), Gate(9.0)]
)
def test_a_gate_opens_by_the_votes_of_the_epoch_before(size, is_backward, gate):
    counts = COUNTS[:size, :size]
    rows = made(counts=counts)
    rule = both(Rule(gate=gate))
    got = exchanged(rule, rows, counts=counts, is_backward=is_backward)
    is_open, told, opened = True, 0, []
    for epoch in range(EPOCHS):
        last = told
        if is_open:
            told = epoch
            opened.append(epoch)
        for receiver in range(size):
            expected = sent_to(rows, receiver, told, counts)
            assert torch.equal(got[receiver][0][epoch], expected)
        votes = [change_of(rows, sender, epoch, last) for sender in range(size)]
        yes = sum(vote > gate.threshold for vote in votes)
        is_open = {
            "any": yes > 0,
            "half": 2 * yes > size,
            "mean": sum(votes) / size > gate.threshold,
        }[gate.vote]
        is_open = is_open or (gate.most > 0 and epoch + 1 - told > gate.most)
    sent = sum(sent for _, sent, _ in got)
    votes = EPOCHS * size * (size - 1) * rule.vote_bytes
    assert sent == len(opened) * int(counts.sum()) * WIDE * 4 + votes
    if gate.most:
        assert max(b - a for a, b in pairwise(opened)) == gate.most + 1
    elif size > 1:
        assert 1 <= len(opened) < EPOCHS


def test_a_gate_of_no_change_is_always_open_while_rows_change():
    rows = made()
    got = exchanged(both(Rule(gate=Gate(0.0))), rows)
    # The first epoch has nothing to compare with.
    assert torch.equal(got[1][0][2], sent_to(rows, 1, 2))


def test_votes_that_are_not_numbers_open_the_gate():
    for vote in ("any", "half", "mean"):
        assert Gate(0.1, vote).is_open([math.nan, math.nan, 0.0], 1, 0.1)
    assert not Gate(0.1, "half").is_open([1.0, 0.0, 0.0, 1.0], 1, 0.1)
    assert Gate(0.1, 0.5).is_open([1.0, 0.0, 0.0, 1.0], 1, 0.1)
    assert not Gate(0.1, 0.75).is_open([1.0, 0.0, 0.0, 1.0], 1, 0.1)
    # A share of 0.7 of ten ranks is a little more than seven in floating point.
    assert Gate(0.1, 0.7).is_open([1.0] * 7 + [0.0] * 3, 1, 0.1)


def test_filters_whose_size_is_not_known_are_refused_on_nccl():
    class Nccl(SingleGroup):
        backend = "nccl"

    rule = both(Rule(spared=Spared(threshold=0.1)))
    with pytest.raises(InputError, match="which --backend nccl cannot match; use --backend gloo"):
        Delayed(Nccl(), rule)
    Delayed(Nccl(), both(Rule(spared=Spared(best_of=2))))


STATEFUL = [
    Rule(spared=Spared(threshold=0.1), codec=NEAR),
    Rule(spared=Spared(threshold=0.1, decays=True), deal=Rota(period=2)),
    Rule(spared=Spared(threshold=0.1), codec=CodecSpec(4), remembers="value", refresh=4),
    Rule(spared=Spared(best_of=3), delay=2, codec=CodecSpec(4)),
    Rule(spared=Spared(best_of=2), delay=1, deal=Rota("peers", 3)),
    Rule(spared=Spared(threshold=0.1), refresh=3, has_trend=True, codec=CodecSpec(2)),
    Rule(deal=Rota("together", 2), refresh=5, has_trend=True),
    Rule(gate=Gate(0.2, "mean", 5), codec=CodecSpec(4), remembers="error"),
    Rule(gate=Gate(0.2), spared=Spared(threshold=0.1)),
    Rule(gate=Gate(0.0, "half", quantile=0.6)),
    Rule(spared=Spared(limit=0.3), codec=NEAR),
    Rule(spared=Spared(limit=0.2), deal=Rota("peers", 2)),
    Rule(gate=Gate(0.1), spared=Spared(limit=0.4)),
]


@pytest.mark.parametrize("rule", STATEFUL)
@pytest.mark.parametrize("stops", [(1,), (4, 5), (8,)])
def test_a_checkpoint_changes_no_bit(rule, stops):
    rows = made()
    halo = both(rule, warm_up_epochs=2)
    straight, resumed = exchanged(halo, rows), exchanged(halo, rows, stops=stops)
    for one, other in zip(straight, resumed, strict=True):
        for mine, theirs in zip(one[0], other[0], strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("rule", STATEFUL)
def test_rules_of_values_keep_rows(rule):
    assert rule.keeps_rows
    assert not both(rule).is_synchronous
