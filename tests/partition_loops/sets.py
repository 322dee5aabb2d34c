"""Sets of parts, scrambled numbers and counts of slots."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.stream import WORD_BITS

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def _spill(
    edge_part: NDArray[np.int32], order: NDArray[np.int64], load: NDArray[np.int64], cap: int
) -> NDArray[np.int32]:
    for k in range(order.size - 1, -1, -1):
        part = edge_part[order[k]]
        if load[part] > cap:
            target = np.argmin(load)
            edge_part[order[k]] = target
            load[part] -= 1
            load[target] += 1
    return edge_part


def contains(parts: NDArray[np.uint64], part: int) -> bool:
    """Say whether a set of parts, (num_words,) uint64, holds a part."""
    return bool((parts[part // WORD_BITS] >> np.uint64(part % WORD_BITS)) & np.uint64(1))


def insert(parts: NDArray[np.uint64], part: int) -> None:
    """Add a part to a set, (num_words,) uint64."""
    parts[part // WORD_BITS] |= np.uint64(1) << np.uint64(part % WORD_BITS)


def insert_all(
    lives_on: NDArray[np.uint64], vertices: NDArray[np.int64], parts: NDArray[np.int32]
) -> None:
    """Add parts to sets.

    Args:
        lives_on: (num_vertices, num_words) uint64. Set of each vertex.
        vertices: (num_pairs,) int64.
        parts: (num_pairs,) int32. What to add to the set of each of those.
    """
    for k in range(vertices.size):
        insert(lives_on[vertices[k]], parts[k])


def mix(value: np.uint64) -> np.uint64:
    """Scramble 64 bits, one to one."""
    value = value + _GOLDEN
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    mixed: np.uint64 = value ^ (value >> np.uint64(31))
    return mixed


def _vertex_hashes(num_vertices: int, seed: int) -> NDArray[np.int64]:
    start = mix(np.uint64(seed))
    hashes = np.empty(num_vertices, np.int64)
    for vertex in range(num_vertices):
        hashes[vertex] = np.int64(mix(start ^ np.uint64(vertex)) >> np.uint64(1))
    return hashes


def _link_keys(src: NDArray[np.int64], dst: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """Hash both ends without regard to direction; the lowest bit is the direction."""
    start = mix(np.uint64(seed))
    keys = np.empty(src.size, np.uint64)
    for edge in range(src.size):
        low, high = min(src[edge], dst[edge]), max(src[edge], dst[edge])
        key = mix(mix(start ^ np.uint64(low)) ^ np.uint64(high))
        keys[edge] = (key << np.uint64(1)) | np.uint64(src[edge] > dst[edge])
    return keys
