"""The coded sum of rows over ranks, against its formula row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from reference import decode_row, encode_row

from distgnn.comm.threads import run_ranks
from distgnn.exchange.codec import CodecSpec
from distgnn.exchange.sliced import slice_bytes, sliced_sum
from distgnn.kernels.seeds import MaskSeeds
from distgnn.ops.buffers import Buffers

FIRST = 1 << 48


def rows_of(rank, *, num_rows=7, width=32):
    rng = np.random.default_rng(rank)
    return rng.normal(rank, 1 + rank, (num_rows, width)).astype(np.float32)


def seeds_of(epoch=3):
    seeds = MaskSeeds()
    seeds.seed, seeds.epoch = 5, epoch
    return seeds


def summed(size, spec, *, tables=None, epoch=3):
    """Return the sums of each rank, and the bytes that it sent."""

    def on_rank(group):
        own = rows_of(group.rank) if tables is None else tables[group.rank]
        rows = torch.from_numpy(own.copy())
        sent = sliced_sum(group, rows, spec, seeds_of(epoch), Buffers())
        return rows, sent

    return run_ranks(size, on_rank)


def by_the_formula(size, spec):
    """Slices to owners, added in rank order, coded once."""

    def code(row, number, message):
        seed = seeds_of().wire_seed(FIRST + message) if spec.is_random else None
        coded = encode_row(row, spec.bits, row=number, seed=seed)
        return decode_row(coded, row.size, spec.bits)

    tables = [rows_of(rank) for rank in range(size)]
    out = np.empty_like(tables[0])
    for owner in range(size):
        first, stop = (k * len(out) // size for k in (owner, owner + 1))
        for number in range(first, stop):
            total = np.zeros(out.shape[1], np.float32)
            for rank, table in enumerate(tables):
                row = table[number]
                total += row if rank == owner else code(row, number, 2 * rank)
            out[number] = code(total, number - first, 2 * owner + 1)
    return out


SPECS = [
    *(CodecSpec(bits) for bits in (16, 8, 4, 2, 1)),
    *(CodecSpec(bits, is_random=False) for bits in (8, 4, 2)),
]


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.text)
def test_every_rank_has_the_sums_of_the_formula(size, spec):
    expected = torch.from_numpy(by_the_formula(size, spec))
    results = summed(size, spec)
    for rank, (rows, sent) in enumerate(results):
        assert torch.equal(rows, results[0][0])
        torch.testing.assert_close(rows, expected, rtol=1e-6, atol=1e-6)
        assert sent == slice_bytes(7, rank, size, spec.row_bytes(32, 4))
    total = sum(sent for _, sent in results)
    assert total == 2 * (size - 1) * 7 * spec.row_bytes(32, 4)


def test_what_is_counted_is_what_is_sent(monkeypatch):
    def on_rank(group):
        sent = []
        transfer = group.transfer

        def count(incoming, outgoing, tag):
            sent.extend(rows.nbytes for rows, _ in outgoing)
            return transfer(incoming, outgoing, tag)

        monkeypatch.setattr(group, "transfer", count)
        rows = torch.from_numpy(rows_of(group.rank))
        return sliced_sum(group, rows, CodecSpec(4), seeds_of(), Buffers()), sum(sent)

    for counted, sent in run_ranks(3, on_rank):
        assert counted == sent


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_random_rounding_is_unbiased(bits):
    """The mean over epochs is within 4 standard errors, for a unit's share of bias at most."""
    count = 64
    exact = sum(torch.from_numpy(rows_of(rank)).double() for rank in range(3))
    found = torch.stack([summed(3, CodecSpec(bits), epoch=e)[0][0].double() for e in range(count)])
    error = found.mean(0) - exact
    deviation = found.std(0) / count**0.5
    units = (exact.amax(1) - exact.amin(1))[:, None] / (2**bits - 1)
    # Values on the grid's ends do not vary.
    assert (error.abs() <= 4.5 * deviation + units / 64).all()
    # A mean of 224 values is nearer yet, unless errors lean to one side.
    assert abs(float((error / units).mean())) < 0.05


def test_epochs_round_apart_and_one_epoch_alike():
    first, again, later = (summed(2, CodecSpec(2), epoch=epoch)[0][0] for epoch in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_all_ranks_hear_of_a_value_that_is_not_finite(bad):
    tables = [rows_of(rank) for rank in range(3)]
    tables[1][6, 2] = bad
    for rows, _ in summed(3, CodecSpec(8), tables=tables):
        assert rows[6].isnan().all()


def test_more_ranks_than_rows():
    tables = [rows_of(rank, num_rows=2) for rank in range(4)]
    results = summed(4, CodecSpec(8, is_random=False), tables=tables)
    for rank, (rows, sent) in enumerate(results):
        torch.testing.assert_close(rows, torch.from_numpy(sum(tables)), rtol=0, atol=0.5)
        assert sent == slice_bytes(2, rank, 4, 36)
