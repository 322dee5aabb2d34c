"""Controllers: they turn a knob of a run between its epochs."""

from __future__ import annotations

from typing import Any, Protocol

Record = dict[str, Any]


class Controller(Protocol):
    """Turns a knob of a run between epochs, on all ranks alike."""

    def begin(self) -> None:
        """Decide how the first epoch is trained; collective."""

    def observe(self, record: Record) -> None:
        """Decide how the next epoch is trained; collective.

        Args:
            record: Record of the last epoch, the same on every rank.
        """

    def take_note(self) -> str | None:
        """Return what was changed, in words; the next call forgets it."""

    def take_bytes(self) -> int:
        """Return the payload bytes that this rank sent to decide, since the last call."""

    def figures(self) -> dict[str, Any]:
        """Return what summary.json says of its decisions."""

    def state(self) -> dict[str, Any]:
        """Return what a run that is resumed needs, as JSON values."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""


class NoController:
    """Turns nothing, and keeps the state of one that does for a run that has it again."""

    def __init__(self) -> None:
        self._state: dict[str, Any] = {}

    def begin(self) -> None:
        """Do nothing."""

    def observe(self, record: Record) -> None:
        """Do nothing."""

    def take_note(self) -> str | None:
        """Return None."""
        return None

    def take_bytes(self) -> int:
        """Return 0."""
        return 0

    def figures(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return what was loaded."""
        return self._state

    def load_state(self, state: dict[str, Any]) -> None:
        """Keep the state."""
        self._state = state
