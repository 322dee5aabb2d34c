"""Checksums of rows: every flipped bit is named, and none is seen where there is none."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from graphs import cut, make_graph
from training import ends_of, make_config

from distgnn.comm.errors import PeerError
from distgnn.comm.threads import run_ranks
from distgnn.datasets.held_out import hold_out_links
from distgnn.exchange.checks import CheckedRows
from distgnn.exchange.tags import LINK_EVALUATION_TAG, LINK_TAG, SETUP_TAG
from distgnn.training.loop.trainer import Trainer

RUNS = {
    "cd-0": {},
    "cd-2": {"algorithm": "cd-2"},
    "blocking": {"overlap": False},
    "int8": {"halo": "int8", "hidden": 20},
    "feedback": {"halo": "int2+feedback", "hidden": 20},
    "gat": {"model": "gat", "heads": 2},
    "changed": {"halo": "changed(0.05)"},
    "best": {"halo": "best(2)"},
    "adaptive": {"halo": "adapt(2|4|8,bits=4,every=1)", "hidden": 20},
}


class Flip:
    """A message under way that loses a bit."""

    def __init__(self, work, tensor, bit, flipped):
        self._work, self._tensor, self._bit, self._flipped = work, tensor, bit, flipped

    def wait(self):
        self._work.wait()
        self._flipped.append(self._bit)
        flat = self._tensor.reshape(-1).view(torch.uint8)
        flat[self._bit // 8] ^= 1 << self._bit % 8


def with_faults(group, victim, bit, flipped):
    """Flip a bit of the message `victim` that comes to rank 1, and note it."""
    received, count = group.irecv, [0]

    def irecv(tensor, peer, tag):
        work = received(tensor, peer, tag)
        count[0] += 1
        if group.rank == 1 and count[0] == victim and tensor.numel():
            return Flip(work, tensor, bit % (8 * tensor.nbytes), flipped)
        return work

    group.irecv = irecv


def losses(victim=0, bit=0, *, flipped=None, num_ranks=3, **options):
    graph = make_graph("random")
    parts = cut(graph, num_ranks)

    def on_rank(group):
        trainer = Trainer(make_config(**options), ends_of(graph), parts[group.rank], group)
        with_faults(group, victim, bit, [] if flipped is None else flipped)
        return [(record["loss"], record["halo_bytes_sent"]) for record in trainer.epochs()]

    return run_ranks(num_ranks, on_rank)


@pytest.mark.parametrize("name", list(RUNS))
def test_checked_runs_are_the_same_runs(name):
    options = RUNS[name]
    assert losses(verify="rows", **options) == losses(**options)


@pytest.mark.parametrize("name", list(RUNS))
def test_a_flipped_bit_is_named_with_its_ranks_and_its_place(name):
    draw = np.random.default_rng(len(name))
    num_named = 0
    for _ in range(6):
        victim, bit, flipped = int(draw.integers(1, 20)), int(draw.integers(1 << 30)), []
        try:
            losses(victim, bit, flipped=flipped, verify="rows", **RUNS[name])
        except PeerError as error:
            sentence = str(error)
        else:
            assert not flipped  # The message had no rows, or there were fewer messages.
            continue
        num_named += 1
        pattern = (
            r"rows that rank [02] sent to rank 1 in (aggregation [12] of the (forward|backward) "
            r"pass of (epoch|the evaluation after epoch) [012]|.* of the set-up|a look-up of epoch "
            r"[012]) were altered on the way: their "
            r"checksum is [0-9a-f]{8}, not [0-9a-f]+; test the memory and the network of both "
            r"hosts, and continue with the same command and --resume"
        )
        assert re.match(pattern, sentence), sentence
    assert num_named


def test_links_and_their_evaluation_are_checked():

    options = {"task": "link", "verify": "rows"}
    graph = hold_out_links(make_graph("random"), "0.8/0.1/0.1", seed=0)
    parts = cut(graph, 2)

    def on_rank(group):
        trainer = Trainer(make_config(**options), ends_of(graph), parts[group.rank], group)
        with_faults(group, 3, 5, [])
        return [record["loss"] for record in trainer.epochs()]

    with pytest.raises(PeerError, match="rank 0 sent to rank 1 in"):
        run_ranks(2, on_rank)


@pytest.mark.parametrize(
    ("tag", "options", "what"),
    [
        (SETUP_TAG, {"algorithm": "0c"}, "a look-up of the set-up"),
        (LINK_TAG, {"task": "link"}, "a look-up of epoch 0"),
        (LINK_EVALUATION_TAG, {"task": "link"}, "a look-up of the set-up"),
    ],
)
def test_what_travels_once_is_checked_too(tag, options, what):
    graph, flipped = make_graph("random"), []
    if "task" in options:
        graph = hold_out_links(graph, "0.8/0.1/0.1", seed=0)
    parts = cut(graph, 2)

    def on_rank(group):
        received = group.irecv

        def irecv(tensor, peer, found):
            work = received(tensor, peer, found)
            if (group.rank, found) == (1, tag) and tensor.numel() and not flipped:
                return Flip(work, tensor, 5, flipped)
            return work

        group.irecv = irecv
        config = make_config(verify="rows", **options)
        return Trainer(config, ends_of(graph), parts[group.rank], group)

    with pytest.raises(PeerError, match=f"rank 0 sent to rank 1 in {what} were altered"):
        run_ranks(2, on_rank)
    assert flipped


def test_without_checks_a_flipped_bit_passes():
    assert losses(3, 77) != losses()


def test_every_bit_of_a_message_counts():
    rows = torch.arange(24, dtype=torch.float32).reshape(4, 6)

    def on_rank(group, bit):
        checks = CheckedRows(lambda: "epoch 0")
        into = torch.zeros_like(rows)
        with_faults(group, 1, bit, [])
        if group.rank == 0:
            works = checks.transfer(group, [], [(rows, 1)], 0, "aggregation 1 of the forward pass")
        else:
            works = checks.transfer(group, [(into, 0)], [], 0, "aggregation 1 of the forward pass")
        for work in works:
            work.wait()

    for bit in range(8 * rows.nbytes):
        with pytest.raises(PeerError, match="rank 0 sent to rank 1 in aggregation 1 of the"):
            run_ranks(2, lambda group, bit=bit: on_rank(group, bit))


class Logged:
    """A group of rank 0 whose messages note when they are waited for; all rows are zeros."""

    rank = 0

    def __init__(self):
        self.log = []

    def transfer(self, incoming, outgoing, tag):
        for tensor, _ in incoming:
            tensor.zero_()
        kind = "rows" if tensor.is_floating_point() else "sum"
        names = [f"{kind} of {peer}" for _, peer in incoming]
        names += [f"{kind} to {peer}" for _, peer in outgoing]
        return [SimpleNamespace(wait=lambda name=name: self.log.append(name)) for name in names]


def test_rows_that_have_come_are_read_while_others_travel(monkeypatch):
    group, checks = Logged(), CheckedRows(lambda: "epoch 0")
    tables = {peer: torch.zeros(2, 3) for peer in (1, 2)}
    own = torch.zeros(2, 3)
    names = {id(tables[1]): "read 1", id(tables[2]): "read 2", id(own): "read own"}

    def read(rows):
        group.log.append(names[id(rows)])
        # What rank 1 sent is wrong; the other messages are waited for, whose memory they need.
        return int(rows is tables[1])

    monkeypatch.setattr("distgnn.exchange.checks.checksum", read)
    incoming = [(rows, peer) for peer, rows in tables.items()]
    (work,) = checks.transfer(group, incoming, [(own, 1)], 0, "a look-up")
    with pytest.raises(PeerError, match="rank 1 sent to rank 0 in a look-up of epoch 0 were alter"):
        work.wait()
    order = ["read own", "rows of 1", "sum of 1", "read 1", "rows of 2", "sum of 2", "read 2"]
    assert group.log == [*order, "rows to 1", "sum to 1"]
