"""A failure on one rank: it reaches the other ranks and ends the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.comm.process import end_process

if TYPE_CHECKING:
    from distgnn.comm.group import Group


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
