"""Groups of ranks whose models are merged together, others for each merge."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from distgnn.exchange.rule import round_of
from distgnn.exchange.tags import WEIGHTS_TAG

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.comm.group import Group


Order = Literal["random", "tournament", "grid"]


def num_rounds(num_ranks: int, group_size: int, order: Order) -> int:
    """Return the merges after which groups come again; 1 where groups are drawn.

    Args:
        num_ranks: Number of ranks.
        group_size: Ranks of a group.
        order: How groups follow each other.
    """
    if order == "tournament":
        num_halves = -(-num_ranks // (group_size // 2))
        return max(num_halves - 1 + num_halves % 2, 1)
    count, reach = 1, group_size
    while order == "grid" and reach < num_ranks:
        count, reach = count + 1, reach * group_size
    return count


def num_groups(num_ranks: int, group_size: int, order: Order, merge: int) -> int:
    """Return how many groups merge at a time, without making them.

    Args:
        num_ranks: Number of ranks.
        group_size: Ranks of a group.
        order: How groups follow each other.
        merge: Number of the merge, from 0.
    """
    if order == "grid":
        # The first rank of a group has the digit 0 at the place of the merge.
        place = group_size ** (merge % num_rounds(num_ranks, group_size, order))
        return sum(rank // place % group_size == 0 for rank in range(num_ranks))
    if order == "tournament":
        num_halves = -(-num_ranks // (group_size // 2))
        return -(-num_halves // 2)
    return -(-num_ranks // group_size)


def play_group(rank: int, num_ranks: int, group_size: int, merge: int) -> list[int]:
    """Return a rank's group in a tournament, itself included, ascending.

    Ranks are cut into halves of groups, and in a round each half meets another one. Two halves
    meet once in all rounds. Of an odd number of halves one is by itself.

    Args:
        rank: The rank.
        num_ranks: Number of ranks.
        group_size: Ranks of a group, even.
        merge: Number of the merge, from 0.
    """
    half = group_size // 2
    own, num_halves = rank // half, -(-num_ranks // half)
    now = merge % num_rounds(num_ranks, group_size, "tournament")
    both = [
        each for each in range(num_halves) if each == own or round_of(own, each, num_halves) == now
    ]
    return [each for each in range(num_ranks) if each // half in both]


def grid_group(rank: int, num_ranks: int, group_size: int, merge: int) -> list[int]:
    """Return a rank's group in a grid, itself included, ascending.

    With G ranks in a group, numbers of ranks are written with the digits 0 to G - 1. The ranks of
    a group differ in one digit alone, the last one in the first merge, the one before it in the
    next. With G * G ranks these are rows and columns of a square. If the number of ranks is a
    power of G, or a power times at most G, all models are one after a merge for each digit.

    Args:
        rank: The rank.
        num_ranks: Number of ranks.
        group_size: Ranks of a group.
        merge: Number of the merge, from 0.
    """
    place = group_size ** (merge % num_rounds(num_ranks, group_size, "grid"))
    above, below = rank // (place * group_size), rank % place
    first = above * place * group_size + below
    return [each for each in range(first, first + place * group_size, place) if each < num_ranks]


def draw_group(rank: int, num_ranks: int, group_size: int, seed: int, num_steps: int) -> list[int]:
    """Return the ranks of a rank's group, itself included, ascending.

    All ranks draw the same order of all ranks and cut it, so that nobody has to be told. The last
    group is smaller where the number of ranks is no multiple.

    Args:
        rank: The rank.
        num_ranks: Number of ranks.
        group_size: Ranks of a group.
        seed: Seed of the run.
        num_steps: Steps that were taken before the merge.
    """
    order = np.random.default_rng((seed, num_steps)).permutation(num_ranks).tolist()
    first = order.index(rank) // group_size * group_size
    return sorted(order[first : first + group_size])


def average_within(group: Group, values: Tensor, members: list[int]) -> None:
    """Replace values by their mean over some ranks, which alone call this and wait.

    The bytes are those of `slice_bytes`, as of `add_within`.

    Args:
        group: All ranks.
        values: (num_values,) floating point, contiguous; changed.
        members: Ranks of the mean, ascending; this one is among them.
    """
    add_within(group, values, members, divisor=len(members))


def add_within(group: Group, values: Tensor, members: list[int], *, divisor: int = 1) -> int:
    """Replace values by their sum over some ranks, which alone call this and wait.

    Each member adds up a slice in rank order and tells the sum to the others, so that all members
    have the same bits.

    Args:
        group: All ranks.
        values: (num_values,) floating point, contiguous; changed.
        members: Ranks of the sum, ascending; this one is among them.
        divisor: Number by which the sum is divided.

    Returns:
        Payload bytes that this rank sent: those of `slice_bytes`.
    """
    slices = slices_of(values, members)
    mine = slices[group.rank]
    others = {peer: part for peer, part in slices.items() if peer != group.rank}
    arrived = {peer: torch.empty_like(mine) for peer in others}
    sent = transfer(group, arrived, others)
    total = torch.zeros_like(mine)
    for peer in members:
        total += mine if peer == group.rank else arrived[peer]
    mine.copy_(total / divisor)
    return sent + transfer(group, others, dict.fromkeys(others, mine))


def slices_of(values: Tensor, members: list[int]) -> dict[int, Tensor]:
    """Return the slice of values that each member owns, by rank.

    Args:
        values: (num_values, ...) any type.
        members: Ranks, ascending.
    """
    size = len(members)
    bounds = [place * len(values) // size for place in range(size + 1)]
    parts = [values[start:stop] for start, stop in pairwise(bounds)]
    return dict(zip(members, parts, strict=True))


def transfer(group: Group, incoming: dict[int, Tensor], outgoing: dict[int, Tensor]) -> int:
    """Receive from and send to peers; both ends know which slices are empty.

    Args:
        group: All ranks.
        incoming: Memory for what arrives, by rank.
        outgoing: Values that leave, by rank.

    Returns:
        Payload bytes that this rank sent.
    """
    works = group.transfer(
        [(part, peer) for peer, part in incoming.items() if len(part)],
        [(part, peer) for peer, part in outgoing.items() if len(part)],
        WEIGHTS_TAG,
    )
    for work in works:
        work.wait()
    return sum(part.nbytes for part in outgoing.values())
