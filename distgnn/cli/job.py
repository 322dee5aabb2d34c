"""Running a verb on all ranks, so that they end together whatever happens to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from distgnn.cli.flags import MAX_THREADS, seconds, whole
from distgnn.cli.output import note
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from distgnn.comm.group import Group

T = TypeVar("T")


def add_machine_arguments(parser: argparse._ActionsContainer) -> None:
    """Add how the ranks find each other and what they use of their machines.

    Args:
        parser: Of a verb that runs a job, or a group of its arguments.
    """
    from distgnn.comm.launch import BACKENDS

    add = parser.add_argument
    add(
        "--backend",
        default="auto",
        help=f"one of {', '.join(BACKENDS)}; auto takes mpi if mpirun started all ranks on one "
        "host and mpi4py uses its library, else gloo, which suits Ethernet; nccl joins CUDA "
        "devices (default: %(default)s)",
    )
    add(
        "--interface",
        metavar="NAME",
        help="network interface of gloo (default: the one towards rank 0)",
    )
    add(
        "--heartbeat-timeout",
        type=seconds,
        default=25.0,
        metavar="S",
        help="a rank that is silent for so long counts as dead (default: %(default)g s)",
    )
    add(
        "--start-timeout",
        type=seconds,
        default=120.0,
        metavar="S",
        help="longest wait for the processes of all ranks to start and meet; the graph is read "
        "after that (default: %(default)g s)",
    )
    add(
        "--threads",
        type=whole(1, MAX_THREADS),
        metavar="T",
        help="per rank (default: this rank's share of the cores)",
    )


def add_device_argument(parser: argparse._ActionsContainer) -> None:
    """Add what the ranks compute on.

    Args:
        parser: Of a verb whose job calls `on_device`, or a group of its arguments.
    """
    parser.add_argument(
        "--device",
        default="cpu",
        metavar="cpu|cuda",
        help="what computes; for cuda install distgnn[gpu], and use one device a rank (default: "
        "%(default)s)",
    )


def run_job(work: Callable[[Group], None], arguments: argparse.Namespace) -> int:
    """Open the group that the launcher started, work, and close it.

    Args:
        work: Called once on every rank.
        arguments: With those of `add_machine_arguments`.

    Returns:
        Exit status 0, or that of a signal that stopped the work in order; a failure ends the
        process here.
    """
    from distgnn.cli import end_job
    from distgnn.comm.binding import apply_threads, choose_threads
    from distgnn.comm.choice import check_device
    from distgnn.comm.launch import detect, open_group
    from distgnn.machine.limits import num_killed

    check_device(arguments.backend, getattr(arguments, "device", "cpu"))
    choice = choose_threads(arguments.threads, detect())
    apply_threads(choice.threads)
    group = open_group(
        backend=arguments.backend,
        interface=arguments.interface,
        timeout_s=arguments.start_timeout,
        stale_s=arguments.heartbeat_timeout,
    )
    if choice.warning and group.rank == 0:
        note(f"warning: {choice.warning}")
    if group.size == 1:
        return _status_of(work, group)
    status, killed_before = 0, num_killed()
    try:
        status = _status_of(work, group)
        group.barrier()
    except BaseException as error:  # noqa: BLE001 - whatever it is, no peer may be left waiting
        end_job(group, error, killed_before=killed_before)
    group.close()
    return status


def _status_of(work: Callable[[Group], None], group: Group) -> int:
    from distgnn.training.loop.stop import StoppedError

    try:
        work(group)
    except StoppedError as stopped:
        if group.rank == 0:
            note(f"distgnn: {stopped}")
        return stopped.exit_status
    return 0


def on_device(group: Group, arguments: argparse.Namespace) -> Group:
    """Let the ranks compute on the device that the user named; collective.

    Args:
        group: All ranks.
        arguments: With `device` and `backend`.

    Returns:
        A group that takes tensors of the device; the same one for the processor.

    Raises:
        InputError: If a rank has no such device, no kernels for it, or not the backend.
    """
    from distgnn.kernels.devices import find_device

    device = collectively(group, lambda: find_device(arguments.device, group.local_rank))
    if device.type == "cpu":
        return group
    from distgnn.comm.transports import staged

    return staged.on_device(group, device, arguments.backend)


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
    from distgnn.cli import as_input_error

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
