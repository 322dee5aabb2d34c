"""Bits that follow the rows: the same at both ends, within the budget, and kept by checkpoints."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from distgnn.comm.threads import run_ranks
from distgnn.exchange.adaptive import Adaptive
from distgnn.exchange.base import Synchronous
from distgnn.exchange.codec import EXACT, Adaptation, CodecSpec, HaloCodecs
from distgnn.exchange.route import plan_route

COUNTS = np.array([[0, 50, 30], [0, 0, 64], [41, 3, 0]])
WIDTHS = (64, 20, 33, 8)
"""Width of each message of an epoch; the last one is too narrow for codes."""
EVERY, EPOCHS = 3, 8
BYTES, ERROR = {"error": None}, {"error": 0.02}


def spec_of(by="row", error=None, *, is_random=True):
    bits = 4 if error is None else 8
    how = Adaptation((2, 4, 8), EVERY, error, by)
    return CodecSpec(bits, is_random=is_random, adaptation=how)


def rows_of(rank, epoch, message):
    """Rows whose ranges are apart by far."""
    generator = torch.Generator().manual_seed(97 * rank + 11 * epoch + message)
    count, width = 2 * int(COUNTS[rank].sum()), WIDTHS[message]
    scale = torch.exp(1.5 * torch.randn(count, 1, generator=generator)) * 10.0**message
    return scale * torch.randn(count, width, generator=generator)


def exchanged(codecs, *, stops=(), exact_columns=0, kind=Adaptive, picks=False):
    """Rows that ranks sent and received, bytes, bits and the state in the end, rank by rank."""

    def on_rank(group):
        exchange = kind(group, codecs)
        route = plan_route(group, COUNTS[group.rank], COUNTS[:, group.rank])
        found, num_bytes, bits = [], [], []
        for epoch in range(EPOCHS):
            if epoch in stops:
                state = {name: rows.clone() for name, rows in exchange.state().items()}
                exchange = kind(group, codecs)
                exchange.load_state(state)
                exchange.seeds.epoch = epoch
            for message in range(2 * len(WIDTHS)):
                exchange.start_pass(is_backward=message >= len(WIDTHS))
                rows = rows_of(group.rank, epoch, message % len(WIDTHS))
                picked = None
                if picks:
                    picked = torch.arange(0, 2 * route.num_out, 2, dtype=torch.int32)
                else:
                    rows = rows[::2].contiguous()
                arriving = exchange.begin(
                    route, rows, exchange.new_channel(), picked, exact_columns=exact_columns
                )
                places = torch.arange(route.num_in, dtype=torch.int32)
                if message % 2 and exact_columns == 0:
                    got = torch.zeros(route.num_in, rows.shape[1])
                    arriving.add_to(got, places)
                else:
                    got = arriving.wait().clone()
                found.append(got)
            exchange.end_epoch()
            exchange.seeds.end_epoch()
            assert exchange.take_codec_error() > 0 or route.num_out == 0
            num_bytes.append(exchange.take_bytes())
            bits.append(exchange.take_codec_bits())
        return found, num_bytes, bits, exchange.state()

    return run_ranks(len(COUNTS), on_rank)


def sent_to(receiver, epoch, message):
    """Rows that a receiver was sent in an epoch, in the order of its buffer."""
    found = []
    for sender, counts in enumerate(COUNTS):
        start = int(counts[:receiver].sum())
        rows = rows_of(sender, epoch, message)[::2]
        found.append(rows[start : start + int(counts[receiver])])
    return torch.cat(found)


def relative_error(got, receiver, epochs):
    """Squared error by the squared rows, of messages with codes."""
    errors = []
    for message in range(3):
        wrong = true = 0.0
        for epoch in epochs:
            rows = sent_to(receiver, epoch, message)
            read = got[receiver][0][epoch * 2 * len(WIDTHS) + message]
            wrong += float((read - rows).square().sum())
            true += float(rows.square().sum())
        errors.append(wrong / true)
    return np.array(errors)


BOTH = [("row", None), ("row", 0.02), ("layer", None), ("layer", 0.02)]


@pytest.mark.parametrize(("by", "error"), BOTH)
@pytest.mark.parametrize("picks", [False, True])
def test_both_ends_know_the_bits_of_rows(by, error, picks):
    spec = spec_of(by, error)
    got = exchanged(HaloCodecs(spec, spec), picks=picks)
    for receiver in range(len(COUNTS)):
        for epoch in range(EPOCHS):
            for message in range(len(WIDTHS)):
                rows = sent_to(receiver, epoch, message)
                read = got[receiver][0][epoch * 2 * len(WIDTHS) + message]
                # Two bits are off by a third of the range at most, and the rounded header.
                unit = (rows.amax(1) - rows.amin(1)) / 3 if message < 3 else torch.zeros(len(rows))
                bound = 1.01 * unit + 0.02 * rows.abs().amax(1) * (message < 3)
                assert bool(((read - rows).abs().amax(1) <= bound).all())


@pytest.mark.parametrize("by", ["row", "layer"])
def test_no_epoch_sends_more_bytes_than_the_budget(by):
    spec = spec_of(by)
    got = exchanged(HaloCodecs(spec, spec))
    for epoch in range(EPOCHS):
        sent = sum(num_bytes[epoch] for _, num_bytes, _, _ in got)
        most = 2 * COUNTS.sum() * sum(spec.row_bytes(width, 4) for width in WIDTHS)
        least = 2 * COUNTS.sum() * sum(spec.plain.row_bytes(width, 4) for width in WIDTHS)
        assert sent <= most
        # The budget is used: one byte a value less than a group of rows is left.
        assert sent > 0.9 * least
    bits, values = (sum(sums) for sums in zip(*(b[1] for _, _, b, _ in got), strict=True))
    assert 2 < bits / values <= 4.5


def test_each_pair_of_ranks_keeps_to_the_budget():
    got = exchanged(HaloCodecs(spec_of(), spec_of()))
    for sender, counts in enumerate(COUNTS):
        bits = {n: got[sender][3][f"{n}.sent"].numpy() for n in range(3)}
        for peer, count in enumerate(counts):
            start = int(counts[:peer].sum())
            own = [bits[n][start : start + int(count)].astype(int) for n in range(3)]
            sent = sum(CodecSpec(int(b)).row_bytes(WIDTHS[n], 4) for n in range(3) for b in own[n])
            assert sent <= count * sum(CodecSpec(4).row_bytes(WIDTHS[n], 4) for n in range(3))


@pytest.mark.parametrize(("by", "error"), [("row", 0.05), ("layer", 0.1)])
def test_the_error_stays_within_its_budget(by, error, monkeypatch):
    # Rows that do not change have the errors that their ranges say.
    monkeypatch.setitem(globals(), "rows_of", lambda rank, epoch, n, one=rows_of: one(rank, 0, n))
    spec = spec_of(by, error)
    got = exchanged(HaloCodecs(spec, spec))
    errors = [relative_error(got, r, range(1, EPOCHS)) for r in range(len(COUNTS))]
    bits, values = (sum(sums) for sums in zip(*(b[1] for _, _, b, _ in got), strict=True))
    assert bits / values < 8
    weights = [
        [float(sent_to(r, 0, n).square().sum()) for n in range(3)] for r in range(len(COUNTS))
    ]
    total = np.average(errors, axis=0, weights=np.array(weights))
    assert np.sqrt(total.mean()) < 1.1 * error


@pytest.mark.parametrize("is_random", [True, False])
def test_bits_by_row_lower_the_error_at_the_same_bytes(is_random, monkeypatch):
    monkeypatch.setitem(globals(), "rows_of", lambda rank, epoch, n, one=rows_of: one(rank, 0, n))
    spec = spec_of(is_random=is_random)
    adapted = exchanged(HaloCodecs(spec, spec))
    uniform = exchanged(HaloCodecs(spec.plain, spec.plain), kind=Synchronous)
    for receiver in range(len(COUNTS)):
        one, other = (
            relative_error(got, receiver, range(1, EPOCHS)).sum() for got in (adapted, uniform)
        )
        assert one < 0.5 * other


@pytest.mark.parametrize(("by", "error"), BOTH)
@pytest.mark.parametrize("stops", [(2,), (3, 4, 6)])
def test_a_run_that_is_resumed_has_the_same_bits(by, error, stops):
    codecs = HaloCodecs(spec_of(by, error), CodecSpec(8))
    straight, resumed = exchanged(codecs), exchanged(codecs, stops=stops)
    for one, other in zip(straight, resumed, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one[0], other[0], strict=True))
        assert one[1] == other[1]
        assert one[3].keys() == other[3].keys()
        assert all(torch.equal(rows, other[3][name]) for name, rows in one[3].items())


def test_exact_columns_keep_every_bit():
    spec = spec_of()
    got = exchanged(HaloCodecs(spec, spec), exact_columns=3)
    for receiver in range(len(COUNTS)):
        for epoch in range(EPOCHS):
            for message in range(3):
                rows = sent_to(receiver, epoch, message)
                read = got[receiver][0][epoch * 2 * len(WIDTHS) + message]
                assert torch.equal(read[:, -3:], rows[:, -3:])


def test_one_direction_may_adapt_alone():
    got = exchanged(HaloCodecs(EXACT, spec_of()))
    assert {int(name.split(".")[0]) for name in got[0][3]} == {4, 5, 6}
    assert replace(spec_of(), adaptation=None) == spec_of().plain
