"""Converters from the text of a flag to its value, so that a wrong one is refused early."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from distgnn.datasets.scale import scale_of

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_COUNT = 2**31 - 1
MAX_NUMBER = 1e30
"""Largest number of a flag; it fits into float32 with room for arithmetic."""


def whole(least: int, most: int = MAX_COUNT) -> Callable[[str], int]:
    """Make the converter of a flag that takes a whole number.

    Args:
        least: Smallest value that is allowed.
        most: Largest value that is allowed.

    Returns:
        A function for argparse, from a text to its value.
    """

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"must be a whole number from {least} to {most}, got '{text}'"
            )
        return value

    return convert


def number(text: str) -> float:
    """Convert the text of a flag that takes a number.

    Args:
        text: Word of the command line.

    Returns:
        Its value, finite.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= MAX_NUMBER:
        raise argparse.ArgumentTypeError(
            f"must be a finite number of at most {MAX_NUMBER:g}, got '{text}'"
        )
    return value


def scale(text: str) -> float:
    """Convert the text of a flag that takes the scale of a twin, such as 1/16.

    Args:
        text: Word of the command line.

    Returns:
        Its value, above 0 and at most 1.
    """
    value = scale_of(text)
    if math.isnan(value):
        raise argparse.ArgumentTypeError(
            f"must be a number or a fraction above 0 and at most 1, such as 1/64, got '{text}'"
        )
    return value


def switch(text: str) -> bool:
    """Convert the text of a flag that takes on or off.

    Args:
        text: Word of the command line.

    Returns:
        Whether it is on.
    """
    if text not in ("on", "off"):
        raise argparse.ArgumentTypeError(f"must be on or off, got '{text}'")
    return text == "on"
