"""Signals that end a run in order: after the epoch under way, with a checkpoint."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from distgnn.comm.daemon import DaemonThread
from distgnn.training.loop.stop import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = (signal.SIGTERM, signal.SIGUSR1)
"""Signals of schedulers: Slurm and Kubernetes send the first; mpirun passes on the second."""
ECHO_S = 3.0
"""Who signals all processes of a job signals those that pass it on to ranks, too: for so long, a
signal that comes again is the same one."""


class StopSignals:
    """Remembers the first of these signals; one that comes later ends the process at once.

    A thread of its own hears them, because Python runs no handler in the main thread while that
    waits for a message of another rank.
    """

    def __init__(self) -> None:
        self.signal_number = 0

    @contextmanager
    def heard(self) -> Iterator[StopSignals]:
        """Listen, in the main thread of the process; elsewhere signals stay as they were.

        Yields:
            This object.
        """
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        source, sink = os.pipe()
        os.set_blocking(sink, False)
        before = [signal.signal(kind, _nothing) for kind in KINDS]
        wakeup = signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
        listener = DaemonThread(self._listen, (source,))
        listener.start()
        try:
            yield self
        finally:
            for kind, handler in zip(KINDS, before, strict=True):
                signal.signal(kind, handler)
            signal.set_wakeup_fd(wakeup)
            os.close(sink)  # which ends the listener
            listener.join()
            os.close(source)

    def _listen(self, source: int) -> None:
        first_s = 0.0
        while numbers := os.read(source, 16):
            for number in numbers:
                if number not in KINDS:
                    continue
                if not self.signal_number:
                    self.signal_number, first_s = number, time.monotonic()
                elif time.monotonic() - first_s >= ECHO_S:
                    os.write(2, f"distgnn: ended at once by a second {name_of(number)}\n".encode())
                    os._exit(128 + number)


def _nothing(number: int, frame: object) -> None:
    """Stand for a signal that the listener hears; the default would end the process."""
    del number, frame
