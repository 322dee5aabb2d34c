"""Refinement of all parts, a window after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.large.clock import Progress, StageProgress
from distgnn.partition.large.groups import leveller, windows
from distgnn.partition.large.piles import Piles
from distgnn.partition.large.windows import Window, WindowFacts, clones_of, refine_window
from distgnn.partition.large.work import WorkFolder


@dataclass(frozen=True, eq=False, kw_only=True)
class RefineLimits:
    """Limits that refinement keeps."""

    most_edges: int
    """Number of edges that a part may hold."""
    more_rows: int
    """Number of rows that may be added where parts hold too many edges."""
    window_edges: int
    """Edges between parts that fit into memory."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Cut:
    """The edges between parts."""

    placed: Piles
    """Piles that they live in; piles are rewritten for each window."""
    root_part: NDArray[np.int32]
    """(num_vertices,) int32. Part of each vertex's root."""
    between: NDArray[np.int64]
    """(num_parts, num_parts) int64. Edges from roots on one part to roots on another."""

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return int(self.between.shape[0])


def refine(work: WorkFolder, cut: Cut, goal: RefineLimits, progress: Progress | None) -> None:
    """Refine until every part was in its windows, then where parts hold too many edges.

    Records under `refined` the windows done, the pile of each part, the clones of each part, the
    rows that travel, and the rows that travelled before.

    Args:
        work: Work folder of the partitioning; `begin` was called.
        cut: The edges between parts.
        goal: Limits to keep.
        progress: Called with one line of text now and then.
    """
    sizes = np.array(work["covered"][1], np.int64)
    planned = windows(cut.between, sizes, goal.window_edges)
    clock = StageProgress("refining", "windows", len(planned), progress)
    clock.skip(min(work["refined"]["windows"], len(planned)))
    whole = WindowFacts(cut.root_part, np.diag(cut.between).copy())
    for window in _windows_left(work, cut, goal, planned):
        _refine_one(work, cut, goal, np.array(window), whole)
        clock.add(1)
    state = work["refined"]
    clock.end(f"{state['before']} rows to {state['rows']}")


def begin(work: WorkFolder, cut: Cut) -> None:
    """Count rows and clones before the first window, or drop what an interrupted window left.

    Args:
        work: Work folder of the partitioning.
        cut: The edges between parts; at first, pile p is of part p.
    """
    if work["refined"] is not None:
        cut.placed.keep_only(work["refined"]["piles"])
        return
    roots = np.bincount(cut.root_part, minlength=cut.num_parts)
    counts = [
        clones_of(cut.placed.read(part), part, cut.root_part) for part in range(cut.num_parts)
    ]
    rows = sum(row for _, row in counts)
    work.record(
        refined={
            "windows": 0,
            "piles": list(range(cut.num_parts)),
            "clones": [int(roots[part]) + leaves for part, (leaves, _) in enumerate(counts)],
            "rows": rows,
            "before": rows,
            "is_stuck": False,
        }
    )


def _windows_left(
    work: WorkFolder, cut: Cut, goal: RefineLimits, planned: list[list[int]]
) -> Iterator[list[int]]:
    """Go through the plan, then level parts that hold too many edges, while that helps."""
    yield from planned[work["refined"]["windows"] :]
    inner = np.diag(cut.between)
    while work["refined"]["windows"] < len(planned) + cut.num_parts:
        sizes = _sizes(work, cut)
        window = leveller(inner + sizes, sizes, goal.most_edges, goal.window_edges)
        if not window or work["refined"]["is_stuck"]:
            return
        yield window


def _sizes(work: WorkFolder, cut: Cut) -> NDArray[np.int64]:
    return np.array([cut.placed.size(pile) for pile in work["refined"]["piles"]], np.int64)


def _refine_one(
    work: WorkFolder, cut: Cut, goal: RefineLimits, parts: NDArray[np.int64], whole: WindowFacts
) -> None:
    state = dict(work["refined"])
    piles, clones = list(state["piles"]), np.array(state["clones"], np.int64)
    read = [cut.placed.read(piles[part]) for part in parts]
    edge_part = np.repeat(np.arange(parts.size, dtype=np.int32), [one.size for one in read])
    window = Window(parts, np.concatenate(read), edge_part)
    del read
    edge_part, clones[parts], saved = refine_window(
        window,
        whole,
        clones,
        most_edges=goal.most_edges,
        more_rows=max(state["before"] + goal.more_rows - state["rows"], 0),
    )
    # A pile that is being written is never one that counts.
    fresh = parts + (state["windows"] + 1) * cut.num_parts
    cut.placed.scatter(edge_part, window.records, fresh.tolist())
    cut.placed.commit()
    previous = [piles[part] for part in parts]
    full = whole.inner[parts] + np.bincount(window.edge_part, minlength=parts.size)
    after = whole.inner[parts] + np.bincount(edge_part, minlength=parts.size)
    for part, pile in zip(parts, fresh.tolist(), strict=True):
        piles[part] = pile
    state.update(
        windows=state["windows"] + 1,
        piles=piles,
        clones=clones.tolist(),
        rows=state["rows"] - saved,
        is_stuck=bool(after.max() >= full.max()),
    )
    work.record(refined=state)
    for pile in previous:
        cut.placed.remove(pile)
