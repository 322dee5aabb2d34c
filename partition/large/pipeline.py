"""A partition directory from files, in stages that an interrupted run does not repeat."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.files import sync_directory
from distgnn.partition.directory.atomic import manifest_of, replace, write_manifest
from distgnn.partition.directory.manifest import Manifest, PartCounts
from distgnn.partition.directory.store import check_target, is_partition_directory, read_manifest
from distgnn.partition.large import relations
from distgnn.partition.large.budget import (
    CUT_GUESS,
    Budget,
    budget_of,
    disk_bytes,
    largest_pile,
    parts_at_once,
    piles_at_once,
    seconds,
)
from distgnn.partition.large.clock import Progress, StageProgress
from distgnn.partition.large.counts import count, save_counts
from distgnn.partition.large.covers import cover
from distgnn.partition.large.crew import Crew
from distgnn.partition.large.dealing import Dealt
from distgnn.partition.large.input import ARRAYS, SourceText
from distgnn.partition.large.ordering import arrange
from distgnn.partition.large.piles import Piles, record_of
from distgnn.partition.large.refining import TASK as REFINE
from distgnn.partition.large.refining import (
    Cut,
    RefineLimits,
    WindowShare,
    WindowTask,
    begin,
    refine,
)
from distgnn.partition.large.source import GraphOnDisk
from distgnn.partition.large.split import plan, split
from distgnn.partition.large.work import MOVED, PARTS, WorkFolder, is_complete
from distgnn.partition.large.writing import Writer, leaf_counts, tables_of
from distgnn.partition.quality import Quality, quality_of, train_balance
from distgnn.partition.refine import placement
from distgnn.partition.refine.refinement import EDGE_BALANCE, most_edges

METHOD = "out-of-core"
PILES = ("pile", "placed")
"""Names of the edges by pairs of parts, and of those between parts where they live."""

ChooseRoots = Callable[..., NDArray[np.int32]]
"""`roots(edges, num_parts, folder, *, seed, memory_bytes, progress)`: (num_vertices,) int32.

The folder is for its files; what an interrupted call left there is what the next one finds.
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that the outcome depends on, beside the source."""

    num_parts: int
    seed: int = 0
    memory_bytes: int = 8 << 30
    """Bytes that the process may take, about."""
    is_memory_given: bool = True
    """Whether an interrupted run with another bound is another one; else its bound is kept."""
    ranks_per_host: int = 1
    """Ranks that share `available_bytes`."""
    available_bytes: int | None = None
    """Bytes that are free on a host, which a bound that is kept may not pass; None to trust it."""
    edge_balance: float = EDGE_BALANCE
    """Largest part's edges over the mean that is aimed at."""
    is_refining: bool = True
    order: str = "auto"
    """One of `orders.ORDERS`."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Folders of the outcome and of the work."""

    directory: Path
    """The partition."""
    work: Path
    """On the same file system; removed at the end."""
    overwrite: bool = False
    """Whether an existing partition directory may be replaced."""


def partition(
    given: SourceText,
    places: Places,
    settings: Settings,
    *,
    choose_roots: ChooseRoots,
    crew: Crew | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Partition a graph whose edges stay on disk.

    Roots are chosen first. Edges between parts are placed by minimum vertex cover and refined in
    windows of parts; those inside a part stay there. Nothing depends on the number of threads, nor
    on that of ranks.

    Args:
        given: The graph.
        places: Where to. If the work folder is that of an interrupted run, it continues from there.
        settings: Settings of the partition.
        choose_roots: Which part each vertex's root is on.
        crew: Ranks that share windows and parts, of which this one is the first and the others call
            `assist`; no others if None.
        progress: Called with lines of text.

    Returns:
        The manifest as written.

    Raises:
        InputError: If another rank failed, there is too little memory or disk, the work folder is
            of another partitioning, or the directory exists and may not be replaced.
    """
    if not is_complete(places.work):
        check_target(places.directory, overwrite=places.overwrite)
    _check_apart(places)
    work = WorkFolder(places.work, _about(given, settings))
    crew = crew or Crew(places.work)
    try:
        crew.begin()
        if is_complete(places.work):
            return _finish(work, places.directory)
        source = given.open(work, progress)
        run = _Run(source, places, settings, work, crew, progress)
        run.roots(choose_roots)
        run.count()
        run.place()
        run.refine()
        run.arrange()
        run.deal()
        run.relate()
        return run.write(given)
    except InputError as error:
        if isinstance(error, _LacksRoomError) and work["arrays"] == str(work.path(ARRAYS)):
            raise InputError(
                f"{error}; the same command goes on from {str(places.work)!r}, where the edges are "
                "that it has read"
            ) from error
        # A corrected input or option makes this another partitioning, so its folder is useless.
        # Work of an earlier run is kept.
        if work["arrays"] is None or (work.is_new and not work.has("root-part")):
            work.remove()
        raise
    except OSError as error:
        raise InputError(f"partitioning cannot continue: {_sentence(error, places)}") from error
    finally:
        crew.end()


def assist(given: Callable[[], SourceText], places: Places, crew: Crew) -> None:
    """Do a share of the windows and of the parts of a partitioning, until its first rank has ended.

    Args:
        given: Makes the graph, once the first rank has read it.
        places: Those of the first rank.
        crew: All ranks; this is not the first one.

    Raises:
        InputError: If the disk is full, or files are damaged.
    """
    source: GraphOnDisk | None = None
    try:
        for task in crew.tasks():
            if not task.items:
                continue
            # What is recorded changes from task to task, the source does not.
            work = WorkFolder.shared(places.work)
            if source is None:
                source = given().open(work, None)
            dtype = record_of(source.edges.num_vertices, has_position=source.has_edge_values)
            piles, placed = (Piles(places.work, name, dtype) for name in PILES)
            if task.kind == REFINE:
                cut = Cut(
                    placed=placed,
                    root_part=work.load("root-part"),
                    between=work.load("between"),
                )
                share, facts = WindowShare(work, cut), WindowTask(**task.facts)
                for item in task.items:
                    share.refine(facts, item)
            else:
                writer = _writer(source, work)
                for part in task.items:
                    writer.write_inner(part, piles, placed, task.facts["piles"][part])
    except OSError as error:
        sentence = _sentence(error, places)
        crew.fail(sentence)
        raise InputError(sentence) from error
    except BaseException as error:
        # Whatever it is, rank 0 waits for this one.
        crew.fail(str(error) or type(error).__name__)
        raise


def _sentence(error: OSError, places: Places) -> str:
    """Say what the system refused, and what to do."""
    # numpy gives no number where less was written than asked for.
    if error.errno in (None, errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return (
            f"{error.strerror or error}; make room and run the same command again, it continues "
            f"from {str(places.work)!r}"
        )
    name = "" if error.filename is None else f": {str(error.filename)!r}"
    return (
        f"{error.strerror or error}{name}; mend that and run the same command again, or remove "
        f"{str(places.work)!r} to start again"
    )


def _writer(source: GraphOnDisk, work: WorkFolder) -> Writer:
    """Make what writes parts, once their roots are ordered."""
    features, tables = source.features, tables_of(work)
    dealt = None if features is None else Dealt(features, tables, work.folder)
    typed = source.edge_type is not None
    degree = relations.relation_degree(work, source.edges.num_edges) if typed else None
    return Writer(source, tables, work.path(PARTS), work, dealt, degree)


def _finish(work: WorkFolder, directory: Path) -> Manifest:
    """End a partitioning whose parts are where they belong."""
    manifest = read_manifest(directory) if is_partition_directory(directory) else None
    if manifest is None or manifest.fingerprint != work[MOVED]:
        raise InputError(
            f"work folder {str(work.folder)!r} is of a partition that was complete, but that is no "
            f"longer what {str(directory)!r} holds; remove the folder to start again"
        )
    work.remove()
    return manifest


def _check_apart(places: Places) -> None:
    work, directory = places.work.resolve(), places.directory.resolve()
    if work.is_relative_to(directory) or directory.is_relative_to(work):
        raise InputError(
            f"one of work folder {str(places.work)!r} and {str(places.directory)!r} lies in the "
            "other; choose two folders beside each other"
        )


class _LacksRoomError(InputError):
    """Disk or memory lack room, which can be made without changing what is asked for."""


class _Run:
    """One partitioning; each stage leaves a record, and does nothing where there is one."""

    def __init__(
        self,
        source: GraphOnDisk,
        places: Places,
        settings: Settings,
        work: WorkFolder,
        crew: Crew,
        progress: Progress | None,
    ) -> None:
        if settings.num_parts > source.edges.num_vertices:
            raise InputError(
                f"more parts than vertices: num_parts is {settings.num_parts}, but "
                f"{source.vertices.name!r} has {source.edges.num_vertices}; ask for fewer parts"
            )
        self.source, self.places, self.settings, self.work = source, places, settings, work
        self.crew, self.progress = crew, progress
        self.memory_bytes = int(self.work["memory_bytes"] or settings.memory_bytes)
        self._check_memory()
        self.budget = self._divided()
        self.work.record(memory_bytes=self.memory_bytes)
        dtype = record_of(source.edges.num_vertices, has_position=source.has_edge_values)
        self.piles, self.placed = (Piles(places.work, name, dtype) for name in PILES)
        disk = self._check_disk(dtype.itemsize)
        guess = int(CUT_GUESS * source.edges.num_edges)
        self._note(
            f"{source.vertices.name}: {source.edges.num_vertices} vertices, "
            f"{source.edges.num_edges} edges into {settings.num_parts} parts; at most "
            f"{self.memory_bytes / 2**30:.1f} GiB of memory, about {disk / 2**30:.1f} GiB of disk "
            f"and {self._left(guess)}"
        )

    def _note(self, line: str) -> None:
        if self.progress is not None:
            self.progress(line)

    def _left(self, num_cut: int) -> str:
        """Say how long it will take from here."""
        time_s = seconds(
            self.source.edges.num_edges,
            num_cut,
            self.budget.window_edges,
            is_rooted=self.work.has("root-part"),
            deal_bytes=0 if self.work["is_dealt"] else self.source.features_bytes,
        )
        return f"{time_s / 3600:.1f} hours" if time_s > 3600 else f"{time_s / 60:.1f} minutes"

    def _divided(self) -> Budget:
        """Divide the memory; a bound that nobody gave may be another one next time."""
        try:
            return budget_of(self.source, self.settings.num_parts, self.memory_bytes)
        except InputError as error:
            if self.settings.is_memory_given:
                raise
            raise _LacksRoomError(str(error)) from error

    def _check_memory(self) -> None:
        """Refuse a bound of an interrupted run that more ranks on a host cannot keep together."""
        ranks, free = self.settings.ranks_per_host, self.settings.available_bytes
        if free is None or self.settings.is_memory_given or ranks == 1:
            return
        if self.memory_bytes * ranks > free:
            fitting = max(free // self.memory_bytes, 1)
            raise InputError(
                f"work folder {str(self.places.work)!r} was begun with "
                f"{self.memory_bytes / 2**30:.2g} GiB of memory for each rank, but the {ranks} "
                f"ranks on this host have {free / 2**30:.2g} GiB; start at most {fitting} on a "
                "host to go on, or remove the folder to start again"
            )

    def _check_disk(self, record_bytes: int) -> int:
        """Refuse if the disk lacks room; else return what will be taken."""
        target = self.places.directory.absolute()
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.parent.stat().st_dev != self.places.work.stat().st_dev:
            raise InputError(
                f"work folder {str(self.places.work)!r} is on another file system than "
                f"{str(target)!r}, so the finished parts cannot be moved; choose one beside it"
            )
        needed = disk_bytes(self.source, record_bytes, self.settings.num_parts)
        free = shutil.disk_usage(self.places.work).free + _taken(self.work)
        if needed > free:
            raise _LacksRoomError(
                f"partitioning takes about {needed / 2**30:.1f} GiB of disk for "
                f"{str(self.places.work)!r} and {str(target)!r}, but {free / 2**30:.1f} GiB are "
                "free; make room or choose another disk"
            )
        return needed

    def roots(self, choose_roots: ChooseRoots) -> None:
        """Choose the part of each root."""
        folder = self.work.path("roots")
        if not self.work.has("root-part"):
            folder.mkdir(exist_ok=True)
            chosen = choose_roots(
                self.source.edges,
                self.settings.num_parts,
                folder,
                seed=self.settings.seed,
                memory_bytes=self.budget.free_bytes,
                progress=self.progress,
            )
            self.work.save("root-part", chosen)
        # Not before: what is half removed would be taken for whole by the next run.
        shutil.rmtree(folder, ignore_errors=True)

    def count(self) -> None:
        """Count degrees, and edges between parts."""
        if self.work.has("between"):
            return
        counts = count(
            self.source.edges,
            self.work.load("root-part"),
            self.settings.num_parts,
            chunk_edges=self.budget.chunk_edges,
            progress=self.progress,
        )
        save_counts(self.work, counts)
        num_cut = int(counts.between.sum() - np.trace(counts.between))
        share = num_cut / max(self.source.edges.num_edges, 1)
        self._note(f"{share:.1%} of the edges are between parts; about {self._left(num_cut)} left")

    def place(self) -> None:
        """Split the edges into piles, and place those between parts."""
        root_part = self.work.load("root-part")
        if not self.work["is_split"]:
            self.work.record(pile_edges=self.budget.pile_edges)
        # Versions before it was recorded split the edges into as large piles as fit.
        most = self.work["pile_edges"] or largest_pile(self.budget.free_bytes)
        piles = plan(self.work.load("between"), most)
        if not self.work["is_split"]:
            self.piles.keep_only(())
            split(
                self.source,
                root_part,
                piles,
                self.piles,
                chunk_edges=self.budget.chunk_edges,
                progress=self.progress,
            )
            self.work.record(is_split=True)
        if self.work["refined"] is None:
            largest = max(map(self.piles.size, range(piles.num_parts, piles.num_piles)), default=0)
            cover(
                self.work,
                piles,
                root_part,
                piles=self.piles,
                placed=self.placed,
                threads=piles_at_once(self.source, self.budget.free_bytes, largest),
                progress=self.progress,
            )

    def refine(self) -> None:
        """Move edges between parts where fewer rows travel."""
        if self.work["is_refined"]:
            return
        root_part, between = self.work.load("root-part"), self.work.load("between")
        cut = Cut(placed=self.placed, root_part=root_part, between=between)
        begin(self.work, cut)
        if self.settings.is_refining:
            num_edges, num_parts = self.source.edges.num_edges, self.settings.num_parts
            rows_at_destination, rows = self.work["covered"][2], self.work["refined"]["before"]
            goal = RefineLimits(
                most_edges=most_edges(num_edges, num_parts, self.settings.edge_balance),
                more_rows=max(rows_at_destination - rows, 0),
                window_edges=self.budget.window_edges,
            )
            refine(self.work, cut, goal, self.crew, self.progress)
            self._tell_of_fullest(np.diag(between), goal)
        self.work.record(is_refined=True)

    def _tell_of_fullest(self, inner: NDArray[np.int64], goal: RefineLimits) -> None:
        """Say if a part is above the limit that is aimed at."""
        sizes = np.array([self.placed.size(pile) for pile in self.work["refined"]["piles"]])
        fullest = int((inner + sizes).max())
        if fullest > goal.most_edges:
            # More memory helps where it makes windows larger, and the edges above may move.
            can_grow = goal.window_edges < min(int(sizes.sum()), placement.MOST_VERTICES // 2)
            may_move = self.work["refined"]["windows"] > 0 and inner.max() <= goal.most_edges
            more = "; with more --memory more parts are refined together"
            advice = more if can_grow and may_move else ""
            self._note(
                f"the fullest part holds {fullest} edges, above the {goal.most_edges} that a "
                f"balance of {self.settings.edge_balance} allows{advice}"
            )

    def arrange(self) -> None:
        """Order the roots of each part."""
        if self.work.has("order"):
            return
        largest = max(map(self.piles.size, range(self.settings.num_parts)))
        order = arrange(
            self.settings.order,
            self.work.load("root-part"),
            self.settings.num_parts,
            self.piles,
            seed=self.settings.seed,
            threads=parts_at_once(self.source, self.budget.free_bytes, largest),
            progress=self.progress,
        )
        self.work.save("order", order)

    def deal(self) -> None:
        """Deal the rows of features to the parts."""
        if self.source.features is None or self.work["is_dealt"]:
            return
        dealt = Dealt(self.source.features, tables_of(self.work), self.work.folder)
        dealt.deal(self.budget.free_bytes, self.progress)
        self.work.record(is_dealt=True)

    def relate(self) -> None:
        """Count the edges of each relation into each vertex, where edges have types."""
        if self.source.edge_type is None or self.work.has(relations.NAME):
            return
        relations.relate(
            self.source,
            self.work,
            memory_bytes=self.budget.free_bytes // 2,  # slices of edges take the rest
            chunk_edges=self.budget.chunk_edges,
            progress=self.progress,
        )

    def write(self, given: SourceText) -> Manifest:
        """Write the parts, then the manifest, and give the directory its name."""
        folder = self.work.path(PARTS)
        folder.mkdir(exist_ok=True)
        writer = _writer(self.source, self.work)
        clock = StageProgress("writing", "edges", self.source.edges.num_edges, self.progress)
        pile_of = self.work["refined"]["piles"]
        largest = max(
            self.piles.size(part) + self.placed.size(pile) for part, pile in enumerate(pile_of)
        )
        threads = parts_at_once(self.source, self.budget.free_bytes, largest)
        writer.write_parts(self.piles, self.placed, pile_of, self.crew, clock, threads=threads)
        clock.end()
        written = writer.write_exchange(self.progress)
        self._check_edges(sum(one.counts.num_edges for one in written))
        manifest = manifest_of(
            self.source.vertices,
            [one.counts for one in written],
            {name: record for one in written for name, record in one.files.items()},
            num_edges=self.source.edges.num_edges,
            num_features=self.source.num_features,
            num_edge_features=self.source.num_edge_features,
            num_relations=self.source.num_relations,
            method=METHOD,
            options={"undirected": given.undirected, "split": given.split, **self._options()},
            seed=self.settings.seed,
            order=self.settings.order,
            quality=self._quality([one.counts for one in written]).to_json(),
            source_checksum=given.checksum(),
        )
        write_manifest(folder, manifest)
        sync_directory(folder)
        # Another process may have come first; then the parts stay in the work folder.
        check_target(self.places.directory, overwrite=self.places.overwrite)
        self.work.record(**{MOVED: manifest.fingerprint})
        replace(folder, self.places.directory.absolute(), self.work.folder)
        return _finish(self.work, self.places.directory)

    def _check_edges(self, num_written: int) -> None:
        """Refuse if a pile was lost: one without a file is one without edges."""
        num_edges = self.source.edges.num_edges
        if num_written != num_edges:
            raise InputError(
                f"the parts in {str(self.work.folder)!r} hold {num_written} edges, but the graph "
                f"has {num_edges}: files of the folder were lost or changed; remove it to start "
                "again"
            )

    def _options(self) -> dict[str, Any]:
        return {
            "memory_bytes": self.memory_bytes,
            "imbalance": self.settings.edge_balance,
            "refine": self.settings.is_refining,
        }

    def _quality(self, counts: Sequence[PartCounts]) -> Quality:
        num_parts = self.settings.num_parts
        leaves = np.stack(list(leaf_counts(self.work, num_parts)))
        return quality_of(
            num_edges=np.array([one.num_edges for one in counts]),
            num_roots=np.array([one.num_roots for one in counts]),
            num_leaves=np.array([one.num_leaves for one in counts]),
            read_rows=np.ascontiguousarray(leaves[:, 1].T),
            write_rows=np.ascontiguousarray(leaves[:, 2]),
            halo_rows_at_destination=self.work["covered"][2],
            train_balance=train_balance(
                self.source.vertices, self.work.load("root-part"), num_parts
            ),
        )


def _taken(work: WorkFolder) -> int:
    """Bytes of the files in a work folder that partitioning writes, as `disk_bytes` counts them."""
    arrays = work.path(ARRAYS)
    return sum(
        file.lstat().st_size
        for file in work.folder.rglob("*")
        if file.is_file() and not file.is_symlink() and arrays not in file.parents
    )


def _about(given: SourceText, settings: Settings) -> dict[str, Any]:
    """List what makes a partitioning another one."""
    about = {
        **given.about(),
        "parts": settings.num_parts,
        "seed": settings.seed,
        "imbalance": settings.edge_balance,
        "refine": settings.is_refining,
        "order": settings.order,
    }
    if settings.is_memory_given:
        about["memory"] = settings.memory_bytes
    return about
