"""Where an epoch's seconds go: one clock that every part of the runtime shares."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

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
            self.add(phase, start, time.perf_counter())

    def add(self, phase: str, start: float, stop: float) -> None:
        """Add a stretch of time to a phase.

        Args:
            phase: One of `PHASES`.
            start: Of `time.perf_counter`, in seconds.
            stop: Likewise.
        """
        self.seconds[phase] += stop - start

    def start_pass(self, *, is_backward: bool) -> None:
        """Hear that one aggregation begins.

        Args:
            is_backward: Whether it carries gradients.
        """

    def take(self) -> dict[str, float]:
        """Return the seconds per phase and start again from zero."""
        seconds = self.seconds
        self.seconds = dict.fromkeys(PHASES, 0.0)
        return seconds


class Span(NamedTuple):
    """A stretch of time.

    Attributes:
        name: What was done.
        start: Of `time.perf_counter`, in seconds.
        stop: Likewise.
        aggregation: Number of the last one begun, from 1, in the order of the forward pass;
            negative in the backward pass, 0 before the first.
    """

    name: str
    start: float
    stop: float
    aggregation: int


class SpanClock(Clock):
    """A clock that also remembers when each phase was.

    Attributes:
        spans: Since `take_spans`, in the order in which they ended.
    """

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[Span] = []
        self._depth = 0
        self._aggregation = 0

    def add(self, phase: str, start: float, stop: float) -> None:
        """Add a stretch of time to a phase; see `Clock.add`."""
        super().add(phase, start, stop)
        self.spans.append(Span(phase, start, stop, self._aggregation))

    def start_pass(self, *, is_backward: bool) -> None:
        """Number the aggregation: backward they come in the opposite order."""
        if is_backward:
            self._aggregation = -self._depth
            self._depth -= 1
        else:
            self._depth += 1
            self._aggregation = self._depth

    def take_spans(self) -> list[Span]:
        """Return the spans of an epoch and begin the next."""
        spans, self.spans = self.spans, []
        self._depth = self._aggregation = 0
        return spans
