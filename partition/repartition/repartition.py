"""Another number of parts, made of the parts there are, without the source."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.disk import check_room
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition import assign, orders
from distgnn.partition.assignment import Assignment
from distgnn.partition.directory.manifest import Manifest, PartCounts
from distgnn.partition.directory.store import check_target, read_manifest, read_part, write
from distgnn.partition.methods import auto
from distgnn.partition.quality import measure
from distgnn.partition.repartition.gather import Gathered, feature_bytes, gather
from distgnn.partition.repartition.regroup import group, num_pieces, shares
from distgnn.partition.stopwatch import Stopwatch

METHOD = "repartition"
"""Name of the method in the manifest."""
# Options of the source that say what its edges and masks are.
_KEPT_OPTIONS = (
    *("deduplicate", "drop_self_loops", "undirected", "inverse_relations", "one_hot"),
    *("split", "edge_split"),
)
# Bytes, rounded up; measured on 1.4 million edges of 60000 vertices in communities, 8 parts cut to
# 4, 6 and 16: 98 an edge, and 118 with refinement, after 250 a vertex and its features.
_EDGE_BYTES = 105
_REFINED_EDGE_BYTES = 135
_VERTEX_BYTES = 250
# While a part is split: of each edge its ends, weight or type, part and piece; and the part's own
# edges once as they are stored and once as a graph.
_HELD_EDGE_BYTES = 40
_LOCAL_EDGE_BYTES = 24
# A part with more edges than that share of a new one is split, so that pieces of any part have at
# most this share: groups of pieces then are about as large as each other.
_TOO_LARGE, _PIECE = 1.25, 0.25
# Matrices of pieces times pieces: rows read and written, their sums, and those to be grouped.
_MATRICES = 5


@dataclass(frozen=True, kw_only=True)
class Wish:
    """Settings of a repartition."""

    num_parts: int
    """At least 1."""
    seed: int = 0
    """Seed of methods and orders."""
    refine: bool = True
    """Whether to move edges at the end where fewer rows travel."""
    imbalance: float | None = None
    """Largest part's edges over the mean after refinement; None for its own default."""
    order: str = orders.DEFAULT_ORDER
    """Order of the vertices inside a part."""


def peak_bytes(manifest: Manifest, wish: Wish) -> int:
    """Estimate the most memory that `repartition` takes, the interpreter aside.

    Args:
        manifest: Manifest of the partition.
        wish: How it is to be cut again.

    Returns:
        Bytes.
    """
    per_edge = _REFINED_EDGE_BYTES if wish.refine else _EDGE_BYTES
    nnz = sum(part.feature_nnz for part in manifest.parts)
    largest = max(part.num_roots for part in manifest.parts) * manifest.num_parts
    rows = max(largest // wish.num_parts, manifest.num_vertices // wish.num_parts)
    dense = 0 if manifest.has_sparse_features else rows * manifest.num_features * 4
    dense += 4 * manifest.num_edge_features * manifest.num_edges // wish.num_parts
    # Rows that travel between pieces, and what grouping makes of them.
    pieces = _num_pieces(manifest, wish.num_parts)
    matrices = _MATRICES * np.dtype(np.int64).itemsize * pieces**2
    # Whole, and once more in the parts or while they are checked.
    values = 2 * sum(
        record.bytes
        for name, record in manifest.files.items()
        if name.endswith(("/labels.npy", "/vertex_id.npy"))
    )
    vertices = _VERTEX_BYTES * manifest.num_vertices + values
    edges = per_edge * manifest.num_edges
    if pieces > manifest.num_parts:
        held = _HELD_EDGE_BYTES * manifest.num_edges
        edges = max(edges, held + max(map(_splitting_bytes, manifest.parts)))
    return edges + vertices + 20 * nnz + dense + matrices


def _splitting_bytes(part: PartCounts) -> int:
    """Estimate what the best method takes to split a part."""
    by_method = auto.NEEDS[0].bytes(part.num_roots + part.num_leaves, part.num_edges)
    return _LOCAL_EDGE_BYTES * part.num_edges + by_method


def repartition(
    directory: str | os.PathLike[str],
    out: str | os.PathLike[str],
    wish: Wish,
    *,
    available: Callable[[], int],
    overwrite: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Manifest:
    """Merge or split the parts of a partition directory.

    Parts are split one at a time, by the best method that fits into memory, into pieces of about
    equal size. METIS groups pieces by the rows that travel between them; edges and roots come
    along. Refinement then moves both where fewer rows travel. Where parts are of about equal size:
    if the new number divides the old one, whole parts are merged; if it is a multiple, each piece
    is a part.

    Args:
        directory: A partition directory.
        out: Where the other one goes.
        wish: How it is cut.
        available: Returns the bytes that are free, beside what is held by then.
        overwrite: Whether an existing partition directory may be replaced.
        progress: Called with one line of text after each stage.

    Returns:
        The manifest as written.

    Raises:
        InputError: If the directory is damaged, has fewer vertices than parts are wanted, or is
            itself to be overwritten, or the other one cannot be written or lacks the room.
    """
    manifest = read_manifest(directory)
    _check(directory, out, manifest, wish)
    check_target(out, overwrite=overwrite)
    watch = Stopwatch(progress)
    beside = next(path for path in Path(out).absolute().parents if path.exists())
    # Once to put them together, once more in the other parts.
    check_room(beside / Path(out).name, 2 * feature_bytes(manifest))
    gathered = gather(directory, manifest, scratch=beside)
    watch.note(f"gathered {manifest.num_edges} edges from {manifest.num_parts} parts")
    assignment = _cut(gathered, directory, manifest, wish, available, watch)
    if wish.refine:
        from distgnn.partition.refine.refinement import refine_after

        assignment = refine_after(
            gathered.graph, assignment, edge_balance=wish.imbalance, progress=progress
        )
        watch = Stopwatch(progress)
    graph = gathered.graph
    order = orders.arrange(wish.order, graph, assignment, seed=wish.seed)
    watch.note(f"vertices in {wish.order} order")
    return write(
        out,
        graph,
        assignment,
        method=METHOD,
        options=_options(manifest, wish),
        seed=wish.seed,
        quality=measure(graph, assignment),
        order=order,
        order_name=wish.order,
        overwrite=overwrite,
        progress=progress,
    )


def _check(
    directory: str | os.PathLike[str],
    out: str | os.PathLike[str],
    manifest: Manifest,
    wish: Wish,
) -> None:
    if wish.num_parts > manifest.num_vertices:
        raise InputError(
            f"more parts than vertices: {wish.num_parts} are asked for, but graph "
            f"{manifest.name!r} has {manifest.num_vertices} vertices; ask for fewer"
        )
    if Path(out).resolve() == Path(directory).resolve():
        raise InputError(
            f"{str(out)!r} is the partition that is read; write the other one somewhere else"
        )


def _options(manifest: Manifest, wish: Wish) -> dict[str, Any]:
    """Return options for the manifest: those of the source, and where the parts came from."""
    kept = {name: manifest.options[name] for name in _KEPT_OPTIONS if name in manifest.options}
    return {
        **kept,
        "refine": wish.refine,
        "imbalance": wish.imbalance,
        "from_method": manifest.method,
        "from_parts": manifest.num_parts,
        "from_seed": manifest.seed,
        "from_partition": manifest.fingerprint,
    }


def _num_pieces(manifest: Manifest, wanted: int) -> int:
    """Say into how many pieces the parts must be split, which may be of unequal size."""
    count = num_pieces(manifest.num_parts, wanted)
    edges = np.array([part.num_edges for part in manifest.parts])
    mean = edges.sum() / wanted
    if edges.max() <= max(_TOO_LARGE * mean, 1):
        return count
    return max(count, int(np.maximum(np.ceil(edges / (_PIECE * mean)), 1).sum()))


def _cut(
    gathered: Gathered,
    directory: str | os.PathLike[str],
    manifest: Manifest,
    wish: Wish,
    available: Callable[[], int],
    watch: Stopwatch,
) -> Assignment:
    """Split parts into pieces and group these."""
    pieces, rows = gathered.assignment, None
    sizes = np.array([part.num_edges + part.num_roots for part in manifest.parts])
    wanted = _num_pieces(manifest, wish.num_parts)
    if wanted > manifest.num_parts:
        clones = [part.num_roots + part.num_leaves for part in manifest.parts]
        counts = shares(sizes, np.maximum(clones, 1), wanted)
        pieces = _split(gathered, directory, manifest, counts, (wish.seed, available))
        watch.note(f"split into {pieces.num_parts} pieces")
    else:
        rows = np.add(manifest.quality["read_rows"], manifest.quality["write_rows"])
    if pieces.num_parts <= wish.num_parts:
        return Assignment(wish.num_parts, pieces.edge_part, pieces.root_part)
    if rows is None:
        quality = measure(gathered.graph, pieces)
        rows = quality.read_rows + quality.write_rows
    groups = group(
        rows,
        np.bincount(pieces.edge_part, minlength=pieces.num_parts),
        np.bincount(pieces.root_part, minlength=pieces.num_parts),
        wish.num_parts,
        seed=wish.seed,
    )
    watch.note(f"grouped into {wish.num_parts} parts")
    return Assignment(wish.num_parts, groups[pieces.edge_part], groups[pieces.root_part])


def _split(
    gathered: Gathered,
    directory: str | os.PathLike[str],
    manifest: Manifest,
    counts: NDArray[np.int64],
    seed_and_memory: tuple[int, Callable[[], int]],
) -> Assignment:
    """Split each part alone into so many pieces."""
    seed, available = seed_and_memory
    first = np.concatenate([[0], np.cumsum(counts)])
    edge_piece = first[gathered.assignment.edge_part].astype(np.int32)
    root_piece = first[gathered.assignment.root_part].astype(np.int32)
    for number in np.flatnonzero(counts > 1).tolist():
        part = read_part(directory, number, verify=False, manifest=manifest)
        local = Graph(
            name=f"part {number} of {manifest.name}",
            num_vertices=part.num_clones,
            src=part.indices.astype(np.int64),
            dst=np.repeat(np.arange(part.num_clones), np.diff(part.indptr)),
        )
        method = auto.choose(local.num_vertices, local.num_edges, available()).method
        found = assign(method, local, int(counts[number]), seed=seed, refine=False)
        edges = slice(int(gathered.start[number]), int(gathered.start[number + 1]))
        edge_piece[edges] += found.edge_part
        root_piece[part.global_id[: part.num_roots]] += found.root_part[: part.num_roots]
    return Assignment(int(counts.sum()), edge_piece, root_piece)
