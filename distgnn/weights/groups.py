"""Groups of ranks whose models are merged together, drawn again for each merge."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from distgnn.exchange.tags import WEIGHTS_TAG

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.comm.group import Group


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

    Each member adds up a slice in rank order and tells the mean to the others, so that all members
    have the same bits. The bytes are those of `slice_bytes`.

    Args:
        group: All ranks.
        values: (num_values,) floating point, contiguous; changed.
        members: Ranks of the mean, ascending; this one is among them.
    """
    size = len(members)
    bounds = [place * len(values) // size for place in range(size + 1)]
    parts = [values[start:stop] for start, stop in pairwise(bounds)]
    slices = dict(zip(members, parts, strict=True))
    mine = slices[group.rank]
    others = {peer: part for peer, part in slices.items() if peer != group.rank}
    arrived = {peer: torch.empty_like(mine) for peer in others}
    _transfer(group, arrived, others)
    total = torch.zeros_like(mine)
    for peer in members:
        total += mine if peer == group.rank else arrived[peer]
    mine.copy_(total / size)
    _transfer(group, others, dict.fromkeys(others, mine))


def _transfer(group: Group, incoming: dict[int, Tensor], outgoing: dict[int, Tensor]) -> None:
    """Receive from and send to peers; both ends know which slices are empty."""
    works = group.transfer(
        [(part, peer) for peer, part in incoming.items() if len(part)],
        [(part, peer) for peer, part in outgoing.items() if len(part)],
        WEIGHTS_TAG,
    )
    for work in works:
        work.wait()
