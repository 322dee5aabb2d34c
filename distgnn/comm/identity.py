"""The identity of a job: all that its ranks must have been started with alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_SHOWN = 5
_LONGEST = 60


def difference(first: Mapping[str, str], own: Mapping[str, str]) -> str:
    """Say in what one rank was started otherwise than rank 0.

    Args:
        first: Identity of rank 0: values by the names of their flags.
        own: Identity of the other rank.

    Returns:
        Such as "--lr 0.1 instead of 0.01"; empty if there is no difference.
    """
    found = [
        f"{name} {_short(own.get(name))} instead of {_short(first.get(name))}"
        for name in [*first, *(name for name in own if name not in first)]
        if first.get(name) != own.get(name)
    ]
    if len(found) > _MOST_SHOWN:
        found[_MOST_SHOWN:] = [f"{len(found) - _MOST_SHOWN} more settings"]
    return ", ".join(found)


def _short(value: str | None) -> str:
    if value is None:
        return "nothing"
    return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}..."
