"""Arguments about the ranks of a job: how they find each other, and what they compute on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.api.job import Job
from distgnn.cli.flags import MAX_THREADS, seconds, whole

if TYPE_CHECKING:
    import argparse


def add_machine_arguments(parser: argparse._ActionsContainer) -> None:
    """Add the arguments about how ranks find each other and what they use of their machines.

    Args:
        parser: Parser of a verb that runs a job, or a group of its arguments.
    """
    from distgnn.comm.open import BACKENDS

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
    """Add the argument of the device that the ranks compute on.

    Args:
        parser: Parser of a verb that computes, or a group of its arguments.
    """
    parser.add_argument(
        "--device",
        default="cpu",
        metavar="cpu|cuda",
        help="what computes; for cuda install distgnn[gpu], and use one device a rank (default: "
        "%(default)s)",
    )


def job_from(arguments: argparse.Namespace) -> Job:
    """Return the job that the arguments describe.

    Args:
        arguments: Parsed arguments, with those of `add_machine_arguments`.
    """
    return Job(
        backend=arguments.backend,
        interface=arguments.interface,
        heartbeat_timeout=arguments.heartbeat_timeout,
        start_timeout=arguments.start_timeout,
        threads=arguments.threads,
        device=getattr(arguments, "device", "cpu"),
    )
