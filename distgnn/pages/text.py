"""Numbers as people read them."""

from __future__ import annotations


def human_count(count: float) -> str:
    """Write a count or a measure in few digits."""
    if float(count).is_integer() and abs(count) < 1e15:
        return f"{int(count):,}".replace(",", " ")
    return f"{count:.4g}"


def human_seconds(seconds: float) -> str:
    """Write a time with the unit that suits it."""
    if not seconds:
        return "0 s"
    # 90 s and 100 min are easier to read than 1.5 min and 1.67 h.
    for unit, size, least in (("h", 3600, 7200), ("min", 60, 120), ("s", 1, 1), ("ms", 1e-3, 1e-3)):
        if seconds >= least:
            return f"{seconds / size:.3g} {unit}"
    return f"{1e6 * seconds:.3g} us"
