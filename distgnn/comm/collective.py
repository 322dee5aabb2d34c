"""Actions that may fail on one rank only, and then fail on all of them."""

from __future__ import annotations

import errno
import json
import re
import socket
from typing import TYPE_CHECKING, TypeVar

from distgnn.comm.errors import PeerError
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.comm.group import Group

T = TypeVar("T")

# As torch, Triton, cuBLAS, NCCL, Python's threads and the loader of libraries say it.
_OUT_OF_MEMORY = re.compile(
    r"can('t|not) allocate memory|not enough memory|can't start new thread|failed to map segment"
    r"|CUDA( error:|\]:)? out of memory"
    r"|CUBLAS_STATUS_ALLOC_FAILED|Cuda failure \d+ 'out of memory'",
    re.IGNORECASE,
)
# Of errors that name no file: the output goes to a disk that is full, the user has too many
# processes, or no temporary directory can be written.
_SHORT = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG),
    *(errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOENT),
}


def as_input_error(error: BaseException) -> InputError | None:
    """Turn an error that the user can correct into one sentence.

    Args:
        error: Anything that was raised.

    Returns:
        The sentence; None if the user cannot correct the error.
    """
    if isinstance(error, InputError):
        return error
    if isinstance(error, PeerError):
        return None  # whatever another rank failed for
    if isinstance(error, MemoryError) or (
        isinstance(error, (RuntimeError, ImportError, OSError))
        and _OUT_OF_MEMORY.search(str(error))
    ):
        return InputError(
            f"there is not enough memory on {socket.gethostname()} ({_first_line(error)}); use "
            "more parts, a smaller model, or a machine with more memory"
        )
    if isinstance(error, OSError) and error.filename is not None:
        return InputError(f"cannot use '{error.filename}': {error.strerror}; check the path")
    if isinstance(error, OSError) and error.errno in _SHORT:
        return InputError(
            f"{socket.gethostname()} refused a file, process or thread ({error.strerror}); free "
            "space or raise the limits of this user there, and see whether the working directory "
            "and that of the output are there"
        )
    return None


def collectively(group: Group, action: Callable[[], T]) -> T:
    """Do something that may fail on one rank only, and fail on all ranks if it does.

    Args:
        group: All ranks; every one calls this.
        action: Function that sends no messages of its own.

    Returns:
        The result of the action on this rank.

    Raises:
        InputError: If the action failed on any rank.
    """
    error: InputError | None = None
    try:
        result = action()
    except Exception as caught:
        error = as_input_error(caught)
        if error is None:
            raise
    group.agree(error)
    return result


def on_rank_0(group: Group, action: Callable[[], None]) -> None:
    """Do something on rank 0 only, and fail on all ranks if it fails.

    Args:
        group: All ranks; every one calls this.
        action: Function that sends no messages of its own.

    Raises:
        InputError: If the action failed.
    """
    if group.rank == 0:
        collectively(group, action)
    else:
        collectively(group, lambda: None)


def of_rank_0(group: Group, value: T) -> T:
    """Give every rank a value of rank 0; collective.

    Args:
        group: All ranks; every one calls this.
        value: Anything that JSON can hold. Only that of rank 0 counts.

    Returns:
        The value of rank 0, as JSON gives it back.
    """
    found: T = json.loads(group.all_gather_bytes(json.dumps(value).encode())[0])
    return found


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    # torch goes on about the device's capacity and the settings of its allocator.
    return lines[0].partition(". GPU ")[0] if lines else type(error).__name__
