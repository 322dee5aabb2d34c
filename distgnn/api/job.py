"""Ranks of one job: they open together, fail together, and end together."""

from __future__ import annotations

import re
import socket
import sys
from typing import TYPE_CHECKING, TypeVar

from distgnn.comm.failure import PeerError, fail
from distgnn.datasets.errors import InputError
from distgnn.machine.limits import num_killed

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.comm.group import Group

T = TypeVar("T")

EXIT_BAD_INPUT = 2
EXIT_RETRY = 75
"""Another rank died: a relaunch with --resume continues."""
EXIT_INTERRUPTED = 130

# As torch, Triton, cuBLAS and NCCL say it.
_OUT_OF_MEMORY = re.compile(
    r"can't allocate memory|not enough memory|CUDA( error:|\]:)? out of memory"
    r"|CUBLAS_STATUS_ALLOC_FAILED|Cuda failure \d+ 'out of memory'",
    re.IGNORECASE,
)


def open_ranks(
    *,
    backend: str = "auto",
    interface: str | None = None,
    threads: int | None = None,
    start_timeout: float = 120.0,
    heartbeat_timeout: float = 25.0,
) -> Group:
    """Meet the ranks that mpirun, srun or torchrun started, and choose this rank's threads.

    Args:
        backend: Transport: auto, gloo, mpi or nccl.
        interface: Network interface of gloo; None takes the one towards rank 0.
        threads: Threads of this rank; None for its share of the cores.
        start_timeout: Longest wait for the processes of all ranks, in seconds.
        heartbeat_timeout: Seconds of silence after which a rank counts as dead.

    Returns:
        A group of the launcher's size; of one rank without a launcher.

    Raises:
        InputError: If a value is not allowed, or the backend cannot be used.
        PeerError: If the other ranks do not appear in time.
    """
    from distgnn.comm.binding import apply_threads, choose_threads
    from distgnn.comm.launch import detect, open_group

    choice = choose_threads(threads, detect())
    apply_threads(choice.threads)
    group = open_group(
        backend=backend, interface=interface, timeout_s=start_timeout, stale_s=heartbeat_timeout
    )
    if choice.warning and group.rank == 0:
        sys.stderr.write(f"warning: {choice.warning}\n")
        sys.stderr.flush()
    return group


def on_device(group: Group, name: str, backend: str) -> Group:
    """Let the ranks compute on a device; collective.

    Args:
        group: All ranks.
        name: Device: cpu or cuda.
        backend: Transport that the user asked for.

    Returns:
        A group that takes tensors of the device; the same one for the processor.

    Raises:
        InputError: If a rank has no such device, no kernels for it, or not the backend.
    """
    from distgnn.kernels.devices import find_device

    device = collectively(group, lambda: find_device(name, group.local_rank))
    if device.type == "cpu":
        return group
    from distgnn.comm.transports import staged

    return staged.on_device(group, device, backend)


def collectively(group: Group, action: Callable[[], T]) -> T:
    """Do something that may fail on one rank only, and fail on all ranks if it does.

    Args:
        group: All ranks; every one calls this.
        action: Without messages of its own.

    Returns:
        What the action returned here.

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
        action: Without messages of its own.

    Raises:
        InputError: If the action failed.
    """
    if group.rank == 0:
        collectively(group, action)
    else:
        collectively(group, lambda: None)


def as_input_error(error: BaseException) -> InputError | None:
    """Turn what a user can mend into one sentence.

    Args:
        error: Anything that was raised.

    Returns:
        The sentence; None if the error is not the user's to mend.
    """
    if isinstance(error, InputError):
        return error
    if isinstance(error, PeerError):
        return None  # whatever another rank failed for
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error))
    ):
        return InputError(
            f"there is not enough memory on {socket.gethostname()} ({_first_line(error)}); use "
            "more parts, a smaller model, or a machine with more memory"
        )
    if isinstance(error, OSError) and error.filename is not None:
        return InputError(f"cannot use '{error.filename}': {error.strerror}; check the path")
    return None


def end_job(group: Group, error: BaseException, *, killed_before: int) -> None:
    """End this rank after a failure, so that no peer waits for it.

    Args:
        group: The ranks of the job.
        error: What happened here.
        killed_before: Processes that the kernel had ended for want of memory when the job began.
    """
    shown = as_input_error(error)
    if shown is not None or isinstance(error, KeyboardInterrupt):
        if group.rank == 0:
            say(shown or "interrupted")
        code = EXIT_INTERRUPTED if shown is None else EXIT_BAD_INPUT
    elif isinstance(error, PeerError):
        say(f"{error}{hint_of_kernel(num_killed() - killed_before, group.host)}")
        code = EXIT_RETRY
    else:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    fail(group, shown or error, exit_code=code)


def hint_of_kernel(killed: int, host: str) -> str:
    """Return why a rank may have died, if the kernel of this host has ended processes meanwhile.

    Args:
        killed: How many.
        host: This host.
    """
    if killed <= 0:
        return ""
    what = "a process" if killed == 1 else f"{killed} processes"
    return f" (meanwhile the kernel of {host} ended {what} for want of memory)"


def say(sentence: object) -> None:
    """Print a sentence on standard error, after our name.

    Args:
        sentence: Anything that str turns into text.
    """
    # A path may hold a line break; the sentence stays on one line.
    sys.stderr.write(f"distgnn: {' '.join(str(sentence).splitlines())}\n")
    sys.stderr.flush()


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    # torch goes on about the device's capacity and the settings of its allocator.
    return lines[0].partition(". GPU ")[0] if lines else type(error).__name__
