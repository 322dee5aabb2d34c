"""Levels of a hierarchical partition: machines, sockets of a machine, and so on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError

MAX_LENGTH = 64


def parse_levels(text: str, num_parts: int) -> tuple[int, ...]:
    """Read the levels of a partition.

    Args:
        text: Numbers such as 2x4, for 2 machines of 4 sockets. Empty for two levels, of which the
            upper one has as few groups as the number of parts allows.
        num_parts: The product of the levels.

    Returns:
        (num_levels,) groups that each group of the level above has. Part p is in group
        p // (product of the levels below).

    Raises:
        InputError: If the text is of another form, or the product is another.
    """
    if not text:
        smallest = next((k for k in range(2, math.isqrt(num_parts) + 1) if num_parts % k == 0), 1)
        return (smallest, num_parts // smallest)
    # A longer text may hold numbers, or a product, that cannot be read or printed.
    words = text.split("x") if len(text) <= MAX_LENGTH else [""]
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise InputError(
            f"levels must be whole numbers such as 2x4, in at most {MAX_LENGTH} characters, got "
            f"{text!r}"
        )
    levels = tuple(int(word) for word in words)
    if math.prod(levels) != num_parts:
        raise InputError(
            f"levels {text} make {math.prod(levels)} parts, but num_parts is {num_parts}; the "
            "product must be the number of parts"
        )
    return levels


def halo_rows_per_level(rows: NDArray[np.int64], levels: Sequence[int]) -> tuple[int, ...]:
    """Split the rows that travel by the highest level at which their two parts differ.

    Args:
        rows: (num_parts, num_parts) int64. Rows between each pair of parts, read and written.
        levels: Levels that `parse_levels` returns.

    Returns:
        (num_levels,) rows between groups of the first level, then between groups of the second
        inside one of the first, and so on; together halo_rows.
    """
    parts = np.arange(rows.shape[0])
    counts, size, inside = [], rows.shape[0], int(rows.sum())
    for level in levels:
        size //= level
        group = parts // size
        together = int(rows[group[:, None] == group[None, :]].sum())
        counts.append(inside - together)
        inside = together
    return tuple(counts)
