"""Typed access to numba, whose decorators have no types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import caching
from numba.core.event import Event, Listener, register

from distgnn.partition.compilation import note_compilation

# Errors of numba when it reads compiled code from the disk.
_UNREADABLE: tuple[type[Exception], ...] = (
    *(AttributeError, ImportError, EOFError),
    vars(caching)["pickle"].UnpicklingError,
)

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile a function on its first call and keep the machine code on disk.

    No Python objects, so that other threads run meanwhile. Where the folder of the package is
    read-only numba keeps the code in the cache folder of the user.

    Args:
        function: Function of NumPy arrays and numbers.

    Returns:
        The compiled function, with the type of the original.
    """
    try:
        dispatcher: Any = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        # No folder can be written at all: compile in every process.
        return cast("Function", numba.njit(nogil=True)(function))
    _forget_what_is_unreadable(dispatcher._cache)
    return cast("Function", dispatcher)


def _forget_what_is_unreadable(cache: Any) -> None:
    """Let a cache on disk be rewritten where it cannot be read.

    numba unpickles the argument types of a function before it asks whether its source has changed.
    That fails if a class was renamed or moved since, or if the file is cut off.
    """
    load = cache.load_overload

    def load_or_forget(*arguments: Any) -> Any:
        try:
            return load(*arguments)
        except _UNREADABLE:
            cache.flush()
            return None

    cache.load_overload = load_or_forget


class _Note(Listener):
    """Tells who waits; what is on disk is loaded without this event."""

    def on_start(self, event: Event) -> None:
        """Tell that a function is being compiled."""
        del event
        note_compilation()

    def on_end(self, event: Event) -> None:
        """Say nothing."""


_register: Callable[[str, Listener], None] = register
_register("numba:compile", _Note())
