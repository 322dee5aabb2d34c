"""Strategies: what the name of an algorithm stands for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from distgnn.datasets.errors import InputError
from distgnn.exchange.rule import HaloRule

_NAME = re.compile(r"0c|cd-[0-9]{1,9}")


@dataclass(frozen=True)
class Strategy:
    """When rows travel between ranks.

    Attributes:
        rule: When they travel and when they are used.
        is_isolated: Whether nothing travels.
        is_delayed: Whether rows travel in turns, or are used some epochs later.
    """

    rule: HaloRule = field(default_factory=HaloRule)
    is_isolated: ClassVar[bool] = False
    is_delayed: ClassVar[bool] = False


class IsolatedRanks(Strategy):
    """Ranks alone: nothing travels (0c)."""

    is_isolated: ClassVar[bool] = True


class SynchronousRows(Strategy):
    """Every row travels in every epoch and is used in it (cd-0)."""


class DelayedRows(Strategy):
    """Rows travel in turns, or are used some epochs later (cd-R)."""

    is_delayed: ClassVar[bool] = True


def parse(name: str) -> tuple[type[Strategy], int]:
    """Read the name of an algorithm.

    Args:
        name: 0c, cd-0 or cd-R.

    Returns:
        The class of its strategy, and R, which bins and delay are unless they are set; 0 of 0c.

    Raises:
        InputError: If it is none.
    """
    if _NAME.fullmatch(name) is None:
        raise InputError(
            f"--algorithm must be 0c, cd-0 or cd-R with R the delay in epochs, got '{name}'"
        )
    if name == "0c":
        return IsolatedRanks, 0
    number = int(name.removeprefix("cd-"))
    return (DelayedRows if number else SynchronousRows), number
