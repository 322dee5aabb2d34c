"""The meeting before everything else, so that a rank that fails while it starts is heard of.

A rank loads torch for seconds, and may be killed or refuse its arguments meanwhile. The command
line therefore meets first. Importing this module imports neither torch nor mpi4py.
"""

from __future__ import annotations

import atexit
import os
import socket
from typing import TYPE_CHECKING

from distgnn.comm.errors import PeerError
from distgnn.comm.launch import detect
from distgnn.comm.process import allow_files, die_with_parent, end_orphan
from distgnn.comm.rendezvous import meet, meets_without_help
from distgnn.comm.roster import Roster, is_same_flaw
from distgnn.datasets import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.comm.launch import Launch
    from distgnn.comm.store import Meeting

# Ranks that start together load torch for very different times on a busy machine; this ends sooner
# where all are there.
_TELL_S = 30.0
# A rank has a connection to each other one, rank 0 three clients of its store besides.
_FILES_PER_RANK = 8


class _Start:
    """The meeting that this process has begun, until all ranks have met."""

    def __init__(self) -> None:
        self.found: tuple[Meeting, Roster] | None = None
        self.is_over = False
        self.num_before = 0  # meetings that are over, the same number on all ranks


_START = _Start()


def begin() -> None:
    """End this process with its launcher from now on; forget an earlier meeting."""
    _START.found, _START.is_over = None, False
    if detect().kind != "single":
        die_with_parent()
        end_orphan(os.environ)


def come(*, timeout_s: float, stale_s: float) -> None:
    """Meet rank 0, if no library is needed for that, and have the others hear if this rank dies.

    Args:
        timeout_s: Longest wait for rank 0.
        stale_s: Time without a sign of life after which a rank counts as dead.

    Raises:
        InputError: If rank 0 cannot be met.
        PeerError: If it does not appear in time.
    """
    launch = detect()
    if launch.size == 1 or not meets_without_help(launch, os.environ):
        return
    _, roster = _meet(launch, None, timeout_s, stale_s)
    roster.come()
    roster.listen()


def open_meeting(
    launch: Launch, *, interface: str | None, timeout_s: float, stale_s: float
) -> tuple[Meeting, Roster]:
    """Return the meeting that `come` began, or meet now.

    Args:
        launch: Place of this rank in the job.
        interface: Network interface that the user named, if any.
        timeout_s: Longest wait for the other ranks.
        stale_s: Time without a sign of life after which a rank counts as dead.

    Raises:
        InputError: If rank 0 cannot be met.
        PeerError: If it does not appear in time.
    """
    found = _START.found
    if found is None or found[1].cause or found[1].is_stranger:  # of an earlier attempt
        if found is not None:
            found[1].linger()
            found[0].store.close()
        found = _meet(launch, interface, timeout_s, stale_s)
        found[1].come()
    return found


def end() -> None:
    """Say that all ranks have met: the watchdog tells of a failure from now on."""
    _START.num_before += _START.found is not None
    _START.found, _START.is_over = None, True


def meet_anew() -> None:
    """Say that all ranks give this meeting up alike, and may meet another time."""
    _START.num_before += 1


def tell(sentence: str, say: Callable[[str], None]) -> None:
    """Say a flaw before the process ends; before the ranks have met, have all of them end.

    Rank 0 speaks for all that have the same flaw. A launcher ends all ranks with the first that
    ends, so none ends before the flaw is said.

    Args:
        sentence: Flaw that the user has to put right.
        say: Prints a sentence.
    """
    try:
        launch = detect()
    except InputError:  # which is the flaw
        say(sentence)
        return
    is_zero, found = launch.rank == 0, _START.found
    named = f"rank {launch.rank} ({socket.gethostname()}): {sentence}"
    if found is not None:
        found[1].take_over()
        named = sentence if sentence == found[1].cause else named
    if is_zero:
        say(sentence)
    if launch.size > 1 and not _START.is_over and not _is_said(launch, named) and not is_zero:
        say(named)
    end()


def _is_said(launch: Launch, named: str) -> bool:
    """Tell the others a flaw; return whether rank 0, or the first that has it, says it."""
    try:
        if _START.found is None and meets_without_help(launch, os.environ):
            _meet(launch, None, _TELL_S, _TELL_S)
        if _START.found is None:
            return False
        place, roster = _START.found
        if roster.is_stranger:
            return False
        first = roster.tell(InputError(named), _TELL_S)
        place.remove_file()
    except (InputError, PeerError, RuntimeError):
        return False
    # Ranks that were started alike have the same flaw, and rank 0 says so.
    return not first or (is_same_flaw(first, named) and first != named)


def _meet(
    launch: Launch, interface: str | None, timeout_s: float, stale_s: float
) -> tuple[Meeting, Roster]:
    _START.found, _START.is_over = None, False
    # Ranks call rank 0 before they have loaded anything.
    allow_files(_FILES_PER_RANK * launch.size)
    place = meet(
        launch,
        os.environ,
        interface=interface,
        timeout_s=timeout_s,
        number=_START.num_before,
    )
    _START.found = place, Roster(launch, place.store, stale_s=stale_s)
    atexit.unregister(_linger)
    atexit.register(_linger)
    return _START.found


def _linger() -> None:
    """Let rank 0, whose store ends with it, end once the others know why the ranks did not meet.

    That is after its last words: it may be the only one that has said why.
    """
    if _START.found is not None and _START.found[1].cause:
        _START.found[1].linger()
