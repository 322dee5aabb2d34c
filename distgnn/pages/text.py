"""Numbers as people read them."""

from __future__ import annotations


def human_bytes(count: float) -> str:
    """Write a size with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def human_count(count: float) -> str:
    """Write a count or a measure in few digits."""
    if float(count).is_integer() and abs(count) < 1e15:
        return f"{int(count):,}".replace(",", " ")
    return f"{count:.4g}"


def human_seconds(seconds: float) -> str:
    """Write a time with the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{1e6 * seconds:.3g} us"
