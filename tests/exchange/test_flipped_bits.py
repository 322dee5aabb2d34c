"""A million flipped bits of messages as they travel in real runs: every one is named."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import cut, make_graph
from training import ends_of, make_config

from distgnn.comm.errors import PeerError
from distgnn.comm.threads import run_ranks
from distgnn.exchange.checks import CheckedRows
from distgnn.training.loop.trainer import Trainer

NUM_RANKS, NUM_FLIPS = 3, 1_000_000
RUNS = [
    {},
    {"algorithm": "cd-2"},
    {"halo": "bf16"},
    {"halo": "int8", "hidden": 20},
    {"halo": "int2+feedback", "hidden": 20},
    {"halo": "changed(0.05)"},
    {"model": "gat", "heads": 2},
]


class Wire:
    """A group of one rank: it keeps what leaves, and bytes that are given come to it."""

    def __init__(self, rank):
        self.rank, self.left, self.coming = rank, [], []

    def transfer(self, incoming, outgoing, tag):
        self.left += [bytes_of(tensor) for tensor, _ in outgoing]
        for tensor, _ in incoming:
            bytes_of(tensor)[:] = self.coming.pop(0)
        return []


def bytes_of(tensor):
    return tensor.detach().reshape(-1).view(torch.uint8).numpy()


def messages_of(options, monkeypatch):
    """The messages of a run: who sends them, who gets them, what they are, and their rows."""
    graph, found, transfer = make_graph("random"), [], CheckedRows.transfer
    parts = cut(graph, NUM_RANKS)

    def recorded(checks, group, incoming, outgoing, tag, what):
        # A message without rows has no bit that could flip.
        rows = [(tensor.detach().clone(), peer) for tensor, peer in outgoing if tensor.numel()]
        found.extend((group.rank, peer, what, tensor.contiguous()) for tensor, peer in rows)
        return transfer(checks, group, incoming, outgoing, tag, what)

    def on_rank(group):
        trainer = Trainer(make_config(**options), ends_of(graph), parts[group.rank], group)
        return [record["loss"] for record in trainer.epochs()]

    with monkeypatch.context() as patched:
        patched.setattr(CheckedRows, "transfer", recorded)
        run_ranks(NUM_RANKS, on_rank)
    return found


def flaw(checks, wire, rows, travelling, sender, what):
    """Receive rows and their checksum; the sentence, if there is one."""
    wire.coming = [travelling[:-8], travelling[-8:]]
    try:
        for work in checks.transfer(wire, [(rows, sender)], [], 0, what):
            work.wait()
    except PeerError as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_a_million_flipped_bits_are_all_named(monkeypatch):
    kinds = [messages_of({"verify": "rows", **options}, monkeypatch) for options in RUNS]
    messages = [message for kind in kinds for message in kind]
    draw, num_named = np.random.default_rng(29), 0
    checks = CheckedRows(lambda: "epoch 4")
    for sender, receiver, what, rows in messages:
        wire = Wire(sender)
        checks.transfer(wire, [], [(rows, receiver)], 0, what)
        # Bits flip in the checksum, too.
        travelling = np.concatenate(wire.left)
        wire.rank = receiver
        begin = f"rows that rank {sender} sent to rank {receiver} in {what} of epoch 4 were altered"
        assert flaw(checks, wire, rows, travelling, sender, what) == ""
        for bit in draw.integers(8 * len(travelling), size=-(-NUM_FLIPS // len(messages))):
            travelling[bit // 8] ^= 1 << (bit % 8)
            assert flaw(checks, wire, rows, travelling, sender, what).startswith(begin)
            travelling[bit // 8] ^= 1 << (bit % 8)
            num_named += 1
    assert num_named >= NUM_FLIPS
    assert {what for _, _, what, _ in messages} >= {"aggregation 1 of the forward pass"}
