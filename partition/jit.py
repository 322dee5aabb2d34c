"""Typed access to numba, whose decorators have no types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile a function on its first call and keep the machine code on disk.

    One thread, no Python objects. Where the package's folder is read-only numba keeps the code in
    the user's cache folder.

    Args:
        function: Function of NumPy arrays and numbers.

    Returns:
        The compiled function, with the type of the original.
    """
    try:
        return cast("Function", numba.njit(cache=True)(function))
    except RuntimeError:
        # No folder can be written at all: compile in every process.
        return cast("Function", numba.njit(function))
