"""The meeting before everything else, so that a rank that fails while it starts is heard of.

A rank loads torch for seconds, and may be killed or refuse its arguments meanwhile. The command
line therefore meets first. Importing this module imports neither torch nor mpi4py.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from distgnn.comm.errors import PeerError
from distgnn.comm.launch import detect
from distgnn.comm.process import die_with_parent, end_orphan
from distgnn.comm.rendezvous import meet, meets_without_help
from distgnn.comm.roster import Roster, is_same_flaw
from distgnn.datasets import InputError

if TYPE_CHECKING:
    from distgnn.comm.launch import Launch
    from distgnn.comm.store import Meeting

# Ranks that start together load torch for very different times on a busy machine; this ends sooner
# where all are there.
_TELL_S = 30.0


class _Start:
    """The meeting that this process has begun, for whoever opens the group."""

    def __init__(self) -> None:
        self.found: tuple[Meeting, Roster] | None = None
        self.has_opened = False


_START = _Start()


def begin() -> None:
    """End this process with its launcher from now on; forget an earlier meeting."""
    _START.found, _START.has_opened = None, False
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
    place = meet(launch, os.environ, interface=None, timeout_s=timeout_s)
    roster = Roster(launch, place.store, stale_s=stale_s)
    roster.come()
    roster.listen()
    _START.found = place, roster


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
    found, _START.found, _START.has_opened = _START.found, None, True
    if found is not None:
        return found
    place = meet(launch, os.environ, interface=interface, timeout_s=timeout_s)
    roster = Roster(launch, place.store, stale_s=stale_s)
    roster.come()
    return place, roster


def tell(sentence: str) -> str:
    """Tell the other ranks why this one ends before they have met; they end for that, too.

    Args:
        sentence: Flaw that the user has to put right.

    Returns:
        The sentence to print on a rank other than 0; empty if rank 0 prints the same.
    """
    launch = detect()
    if launch.size == 1 or _START.has_opened:
        return ""
    named = f"rank {launch.rank} ({socket.gethostname()}): {sentence}"
    try:
        found = _START.found
        if found is None and meets_without_help(launch, os.environ):
            place = meet(launch, os.environ, interface=None, timeout_s=_TELL_S)
            found = place, Roster(launch, place.store, stale_s=_TELL_S)
        if found is None:
            return named
        place, roster = found
        first = roster.tell(InputError(named), _TELL_S)
        place.remove_file()
    except (InputError, PeerError, RuntimeError):
        return named
    # Ranks that were started alike have the same flaw, and rank 0 says so.
    is_said = not first or (is_same_flaw(first, named) and first != named)
    return "" if is_said else named
