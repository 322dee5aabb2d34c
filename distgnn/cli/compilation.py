"""Say why the first partition on a machine takes longer."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from numba.core.event import Event, Listener, install_listener

from distgnn.cli.output import note


class _FirstCompilation(Listener):
    """Writes one line when the first function is compiled."""

    def __init__(self) -> None:
        self._is_noted = False

    def on_start(self, event: Event) -> None:
        """Say it once; what is on disk is loaded without this event."""
        del event
        if not self._is_noted:
            note("compiling the partitioners, once; this takes about 20 s and is kept on disk")
        self._is_noted = True

    def on_end(self, event: Event) -> None:
        """Say nothing."""


def noting_compilation() -> AbstractContextManager[Any]:
    """Note on standard error, once, if functions are compiled inside the context.

    Returns:
        A context manager.
    """
    return install_listener("numba:compile", _FirstCompilation())
