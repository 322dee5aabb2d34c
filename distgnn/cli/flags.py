"""Converters from the text of a flag to its value, so that a wrong one is refused early."""

from __future__ import annotations

import argparse
import math
import re

from distgnn.settings.kinds import MAX_COUNT, MAX_NUMBER, number, scale, switch, whole

__all__ = [
    "MAX_COUNT",
    "MAX_SEED",
    "MAX_THREADS",
    "bandwidth",
    "duration",
    "number",
    "path",
    "scale",
    "seconds",
]
__all__ += ["size", "switch", "whole"]
MAX_SEED = 2**63 - 1
MAX_THREADS = 1024
_BANDWIDTH = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kMGT]?)(b|bit|B)(?:/s|ps)")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s)")
_POWERS = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4}
_PER_SECOND = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}
_MAX_SECONDS = 86400.0


def path(text: str) -> str:
    """Refuse the empty path, which an unset variable of a script leaves.

    Args:
        text: Word of the command line.

    Returns:
        The same.
    """
    if not text:
        raise argparse.ArgumentTypeError("must be a path, got ''")
    return text


_UNITS = {"": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


def size(text: str) -> int:
    """Convert the text of a flag that takes an amount of memory.

    Args:
        text: Word of the command line.

    Returns:
        Bytes.
    """
    digits = text.rstrip("KMGTiB")
    unit = text[len(digits) :]
    try:
        value = float(digits)
    except ValueError:
        value = 0.0
    num_bytes = value * (1 << _UNITS.get(unit, 0))
    if unit not in _UNITS or not num_bytes >= 1 or not value <= MAX_NUMBER:
        raise argparse.ArgumentTypeError(
            f"must be a number with one of {', '.join(list(_UNITS)[1:])}, or of bytes, at least "
            f"one, such as 8GiB, got '{text}'"
        )
    return int(num_bytes)


def bandwidth(text: str) -> float:
    """Convert the text of a flag that takes a speed, such as 10Gb/s or 1.2GB/s.

    Args:
        text: Word of the command line; b or bit for bits, B for bytes, decimal prefixes.

    Returns:
        Bytes per second.
    """
    found = _BANDWIDTH.fullmatch(text)
    if found is None or float(found[1]) == 0:
        raise argparse.ArgumentTypeError(
            f"must be a speed such as 10Gb/s (bits) or 1.2GB/s (bytes), got '{text}'"
        )
    unit_bytes = 1.0 if found[3] == "B" else 1 / 8
    return float(found[1]) * 1000.0 ** _POWERS[found[2]] * unit_bytes


def duration(text: str) -> float:
    """Convert the text of a flag that takes a time, such as 20us.

    Args:
        text: Word of the command line.

    Returns:
        Seconds.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"must be a time such as 20us or 1.5ms, got '{text}'")
    return float(found[1]) / _PER_SECOND[found[2]]


def seconds(text: str) -> float:
    """Convert the text of a flag that takes a time: at least one second, at most a day.

    Args:
        text: Word of the command line.

    Returns:
        Seconds.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1 <= value <= _MAX_SECONDS:
        raise argparse.ArgumentTypeError(
            f"must be from 1 to {_MAX_SECONDS:g} seconds, got '{text}'"
        )
    return value
