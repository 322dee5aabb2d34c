"""How a failure on one rank reaches the others and ends the job."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distgnn.comm.group import Group


class PeerError(RuntimeError):
    """Another rank died or went silent.

    The message is one sentence that names the rank, its host, the last epoch and phase it was
    seen in and the last checkpoint. A relaunch with ``--resume`` continues the run.
    """


def fail(group: Group, error: BaseException, *, exit_code: int | None = None) -> None:
    """Tell every other rank why this one ends, and end it if an exit code is given.

    Ranks that are blocked in a message raise PeerError with this cause within a second or two,
    so a launcher that kills nothing still sees the whole job end.

    Args:
        group: The group of the failed job.
        error: The cause. A PeerError is passed on as it is; of several causes the first wins.
        exit_code: Ends the process at once, without the interpreter's exit, which may wait for
            peers that will never answer. None returns instead.
    """
    group.publish_failure(error)
    if exit_code is not None:
        end_process(exit_code)


def end_process(exit_code: int) -> None:
    """Flush the standard streams and end this process without waiting for any peer.

    Args:
        exit_code: The exit status of the process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        # MPI_Finalize waits for the peers; Abort ends the whole job on every launcher.
        mpi.COMM_WORLD.Abort(exit_code)
    os._exit(exit_code)
