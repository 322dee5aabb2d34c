"""The partition directory, part by part: first what a part knows itself, then whom it sends to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.partition.build import Part, vertex_data
from distgnn.partition.directory.atomic import write_part
from distgnn.partition.directory.files import write_slices
from distgnn.partition.directory.layout import SPARSE_FEATURES, part_folder
from distgnn.partition.directory.manifest import FileRecord, PartCounts
from distgnn.partition.large.clock import Progress, StageProgress
from distgnn.partition.large.crew import Crew
from distgnn.partition.large.dealing import Dealt
from distgnn.partition.large.piles import Piles, Records
from distgnn.partition.large.source import FLOAT, GraphOnDisk, Table
from distgnn.partition.large.work import WorkFolder
from distgnn.partition.structure import Leaves, VertexTables, leaves_of, structure_of

# Records, places, both directions and what sorting them takes.
BYTES_PER_EDGE = 90
SLICE_BYTES = 32 << 20
TASK = "write"
"""Name of the task of which each item is a part."""


@dataclass(frozen=True, eq=False)
class Written:
    """Entries of the manifest about a part."""

    counts: PartCounts
    files: dict[str, FileRecord]


def tables_of(work: WorkFolder) -> VertexTables:
    """Collect what all parts know of the vertices.

    Args:
        work: Where the order, the roots' parts and the counts of edges were saved.

    Returns:
        The tables, of integers as small as were saved.
    """
    vertex_at = work.load("order")
    place = np.empty_like(vertex_at)
    place[vertex_at] = np.arange(vertex_at.size, dtype=vertex_at.dtype)
    num_parts = work.load("between").shape[0]
    roots = np.bincount(work.load("root-part"), minlength=num_parts)
    return VertexTables(
        vertex_at=vertex_at,
        place=place,
        root_start=np.concatenate([[0], np.cumsum(roots)]),
        in_degree=work.load("in_degree"),
        out_degree=work.load("out_degree"),
        self_loops=work.load("self_loops"),
        local_id=np.empty(vertex_at.size, np.int32),
    )


@dataclass(frozen=True, eq=False)
class Writer:
    """Writes parts into a folder."""

    source: GraphOnDisk
    tables: VertexTables
    folder: Path
    """The directory in the making."""
    work: WorkFolder
    dealt: Dealt | None
    """The rows of features, where the source has dense ones."""
    relation_degree: Table | None = None
    """(num_edges, 1) int32 on disk, where edges have types."""

    def write_parts(
        self,
        inner: Piles,
        placed: Piles,
        pile_of: list[int],
        crew: Crew,
        clock: StageProgress,
        *,
        threads: int = 1,
    ) -> None:
        """Write all that needs no other part, for every part that an earlier run has not done.

        What a part is made of, features too, is removed once it is there.

        Args:
            inner: Pile p has the edges inside part p.
            placed: The edges between parts.
            pile_of: (num_parts,) the pile of each part in `placed`.
            crew: Ranks that share the parts.
            clock: Told of the edges written.
            threads: Parts of this rank that are written at a time.

        Raises:
            InputError: If a part that was written is gone, and so are its edges or its features.
        """
        ended: set[int] = set()

        def is_written(part: int) -> bool:
            """Ask, and end with a part once it is there."""
            if part not in ended and self._is_written(part):
                ended.add(part)
                clock.add(_load_record(self.work, part).counts.num_edges)
                inner.remove(part)
                placed.remove(pile_of[part])
                if self.dealt is not None:
                    self.dealt.remove(part)
            return part in ended

        writers = SimpleQueue[Writer]()
        for number in range(threads):
            writers.put(self if number == 0 else self._beside())

        def write(part: int) -> None:
            writer = writers.get()
            try:
                writer.write_inner(part, inner, placed, pile_of[part])
            finally:
                writers.put(writer)

        parts, facts = range(len(pile_of)), {"piles": pile_of}
        crew.share(TASK, parts, write, is_done=is_written, facts=facts, threads=threads)

    def _beside(self) -> Writer:
        """Return one for another thread, with a work array of its own."""
        return replace(
            self, tables=replace(self.tables, local_id=np.empty_like(self.tables.local_id))
        )

    def write_inner(self, part: int, inner: Piles, placed: Piles, pile: int) -> None:
        """Write what a part knows by itself.

        Args:
            part: Its number.
            inner: Pile p has the edges inside part p.
            placed: The edges between parts.
            pile: Pile of the part in `placed`.
        """
        records = np.concatenate([inner.read(part), placed.read(pile)])
        self._check_whole(part, records.size)
        _save_record(self.work, part, self._write(part, records))

    def _is_written(self, part: int) -> bool:
        """Return whether a part is recorded and its files are there."""
        if not _record_path(self.work, part).exists():
            return False
        files = _load_record(self.work, part).files
        paths = {self.folder / name: record.bytes for name, record in files.items()}
        return all(path.is_file() and path.stat().st_size == paths[path] for path in paths)

    def _check_whole(self, part: int, num_edges: int) -> None:
        if not _record_path(self.work, part).exists():
            return
        recorded = _load_record(self.work, part).counts.num_edges
        if num_edges != recorded:
            raise InputError(
                f"part {part} was written to {str(self.folder)!r}, but its files are not there any "
                f"more, and only {num_edges} of its {recorded} edges are; remove the folder "
                f"{str(self.work.folder)!r} to start again"
            )

    def _write(self, part: int, records: Records) -> Written:
        tables = self.tables
        position = None
        if "edge" in (records.dtype.names or ()):
            records = records[np.argsort(records["edge"], kind="stable")]
            position = records["edge"].copy()
        src, dst = tables.place[records["src"]], tables.place[records["dst"]]
        del records
        leaves = leaves_of(tables, part, src, dst)
        structure, edge = structure_of(tables, part, src, dst, leaves)
        del src, dst
        self._save_leaves(part, leaves)
        arrays = {name: value for name, value in vars(structure).items() if np.ndim(value)}
        roots = structure.global_id[: structure.num_roots]
        data = vertex_data(self.source.vertices, roots)
        nnz = 0
        if sp.issparse(features := data.pop("features")):
            nnz = int(features.nnz)
            sparse = features.indptr.astype(np.int64), features.indices.astype(np.int32)
            arrays.update(zip(SPARSE_FEATURES, (*sparse, features.data), strict=True))
        arrays.update({name: value for name, value in data.items() if value is not None})
        if (vertex_type := self.source.vertices.vertex_type) is not None:
            arrays["vertex_type"] = vertex_type[structure.global_id]
        files = write_part(self.folder, part, arrays)
        files |= self._write_tables(part, roots.size, None if position is None else position[edge])
        counts = PartCounts(structure.num_roots, structure.num_leaves, edge.size, nnz)
        return Written(counts, files)

    def _write_tables(
        self, part: int, num_roots: int, position: NDArray[np.int64] | None
    ) -> dict[str, FileRecord]:
        """Copy features, and what is known of edges, a slice at a time."""
        files: dict[str, FileRecord] = {}
        if self.dealt is not None:
            shape = num_roots, self.source.num_features
            files |= self._write_slices(part, "features", shape, self.dealt.rows(part))
        for name, table in (
            ("edge_weight", self.source.edge_weight),
            ("edge_features", self.source.edge_features),
            ("edge_type", self.source.edge_type),
            ("relation_degree", self.relation_degree),
        ):
            if table is None or position is None:
                continue
            columns = (table.num_columns,) if name == "edge_features" else ()
            shape = position.size, *columns
            rows = _pick(table, position)
            files |= self._write_slices(part, name, shape, rows, table.read_as)
        return files

    def _write_slices(
        self,
        part: int,
        name: str,
        shape: tuple[int, ...],
        slices: Iterable[NDArray[Any]],
        dtype: np.dtype[Any] = FLOAT,
    ) -> dict[str, FileRecord]:
        relative = f"{part_folder(part)}/{name}.npy"
        return {relative: write_slices(self.folder / relative, shape, dtype, slices)}

    def _save_leaves(self, part: int, leaves: Leaves) -> None:
        owner = self.tables.owner_of(leaves.place)
        bounds = np.searchsorted(owner, np.arange(self.tables.num_parts + 1))
        self.work.save(f"leaf-bounds-{part:05d}", bounds)
        self.work.save(f"leaf-place-{part:05d}", leaves.place)
        self.work.save(f"leaf-flags-{part:05d}", np.stack([leaves.is_reading, leaves.is_writing]))

    def write_exchange(self, progress: Progress | None) -> list[Written]:
        """Write whose rows each part sends and reduces, once all leaves are known.

        Args:
            progress: Called with one line of text now and then.

        Returns:
            Counts and files of each part.
        """
        num_parts = self.tables.num_parts
        clock = StageProgress("exchange lists", "parts", num_parts, progress)
        bounds = np.stack([self.work.load(f"leaf-bounds-{part:05d}") for part in range(num_parts)])
        complete = []

        @cache
        def leaves(part: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
            """Map the leaves of a part; opening them for each owner anew took most of the time."""
            names = (f"leaf-{kind}-{part:05d}.npy" for kind in ("place", "flags"))
            place, flags = (np.load(self.work.path(name), mmap_mode="r") for name in names)
            return place, flags

        for owner in range(num_parts):
            arrays = self._exchange_of(owner, bounds, leaves)
            written = _load_record(self.work, owner)
            files = {**written.files, **write_part(self.folder, owner, arrays)}
            complete.append(Written(written.counts, _sorted_files(files)))
            clock.add(1)
        clock.end()
        return complete

    def _exchange_of(
        self,
        owner: int,
        bounds: NDArray[np.int64],
        leaves: Callable[[int], tuple[NDArray[np.int32], NDArray[np.bool_]]],
    ) -> dict[str, NDArray[Any]]:
        num_parts = self.tables.num_parts
        counts = np.zeros((2, num_parts), np.int64)
        rows: tuple[list[NDArray[np.int32]], list[NDArray[np.int32]]] = ([], [])
        for part in np.flatnonzero(bounds[:, owner + 1] > bounds[:, owner]):
            own = slice(bounds[part, owner], bounds[part, owner + 1])
            place, flags = leaves(int(part))
            row = (place[own] - self.tables.root_start[owner]).astype(np.int32)
            for role in range(2):
                rows[role].append(row[flags[role, own]])
                counts[role, part] = rows[role][-1].size
        none = np.zeros(0, np.int32)
        return {
            "send_counts": counts[0],
            "send_rows": np.concatenate([none, *rows[0]]),
            "reduce_counts": counts[1],
            "reduce_rows": np.concatenate([none, *rows[1]]),
        }


def leaf_counts(work: WorkFolder, num_parts: int) -> Iterator[NDArray[np.int64]]:
    """Count the leaves of each part by the part of their root.

    Args:
        work: Where parts were written.
        num_parts: How many.

    Yields:
        (3, num_parts) int64 for each part: all leaves, reading ones, writing ones.
    """
    for part in range(num_parts):
        bounds = work.load(f"leaf-bounds-{part:05d}")
        flags = work.load(f"leaf-flags-{part:05d}")
        running = np.zeros((2, flags.shape[1] + 1), np.int64)
        np.cumsum(flags, axis=1, out=running[:, 1:])
        yield np.stack([np.diff(bounds), *np.diff(running[:, bounds], axis=1)])


def _pick(table: Table, rows: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
    """Read some rows of a table, a slice at a time."""
    step = max(SLICE_BYTES // (4 * table.num_columns), 1)
    for begin in range(0, rows.size, step):
        yield table.read(rows[begin : begin + step])


def _record_path(work: WorkFolder, part: int) -> Path:
    return work.path(f"part-{part:05d}.json")


def _save_record(work: WorkFolder, part: int, written: Written) -> None:
    work.save_json(_record_path(work, part).name, asdict(written))


def _load_record(work: WorkFolder, part: int) -> Written:
    values = json.loads(_record_path(work, part).read_text(encoding="utf-8"))
    files = {name: FileRecord(**record) for name, record in values["files"].items()}
    return Written(PartCounts(**values["counts"]), files)


def _sorted_files(files: dict[str, FileRecord]) -> dict[str, FileRecord]:
    """Put files in the order in which `store.write` lists them."""
    known = [*(field.name for field in fields(Part)), *SPARSE_FEATURES]
    return {
        name: files[name] for name in sorted(files, key=lambda name: known.index(Path(name).stem))
    }
