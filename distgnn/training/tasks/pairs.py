"""Random pairs of vertices: a function of numbers alone, so the partition does not matter.

A random pair may be a link. In a large sparse graph hardly any is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ids = NDArray[np.int64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def draw_pairs(seed: int, numbers: Ids, num_vertices: int) -> tuple[Ids, Ids]:
    """Draw pairs of two different vertices, all equally likely.

    Args:
        seed: Seed of 64 bits.
        numbers: (num,) int64. Numbers of the pairs; a number always gives the same pair.
        num_vertices: Number of vertices, at least 2.

    Returns:
        (num,) int64 first ends, and (num,) int64 second ends.
    """
    words = _mixed(np.uint64(seed) + _STEP * (2 * numbers).astype(np.uint64))
    first = _below(words, num_vertices)
    return first, _other(first, _mixed(words + _STEP), num_vertices)


def draw_others(seed: int, links: Ids, num_each: int, num_vertices: int) -> Ids:
    """Draw vertices to pair with the first end of each link.

    Args:
        seed: Seed of 64 bits.
        links: (num, 2) int64. A link always gets the same vertices.
        num_each: Number of vertices for a link.
        num_vertices: Number of vertices of the graph, at least 2.

    Returns:
        (num, num_each) int64 vertices, none equal to the link's first end.
    """
    ends = links.astype(np.uint64)
    key = _mixed(_mixed(np.uint64(seed) + _STEP * ends[:, 0]) + _STEP * ends[:, 1])
    words = _mixed(key[:, None] + _STEP * np.arange(1, num_each + 1, dtype=np.uint64))
    return _other(links[:, :1], words, num_vertices)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix words by the finalizer of splitmix64 (Steele et al., OOPSLA 2014)."""
    words = (words ^ (words >> np.uint64(30))) * _MIX[0]
    words = (words ^ (words >> np.uint64(27))) * _MIX[1]
    mixed: NDArray[np.uint64] = words ^ (words >> np.uint64(31))
    return mixed


def _below(words: NDArray[np.uint64], limit: int) -> Ids:
    # The remainder prefers small numbers by limit / 2**64, which cannot be noticed.
    numbers: Ids = (words % np.uint64(limit)).astype(np.int64)
    return numbers


def _other(first: Ids, words: NDArray[np.uint64], num_vertices: int) -> Ids:
    return (first + 1 + _below(words, num_vertices - 1)) % num_vertices
