"""Refinement of all parts, window by window."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.groups import apart, eveners, leveller, windows
from distgnn.partition.large.clock import Progress, StageProgress
from distgnn.partition.large.crew import Crew
from distgnn.partition.large.piles import Piles
from distgnn.partition.large.windows import (
    BYTES_PER_EDGE,
    MOST_CLONES,
    Window,
    WindowFacts,
    clones_of,
    refine_window,
)
from distgnn.partition.large.work import WorkFolder
from distgnn.partition.refine import placement
from distgnn.partition.refine.refinement import CLONE_BALANCE

TASK = "refine"
"""Name of the task of which each item is a window."""
# Rounds of windows for parts with too many clones, and what is recorded before the first one.
_EVEN_ROUNDS = 3
_NOTHING_EVENED: dict[str, Any] = {"peaks": [], "num_even": None}


@dataclass(frozen=True, eq=False, kw_only=True)
class RefineLimits:
    """Limits that refinement keeps."""

    most_edges: int
    """Number of edges that a part may hold."""
    more_rows: int
    """Number of rows that may be added where parts hold too many edges or clones."""
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


def refine(
    work: WorkFolder, cut: Cut, goal: RefineLimits, crew: Crew, progress: Progress | None
) -> None:
    """Refine until every part was in its windows, then where parts hold too many clones or edges.

    Windows that have no part in common are refined from the same state, each by any rank, so that
    the outcome is that of one rank. Records under `refined` the windows done, the pile of each
    part, the clones of each part, the rows that travel, and the rows that travelled before. Further
    the most clones of a part before each round of windows for these, and the windows until then.

    Args:
        work: Work folder of the partitioning; `begin` was called.
        cut: The edges between parts.
        goal: Limits to keep.
        crew: Ranks that share the windows.
        progress: Called with one line of text now and then.
    """
    sizes = np.array(work["covered"][1], np.int64)
    planned = windows(cut.between, sizes, goal.window_edges)
    missing = int(np.sort(sizes)[:2].sum()) - goal.window_edges
    if not planned and missing > 0 and progress is not None:
        reason = f"take {missing * BYTES_PER_EDGE / 2**30:.2g} GiB more than --memory allows"
        if goal.window_edges >= placement.MOST_VERTICES // 2:
            reason = f"hold {missing} edges more than can be numbered; use more parts"
        progress(f"nothing is refined, so more rows travel: windows of two parts {reason}")
    clock = StageProgress("refining", "windows", len(planned), progress)
    clock.skip(min(work["refined"]["windows"], len(planned)))
    share = WindowShare(work, cut)
    for batch in _batches_left(work, cut, goal, planned):
        state = work["refined"]
        room = max(state["before"] + goal.more_rows - state["rows"], 0)
        facts = WindowTask(state["piles"], state["clones"], goal.most_edges, room // len(batch))
        crew.share(
            TASK,
            [[number, window] for number, window in enumerate(batch, state["windows"])],
            partial(share.refine, facts),
            is_done=share.is_done,
            facts=facts._asdict(),
        )
        _take_in(work, cut, share, batch, len(planned))
        clock.add(len(batch))
    state = work["refined"]
    clock.end(f"{state['before']} rows to {state['rows']}")


def begin(work: WorkFolder, cut: Cut) -> None:
    """Count rows and clones before the first window, or drop what an interrupted window left.

    Args:
        work: Work folder of the partitioning.
        cut: The edges between parts; at first, pile p is of part p.
    """
    if work["refined"] is not None:
        # Versions before clones were evened out recorded nothing of that.
        work.record(refined={**_NOTHING_EVENED, **work["refined"]})
        # Windows of a batch that are done, though not all of it is, have piles that count.
        share = WindowShare(work, cut)
        cut.placed.keep_only([*work["refined"]["piles"], *share.fresh_piles()])
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
            **_NOTHING_EVENED,
        }
    )


def _batches_left(
    work: WorkFolder, cut: Cut, goal: RefineLimits, planned: list[list[int]]
) -> Iterator[list[list[int]]]:
    """Go through the plan, then even out clones and edges of parts, while that helps."""
    yield from apart(planned[work["refined"]["windows"] :])
    inner = np.diag(cut.between)
    while work["refined"]["num_even"] is None:
        batch = _crowded(work, cut, goal) if len(planned) > 1 else []
        if batch:
            yield batch
        else:
            work.record(refined={**work["refined"], "num_even": work["refined"]["windows"]})
    while work["refined"]["windows"] < work["refined"]["num_even"] + cut.num_parts:
        sizes = _sizes(work, cut)
        window = leveller(inner + sizes, sizes, goal.most_edges, goal.window_edges)
        if not window or work["refined"]["is_stuck"]:
            return
        yield [window]


def _crowded(work: WorkFolder, cut: Cut, goal: RefineLimits) -> list[list[int]]:
    """Choose windows for parts with too many clones; none if the last ones were of no use."""
    state = work["refined"]
    clones, sizes = np.array(state["clones"], np.float64), _sizes(work, cut)
    peaks = state["peaks"]
    if clones.max() <= CLONE_BALANCE * clones.mean() or len(peaks) == _EVEN_ROUNDS:
        return []
    if peaks and clones.max() >= peaks[-1]:
        return []
    most = MOST_CLONES * clones.mean()
    load = np.diag(cut.between) + sizes
    # A clone comes with edges, for which there has to be room as well.
    room = np.minimum(most - clones, (goal.most_edges - load) * clones.sum() / load.sum())
    return eveners(clones - most, room, sizes, goal.window_edges)


def _sizes(work: WorkFolder, cut: Cut) -> NDArray[np.int64]:
    return np.array([cut.placed.size(pile) for pile in work["refined"]["piles"]], np.int64)


class WindowTask(NamedTuple):
    """State that the windows of a batch begin from, and their limits.

    Attributes:
        piles: (num_parts,) the pile of each part.
        clones: (num_parts,)
        most_edges: Number of edges that a part may hold.
        more_rows: Number of rows that a window may add.
    """

    piles: list[int]
    clones: list[int]
    most_edges: int
    more_rows: int


class WindowShare:
    """Windows that a rank refines, each into piles and a file of its own.

    Args:
        work: Work folder of the partitioning.
        cut: The edges between parts.
    """

    def __init__(self, work: WorkFolder, cut: Cut) -> None:
        self._work = work
        self._cut = cut
        self._whole = WindowFacts(cut.root_part, np.diag(cut.between).copy())

    def refine(self, task: WindowTask, item: tuple[int, list[int]]) -> None:
        """Refine a window.

        Args:
            task: State that it begins from.
            item: Number of the window, and its parts.
        """
        number, parts = item[0], np.array(item[1])
        placed, inner = self._cut.placed, self._whole.inner
        read = [placed.read(task.piles[part]) for part in parts]
        edge_part = np.repeat(np.arange(parts.size, dtype=np.int32), [one.size for one in read])
        window = Window(parts, np.concatenate(read), edge_part)
        del read
        edge_part, own_clones, saved = refine_window(
            window,
            self._whole,
            np.array(task.clones, np.int64),
            most_edges=task.most_edges,
            more_rows=task.more_rows,
        )
        # A pile that is being written is never one that counts.
        placed.scatter(edge_part, window.records, self.piles_of(number, item[1]))
        placed.commit()
        full = inner[parts] + np.bincount(window.edge_part, minlength=parts.size)
        after = inner[parts] + np.bincount(edge_part, minlength=parts.size)
        outcome = {
            "parts": item[1],
            "clones": own_clones.tolist(),
            "saved": saved,
            "is_stuck": bool(after.max() >= full.max()),
        }
        self._work.save_json(_name_of(number), outcome)

    def is_done(self, item: tuple[int, list[int]]) -> bool:
        """Return whether a window was refined."""
        return self._path(item[0]).exists()

    def outcome(self, number: int) -> dict[str, Any]:
        """Return what became of a window."""
        found: dict[str, Any] = json.loads(self._path(number).read_text(encoding="utf-8"))
        return found

    def remove(self, number: int) -> None:
        """Remove the file of a window."""
        self._path(number).unlink(missing_ok=True)

    def piles_of(self, number: int, parts: Sequence[int]) -> list[int]:
        """Return the piles that a window is written to."""
        return [part + (number + 1) * self._cut.num_parts for part in parts]

    def fresh_piles(self) -> list[int]:
        """Return the piles of windows that are done, but not yet part of the state."""
        piles: list[int] = []
        for path in self._work.folder.glob("window-*.json"):
            number = int(path.stem.removeprefix("window-"))
            if number < self._work["refined"]["windows"]:
                path.unlink()
            else:
                piles += self.piles_of(number, self.outcome(number)["parts"])
        return piles

    def _path(self, number: int) -> Path:
        return self._work.path(_name_of(number))


def _name_of(number: int) -> str:
    return f"window-{number:05d}.json"


def _take_in(
    work: WorkFolder, cut: Cut, share: WindowShare, batch: list[list[int]], num_planned: int
) -> None:
    """Make windows part of the state."""
    state = dict(work["refined"])
    # Other windows say nothing of the parts that hold too many edges; one alone has all.
    tells_of_levelling = num_planned == 1 or state["num_even"] is not None
    if num_planned <= state["windows"] and state["num_even"] is None:
        state["peaks"] = [*state["peaks"], max(state["clones"])]
    piles, clones = list(state["piles"]), list(state["clones"])
    previous: list[int] = []
    numbers = range(state["windows"], state["windows"] + len(batch))
    for number, parts in zip(numbers, batch, strict=True):
        outcome = share.outcome(number)
        previous += [piles[part] for part in parts]
        fresh = share.piles_of(number, parts)
        for part, pile, count in zip(parts, fresh, outcome["clones"], strict=True):
            piles[part], clones[part] = pile, count
        state["rows"] -= outcome["saved"]
        state["is_stuck"] = tells_of_levelling and outcome["is_stuck"]
    state.update(windows=numbers.stop, piles=piles, clones=clones)
    work.record(refined=state)
    for pile in previous:
        cut.placed.remove(pile)
    for number in numbers:
        share.remove(number)
