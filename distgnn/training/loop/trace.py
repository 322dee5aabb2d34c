"""Timeline of all ranks, for Perfetto and chrome://tracing."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from distgnn.datasets.errors import InputError
from distgnn.exchange.clock import PHASES, Clock, Span, SpanClock, watch_of
from distgnn.kernels.devices import PROCESSOR
from distgnn.training.loop.stop import StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from distgnn.comm.group import Group

NAMES = (*PHASES, "update", "epoch", "evaluate")
# No exchange uses tags above: see `distgnn.graph.local_graph`.
_TAG = 1 << 14
_ROUND_TRIPS = 16
# Spans of so many epochs travel in one message.
_EPOCHS_PER_MESSAGE = 16


class NoTrace:
    """Trace that records nothing.

    Args:
        device: Device whose phases are timed.

    Attributes:
        clock: Clock for the exchange of the training pass.
    """

    def __init__(self, device: torch.device = PROCESSOR) -> None:
        self.clock = Clock(watch_of(device))

    def add(self, name: str, start: float, stop: float) -> None:
        """Record a span around phases: an epoch or an evaluation.

        Args:
            name: One of `NAMES`.
            start: Seconds of `time.perf_counter`.
            stop: Seconds of `time.perf_counter`.
        """

    def end_epoch(self, epoch: int) -> None:
        """Keep the spans of an epoch; every rank calls it.

        Args:
            epoch: Number of the epoch, from 0.
        """

    def __enter__(self) -> NoTrace:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write the recorded spans, also after an error."""


class Trace(NoTrace):
    """Trace of the spans of all ranks, which rank 0 writes when the run ends.

    Collective: messages to and fro compare the clocks of the ranks. Spans travel to rank 0 every
    few epochs, and when the run ends or is stopped in order. After an error nothing travels,
    because a peer may be lost: rank 0 writes the spans that have arrived, and all of its own.

    Args:
        path: File to replace.
        group: All ranks.
        epochs: Epochs to record.

    Raises:
        InputError: If the file cannot be written.
    """

    def __init__(self, path: Path, group: Group, epochs: range) -> None:
        super().__init__(group.device)
        self._path = path
        self._group = group
        self._epochs = epochs
        self._spans = self.clock = SpanClock(watch_of(group.device))
        self._own: list[NDArray[np.float64]] = []
        self._num_waiting = 0
        self._gathered: list[list[NDArray[np.float64]]] = [[] for _ in range(group.size)]
        group.agree(why_unwritable(path) if group.rank == 0 else None)
        self._offset = clock_offset(group)
        self._hosts = [host.decode() for host in group.all_gather_bytes(group.host.encode())]
        self._next = 0

    def add(self, name: str, start: float, stop: float) -> None:
        """Remember what lies around phases; see `NoTrace.add`."""
        self._spans.spans.append(Span(name, start, stop, 0))

    def end_epoch(self, epoch: int) -> None:
        """Keep what the epoch did, if it is one of those remembered; collective."""
        self._next = epoch + 1
        spans = self._spans.take_spans()
        if epoch not in self._epochs:
            return
        self._own.append(self._table(spans, epoch))
        self._num_waiting += 1
        if self._num_waiting == _EPOCHS_PER_MESSAGE:
            self._gather()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write what was remembered; collective unless there was an error on some rank."""
        if error is None:
            self._gather()
            self._group.agree(self._written() if self._group.rank == 0 else None)
            return
        # All ranks stop together, and all of them are there.
        if isinstance(error, StoppedError):
            self._gather()
        if self._group.rank == 0:
            if self._next in self._epochs:
                self._own.append(self._table(self._spans.take_spans(), self._next))
            self._gathered[0] += self._own
            # What ended the run is what the user has to hear of.
            self._written()

    def _table(self, spans: list[Span], epoch: int) -> NDArray[np.float64]:
        """Return (num_spans, 5): name, start and stop on rank 0's clock, aggregation, epoch."""
        rows = [
            (NAMES.index(name), start + self._offset, stop + self._offset, aggregation, epoch)
            for name, start, stop, aggregation in _with_updates(spans)
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, 5)

    def _gather(self) -> None:
        own = np.concatenate([*self._own, np.zeros((0, 5))])
        self._own, self._num_waiting = [], 0
        for rank, data in enumerate(self._group.all_gather_bytes(own.tobytes())):
            if self._group.rank == 0:
                self._gathered[rank].append(np.frombuffer(data).reshape(-1, 5))

    def _written(self) -> InputError | None:
        temporary = _temporary(self._path)
        try:
            with temporary.open("w") as file:
                file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
                between = ""
                for event in self._events():
                    file.write(f"{between}{json.dumps(event)}")
                    between = ",\n"
                file.write("\n]}\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            return _unwritable(self._path, error)
        finally:
            temporary.unlink(missing_ok=True)
        return None

    def _events(self) -> Iterator[dict[str, Any]]:
        tables = [np.concatenate([*rows, np.zeros((0, 5))]) for rows in self._gathered]
        origin = min((float(table[:, 1].min()) for table in tables if len(table)), default=0.0)
        for rank, (host, table) in enumerate(zip(self._hosts, tables, strict=True)):
            about = {"ph": "M", "pid": rank, "tid": 0}
            yield {**about, "name": "process_name", "args": {"name": f"rank {rank} on {host}"}}
            yield {**about, "name": "process_sort_index", "args": {"sort_index": rank}}
            for row in table.tolist():
                yield from _events_of(row, rank, origin)


class _Row(NamedTuple):
    """Span in a message."""

    kind: float
    start: float
    stop: float
    aggregation: float
    epoch: float


def _events_of(values: list[float], rank: int, origin: float) -> Iterator[dict[str, Any]]:
    """Turn a span into a slice; the start of an epoch on rank 0 becomes a mark, too."""
    row = _Row(*values)
    name, epoch = NAMES[int(row.kind)], int(row.epoch)
    # Whole nanoseconds first, so that spans that touch do not overlap by rounding.
    start, stop = (round((when - origin) * 1e9) for when in (row.start, row.stop))
    where = {"pid": rank, "tid": 0, "ts": start / 1e3}
    about: dict[str, Any] = {"epoch": epoch}
    if row.aggregation:
        about["direction"] = "forward" if row.aggregation > 0 else "backward"
        about["aggregation"] = abs(int(row.aggregation))
    shown = f"epoch {epoch}" if name == "epoch" else name
    yield {
        **where,
        "ph": "X",
        "cat": name,
        "name": shown,
        "dur": (stop - start) / 1e3,
        "args": about,
    }
    if name == "epoch" and rank == 0:
        yield {**where, "ph": "i", "s": "g", "cat": "mark", "name": shown}


def _with_updates(spans: list[Span]) -> list[Span]:
    """Sort the spans of an epoch by start, and fill its gaps with updates."""
    phases = sorted((span for span in spans if span.name in PHASES), key=lambda span: span.start)
    around = [span for span in spans if span.name not in PHASES]
    found = [*around, *phases]
    for epoch in (span for span in around if span.name == "epoch"):
        start, aggregation = epoch.start, 0
        for span in phases:
            found.append(Span("update", start, span.start, aggregation))
            start, aggregation = span.stop, span.aggregation
        found.append(Span("update", start, epoch.stop, aggregation))
    return sorted(found, key=lambda span: (span.start, -span.stop))


def clock_offset(group: Group, now: Callable[[], float] = time.perf_counter) -> float:
    """Measure the seconds to add to this rank's clock to get rank 0's; collective.

    Each rank asks rank 0 for the time, several times. Of the quickest answer, question and answer
    are assumed to travel equally long. So the error is at most half a round trip.

    Args:
        group: All ranks.
        now: Clock of this rank, in seconds.

    Returns:
        Difference in seconds.
    """
    question, answer = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    if group.rank == 0:
        for peer in range(1, group.size):
            for _ in range(_ROUND_TRIPS):
                group.irecv(question, peer, _TAG).wait()
                answer[0] = now()
                group.isend(answer, peer, _TAG).wait()
        return 0.0
    best = offset = float("inf")
    for _ in range(_ROUND_TRIPS):
        coming = group.irecv(answer, 0, _TAG)
        start = now()
        asked = group.isend(question, 0, _TAG)
        coming.wait()
        stop = now()
        asked.wait()
        if stop - start < best:
            best, offset = stop - start, float(answer[0]) - (start + stop) / 2
    return offset


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot write trace '{path}': {error.strerror}; choose another file with --trace"
    )


def why_unwritable(path: Path) -> InputError | None:
    """Find out before training whether a trace can be written.

    Args:
        path: File to write later; unchanged by the check.

    Returns:
        Error that says why not; None if it can be written.
    """
    if path.is_dir():
        return InputError(f"cannot write trace '{path}': it is a directory; give a file's name")
    temporary = _temporary(path)
    try:
        temporary.write_text("")
        temporary.unlink()
    except OSError as error:
        return _unwritable(path, error)
    return None
