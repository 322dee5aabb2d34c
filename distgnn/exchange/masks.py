"""Bits that tell which rows of a turn travel, and the turns of those that do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from distgnn.exchange.turns import PeerRows, Turn


def mask_bytes(lanes: Sequence[PeerRows]) -> list[int]:
    """Return the bytes of a bit for each row, by peer.

    Args:
        lanes: Rows by peer.
    """
    return [-(-(lane.stop - lane.start) // 8) for lane in lanes]


def write_masks(chosen: Tensor, lanes: Sequence[PeerRows]) -> Tensor:
    """Write a bit for each row; the bits of each peer begin with a byte of their own.

    Args:
        chosen: (num_rows,) bool, on the processor.
        lanes: Rows by peer.

    Returns:
        (bytes of all peers,) uint8.
    """
    bits = chosen.numpy()
    found = [np.packbits(bits[lane.start : lane.stop]) for lane in lanes]
    return torch.from_numpy(np.concatenate([np.zeros(0, np.uint8), *found]))


def read_masks(masks: Tensor, lanes: Sequence[PeerRows]) -> Tensor:
    """Read what `write_masks` wrote.

    Args:
        masks: (bytes of all peers,) uint8, on the processor.
        lanes: Rows by peer.

    Returns:
        (num_rows,) bool, on the processor.
    """
    found, start = [np.zeros(0, np.uint8)], 0
    for lane, size in zip(lanes, mask_bytes(lanes), strict=True):
        packed = masks[start : start + size].numpy()
        found.append(np.unpackbits(packed, count=lane.stop - lane.start))
        start += size
    return torch.from_numpy(np.concatenate(found).astype(bool))


def of_chosen(lanes: Sequence[PeerRows], chosen: Tensor) -> tuple[PeerRows, ...]:
    """Return the lanes of the rows that are chosen, one behind the other.

    Args:
        lanes: Rows by peer.
        chosen: (num_rows,) bool.
    """
    ends = [0, *chosen.cumsum(0).tolist()]
    return tuple(
        lane._replace(start=ends[lane.start], stop=ends[lane.stop])
        for lane in lanes
        if ends[lane.stop] > ends[lane.start]
    )


def leaving(turn: Turn, chosen: Tensor) -> Turn:
    """Return a turn of which the chosen rows leave.

    Args:
        turn: Rows that have their turn.
        chosen: (num_sent,) bool.
    """
    assert turn.picked is not None, "the rows of a turn are picked"
    assert turn.packed is not None, "the rows of a turn have places"
    mask = chosen.to(turn.picked.device)
    return turn._replace(
        outgoing=of_chosen(turn.outgoing, chosen),
        picked=turn.picked[mask],
        packed=turn.packed[mask.to(turn.packed.device)],
        num_sent=int(chosen.sum()),
    )


def arriving(turn: Turn, chosen: Tensor) -> Turn:
    """Return a turn of which the chosen rows arrive.

    Args:
        turn: Rows that have their turn.
        chosen: (num_received,) bool.
    """
    assert turn.places is not None, "the rows of a turn have places"
    return turn._replace(
        incoming=of_chosen(turn.incoming, chosen),
        places=turn.places[chosen.to(turn.places.device)],
        num_received=int(chosen.sum()),
    )
