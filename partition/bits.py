"""Sets of parts and scrambled numbers, for compiled functions of methods that stream edges."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distgnn.partition import stream
from distgnn.partition.jit import compiled
from distgnn.partition.stream import WORD_BITS

# Constants of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)

no_clones = compiled(stream.no_clones)
"""Make one empty set of parts per vertex."""


@compiled
def contains(parts: NDArray[np.uint64], part: int) -> bool:
    """Say whether a set of parts, (num_words,) uint64, holds a part."""
    return bool((parts[part // WORD_BITS] >> np.uint64(part % WORD_BITS)) & np.uint64(1))


@compiled
def insert(parts: NDArray[np.uint64], part: int) -> None:
    """Add a part to a set, (num_words,) uint64."""
    parts[part // WORD_BITS] |= np.uint64(1) << np.uint64(part % WORD_BITS)


@compiled
def mix(value: np.uint64) -> np.uint64:
    """Scramble 64 bits, one to one."""
    value = value + _GOLDEN
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    mixed: np.uint64 = value ^ (value >> np.uint64(31))
    return mixed
