"""Tables of a benchmark: a line a case, and geometric means over them."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from distgnn.bench.measure import HALF, OURS, ROOF

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from distgnn.bench.measure import Cell, KernelRace

HEADER = ("shape", "operation", "direction", "width", "threads", "ms", "GB/s", "roof")


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive values; NaN of none."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


def contestants(cells: Sequence[Cell]) -> list[str]:
    """Return who ran beside ours, in the order of appearance."""
    names = dict.fromkeys(name for cell in cells for name in cell.ms)
    return [name for name in names if name not in (OURS, ROOF)]


def row(cell: Cell, names: Sequence[str]) -> tuple[str, ...]:
    """Return one case as text: our time and rate, then each contestant's ratio to ours."""
    share = cell.roof_share
    ratios = [cell.ratio(name) for name in names]
    return (
        cell.shape,
        cell.operation,
        cell.direction,
        str(cell.width),
        str(cell.threads),
        f"{cell.ms[OURS]:.2f}",
        f"{cell.gigabytes_per_s:.1f}",
        "-" if share is None else f"{share:.2f}",
        *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
    )


def means(cells: Sequence[Cell]) -> list[tuple[str, ...]]:
    """Summarise ratios by operation, direction, threads and contestant.

    Args:
        cells: Cells of a run.

    Returns:
        Rows of (operation, direction, threads, contestant, cells, geometric mean, smallest).
    """
    groups: dict[tuple[str, str, int, str], list[float]] = {}
    for cell in cells:
        for name in contestants([cell]):
            ratio = cell.ratio(name)
            if ratio is not None:
                key = (cell.operation, cell.direction, cell.threads, name)
                groups.setdefault(key, []).append(ratio)
    return [
        (
            operation,
            direction,
            str(threads),
            name,
            str(len(ratios)),
            f"{geometric_mean(ratios):.2f}",
            f"{min(ratios):.2f}",
        )
        for (operation, direction, threads, name), ratios in groups.items()
    ]


MEANS_HEADER = ("operation", "direction", "threads", "peer", "cells", "geomean", "smallest")


def slower(cells: Sequence[Cell]) -> list[str]:
    """Name the cases in which a peer was faster than ours."""
    found = []
    for cell in cells:
        for name in contestants([cell]):
            ratio = cell.ratio(name)
            if name != HALF and ratio is not None and ratio < 1:
                found.append(
                    f"{cell.shape} {cell.operation} {cell.direction} width {cell.width} threads "
                    f"{cell.threads}: {name} takes {ratio:.2f} of our time"
                )
    return found


def roof_shares(cells: Sequence[Cell]) -> list[tuple[str, str, str]]:
    """Return (shape, geometric mean, smallest) of the share of the roof."""
    groups: dict[str, list[float]] = {}
    for cell in cells:
        if cell.roof_share is not None:
            groups.setdefault(cell.shape, []).append(cell.roof_share)
    return [
        (shape, f"{geometric_mean(shares):.2f}", f"{min(shares):.2f}")
        for shape, shares in groups.items()
    ]


def document(race: KernelRace, cells: Sequence[Cell], *, has_fresh_memory: bool) -> dict[str, Any]:
    """Return what a file of results says of kernels.

    Args:
        race: Settings of the race.
        cells: Cells that were measured.
        has_fresh_memory: Whether freed memory was given back between calls.

    Returns:
        JSON values by name.
    """
    names = ("operation", "direction", "threads", "peer", "cells", "geomean", "smallest")
    return {
        "race": asdict(race),
        "has_fresh_memory": has_fresh_memory,
        "cells": [cell.to_json() for cell in cells],
        "means": [dict(zip(names, row, strict=True)) for row in means(cells)],
        "roof_shares": roof_shares(cells),
        "slower": slower(cells),
    }
