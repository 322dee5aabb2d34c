"""Where an epoch's seconds go: one clock that every part of the runtime shares."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PHASES = ("aggregate", "pack", "exchange_wait", "weight_sync")


class Clock:
    """Seconds spent per phase since the last reading.

    Phases never nest, so their sum is at most the epoch's wall time; the rest is the dense update.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the block's wall time to a phase.

        Args:
            phase: One of `PHASES`.
        """
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - start

    def take(self) -> dict[str, float]:
        """Return the seconds per phase and start again from zero."""
        seconds = self.seconds
        self.seconds = dict.fromkeys(PHASES, 0.0)
        return seconds
