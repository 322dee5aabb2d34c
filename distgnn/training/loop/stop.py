"""Requests to end a run in order before its last epoch."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from distgnn.comm.group import Group


class StopRequest(Protocol):
    """Source of requests to end the run early.

    Attributes:
        signal_number: Signal that this rank received; 0 if none.
    """

    signal_number: int


class NoStop:
    """Source that never asks."""

    signal_number = 0


class StoppedError(Exception):
    """Error of a run that was asked to stop: it ended after an epoch, with a checkpoint.

    Args:
        sentence: Sentence that says which rank was asked, and what to do.
        signal_number: Signal that asked.
    """

    def __init__(self, sentence: str, signal_number: int) -> None:
        super().__init__(sentence)
        self.exit_status = 128 + signal_number


_SIGNALS = 128


def encode(request: StopRequest, rank: int) -> int:
    """Return one number for a rank and its signal; the largest over ranks decides.

    Args:
        request: Request of this rank.
        rank: This rank.

    Returns:
        0 if nobody asked.
    """
    return rank * _SIGNALS + request.signal_number if request.signal_number else 0


def decode(number: int) -> tuple[int, int]:
    """Return rank and signal of a number.

    Args:
        number: Result of `encode` that is not 0.
    """
    return divmod(number, _SIGNALS)


def agree(request: StopRequest, group: Group) -> int:
    """Return the number that decides over all ranks, as `encode` puts it; collective.

    Args:
        request: Request of this rank.
        group: All ranks.

    Returns:
        0 if nobody asked.
    """
    own = str(encode(request, group.rank)).encode()
    return max(map(int, group.all_gather_bytes(own)))


def stopped(group: Group, number: int, num_epochs: int) -> StoppedError:
    """Make the error of a run that ends early; collective.

    Args:
        group: All ranks.
        number: Which rank was asked, and how, as `encode` puts it.
        num_epochs: Number of epochs whose checkpoint is written.
    """
    rank, kind = decode(number)
    host = group.all_gather_bytes(group.host.encode())[rank].decode()
    return StoppedError(
        f"rank {rank} ({host}) was asked to stop by {name_of(kind)}: the checkpoint of epoch "
        f"{num_epochs} is written; continue with the same command and --resume",
        kind,
    )


def name_of(signal_number: int) -> str:
    """Return the name of a signal, such as SIGTERM.

    Args:
        signal_number: Number of the signal on this system.
    """
    return signal.Signals(signal_number).name
