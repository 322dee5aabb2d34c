"""Costs of a partition: rows moved, balance, and bytes and memory for given layer widths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.distinct import distinct
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition.arcs import take_parts
from distgnn.partition.assignment import Assignment
from distgnn.partition.halo import Slots, counts_by_part, distinct_slots

FLOAT_BYTES = 4
# CSR of features: a float32 value and an int32 column per stored entry.
SPARSE_ENTRY_BYTES = 8
# Both directions: two int32 neighbours and the int64 position of the transpose.
EDGE_BYTES = 16
# Both directions: two int64 row pointers.
CLONE_BYTES = 16
# Of a pair of parts, for which rows are counted, and written down as text at the end. With 2000
# parts it was 190 bytes, in memory and out of core.
PAIR_BYTES = 200
MAX_WIDTH = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Quality:
    """Counts of a partition. A balance is the largest part over the mean; 1 is perfect."""

    replication_factor: float
    """Clones over vertices."""
    halo_rows: int
    """Reading leaves plus writing leaves: rows one layer moves in one direction of the pass."""
    halo_rows_at_destination: int
    """The same with these roots and every edge at its destination's root (an edge cut)."""
    edge_balance: float
    """Largest part's edges over the mean."""
    vertex_balance: float
    """Largest part's roots over the mean."""
    clone_balance: float
    """Largest part's clones, roots and leaves, over the mean."""
    train_balance: float
    """Largest part's training roots over the mean, in the worst split; 1 without any."""
    num_edges: NDArray[np.int64]
    """(num_parts,) int64."""
    num_roots: NDArray[np.int64]
    """(num_parts,) int64."""
    num_leaves: NDArray[np.int64]
    """(num_parts,) int64."""
    read_rows: NDArray[np.int64]
    """(num_parts, num_parts) int64. [p][q]: rows from roots on p to reading leaves on q."""
    write_rows: NDArray[np.int64]
    """(num_parts, num_parts) int64. [p][q]: rows from writing leaves on p to roots on q."""

    def to_json(self) -> dict[str, Any]:
        """Turn into plain numbers and lists."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in values.items()
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Quality:
        """Read back what `to_json` wrote.

        Args:
            values: A mapping with at least the fields of this class.

        Returns:
            The quality.

        Raises:
            InputError: If a field is missing or holds something else than `to_json` writes.
        """
        missing = [field.name for field in fields(cls) if field.name not in values]
        if missing:
            raise InputError(f"quality lacks {', '.join(missing)}; partition the graph again")
        per_part = values["num_edges"]
        num_parts = len(per_part) if isinstance(per_part, list) else 0
        known = {
            field.name: _from_json(field.name, values[field.name], str(field.type), num_parts)
            for field in fields(cls)
        }
        return cls(**known)


@dataclass(frozen=True)
class Estimate:
    """Bytes that training on a partition sends and takes, by the formulas of `estimate`."""

    halo_bytes_per_epoch: int
    """Bytes of rows sent by all ranks together, forward and backward."""
    memory_bytes: tuple[int, ...]
    """Bytes on each rank, without the interpreter and the libraries."""


def measure(graph: Graph, assignment: Assignment) -> Quality:
    """Count what an assignment costs.

    Args:
        graph: The graph.
        assignment: Parts of its edges and roots.

    Returns:
        The quality.

    Raises:
        InputError: If the assignment is of another graph.
    """
    assignment.check_graph(graph)
    num_parts, num_vertices = assignment.num_parts, graph.num_vertices
    root_part = assignment.root_part
    readers = distinct_slots(graph.src, assignment.edge_part, num_vertices).away_from(root_part)
    writers = distinct_slots(graph.dst, assignment.edge_part, num_vertices).away_from(root_part)
    leaves = distinct(np.concatenate([_key(readers, num_vertices), _key(writers, num_vertices)]))
    part = take_parts(root_part, graph.dst)
    at_destination = distinct_slots(graph.src, part, num_vertices)
    return quality_of(
        num_edges=counts_by_part(assignment.edge_part, num_parts),
        num_roots=np.bincount(root_part, minlength=num_parts),
        num_leaves=np.bincount(leaves // num_vertices, minlength=num_parts),
        read_rows=_pair_counts(root_part[readers.vertex], readers.part, num_parts),
        write_rows=_pair_counts(writers.part, root_part[writers.vertex], num_parts),
        halo_rows_at_destination=at_destination.away_from(root_part).vertex.size,
        train_balance=train_balance(graph, root_part, num_parts),
    )


def quality_of(
    *,
    num_edges: NDArray[Any],
    num_roots: NDArray[Any],
    num_leaves: NDArray[Any],
    read_rows: NDArray[np.int64],
    write_rows: NDArray[np.int64],
    halo_rows_at_destination: int,
    train_balance: float,
) -> Quality:
    """Complete what was counted, for which no edges are needed.

    Args:
        num_edges: (num_parts,) as the next two.
        num_roots: (num_parts,)
        num_leaves: (num_parts,)
        read_rows: (num_parts, num_parts) int64.
        write_rows: (num_parts, num_parts) int64.
        halo_rows_at_destination: With every edge at its destination's root.
        train_balance: Result of the function of this name.

    Returns:
        The quality.
    """
    return Quality(
        replication_factor=1.0 + float(num_leaves.sum() / num_roots.sum()),
        halo_rows=int(read_rows.sum() + write_rows.sum()),
        halo_rows_at_destination=int(halo_rows_at_destination),
        edge_balance=_balance(num_edges),
        vertex_balance=_balance(num_roots),
        clone_balance=_balance(num_roots + num_leaves),
        train_balance=train_balance,
        num_edges=num_edges.astype(np.int64),
        num_roots=num_roots.astype(np.int64),
        num_leaves=num_leaves.astype(np.int64),
        read_rows=read_rows,
        write_rows=write_rows,
    )


def estimate(
    quality: Quality,
    layer_widths: Sequence[int],
    *,
    num_features: int = 0,
    feature_nnz: Sequence[int] | None = None,
) -> Estimate:
    """Estimate the traffic and the memory of synchronous float32 training.

    The aggregations take rows of widths w_1..w_L, of which w_max is the largest. Forward and
    backward take

        bytes per epoch = 2 * halo_rows * 4 * (w_1 + ... + w_L)

    A layer that exchanges nothing (a static input) is left out of the widths.
    The memory of a rank is the sum of

    - features: roots * num_features * 4, or 8 per stored entry
    - activations: 2 * roots * 4 * (w_1 + ... + w_L), as each layer keeps its input and its total
    - leaf buffers: 2 * leaves * 4 * w_max, for rows and partials of the layer in progress
    - both CSR directions: 16 per edge, 16 per clone

    Args:
        quality: Counts of the partition.
        layer_widths: (num_layers,) width of the rows that each aggregation takes.
        num_features: Width of dense features; 0 without features.
        feature_nnz: (num_parts,) stored entries of sparse features, instead of num_features.

    Returns:
        Bytes per epoch and per rank.

    Raises:
        InputError: If a width is not in 1..MAX_WIDTH.
    """
    if not all(1 <= width <= MAX_WIDTH for width in layer_widths):
        raise InputError(
            f"layer widths must be positive, got {list(layer_widths)}; leave unused layers out and "
            f"take at most {MAX_WIDTH}"
        )
    total_width = sum(layer_widths)
    widest = max(layer_widths, default=0)
    # Python's integers: what a damaged manifest claims may exceed int64.
    roots, leaves, edges = (
        counts.astype(object)
        for counts in (quality.num_roots, quality.num_leaves, quality.num_edges)
    )
    if feature_nnz is None:
        features = roots * num_features * FLOAT_BYTES
    else:
        features = np.asarray(feature_nnz, object) * SPARSE_ENTRY_BYTES
    memory = (
        features
        + 2 * roots * FLOAT_BYTES * total_width
        + 2 * leaves * FLOAT_BYTES * widest
        + edges * EDGE_BYTES
        + (roots + leaves) * CLONE_BYTES
    )
    return Estimate(
        halo_bytes_per_epoch=2 * quality.halo_rows * FLOAT_BYTES * total_width,
        memory_bytes=tuple(int(value) for value in memory),
    )


def _from_json(name: str, value: Any, kind: str, num_parts: int) -> Any:
    """Check and convert one field of a Quality."""
    shape: tuple[int, ...] = ()
    if kind not in ("int", "float"):
        shape = (num_parts,) * (2 if name in ("read_rows", "write_rows") else 1)
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths, or nested too deep
        array = np.asarray(None)
    kinds = "if" if kind == "float" else "i"
    if array.shape != shape or array.dtype.kind not in kinds or not 0 <= array.min() < np.inf:
        wanted = "a number" if kind == "float" else "a count"
        raise InputError(
            f"quality {name!r} is not {f'counts of shape {shape}' if shape else wanted}; partition "
            "the graph again"
        )
    return array if shape else array.item()


def train_balance(graph: Graph, root_part: NDArray[np.int32], num_parts: int) -> float:
    """Measure how unevenly training vertices are spread.

    Args:
        graph: Its masks are read, and nothing else.
        root_part: (num_vertices,) int32.
        num_parts: How many there are.

    Returns:
        Largest part over the mean in the worst split; 1 without training vertices.
    """
    if graph.train_mask is None:
        return 1.0
    return max(
        _balance(np.bincount(root_part[mask], minlength=num_parts)) for mask in graph.train_mask
    )


def _balance(counts: NDArray[Any]) -> float:
    total = int(counts.sum())
    return float(counts.max()) * counts.size / total if total else 1.0


def _key(slots: Slots, num_vertices: int) -> NDArray[np.int64]:
    return slots.part * num_vertices + slots.vertex


def _pair_counts(first: NDArray[Any], second: NDArray[Any], num_parts: int) -> NDArray[np.int64]:
    pair = first.astype(np.int64) * num_parts + second
    counts = np.bincount(pair, minlength=num_parts * num_parts).astype(np.int64)
    return counts.reshape(num_parts, num_parts)
