"""Scales of twins, numbers that may be written as fractions."""

from __future__ import annotations

import math

_MOST = 1e30


def scale_of(text: str) -> float:
    """Return the scale that a text names.

    Args:
        text: A number such as 0.25 or a fraction such as 1/64.

    Returns:
        Its value, above 0 and at most 1; NaN if it is no such number.
    """
    try:
        # `fractions.Fraction` would work for hours on 1e999999999.
        values = [float(word) for word in text.split("/")]
    except ValueError:
        return math.nan
    if len(values) > 2 or not all(0 < value <= _MOST for value in values):
        return math.nan
    value = values[0] / (values[1] if len(values) == 2 else 1.0)
    return value if 0 < value <= 1 else math.nan
