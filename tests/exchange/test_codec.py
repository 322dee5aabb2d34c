"""Codecs of rows: their texts, the bytes of a row, and what arrives of rows that are coded."""

from __future__ import annotations

import pytest
import torch

from distgnn import kernels
from distgnn.comm.threads import run_ranks
from distgnn.exchange.base import Synchronous, SynchronousBlocking
from distgnn.exchange.codec import EXACT, Adaptation, CodecSpec, HaloCodecs
from distgnn.exchange.route import tell_route
from distgnn.kernels.seeds import MaskSeeds


def test_every_codec_has_a_text_that_says_how_it_rounds():
    specs = [CodecSpec(bits) for bits in (32, 16, 8, 4, 2, 1)]
    assert [spec.text for spec in specs] == ["exact", "bf16", "int8", "int4", "int2", "int1"]
    assert CodecSpec(4, is_random=False).text == "int4(round=near)"


@pytest.mark.parametrize("bits", [32, 16, 1])
def test_codecs_without_steps_are_equal_however_they_round(bits):
    assert CodecSpec(bits, is_random=False) == CodecSpec(bits)
    assert CodecSpec(bits, is_random=False).text == CodecSpec(bits).text
    assert not HaloCodecs(CodecSpec(bits)).is_random
    assert HaloCodecs(EXACT, CodecSpec(8)).is_random


def test_bytes_of_a_row_are_a_header_codes_and_exact_columns():
    rows = {bits: CodecSpec(bits).row_bytes(256, 4) for bits in (32, 16, 8, 4, 2, 1)}
    assert rows == {32: 1024, 16: 512, 8: 260, 4: 132, 2: 68, 1: 36}
    assert CodecSpec(4).row_bytes(21, 4, 4) == 4 + 9 + 16
    assert CodecSpec(16).row_bytes(21, 4, 4) == 34 + 16
    assert CodecSpec(4).row_bytes(32, 2) == 4 + 16


def test_narrow_rows_ids_and_rows_of_no_more_bits_than_the_code_travel_as_they_are():
    assert CodecSpec(4).row_bytes(15, 4) == 60
    assert CodecSpec(4).row_bytes(16, 4) == 12
    assert CodecSpec(4).row_bytes(19, 4, 4) == 76, "the exact columns do not make rows wide"
    assert CodecSpec(4, least_columns=1).row_bytes(1, 4) == 5
    assert CodecSpec(4).row_bytes(64, 8) == 512, "ids are exact"
    assert CodecSpec(16).row_bytes(64, 2) == 128
    assert CodecSpec(32).row_bytes(64, 2) == 128


def test_a_code_of_too_few_bits_has_as_many_as_asked_for_in_every_row():
    assert CodecSpec(4, is_random=False).at_least(8) == CodecSpec(8, is_random=False)
    for spec in (CodecSpec(8), CodecSpec(16), CodecSpec(), CodecSpec(4, adaptation=Adaptation())):
        assert spec.at_least(1) == spec
    assert CodecSpec(16).at_least(8) == CodecSpec(16)
    assert CodecSpec(4, adaptation=Adaptation((2, 8))).at_least(8) == CodecSpec(8)
    assert CodecSpec(4, adaptation=Adaptation((4, 8))).at_least(4).adaptation is not None


NUM_RANKS, NUM_ROWS, WIDTH = 3, 7, 24
CODECS = [
    CodecSpec(bits, is_random=is_random)
    for bits, is_random in ((16, False), (8, True), (8, False), (4, True), (4, False), (2, True))
]


def rows_of(rank, dtype=torch.float32):
    """Rows of a rank: far from zero, constant, zero, and of other scales."""
    generator = torch.Generator().manual_seed(rank)
    rows = torch.randn(2 * NUM_ROWS, WIDTH, generator=generator)
    rows[1] += 50
    rows[2] = 3.25
    rows[3] = 0
    rows[4] *= 1e-6
    return rows.to(dtype)


def send(codec, made, *, exact_columns=0, epoch=0, picked=None, kind=Synchronous):
    """Each rank sends its rows to the next one; what rank 0 gets, and the bytes that it sent."""

    def on_rank(group):
        counts = [NUM_ROWS * (peer == (group.rank + 1) % group.size) for peer in range(group.size)]
        route = tell_route(group, counts)
        exchange = kind(group, HaloCodecs(codec, EXACT))
        exchange.seeds.epoch = epoch
        rows = made(group.rank)
        if picked is None:
            rows = rows[:NUM_ROWS].contiguous()
        channel = exchange.new_channel()
        arriving = exchange.begin(route, rows, channel, picked, exact_columns=exact_columns)
        got = arriving.wait()
        assert got is arriving.wait()
        return got, exchange.take_bytes(), exchange.take_codec_error()

    return run_ranks(NUM_RANKS, on_rank)[0]


def units(rows, codec):
    """A bound on the error of each value of coded rows."""
    if codec.bits == 16:
        return rows.abs() / 2**8
    low, high = rows.amin(dim=1, keepdim=True), rows.amax(dim=1, keepdim=True)
    # Minimum and unit are rounded outwards to bfloat16.
    slack = torch.maximum(low.abs(), high.abs()) / 2**7
    unit = (high - low + slack) / (2**codec.bits - 1) * (1 + 2**-7)
    return unit * (1 if codec.is_random else 0.5) + 1e-6 * rows.abs()


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.text)
def test_rows_arrive_within_a_unit_in_as_many_bytes_as_the_codec_says(codec):
    sent = rows_of(NUM_RANKS - 1)[:NUM_ROWS]
    got, num_bytes, error = send(codec, rows_of)
    assert num_bytes == NUM_ROWS * codec.row_bytes(WIDTH, 4)
    assert got.dtype == torch.float32
    assert bool(((got - sent).abs() <= units(sent, codec)).all())
    assert torch.equal(got[3], torch.zeros(WIDTH))
    assert 0 < error < 2 / (2 ** min(codec.bits, 8) - 1)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.text)
def test_rows_are_picked_before_they_are_coded(codec):
    picked = torch.tensor([3, 0, 13, 4, 1, 0, 2], dtype=torch.int32)
    got, _, _ = send(codec, rows_of, picked=picked)
    packed, _, _ = send(codec, lambda rank: rows_of(rank)[picked.long()])
    assert torch.equal(got, packed)


@pytest.mark.parametrize("bits", [16, 8, 4, 2, 1])
def test_exact_columns_keep_every_bit_even_where_they_are_not_finite(bits):
    def made(rank):
        rows = rows_of(rank)
        rows[0, -1], rows[1, -2], rows[2, -1] = -torch.inf, torch.nan, 1e38
        return rows

    got, num_bytes, _ = send(CodecSpec(bits), made, exact_columns=3)
    sent = made(NUM_RANKS - 1)[:NUM_ROWS]
    assert torch.equal(got[:, -3:].view(torch.int32), sent[:, -3:].contiguous().view(torch.int32))
    assert num_bytes == NUM_ROWS * CodecSpec(bits).row_bytes(WIDTH, 4, 3)
    assert bool(got[:, :-3].isfinite().all())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float64])
def test_rows_that_are_no_floats_of_training_travel_as_they_are(dtype):
    def made(rank):
        return (rows_of(rank, torch.float64) * 1000).to(dtype)

    got, num_bytes, error = send(CodecSpec(4), made)
    assert torch.equal(got, made(NUM_RANKS - 1)[:NUM_ROWS])
    assert num_bytes == NUM_ROWS * WIDTH * got.element_size()
    assert error == 0


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.text)
def test_rows_of_bfloat16_arrive_as_such(codec):
    def made(rank):
        return rows_of(rank, torch.bfloat16)

    got, num_bytes, _ = send(codec, made)
    sent = made(NUM_RANKS - 1)[:NUM_ROWS]
    assert got.dtype == torch.bfloat16
    assert num_bytes == NUM_ROWS * codec.row_bytes(WIDTH, 2)
    bound = units(sent.float(), codec) + sent.float().abs() / 2**7
    assert bool(((got.float() - sent.float()).abs() <= bound).all())
    assert codec.bits != 16 or torch.equal(got, sent)


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_random_rounding_is_right_on_average_over_epochs(bits):
    codec, num_epochs = CodecSpec(bits), 300
    sent = rows_of(NUM_RANKS - 1)[:NUM_ROWS]
    got = torch.stack([send(codec, rows_of, epoch=e)[0] for e in range(num_epochs)]).double()
    # The variance of rounding is at most a quarter of the squared unit.
    sigma = units(sent, codec).double() / 2 / num_epochs**0.5
    assert bool(((got.mean(dim=0) - sent).abs() <= 5 * sigma + 1e-6 * sent.abs()).all())
    assert got[0].ne(got[1]).any()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e30])
@pytest.mark.parametrize("bits", [16, 8, 4, 2, 1])
def test_a_message_with_a_row_that_has_no_code_arrives_as_nan(bits, bad):
    def made(rank):
        rows = rows_of(rank)
        rows[5, 3] = bad
        return rows

    got, _, _ = send(CodecSpec(bits), made, exact_columns=2)
    assert bool(got.isnan().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("codec", [EXACT, *CODECS], ids=lambda codec: codec.text)
def test_rows_that_are_added_on_arrival_have_the_bits_of_rows_that_are_read_first(codec, dtype):
    places = torch.tensor([2, 0, 2, 4, 0, 2, 1], dtype=torch.int32)

    def on_rank(group):
        counts = [NUM_ROWS * (peer == (group.rank + 1) % group.size) for peer in range(group.size)]
        exchange, route = Synchronous(group, HaloCodecs(codec)), tell_route(group, counts)
        rows = rows_of(group.rank, dtype)[:NUM_ROWS].contiguous()
        first, second = (exchange.begin(route, rows, 0, exact_columns=1) for _ in range(2))
        read, added = torch.full((2, 5, WIDTH), 0.5)
        kernels.scatter_add_rows(first.wait(), places, read)
        second.add_to(added, places)
        return torch.equal(read, added)

    assert run_ranks(NUM_RANKS, on_rank) == [True] * NUM_RANKS


def test_directions_have_codecs_of_their_own():
    def on_rank(group):
        exchange = Synchronous(group, HaloCodecs(CodecSpec(8), EXACT))
        route = tell_route(group, [NUM_ROWS * (peer != group.rank) for peer in range(2)])
        sent = []
        for is_backward in (False, True):
            exchange.start_pass(is_backward=is_backward)
            exchange.begin(route, rows_of(0)[:NUM_ROWS], exchange.new_channel()).wait()
            sent.append(exchange.take_bytes())
        return sent

    assert run_ranks(2, on_rank)[0] == [NUM_ROWS * (4 + WIDTH), NUM_ROWS * 4 * WIDTH]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.text)
def test_waiting_at_once_changes_no_bit(codec):
    hidden, _, _ = send(codec, rows_of)
    unhidden, _, _ = send(codec, rows_of, kind=SynchronousBlocking)
    assert torch.equal(hidden, unhidden)


def test_messages_of_ranks_channels_and_epochs_round_by_other_numbers_than_masks_draw():
    seeds = MaskSeeds()
    seeds.seed = 5
    drawn = []
    for epoch in range(3):
        seeds.epoch = epoch
        seeds.num_drawn = 0
        drawn += [seeds.wire_seed(message) for message in range(200)]
        assert seeds.num_drawn == 0
        drawn += [int(seeds.next_seed()) for _ in range(200)]
    assert len(set(drawn)) == len(drawn)
