"""Sizes as people read them."""

from __future__ import annotations


def human_bytes(count: float) -> str:
    """Write a size with a binary unit.

    Args:
        count: Number of bytes.
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
