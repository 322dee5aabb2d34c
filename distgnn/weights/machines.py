"""Sums that are made on each machine first, and then between machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from distgnn.exchange.sliced import slice_bytes
from distgnn.weights.groups import slices_of, transfer

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.comm.group import Group


class Machine(NamedTuple):
    """Machine of a rank, for sums of rows.

    Attributes:
        members: Its ranks, ascending.
        owners: Those of them that each add up a slice: as many as the smallest machine has ranks.
        peers: Ranks that own the same slice on each machine, this one included, in the order of
            machines; none where this rank owns no slice.
    """

    members: list[int]
    owners: list[int]
    peers: list[int]

    @classmethod
    def of(cls, rank: int, num_ranks: int, size: int) -> Machine:
        """Find the machine of a rank.

        Args:
            rank: The rank.
            num_ranks: Number of ranks.
            size: Ranks of a machine; the last one may have fewer.
        """
        first = rank // size * size
        count = num_ranks % size or size
        members = list(range(first, min(first + size, num_ranks)))
        owns = rank - first < count
        peers = list(range(rank - first, num_ranks, size)) if owns else []
        return cls(members, members[:count], peers)


def sum_on_machines(
    group: Group, rows: Tensor, size: int, between: Callable[[Tensor, list[int]], int]
) -> int:
    """Sum rows over all ranks in place: on each machine, between machines, and back; collective.

    With the slice q of rows, whose owner on each machine is its rank q::

        rank p of m: x_p --slice q--> rank q of m     s_qm = x_0 + x_1 + ... of m, in rank order
        rank q of m: s_qm <---------> rank q of all   s_q = s_q0 + s_q1 + ..., by `between`
        rank q of m: s_q -----------> all ranks of m

    So between machines each slice travels once for a machine, not once for each of its ranks.

    Args:
        group: All ranks.
        rows: (num_rows, ...) contiguous; the same shape on every rank. Changed.
        size: Ranks of a machine.
        between: Sums rows in place over ranks that all call it, and returns the bytes that this
            one sent.

    Returns:
        Payload bytes that this rank sent: those of `machine_bytes`.

    References:
        Gan et al., "BAGUA: Scaling up Distributed Learning with System Relaxations", VLDB 2021
        (hierarchical communication).
    """
    machine = Machine.of(group.rank, group.size, size)
    slices = slices_of(rows, machine.owners)
    others = [peer for peer in machine.members if peer != group.rank]
    theirs = {owner: part for owner, part in slices.items() if owner != group.rank}
    own = slices.get(group.rank, rows[:0])
    arrived = {peer: torch.empty_like(own) for peer in others}
    sent = transfer(group, arrived, theirs)
    if len(own):
        total = torch.zeros_like(own)
        for peer in machine.members:
            total += own if peer == group.rank else arrived[peer]
        if len(machine.peers) > 1:
            sent += between(total, machine.peers)
        own.copy_(total)
    return sent + transfer(group, theirs, dict.fromkeys(others, own))


def machine_bytes(
    num_rows: int, rank: int, num_ranks: int, size: int, row_bytes: tuple[int, int]
) -> int:
    """Return the payload bytes that a rank sends for a sum on machines first.

    Args:
        num_rows: Number of rows.
        rank: The rank.
        num_ranks: Number of ranks.
        size: Ranks of a machine.
        row_bytes: Bytes of a row on a machine, and between machines.
    """
    machine = Machine.of(rank, num_ranks, size)
    own = 0
    if machine.peers:
        place, count = machine.owners.index(rank), len(machine.owners)
        own = (place + 1) * num_rows // count - place * num_rows // count
    inside, between = row_bytes
    sent = (num_rows - own + (len(machine.members) - 1) * own) * inside
    if len(machine.peers) < 2:
        return sent
    return sent + slice_bytes(own, machine.peers.index(rank), len(machine.peers), between)
