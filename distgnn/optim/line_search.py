"""A search for a step along a line that meets the strong Wolfe conditions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_DECREASE, _FLATTENING = 1e-4, 0.9
_LONGEST = 10.0
"""Growth of a step from one try to the next, at most."""
_MARGIN = 0.1
"""Share of an interval at each end that is not tried."""


class Point(NamedTuple):
    """A function along a line at one place.

    Attributes:
        length: Distance from the start.
        value: Value of the function; infinite where it is not finite.
        slope: Derivative along the line.
    """

    length: float
    value: float
    slope: float


def search(measure: Callable[[float], Point], start: Point, first: float, most: int) -> Point:
    """Find a point that is lower and flatter than the start.

    Args:
        measure: Returns the point at a distance; it is called at most `most` times.
        start: Point of distance 0, with a slope.
        first: Distance that is tried first.
        most: Number of tries.

    Returns:
        The point, or the lowest of those that were tried; `start` itself if none is lower.

    References:
        Nocedal and Wright, "Numerical Optimization", 2006, algorithms 3.5 and 3.6; slopes are
        interpolated by cubics.
    """
    if not start.slope < 0:
        return start
    before, length = start, first
    for number in range(most):
        now = _finite(measure(length))
        if _is_high(now, start) or (number and now.value >= before.value):
            return _between(measure, start, before, now, most - number - 1)
        if _is_flat(now, start):
            return now
        if now.slope >= 0:
            return _between(measure, start, now, before, most - number - 1)
        longest = _LONGEST * length
        shortest = length + 0.01 * (length - before.length)
        before, length = now, _clamped(_minimum(before, now), shortest, longest, longest)
    return before


def _between(
    measure: Callable[[float], Point], start: Point, low: Point, high: Point, most: int
) -> Point:
    """Search between the lowest point so far and one beyond a minimum."""
    for _ in range(most):
        left, right = sorted((low.length, high.length))
        margin = _MARGIN * (right - left)
        middle = (left + right) / 2
        length = _clamped(_minimum(low, high), left + margin, right - margin, middle)
        if length in (left, right):
            break
        now = _finite(measure(length))
        if _is_high(now, start) or now.value >= low.value:
            high = now
            continue
        if _is_flat(now, start):
            return now
        if now.slope * (high.length - low.length) >= 0:
            high = low
        low = now
    return low


def _is_high(now: Point, start: Point) -> bool:
    """Whether a point is not low enough for its distance: the first condition of Wolfe."""
    return now.value > start.value + _DECREASE * now.length * start.slope


def _is_flat(now: Point, start: Point) -> bool:
    """Whether a point is flat enough: the second, strong condition of Wolfe."""
    return abs(now.slope) <= -_FLATTENING * start.slope


def _finite(point: Point) -> Point:
    is_finite = math.isfinite(point.value) and math.isfinite(point.slope)
    return point if is_finite else point._replace(value=math.inf)


def _minimum(one: Point, other: Point) -> float:
    """Return where the cubic through two points with their slopes is least; NaN if nowhere."""
    left, right = sorted((one, other))
    width = right.length - left.length
    if not width or math.isinf(right.value) or math.isinf(left.value):
        return math.nan
    bend = left.slope + right.slope - 3 * (left.value - right.value) / (left.length - right.length)
    root = bend * bend - left.slope * right.slope
    below = right.slope - left.slope + 2 * math.sqrt(max(root, 0.0))
    if root < 0 or below == 0:
        return math.nan
    return right.length - width * (right.slope + math.sqrt(root) - bend) / below


def _clamped(value: float, least: float, most: float, otherwise: float) -> float:
    return otherwise if math.isnan(value) else min(max(value, least), most)
