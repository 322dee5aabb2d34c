"""Ending a run in order before its last epoch."""

from __future__ import annotations

import signal
from typing import Protocol


class StopRequest(Protocol):
    """Somebody who may want the run to end early.

    Attributes:
        signal_number: The signal by which this rank was asked; 0 as long as nobody asked.
    """

    signal_number: int


class NoStop:
    """Nobody asks."""

    signal_number = 0


class StoppedError(Exception):
    """The run was asked to stop, and did after an epoch, with a checkpoint.

    Args:
        sentence: Says who was asked and what to do.
        signal_number: By which signal.
    """

    def __init__(self, sentence: str, signal_number: int) -> None:
        super().__init__(sentence)
        self.exit_status = 128 + signal_number


_SIGNALS = 128


def encode(request: StopRequest, rank: int) -> int:
    """Return one number for a rank and its signal, 0 for none: the largest over ranks decides.

    Args:
        request: Of this rank.
        rank: This rank.
    """
    return rank * _SIGNALS + request.signal_number if request.signal_number else 0


def decode(number: int) -> tuple[int, int]:
    """Return rank and signal of a number that is not 0.

    Args:
        number: From `encode`.
    """
    return divmod(number, _SIGNALS)


def name_of(signal_number: int) -> str:
    """Return the name of a signal, such as SIGTERM.

    Args:
        signal_number: Of this system.
    """
    return signal.Signals(signal_number).name
