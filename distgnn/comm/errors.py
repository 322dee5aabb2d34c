"""The error that names a lost rank, and the exit status that goes with it."""

from __future__ import annotations

EXIT_RETRY = 75
"""EX_TEMPFAIL: the same job may succeed when it is started again."""


class PeerError(RuntimeError):
    """Another rank died or went silent.

    The message is one sentence that names the rank, its host, the last epoch and phase it was
    seen in and the last checkpoint. A relaunch with ``--resume`` continues the run.
    """
