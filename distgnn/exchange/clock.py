"""Where an epoch's seconds go: one clock that every part of the runtime shares."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PHASES = ("aggregate", "pack", "exchange_wait", "weight_sync")


class PhaseWatch(Protocol):
    """Tells when something begins and ends, in seconds of `time.perf_counter`."""

    def now(self) -> Any:
        """Return this moment."""

    def tell(self, start: Any, told: Callable[[float, float], None]) -> None:
        """Call a function with a moment that has been and with this one; at `settle` at latest."""

    def settle(self) -> None:
        """Tell all that was not told yet."""


class HostWatch:
    """The processor's: something ends when the call that does it returns."""

    def now(self) -> float:
        """See `PhaseWatch`."""
        return time.perf_counter()

    def tell(self, start: float, told: Callable[[float, float], None]) -> None:
        """See `PhaseWatch`."""
        told(start, time.perf_counter())

    def settle(self) -> None:
        """See `PhaseWatch`."""


class DeviceWatch:
    """The watch of a CUDA device, whose work is launched long before it is done.

    Something begins and ends when all that was launched before its begin, or its end, is done.
    Nothing waits for that before `settle`.
    """

    def __init__(self) -> None:
        self._untold: list[tuple[torch.cuda.Event, torch.cuda.Event, Callable[..., None]]] = []
        self._set()

    def _set(self) -> None:
        """Take a moment that both the device and the processor know."""
        self._origin = self.now()
        self._origin.synchronize()
        self._origin_s = time.perf_counter()

    def now(self) -> torch.cuda.Event:
        """See `PhaseWatch`."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def tell(self, start: torch.cuda.Event, told: Callable[[float, float], None]) -> None:
        """See `PhaseWatch`."""
        self._untold.append((start, self.now(), told))

    def settle(self) -> None:
        """See `PhaseWatch`."""
        for start, stop, told in self._untold:
            stop.synchronize()
            begin_s = self._origin_s + self._origin.elapsed_time(start) / 1e3
            told(begin_s, begin_s + start.elapsed_time(stop) / 1e3)
        self._untold = []
        # Again, as the device tells times since then in few digits.
        self._set()


def watch_of(device: torch.device) -> PhaseWatch:
    """Return what tells the time of a device.

    Args:
        device: Device that computes.
    """
    return DeviceWatch() if device.type == "cuda" else HostWatch()


class Clock:
    """Seconds spent per phase since the last reading.

    Phases never nest, so their sum is at most the epoch's wall time; the rest is the dense update.

    Args:
        watch: Tells when phases begin and end; the processor's if None.
        phases: Names of the phases.
    """

    def __init__(self, watch: PhaseWatch | None = None, phases: Sequence[str] = PHASES) -> None:
        self.seconds = dict.fromkeys(phases, 0.0)
        self._watch = watch or HostWatch()
        self._aggregation = 0

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the block's time to a phase.

        Args:
            phase: Name of the phase.
        """
        start = self._watch.now()
        try:
            yield
        finally:
            self._watch.tell(start, partial(self._note, phase, self._aggregation))

    def add(self, phase: str, start: float, stop: float) -> None:
        """Add a stretch of time to a phase.

        Args:
            phase: Name of the phase.
            start: Seconds of `time.perf_counter`.
            stop: Seconds of `time.perf_counter`.
        """
        self._note(phase, self._aggregation, start, stop)

    def _note(self, phase: str, aggregation: int, start: float, stop: float) -> None:
        del aggregation
        self.seconds[phase] += stop - start

    def start_pass(self, *, is_backward: bool) -> None:
        """Hear that one aggregation begins.

        Args:
            is_backward: Whether it carries gradients.
        """

    def take(self) -> dict[str, float]:
        """Return the seconds per phase and start again from zero."""
        self._watch.settle()
        seconds = self.seconds
        self.seconds = dict.fromkeys(seconds, 0.0)
        return seconds


class Span(NamedTuple):
    """A stretch of time.

    Attributes:
        name: Phase.
        start: Seconds of `time.perf_counter`.
        stop: Seconds of `time.perf_counter`.
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
        spans: Since `take_spans`, in the order in which they ended; on a device those since `take`
            are not among them yet.
    """

    def __init__(self, watch: PhaseWatch | None = None) -> None:
        super().__init__(watch)
        self.spans: list[Span] = []
        self._depth = 0

    def _note(self, phase: str, aggregation: int, start: float, stop: float) -> None:
        super()._note(phase, aggregation, start, stop)
        self.spans.append(Span(phase, start, stop, aggregation))

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
