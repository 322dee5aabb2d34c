"""Say why the first partition by a method for comparison takes longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Contexts that want to know of the first compilation, the innermost one last.
_waiting: list[Callable[[str], None]] = []


@contextmanager
def noting_compilation(progress: Callable[[str], None]) -> Iterator[None]:
    """Say once if functions are compiled inside the context.

    Args:
        progress: Called with one line of text.

    Yields:
        Nothing. The compiler is not loaded for it.
    """
    _waiting.append(progress)
    try:
        yield
    finally:
        if progress in _waiting:
            _waiting.remove(progress)


def note_compilation() -> None:
    """Tell who waits that a function is being compiled."""
    while _waiting:
        _waiting.pop()("compiling the method, once; it takes some seconds and is kept on disk")
