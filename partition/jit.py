"""Typed access to numba, whose decorators have no types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import caching, types
from numba.extending import intrinsic

# Errors of numba when it reads compiled code from the disk.
_UNREADABLE: tuple[type[Exception], ...] = (
    *(AttributeError, ImportError, EOFError),
    vars(caching)["pickle"].UnpicklingError,
)

Function = TypeVar("Function", bound=Callable[..., object])
Holder = TypeVar("Holder", bound=tuple[Any, ...])


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


def _borrow(_context: Any, holder: Any) -> Any:
    def without_owners(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        result = values[0]
        for index, kind in enumerate(signature.return_type.types):
            if isinstance(kind, types.Array):
                array = context.make_array(kind)(
                    context, builder, builder.extract_value(result, index)
                )
                array.meminfo = array.meminfo.type(None)
                result = builder.insert_value(result, array._getvalue(), index)
        return result

    return holder(holder), without_owners


# Counting who uses an array is an atomic step each time that a function takes one out of a tuple:
# small functions spent most of their time so.
borrow: Callable[[Holder], Holder] = cast("Callable[[Holder], Holder]", intrinsic(_borrow))
"""Take a tuple of arrays without counting who uses them, in compiled code alone.

Whoever calls the compiled function has to keep the arrays until it returns.
"""
