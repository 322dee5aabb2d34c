"""Say why the first partition on a machine takes longer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from numba.core.event import Event, Listener, install_listener


class _FirstCompilation(Listener):
    """Writes one line when the first function is compiled."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self._is_noted = False

    def on_start(self, event: Event) -> None:
        """Say it once; what is on disk is loaded without this event."""
        del event
        if not self._is_noted:
            self._is_noted = True
            self._progress(
                "compiling the partitioners, once; it takes up to a minute and is kept on disk"
            )

    def on_end(self, event: Event) -> None:
        """Say nothing."""


def noting_compilation(progress: Callable[[str], None]) -> AbstractContextManager[object]:
    """Say once if functions are compiled inside the context.

    Args:
        progress: Called with one line of text.

    Returns:
        A context manager.
    """
    listener: AbstractContextManager[object] = install_listener(
        "numba:compile", _FirstCompilation(progress)
    )
    return listener
