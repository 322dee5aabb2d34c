"""Threads whose start fails, instead of waiting for ever, where the system refuses memory.

Importing this module imports neither torch nor mpi4py.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_S = 1.0
_NUM_LOOKS = 10


class _Begun(threading.Event):
    """Set by a thread once it runs; whoever starts the thread waits for that."""

    def wait(self, timeout: float | None = None) -> bool:
        """Return once it is set.

        Raises:
            MemoryError: If it is not set in time.
        """
        del timeout
        # Looks are counted, not seconds: a process that was stopped looked at nothing.
        for _ in range(_NUM_LOOKS):
            if super().wait(_LOOK_S):
                return True
        raise MemoryError("a new thread did not begin")


class DaemonThread(threading.Thread):
    """A thread that does not keep the interpreter from ending.

    Python's own ends without a word where its first steps find no memory, and whoever starts it
    then waits without end. The start of this one raises MemoryError after 10 seconds.

    Args:
        target: Its work.
        args: Arguments of that.
        name: Its name; one that is made up if empty.
    """

    def __init__(
        self, target: Callable[..., object], args: tuple[object, ...] = (), name: str = ""
    ) -> None:
        super().__init__(target=target, args=args, name=name or None, daemon=True)
        # `Thread.start` waits for this one, in Python 3.10 to 3.14. Later ones may notice by
        # themselves that a thread did not begin (gh-140746).
        self._started = _Begun()
        self._is_given_up = False

    def start(self) -> None:
        """Start it.

        Raises:
            MemoryError: If it does not begin; should it begin later, it does nothing.
        """
        try:
            super().start()
        except MemoryError:
            self._is_given_up = True
            raise

    def run(self) -> None:
        """Do the work, unless nobody expects it any more."""
        if not self._is_given_up:
            super().run()
