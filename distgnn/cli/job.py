"""Running a verb on all ranks, so that they end together whatever happens to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from distgnn.cli.output import note
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from distgnn.comm.group import Group

T = TypeVar("T")


def run_job(work: Callable[[Group], None], arguments: argparse.Namespace) -> int:
    """Open the group that the launcher started, work, and close it.

    Args:
        work: Called once on every rank.
        arguments: backend, interface and threads of the verb.

    Returns:
        Exit status 0; a failure ends the process here.
    """
    from distgnn.cli import end_job
    from distgnn.comm.binding import apply_threads, choose_threads
    from distgnn.comm.launch import detect, open_group

    choice = choose_threads(arguments.threads, detect())
    apply_threads(choice.threads)
    group = open_group(backend=arguments.backend, interface=arguments.interface)
    if choice.warning and group.rank == 0:
        note(f"warning: {choice.warning}")
    if group.size == 1:
        work(group)
        return 0
    try:
        work(group)
        group.barrier()
    except BaseException as error:  # noqa: BLE001 - whatever it is, no peer may be left waiting
        end_job(group, error)
    group.close()
    return 0


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
