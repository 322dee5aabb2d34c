"""Ranks of one job: they open together, fail together, and end together."""

from __future__ import annotations

import atexit
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeVar

from distgnn.comm.collective import as_input_error, collectively, on_rank_0
from distgnn.comm.errors import EXIT_RETRY, PeerError
from distgnn.comm.failure import fail
from distgnn.comm.process import end_process
from distgnn.datasets.errors import one_line
from distgnn.datasets.limits import num_killed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from distgnn.comm.group import Group

__all__ = [
    "EXIT_BAD_INPUT",
    "EXIT_INTERRUPTED",
    "EXIT_RETRY",
    "Job",
    "as_input_error",
    "collectively",
    "end_job",
    "ending_process",
    "hint_of_kernel",
    "on_device",
    "on_rank_0",
    "open_ranks",
    "rank",
    "say",
]

T = TypeVar("T")

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def rank() -> int:
    """Return the number of this process among those that were started together.

    Returns:
        The rank, in [0, number of ranks); 0 for a program that no launcher started.

    Raises:
        InputError: If the variables of the launcher contradict each other.
    """
    from distgnn.comm.launch import detect

    return detect().rank


def open_ranks(
    *,
    backend: str = "auto",
    interface: str | None = None,
    threads: int | None = None,
    start_timeout: float = 120.0,
    heartbeat_timeout: float = 25.0,
    device: str = "cpu",
    identity: Mapping[str, str] | None = None,
) -> Group:
    """Meet the ranks that mpirun, srun or torchrun started, and choose this rank's threads.

    Args:
        backend: Transport: auto, gloo, mpi or nccl.
        interface: Network interface of gloo; None takes the one towards rank 0.
        threads: Threads of this rank; None for its share of the cores.
        start_timeout: Longest wait for the processes of all ranks, in seconds.
        heartbeat_timeout: Seconds of silence after which a rank counts as dead.
        device: Device that will compute, which all ranks must share; see `on_device`.
        identity: Values by name that this rank was started with, and all ranks must share; see
            `distgnn.api.identity`.

    Returns:
        A group of the launcher's size; of one rank without a launcher.

    Raises:
        InputError: If a value is not allowed, the backend cannot be used, or a rank was started
            otherwise.
        PeerError: If the other ranks do not appear in time.
    """
    from distgnn import __version__
    from distgnn.comm.binding import apply_threads, choose_threads
    from distgnn.comm.launch import detect
    from distgnn.comm.open import open_group

    choice = choose_threads(threads, detect())
    apply_threads(choice.threads)
    group = open_group(
        backend=backend,
        interface=interface,
        timeout_s=start_timeout,
        stale_s=heartbeat_timeout,
        identity={
            "version": __version__,
            "--backend": backend,
            "--device": device,
            **(identity or {}),
        },
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
    from distgnn.comm import open as opening

    return opening.on_device(group, device, backend)


@dataclass(frozen=True)
class Job:
    """How the ranks find each other, and what they use of their machines.

    Attributes:
        backend: Transport, or "auto".
        interface: Network interface of gloo; None for the one towards rank 0.
        heartbeat_timeout: Seconds of silence after which a rank counts as dead.
        start_timeout: Longest wait in seconds for the processes of all ranks to meet.
        threads: Threads of a rank; None for this rank's share of the cores.
        device: Device that computes: cpu or cuda.
    """

    backend: str = "auto"
    interface: str | None = None
    heartbeat_timeout: float = 25.0
    start_timeout: float = 120.0
    threads: int | None = None
    device: str = "cpu"

    def run(self, work: Callable[[Group], T], identity: Mapping[str, str] | None = None) -> T:
        """Open the group that the launcher started, work on every rank, and close it.

        torch computes with the number of threads of the job, and with its own again afterwards.

        Args:
            work: Function that is called once on every rank.
            identity: Values by name that all ranks must have been started with.

        Returns:
            The result of the work on this rank.

        Raises:
            InputError: If the user can correct what failed.
            PeerError: If another rank failed.
            StoppedError: If a signal stopped the work in order.
        """
        from distgnn.comm.binding import apply_threads
        from distgnn.comm.open import check_device

        check_device(self.backend, self.device)
        import torch

        before = torch.get_num_threads()
        try:
            group = open_ranks(
                backend=self.backend,
                interface=self.interface,
                threads=self.threads,
                start_timeout=self.start_timeout,
                heartbeat_timeout=self.heartbeat_timeout,
                device=self.device,
                identity=identity,
            )
            return _on_one_rank(work, group) if group.size == 1 else _on_ranks(work, group)
        finally:
            apply_threads(before)

    def on_device(self, group: Group) -> Group:
        """Let the ranks compute on the device of the job; collective.

        Args:
            group: All ranks.

        Returns:
            A group that takes tensors of the device; the same one for the processor.

        Raises:
            InputError: If a rank has no such device, no kernels for it, or not the backend.
        """
        return on_device(group, self.device, self.backend)


@contextmanager
def ending_process() -> Iterator[None]:
    """Let a failed job of several ranks end the process at once, as `end_job` does.

    The command line does so, as it has nothing left to do. A launcher that has seen one rank end
    soon ends the others, and they have to write their sentence first.
    """
    _STATE.ends_process = True
    try:
        yield
    finally:
        _STATE.ends_process = False


class _State(threading.local):
    """Whether failed jobs of this thread end the process; ranks of tests are threads."""

    ends_process = False


_STATE = _State()


def _on_one_rank(work: Callable[[Group], T], group: Group) -> T:
    try:
        return work(group)
    except Exception as error:
        shown = as_input_error(error)
        if shown is None or shown is error:
            raise
        raise shown from error


def _on_ranks(work: Callable[[Group], T], group: Group) -> T:
    from distgnn.training.loop.stop import StoppedError

    killed_before = num_killed()
    stopped: StoppedError | None = None
    try:
        try:
            result = work(group)
        except StoppedError as caught:  # which all ranks raise
            stopped = caught
        group.barrier()
        group.close()
    except BaseException as error:  # noqa: BLE001 - whatever it is, no peer may be left waiting
        if _STATE.ends_process:
            end_job(group, error, killed_before=killed_before)
        _leave(group, error, num_killed() - killed_before)
    if stopped is not None:
        raise stopped
    return result


def _leave(group: Group, error: BaseException, num_killed: int) -> NoReturn:
    """Tell the peers why this rank ends, and raise the error."""
    # The exit of the interpreter would wait for peers that may never answer.
    atexit.unregister(end_process)
    atexit.register(end_process, 1)
    shown = as_input_error(error)
    fail(group, shown or error)
    if isinstance(error, PeerError):
        hint = hint_of_kernel(num_killed, group.host)
        if hint:
            raise PeerError(f"{error}{hint}") from error
    if shown is None or shown is error:
        raise error
    raise shown from error


def end_job(group: Group, error: BaseException, *, killed_before: int) -> None:
    """End this rank after a failure, so that no peer waits for it.

    Args:
        group: The ranks of the job.
        error: Error of this rank.
        killed_before: Processes that the kernel had ended for want of memory when the job began.
    """
    # An interrupt that has got through is not to be repeated while the others are waited for.
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
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
        killed: Number of these processes.
        host: Name of this host.
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
    # A path may hold a line break or a control character, and another rank's words anything. A
    # rank that cannot write to its log must still tell the others.
    with suppress(OSError):
        sys.stderr.write(f"distgnn: {one_line(str(sentence))}\n")
        sys.stderr.flush()
