"""The partition directory, the only contract between partitioning and training.

`manifest.json` and one folder of .npy files per part. It is written under a temporary name and
renamed when complete, and every file is checked when it is opened.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.files import read_whole
from distgnn.datasets.graph import Graph
from distgnn.partition.assignment import Assignment
from distgnn.partition.build import Part, PartBuilder, relation_degrees
from distgnn.partition.directory.atomic import (
    MANIFEST_NAME,
    complete_or_absent,
    manifest_of,
    write_manifest,
    write_part,
)
from distgnn.partition.directory.files import REMEDY, open_array
from distgnn.partition.directory.layout import (
    LINKS,
    MASKS,
    SPARSE_FEATURES,
    check_ranges,
    part_arrays,
    part_folder,
    part_specs,
    sparse_features,
)
from distgnn.partition.directory.manifest import (
    FORMAT,
    FORMAT_VERSION,
    FileRecord,
    Manifest,
    PartCounts,
)
from distgnn.partition.directory.whole import whole_part
from distgnn.partition.quality import Quality
from distgnn.partition.threads import affordable_threads, in_order

__all__ = [
    "FORMAT_VERSION",
    "MANIFEST_NAME",
    "Manifest",
    "Part",
    "check_target",
    "foreign_names",
    "is_partition_directory",
    "read_manifest",
    "read_part",
    "relation_degrees",
    "whole_part",
    "write",
]


def write(
    directory: str | os.PathLike[str],
    graph: Graph,
    assignment: Assignment,
    *,
    method: str,
    options: Mapping[str, Any],
    seed: int,
    quality: Quality,
    order: NDArray[np.int64] | None = None,
    order_name: str = "source",
    overwrite: bool = False,
    progress: Callable[[str], None] | None = None,
    threads: int = 1,
    memory_bytes: int | None = None,
) -> Manifest:
    """Build the parts and write them, one a thread at a time, as a partition directory.

    Args:
        directory: Where to; its parent folders are made. An empty directory is used.
        graph: The whole graph.
        assignment: Parts of its edges and roots.
        method: Partitioner that made the assignment, for the record.
        options: Its options, JSON values, for the record.
        seed: Its seed, for the record.
        quality: Result of `quality.measure` for the assignment.
        order: (num_vertices,) int64. As for `build_parts`.
        order_name: Its name, for the record.
        overwrite: Whether an existing partition directory may be replaced.
        progress: Called with one line of text after each part.
        threads: Largest number to use; the files are the same for any number.
        memory_bytes: Bytes that parts built at the same time may take together, by an estimate. One
            is built however few there are. None for any amount.

    Returns:
        The manifest as written.

    Raises:
        InputError: If the directory exists and may not be replaced or cannot be written, or the
            assignment or the order is of another graph. Nothing is left behind and an existing
            directory stays as it was, also one that another process made meanwhile.
    """
    target = Path(directory).absolute()
    check_target(target, overwrite=overwrite)
    assignment.check_graph(graph)
    counts: list[PartCounts] = []
    files: dict[str, FileRecord] = {}
    with complete_or_absent(target, lambda: check_target(target, overwrite=overwrite)) as folder:
        builder = PartBuilder(graph, assignment, order=order, threads=threads)

        def put(number: int) -> tuple[PartCounts, dict[str, FileRecord]]:
            part = builder.build(number)
            return _counts(part), write_part(folder, number, part_arrays(part))

        threads = affordable_threads(threads, builder.bytes_of_largest(), memory_bytes)
        with in_order(put, range(assignment.num_parts), threads) as parts:
            for number, (sizes, records) in enumerate(parts, 1):
                counts.append(sizes)
                files.update(records)
                if progress is not None:
                    progress(f"part {number} of {assignment.num_parts}: {sizes.num_edges} edges")
        manifest = manifest_of(
            graph,
            counts,
            files,
            num_edges=graph.num_edges,
            num_features=graph.num_features,
            num_edge_features=graph.num_edge_features,
            num_relations=graph.num_relations,
            method=method,
            options=dict(options),
            seed=seed,
            order=order_name,
            quality=quality.to_json(),
        )
        write_manifest(folder, manifest)
    return manifest


def check_target(directory: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Check that a partition directory may be written, before hours go into partitioning.

    Args:
        directory: Where the partition is to go.
        overwrite: Whether an existing partition directory may be replaced.

    Raises:
        InputError: If something else is there, or a partition that may not be replaced or has
            other files in it, or the place cannot be written.
    """
    target = Path(directory).absolute()
    if target.is_symlink() or target.exists():
        if is_partition_directory(target):
            if not overwrite:
                raise InputError(
                    f"{str(target)!r} already holds a partition; allow overwriting or choose "
                    "another directory"
                )
            if others := foreign_names(target):
                raise InputError(
                    f"overwriting would remove '{others[0]}' in '{directory}', which is not of the "
                    "partition; move it away or choose another directory"
                )
        elif target.is_symlink() or not target.is_dir() or any(target.iterdir()):
            raise InputError(
                f"{str(target)!r} exists and is not a partition directory, so it is left alone; "
                "choose another directory"
            )
    ancestor = next(path for path in target.parents if path.exists())
    if not ancestor.is_dir() or not os.access(ancestor, os.W_OK | os.X_OK):
        raise InputError(
            f"cannot write partition directory {str(target)!r}: {str(ancestor)!r} is not a "
            "writable directory; choose another directory"
        )


def is_partition_directory(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a partition directory of any format version.

    Args:
        path: Any path.

    Returns:
        True if it is a directory with a manifest of a partition.
    """
    try:
        values = _parse(read_whole(Path(path) / MANIFEST_NAME))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and values.get("format") == FORMAT


def foreign_names(directory: str | os.PathLike[str]) -> list[str]:
    """List what is in a partition directory, but not of the partition.

    Args:
        directory: A partition directory of any format version.

    Returns:
        Files and folders that the manifest does not name, by their paths in it, in order.
    """
    folder = Path(directory)
    files = _parse(read_whole(folder / MANIFEST_NAME)).get("files")
    own = {Path(name) for name in files} if isinstance(files, dict) else set()
    own |= {Path(MANIFEST_NAME), *(path.parent for path in own)}
    found = (path.relative_to(folder) for path in folder.rglob("*"))
    return sorted(str(path) for path in found if path not in own)


def read_manifest(directory: str | os.PathLike[str]) -> Manifest:
    """Read and check the manifest of a partition directory.

    Args:
        directory: The partition directory.

    Returns:
        The manifest.

    Raises:
        InputError: If it is missing, not JSON, of another format version or incomplete.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise InputError(
            f"there is no partition directory {str(folder)!r}; make one with distgnn partition"
        )
    path = folder / MANIFEST_NAME
    try:
        values = _parse(read_whole(path))
    except OSError as error:
        raise InputError(
            f"{str(path)!r} cannot be read: {error.strerror}; give a partition directory, or "
            "partition the graph again"
        ) from error
    except ValueError as error:
        raise InputError(f"{str(path)!r} is not JSON: {error}; {REMEDY}") from error
    try:
        return Manifest.from_json(values)
    except InputError as error:
        raise InputError(f"{str(path)!r} cannot be used: {error}") from error


def read_part(
    directory: str | os.PathLike[str],
    part: int,
    *,
    verify: bool = True,
    every_edge: bool = False,
    manifest: Manifest | None = None,
) -> Part:
    """Map one part into memory; no file of another part is touched.

    Args:
        directory: The partition directory.
        part: Number of the part.
        verify: Whether to read every file of the part once, for its checksum and the range of its
            row numbers. Sizes, dtypes and shapes are always checked.
        every_edge: Whether the range of the row numbers of every edge is looked at without this,
            too. Who hands them to compiled code needs it.
        manifest: The manifest, if it was already read.

    Returns:
        The part. Its arrays are mapped copy-on-write: writing to them leaves the files alone.

    Raises:
        InputError: If there is no such part or one of its files is missing, truncated, altered,
            of the wrong dtype or shape, or outside the directory.
    """
    folder = Path(directory)
    if manifest is None:
        manifest = read_manifest(folder)
    if not 0 <= part < manifest.num_parts:
        raise InputError(
            f"part {part} does not exist in {str(folder)!r}, which was made for "
            f"{manifest.num_parts} parts; start {manifest.num_parts} ranks"
        )
    arrays: dict[str, Any] = {}
    for name, spec in part_specs(manifest, part).items():
        relative = f"{part_folder(part)}/{name}.npy"
        record = manifest.files.get(relative)
        if record is None:
            raise InputError(
                f"{str(folder / MANIFEST_NAME)!r} does not list {relative!r}; {REMEDY}"
            )
        path = _inside(folder, relative)
        arrays[name] = open_array(path, record, verify=verify)
        if mismatch := spec.mismatch(arrays[name]):
            raise InputError(f"the array in {str(path)!r} {mismatch}; {REMEDY}")
    try:
        return _assemble(manifest, part, arrays, every_edge=verify or every_edge)
    except InputError as error:
        raise InputError(
            f"the files in {str(folder / part_folder(part))!r} contradict each other: {error}; "
            f"{REMEDY}"
        ) from error


def _parse(text: bytes) -> Any:
    """Parse JSON whose numbers are finite; raise ValueError for anything else."""
    try:
        return json.loads(text, parse_float=_finite, parse_constant=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _assemble(manifest: Manifest, part: int, arrays: dict[str, Any], *, every_edge: bool) -> Part:
    optional = ("edge_weight", "features", "labels", "vertex_id", "vertex_type", *MASKS, *LINKS)
    values = {**dict.fromkeys(optional), **arrays}
    if manifest.has_sparse_features:
        values["features"] = sparse_features(arrays, manifest.num_features)
        for name in SPARSE_FEATURES:
            del values[name]
    counts = manifest.parts[part]
    assembled = Part(
        part=part,
        num_parts=manifest.num_parts,
        num_roots=counts.num_roots,
        num_leaves=counts.num_leaves,
        **values,
    )
    check_ranges(assembled, manifest, every_edge=every_edge)
    return assembled


def _counts(part: Part) -> PartCounts:
    features = part.features
    nnz = 0 if features is None or isinstance(features, np.ndarray) else int(features.nnz)
    return PartCounts(part.num_roots, part.num_leaves, part.num_edges, nnz)


def _inside(folder: Path, relative: str) -> Path:
    """Resolve a file of a partition, refusing links that lead out of its directory."""
    path = folder / relative
    # Other than Path.resolve, this takes links in a circle, which opening then refuses.
    place, inside = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    if not place.is_relative_to(inside):
        raise InputError(f"file {str(path)!r} is a link out of its partition directory; {REMEDY}")
    return path
