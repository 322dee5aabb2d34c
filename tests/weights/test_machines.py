"""Sums of gradients on machines first, against the formula with the ranks of each machine."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from training import check_same_values

from distgnn.comm.threads import run_ranks
from distgnn.datasets.errors import InputError
from distgnn.exchange.clock import Clock
from distgnn.exchange.codec import EXACT, CodecSpec
from distgnn.exchange.sliced import sliced_sum
from distgnn.kernels.seeds import MaskSeeds
from distgnn.ops.buffers import Buffers
from distgnn.training.config.codecs import parse_weights
from distgnn.weights.machines import Machine, machine_bytes
from distgnn.weights.summed_gradients import SummedGradients

SIZES = [(2, 2), (3, 2), (4, 2), (5, 3), (8, 4), (8, 2), (7, 4), (3, 4)]
SHAPES = [(65, 70), (3,), (9, 100), ()]


def gradients_of(rank):
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def seeds_of():
    seeds = MaskSeeds()
    seeds.seed, seeds.epoch = 5, 3
    return seeds


def summed(num_ranks, size, codec, monkeypatch=None):
    """Sums of each rank, what it counted, and what it sent to each other rank."""

    def on_rank(group):
        told = {}
        transfer = group.transfer

        def count(incoming, outgoing, tag):
            for rows, peer in outgoing:
                told[peer] = told.get(peer, 0) + rows.nbytes
            return transfer(incoming, outgoing, tag)

        monkeypatch.setattr(group, "transfer", count)
        sums = SummedGradients(group, Clock(), codec=codec, machine_size=size, seeds=seeds_of())
        parameters = [nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
        for parameter, gradient in zip(parameters, gradients_of(group.rank), strict=True):
            parameter.grad = gradient
        sums.sum(parameters)
        return [each.grad for each in parameters], sums.bytes_sent, told

    return run_ranks(num_ranks, on_rank)


@pytest.mark.parametrize(("num_ranks", "size"), SIZES)
@pytest.mark.parametrize("codec", [EXACT, CodecSpec(8), CodecSpec(4)], ids=str)
def test_all_ranks_have_the_sums(num_ranks, size, codec, monkeypatch):
    results = summed(num_ranks, size, codec, monkeypatch)
    expected = [sum(each) for each in zip(*map(gradients_of, range(num_ranks)), strict=True)]
    machines = -(-num_ranks // size)
    is_exact = codec == EXACT or machines == 1
    for found, counted, told in results:
        check_same_values(dict(enumerate(found)), dict(enumerate(results[0][0])))
        assert counted == sum(told.values())
        for shape, sum_, wanted in zip(SHAPES, found, expected, strict=True):
            # A step is a 255th or 15th of the range of a row.
            steps = 2**codec.bits - 1 if codec != EXACT else 1
            is_coded = not is_exact and shape == SHAPES[0]
            span = 2 * machines * float(wanted.abs().max()) if is_coded else 0.0
            torch.testing.assert_close(sum_, wanted, rtol=1e-5, atol=1e-5 + 2 * span / steps)
    if not is_exact:
        assert not torch.allclose(results[0][0][0], expected[0], atol=1e-5)


@pytest.mark.parametrize(("num_ranks", "size"), [(4, 2), (6, 3), (8, 4), (8, 2)])
def test_between_machines_the_sums_of_machines_travel_in_a_code(num_ranks, size, monkeypatch):
    """The sums of machines, as ranks of their own, have the bits of a plain coded sum."""
    codec = CodecSpec(8, is_random=False)
    found = summed(num_ranks, size, codec, monkeypatch)[0][0][0]
    first = torch.zeros(9, 512)
    values = 65 * 70
    slices = [(place * 9 // size, (place + 1) * 9 // size) for place in range(size)]

    def on_machine(group):
        own = first.clone().view(-1)
        for rank in range(group.rank * size, (group.rank + 1) * size):
            flat = gradients_of(rank)[0].reshape(-1)
            own += torch.cat([flat, flat[-1:].expand(9 * 512 - values)])
        own = own.view(9, 512)
        for start, stop in slices:
            if start < stop and group.size > 1:
                sliced_sum(group, own[start:stop], codec, MaskSeeds(), Buffers())
        return own.view(-1)[:values].view(65, 70)

    expected = run_ranks(num_ranks // size, on_machine)[0]
    assert torch.equal(found, expected)


@pytest.mark.parametrize(("num_ranks", "size"), [(8, 4), (8, 2), (7, 4), (6, 3)])
def test_a_slice_leaves_its_machine_once(num_ranks, size, monkeypatch):
    def leaving(size_of_sum):
        results = summed(num_ranks, size_of_sum, CodecSpec(8), monkeypatch)
        return sum(
            count
            for rank, (_, _, told) in enumerate(results)
            for peer, count in told.items()
            if peer // size != rank // size
        )

    machines = -(-num_ranks // size)
    coded = 9 * CodecSpec(8).row_bytes(512, 4)
    exact = 4 * (3 + 900 + 1)
    assert leaving(size) == 2 * (machines - 1) * (coded + exact)
    # Without machines the vectors are all-reduced, which is no transfer.
    assert leaving(0) > (machines - 1) * 2 * coded


@pytest.mark.parametrize(("num_ranks", "size"), SIZES)
def test_bytes_are_known_before(num_ranks, size):
    for rank in range(num_ranks):
        machine = Machine.of(rank, num_ranks, size)
        assert rank in machine.members
        assert (rank in machine.owners) == (rank in machine.peers)
        counts = {len(Machine.of(each, num_ranks, size).owners) for each in range(num_ranks)}
        assert counts == {len(machine.owners)}
    total = sum(machine_bytes(10, rank, num_ranks, size, (7, 3)) for rank in range(num_ranks))
    machines = -(-num_ranks // size)
    # Each rank but the owner sends and gets each row once.
    assert total == 2 * (num_ranks - machines) * 10 * 7 + 2 * (machines - 1) * 10 * 3


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("machines(4)", "sum+machines(4)"),
        ("sum+machines(2)", "sum+machines(2)"),
        ("machines(2)+int8", "int8+machines(2)"),
        ("machines(3)+qadam(5)+int4", "qadam(5)+int4+machines(3)"),
    ],
)
def test_words(text, canonical):
    rule = parse_weights(text)
    assert rule.text == canonical
    assert parse_weights(canonical) == rule


def test_local_models_have_no_gradients_to_add_up():
    with pytest.raises(InputError) as error:
        parse_weights("every(4)+mean+machines(2)")
    assert str(error.value) == (
        "--weights every(4)+mean+machines(2) adds gradients up on machines first, but ranks that "
        "step by their own send none; drop machines"
    )
    with pytest.raises(InputError, match=r"machines has 1 at .*; it is a whole number of at least"):
        parse_weights("machines(1)")
