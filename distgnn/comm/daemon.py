"""Threads whose start fails, instead of waiting for ever, where the system refuses memory.

Importing this module imports neither torch nor mpi4py.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_S = 1.0
_NUM_LOOKS = 20


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
    then waits without end. The start of this one raises MemoryError after 20 seconds.

    Args:
        target: Its work.
        args: Arguments of that.
        name: Its name; one that is made up if empty.
    """

    def __init__(
        self, target: Callable[..., object], args: tuple[object, ...] = (), name: str = ""
    ) -> None:
        super().__init__(target=target, args=args, name=name or None, daemon=True)
        # `Thread.start` waits for this one, in every version of Python from 3.10 to 3.14.
        self._started = _Begun()
