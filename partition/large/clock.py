"""Lines about how far a stage is, how fast, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Callable

Progress = Callable[[str], None]
# Seconds between two lines of a stage.
INTERVAL_S = 10.0


class StageProgress:
    """Counts what a stage has done."""

    def __init__(self, stage: str, unit: str, total: int, progress: Progress | None) -> None:
        """Start.

        Args:
            stage: Name of the work.
            unit: Name of the things that are counted, in the plural.
            total: Number of them.
            progress: Called with one line of text now and then, and at the end.
        """
        self._stage, self._unit, self._total = stage, unit, total
        self._progress = progress
        self._done = self._before = 0
        self._start = self._shown = time.monotonic()

    def skip(self, count: int) -> None:
        """Count what an earlier run did, which says nothing of the speed of this one."""
        self._done += count
        self._before += count

    def add(self, count: int) -> None:
        """Count what was done since the last call; it may come to more than the total."""
        self._done += count
        now = time.monotonic()
        if self._progress is None or now - self._shown < INTERVAL_S:
            return
        self._shown = now
        rate = (self._done - self._before) / (now - self._start)
        left = self._total - self._done
        rest = f"about {left / max(rate, 1e-9):.0f} s more"
        if left < 0:
            rest = f"{-left} more than planned"
        self._progress(
            f"{self._stage}: {self._done} of {self._total} {self._unit}, {rate:.3g} per second, "
            f"{rest}"
        )

    def end(self, remark: str = "") -> None:
        """Say how long the stage took.

        Args:
            remark: Another remark on it.
        """
        if self._progress is not None:
            seconds = time.monotonic() - self._start
            text = f", {remark}" if remark else ""
            self._progress(f"{self._stage}: {self._done} {self._unit}{text} ({seconds:.1f} s)")
