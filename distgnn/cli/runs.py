"""Verbs that use a trained run: the same under mpirun and in one process."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from distgnn.cli.flags import path
from distgnn.cli.job import (
    add_device_argument,
    add_machine_arguments,
    collectively,
    on_device,
    run_job,
)
from distgnn.cli.plans import add_plan_cache_argument, build_reader
from distgnn.cli.source import check_ranks, check_source_values, open_source
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.cli.source import Source
    from distgnn.comm.group import Group
    from distgnn.edges.planner import Planner
    from distgnn.nn.relational import GraphSize
    from distgnn.partition.directory.store import Part
    from distgnn.training.run.inference import TrainedRun
    from distgnn.training.tasks.smoothing import CorrectAndSmooth

T = TypeVar("T")


class Share(NamedTuple):
    """What a rank works on.

    Attributes:
        part: Its part.
        group: All ranks.
        planner: Has the plans that training left, and makes none.
    """

    part: Part
    group: Group
    planner: Planner


def add_smoothing_argument(parser: argparse.ArgumentParser) -> None:
    """Add what is made of scores after the model."""
    parser.add_argument(
        "--correct-and-smooth",
        type=_alphas,
        metavar="A,B",
        help="spread the errors on training vertices (share A from neighbours in each of 50 "
        "steps), then their labels (share B), along edges, such as 0.8,0.8",
    )


def _alphas(text: str) -> tuple[float, float]:
    try:
        first, second = (float(word) for word in text.split(","))
    except ValueError:
        first = second = -1.0
    if not (0 <= first < 1 and 0 <= second < 1):
        raise argparse.ArgumentTypeError(
            f"must be two shares of at least 0 and below 1, such as 0.8,0.8, got '{text}'"
        )
    return first, second


def smoothing(arguments: argparse.Namespace) -> CorrectAndSmooth | None:
    """Return what is made of scores after the model; None for nothing.

    Args:
        arguments: With that of `add_smoothing_argument`.
    """
    from distgnn.training.tasks.smoothing import CorrectAndSmooth

    alphas = arguments.correct_and_smooth
    return None if alphas is None else CorrectAndSmooth(*alphas)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run and the machine."""
    parser.add_argument("run_dir", metavar="RUN", type=path, help="directory of a training run")
    add_machine_arguments(parser)
    add_device_argument(parser)
    add_plan_cache_argument(parser, "read the plans of kernels that training kept in DIR")


def run_on_parts(
    arguments: argparse.Namespace,
    work: Callable[[TrainedRun, Share], T],
    report: Callable[[list[T]], None],
) -> int:
    """Load a run and its parts, and work on each.

    Under mpirun every rank has its own part. In one process the ranks are threads, so that a run
    that was trained on many parts needs no mpirun; the machine then holds all parts at once.

    Args:
        arguments: With those of `add_run_arguments`.
        work: Called for each part; collective.
        report: Called once on rank 0, with its own result under mpirun, else with those of all
            parts, in order.

    Returns:
        Exit status 0.
    """

    def job(group: Group) -> None:
        from distgnn.comm.threads import run_ranks
        from distgnn.comm.transports.staged import staged

        group = on_device(group, arguments)
        trained, source = collectively(group, lambda: _open(arguments.run_dir))

        def on_one(member: Group) -> T:
            part = collectively(member, lambda: source.part(member.rank))
            planner = build_reader(arguments, trained.config, source)
            return work(trained, Share(part, member, planner))

        def on_thread(member: Group) -> T:
            return on_one(staged(member, group.device))

        if group.size == 1 and source.num_parts > 1:
            report(run_ranks(source.num_parts, on_thread, timeout_s=24 * 3600))
            return
        check_ranks(source, group, f"distgnn {arguments.verb} {arguments.run_dir}")
        result = on_one(group)
        if group.rank == 0:
            report([result])

    return run_job(job, arguments)


def _open(run_dir: str) -> tuple[TrainedRun, Source]:
    """Open a run and what it was trained on, and check that they still fit."""
    from distgnn.training.run.directory import RunDirectory
    from distgnn.training.run.inference import TrainedRun
    from distgnn.training.tasks.tasks import resolve_again

    trained = TrainedRun(RunDirectory(Path(run_dir)))
    check_source_values(trained.source, run_dir)
    try:
        source = open_source(trained.source)
    except InputError as error:
        raise InputError(
            f"run '{run_dir}' was trained on '{trained.source['source']}', which cannot be opened: "
            f"{error}"
        ) from error
    trained.config = resolve_again(trained.config, source.ends)
    _check_size(run_dir, trained, source)
    columns = trained.ends.num_edge_features, source.ends.num_edge_features
    if trained.config.model.reads_edge_features and columns[0] != columns[1]:
        raise InputError(
            f"run '{run_dir}' was trained on {columns[0]} features of edges, but "
            f"'{trained.source['source']}' has {columns[1]}; restore it or train again"
        )
    expected = (trained.ends.num_features, trained.ends.num_classes)
    if expected != (source.ends.num_features, source.ends.num_classes):
        raise InputError(
            f"run '{run_dir}' was trained on {expected[0]} features and {expected[1]} classes, but "
            f"'{trained.source['source']}' has {source.ends.num_features} and "
            f"{source.ends.num_classes}; restore it or train again"
        )
    return trained, source


def _check_size(run_dir: str, trained: TrainedRun, source: Source) -> None:
    """Check a typed model, which has weights of vertices and relations, and links, of which ids."""
    if trained.config.model.kind.is_typed and trained.ends.size != source.ends.size:
        raise InputError(
            f"run '{run_dir}' was trained on {_counted(trained.ends.size)}, but "
            f"'{trained.source['source']}' has {_counted(source.ends.size)}; restore it or train "
            "again"
        )
    counts = trained.ends.num_vertices, source.ends.num_vertices
    if trained.config.task == "link" and counts[0] != counts[1]:
        raise InputError(
            f"run '{run_dir}' learned links of {counts[0]} vertices, but "
            f"'{trained.source['source']}' has {counts[1]}; restore it or train again"
        )


def _counted(size: GraphSize) -> str:
    return (
        f"{size.num_vertices} vertices of {size.num_vertex_types} types and {size.num_relations} "
        "relations"
    )
