"""Trained runs: a model and its parts, opened under mpirun or in one process alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from distgnn.api.identity import identity_of
from distgnn.api.job import Job
from distgnn.api.source import check_ranks, check_source_values, open_source
from distgnn.api.walk_orders import build_reader
from distgnn.comm.collective import collectively
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import IN_MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    from distgnn.api.source import Source
    from distgnn.comm.group import Group
    from distgnn.datasets.graph import Graph
    from distgnn.edges.walk_orders import WalkOrders
    from distgnn.nn.relational import GraphSize
    from distgnn.partition.directory.store import Part
    from distgnn.training.run.inference import TrainedRun

T = TypeVar("T")

_DAY_S = 24 * 3600


class PartOfRun(NamedTuple):
    """The work of a rank.

    Attributes:
        part: Its part.
        group: All ranks.
        walk_orders: Those that training left; none is made.
        crowded: Reason why features have no room on the device; empty where they do.
    """

    part: Part
    group: Group
    walk_orders: WalkOrders
    crowded: str = ""


@dataclass(frozen=True)
class Use:
    """A use of a trained run: to evaluate, to predict.

    Attributes:
        run: Directory of the run.
        say: Receives notes about the work under way.
        verb: Name of the verb, for messages.
        job: How the ranks work together.
        walk_cache: Folder of the walk orders of kernels, or on or off.
        graph: Graph in memory that the run was trained on, if it was one.
        factory: Class or function that made the model, if the user wrote it.
        options: Other values that all ranks must share, by name.
    """

    run: str
    say: Callable[[str], None]
    verb: str
    job: Job = field(default_factory=Job)
    walk_cache: str = "on"
    graph: Graph | None = None
    factory: Callable[[Any], nn.Module] | None = None
    options: Mapping[str, object] = field(default_factory=dict)

    def on_parts(self, work: Callable[[TrainedRun, PartOfRun], T]) -> list[T]:
        """Load the run and its parts, and work on each.

        Under mpirun every rank has its own part. In one process the ranks are threads, so that a
        run that was trained on many parts needs no mpirun; the machine then holds all parts at
        once.

        Args:
            work: Function that is called for each part; collective.

        Returns:
            The result of this rank under mpirun, else those of all parts, in order.

        Raises:
            InputError: If the run cannot be opened, or no longer fits its source.
            PeerError: If another rank failed.
        """

        def on_rank(group: Group) -> list[T]:
            return self._on_rank(self.job.on_device(group), work)

        return self.job.run(on_rank, identity_of(self.verb, {"run": self.run, **self.options}))

    def _on_rank(self, group: Group, work: Callable[[TrainedRun, PartOfRun], T]) -> list[T]:
        from distgnn.comm.threads import run_ranks
        from distgnn.comm.transports.staged import staged
        from distgnn.forecast.room import why_crowded

        trained, source = collectively(group, lambda: _open(self))

        def on_one(member: Group) -> T:
            part = collectively(member, lambda: source.part(member.rank))
            walk_orders = build_reader(trained.config, source, cache=self.walk_cache, say=self.say)
            room = why_crowded(trained.config, trained.ends, part, member, member.device)
            return work(trained, PartOfRun(part, member, walk_orders, room))

        def on_thread(member: Group) -> T:
            return on_one(staged(member, group.device))

        if group.size == 1 and source.num_parts > 1:
            return run_ranks(source.num_parts, on_thread, timeout_s=_DAY_S)
        check_ranks(source, group, f"distgnn {self.verb} {self.run}")
        return [on_one(group)]


def _open(use: Use) -> tuple[TrainedRun, Source]:
    """Open a run and the source that it was trained on, and check that they still fit."""
    from distgnn.training.run.directory import RunDirectory
    from distgnn.training.run.inference import TrainedRun
    from distgnn.training.tasks.tasks import resolve_again

    run_dir, say, graph = use.run, use.say, use.graph
    trained = TrainedRun(RunDirectory(Path(run_dir)), use.factory)
    check_source_values(trained.source, run_dir)
    if graph is not None and trained.source["source"] != IN_MEMORY:
        raise InputError(
            f"run '{run_dir}' was trained on '{trained.source['source']}', not on a graph in "
            "memory; leave source out"
        )
    try:
        source = open_source(trained.source, say, graph)
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
    names = (trained.ends.class_names, source.ends.class_names)
    if names[0] and names[0] != names[1]:
        pairs = zip_longest(*names, fillvalue="none")
        number, (then, now) = next((n, pair) for n, pair in enumerate(pairs) if pair[0] != pair[1])
        raise InputError(
            f"run '{run_dir}' was trained on other classes than '{trained.source['source']}' has: "
            f"number {number} was {then!r} and is {now!r}; restore it or train again"
        )
    return trained, source


def _check_size(run_dir: str, trained: TrainedRun, source: Source) -> None:
    """Check the counts that a typed model, or one of links, has weights or ids of."""
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
