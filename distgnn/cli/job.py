"""Running a verb on all ranks, so that they end together whatever happens to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.api import job
from distgnn.api.job import collectively, end_job, on_rank_0, open_ranks
from distgnn.cli.flags import MAX_THREADS, seconds, whole
from distgnn.cli.output import note

__all__ = [
    "add_device_argument",
    "add_machine_arguments",
    "collectively",
    "on_device",
    "on_rank_0",
    "run_job",
]

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from distgnn.comm.group import Group


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
    from distgnn.comm.choice import check_device
    from distgnn.machine.limits import num_killed

    check_device(arguments.backend, getattr(arguments, "device", "cpu"))
    group = open_ranks(
        backend=arguments.backend,
        interface=arguments.interface,
        threads=arguments.threads,
        start_timeout=arguments.start_timeout,
        heartbeat_timeout=arguments.heartbeat_timeout,
    )
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
    return job.on_device(group, arguments.device, arguments.backend)
