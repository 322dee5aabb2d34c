"""Lines about how long each stage took."""

from __future__ import annotations

import time
from collections.abc import Callable


class Stopwatch:
    """Says what was done and how long it took, if anybody listens."""

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        """Start.

        Args:
            progress: Called with one line of text per stage.
        """
        self._progress = progress
        self._start = time.perf_counter()

    def note(self, stage: str) -> None:
        """End a stage, and begin the next one.

        Args:
            stage: Name of the stage that ended.
        """
        end = time.perf_counter()
        if self._progress is not None:
            self._progress(f"{stage} ({end - self._start:.1f} s)")
        self._start = end
