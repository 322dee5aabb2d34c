"""A part's edges, divided by whether their ends are roots or leaves, to hide the wire."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from distgnn.edges.walk_orders import WalkOrders
from distgnn.exchange.route import Route, plan_route
from distgnn.kernels.csr import Csr
from distgnn.kernels.devices import moved
from distgnn.kernels.tensors import own
from distgnn.partition.directory.store import relation_degrees

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from distgnn.comm.group import Group
    from distgnn.kernels.csr import Walker
    from distgnn.partition.directory.store import Part


@dataclass(frozen=True)
class Half:
    """One half of an exchange: the route, and the root rows at its root end.

    Attributes:
        route: Rows per peer, from roots to leaves.
        root_rows: (num_out,) int32. Local root of each row of the packed buffer.
        num_leaves: Rows at the leaf end: the leaves of this part that take part, by owner.
    """

    route: Route
    root_rows: Tensor
    num_leaves: int

    @cached_property
    def winner_mark(self) -> Tensor:
        """(num_out, 1) int32. What stands for each row of the buffer that wins a maximum."""
        marks = torch.arange(self.route.num_out, dtype=torch.int32, device=self.root_rows.device)
        return -2 - marks[:, None]

    def to(self, device: torch.device) -> Half:
        """Return the half on a device; itself if it is there."""
        if self.root_rows.device == device:
            return self
        return replace(self, root_rows=self.root_rows.to(device))


@dataclass(frozen=True)
class Direction:
    """All that one direction of the pass needs: rows are `target_from_source`.

    Backward is the same shape with transposed blocks and the two halves swapped, because
    `send_to_leaves` and `reduce_to_roots` are each other's adjoint.

    Attributes:
        root_from_root: Edges between roots: they need no wire.
        leaf_from_root: Edges into leaves: their partials leave first.
        root_from_leaf: Edges out of leaves: they wait for rows to arrive.
        leaf_from_leaf: Edges between leaves; empty unless the partitioner puts an edge on a part
            that owns neither end.
        send: Rows that reading leaves get from their roots.
        reduce: Partials that roots get from writing leaves (its route is from roots to leaves).
        has_loops: Whether `distgnn.edges.self_loops.with_loops` added edges.
    """

    root_from_root: Csr
    leaf_from_root: Csr
    root_from_leaf: Csr
    leaf_from_leaf: Csr
    send: Half
    reduce: Half
    has_loops: bool = False

    @property
    def num_edges(self) -> int:
        """Edges of all blocks."""
        roots, leaves = self.root_from_root.num_edges, self.leaf_from_root.num_edges
        return roots + leaves + self.root_from_leaf.num_edges + self.leaf_from_leaf.num_edges


def transposed(name: str) -> str:
    """Name the block of the other direction that has the same edges from their other end."""
    return "_from_".join(reversed(name.split("_from_")))


class Blocks(NamedTuple):
    """Both directions of the pass over one part."""

    forward: Direction
    backward: Direction

    def to(self, device: torch.device) -> Blocks:
        """Return the blocks on a device; these if they are there."""
        if self.forward.root_from_root.indptr.device == device:
            return self
        directions = (replace(each, **moved(each, device)) for each in self)
        return Blocks(*directions)


def plan_blocks(
    part: Part,
    group: Group,
    *,
    has_positions: bool = True,
    has_types: bool = False,
    has_features: bool = False,
    walk_orders: Walker | None = None,
) -> Blocks:
    """Divide a part's edges and agree with the peers on the rows that travel.

    Collective.

    Args:
        part: This rank's part.
        group: One rank per part.
        has_positions: Whether transposed blocks tell where their edges stand in the forward ones;
            the gradient of attention asks, and it takes 8 bytes an edge.
        has_types: Whether forward blocks tell the relations of their edges, which takes 8 bytes an
            edge; only of a typed graph.
        has_features: Whether forward blocks have the features of their edges, if these have some.
        walk_orders: Orders in which kernels walk the blocks; None for one of their own.

    Returns:
        The edges and routes of both directions.
    """
    owner = np.repeat(np.arange(part.num_parts), part.leaf_counts)
    reading, writing = np.asarray(part.is_reading), np.asarray(part.is_writing)
    send = plan_half(group, part.send_counts, part.send_rows, owner[reading])
    reduce = plan_half(group, part.reduce_counts, part.reduce_rows, owner[writing])
    part = part if has_types else replace(part, edge_type=None)
    part = part if has_features else replace(part, edge_features=None)
    divided = _divide(
        part, reading, writing, has_positions=has_positions, walk_orders=walk_orders or WalkOrders()
    )
    return _directions(divided, send, reduce)


def isolated_part(part: Part) -> Part:
    """Take a part as a graph of its own, every clone a root: nothing travels (0c).

    Args:
        part: Any part.

    Returns:
        A part without leaves, whose degrees are those of its own edges. Its features, labels and
        masks are still those of the roots it had.
    """
    nothing = np.zeros(part.num_parts, np.int64)
    no_leaves, no_rows = np.zeros(0, bool), np.zeros(0, np.int32)
    row = np.repeat(np.arange(part.num_clones), np.diff(part.indptr))
    loops = np.bincount(row[row == part.indices], minlength=part.num_clones)
    kind = part.edge_type
    return replace(
        part,
        num_roots=part.num_clones,
        num_leaves=0,
        leaf_counts=nothing,
        is_reading=no_leaves,
        is_writing=no_leaves,
        send_counts=nothing,
        send_rows=no_rows,
        reduce_counts=nothing,
        reduce_rows=no_rows,
        in_degree=np.diff(part.indptr),
        out_degree=np.diff(part.t_indptr),
        self_loops=loops.astype(np.int32),
        relation_degree=None if kind is None else relation_degrees(row, kind),
    )


def without_edges(part: Part) -> Part:
    """Free what blocks hold, and what only a trainer reads.

    Args:
        part: Any part.
    """
    no_ids, no_offsets = np.zeros(0, np.int32), np.zeros(1, np.int64)
    return replace(
        part,
        indptr=no_offsets,
        indices=no_ids,
        t_indptr=no_offsets,
        t_indices=no_ids,
        t_edge=None,
        edge_features=None,
        edge_type=None,
        relation_degree=None,
        features=None,
        labels=None,
    )


def plan_half(
    group: Group, counts: NDArray[np.int64], rows: NDArray[np.int32], owner: NDArray[np.int64]
) -> Half:
    """Agree with the peers on one half of an exchange; collective.

    Args:
        group: One rank per part.
        counts: (num_parts,) int64. Rows that this part's roots have on each part.
        rows: (sum of counts,) int32. Those roots.
        owner: (num_leaves,) int64. Part of the root of each leaf here that takes part.

    Returns:
        The half.

    Raises:
        InputError: If the parts come from different partitions.
    """
    expected = np.bincount(owner, minlength=group.size)
    route = plan_route(group, [int(c) for c in counts], [int(c) for c in expected])
    return Half(route, own(rows, np.int32), int(expected.sum()))


class _Divided(NamedTuple):
    """The four blocks of one part as (forward, transpose) pairs."""

    root_from_root: tuple[Csr, Csr]
    leaf_from_root: tuple[Csr, Csr]
    root_from_leaf: tuple[Csr, Csr]
    leaf_from_leaf: tuple[Csr, Csr]


def _directions(blocks: _Divided, send: Half, reduce: Half) -> Blocks:
    pairs = blocks._asdict()
    ahead = {name: pair[0] for name, pair in pairs.items()}
    back = {transposed(name): pair[1] for name, pair in pairs.items()}
    forward = Direction(**ahead, send=send, reduce=reduce)
    backward = Direction(**back, send=reduce, reduce=send)
    return Blocks(forward, backward)


def _divide(
    part: Part,
    reading: NDArray[np.bool_],
    writing: NDArray[np.bool_],
    *,
    has_positions: bool,
    walk_orders: Walker,
) -> _Divided:
    """Cut the clone-by-clone matrix into four; leaves are renumbered in their roles."""
    sources, targets = _Ends(part, reading), _Ends(part, writing)
    is_weighted = part.edge_weight is not None
    t_edge = part.edges_of_transpose() if has_positions or is_weighted else None

    def block(target_is_leaf: bool, source_is_leaf: bool) -> tuple[Csr, Csr]:
        rows, columns = targets.rows(target_is_leaf), sources.columns(source_is_leaf)
        indptr, indices, kept = _select(part.indptr, part.indices, rows, columns)
        t_rows, t_columns = sources.rows(source_is_leaf), targets.columns(target_is_leaf)
        t_indptr, t_indices, t_kept = _select(part.t_indptr, part.t_indices, t_rows, t_columns)
        weight = t_weight = position = None
        if t_edge is not None:
            start, stop = int(part.indptr[rows.start]), int(part.indptr[rows.stop])
            t_start, t_stop = int(part.t_indptr[t_rows.start]), int(part.t_indptr[t_rows.stop])
            t_position = t_edge[t_start:t_stop][t_kept] - start
            if isinstance(kept, np.ndarray) and len(t_position):
                # Positions are counted in the block, among its kept edges.
                t_position = (np.cumsum(kept) - 1)[t_position]
            position = own(t_position, np.int64) if has_positions else None
            if part.edge_weight is not None:
                block_weight = part.edge_weight[start:stop][kept]
                weight = own(block_weight, np.float32)
                t_weight = own(block_weight[t_position], np.float32)
        ends = own(indptr, np.int64), own(indices, np.int32)
        t_ends = ends
        # An undirected graph is its own transpose, and is held once.
        if not (np.array_equal(t_indptr, indptr) and np.array_equal(t_indices, indices)):
            t_ends = own(t_indptr, np.int64), own(t_indices, np.int32)
        forward = Csr(*ends, len(t_indptr) - 1, None, weight, columns.global_id, walk_orders)
        forward = replace(forward, **_known_of_edges(part, rows, kept))
        t_block = Csr(
            *t_ends, len(indptr) - 1, position, t_weight, t_columns.global_id, walk_orders
        )
        return forward, t_block

    return _Divided(block(False, False), block(True, False), block(False, True), block(True, True))


def _known_of_edges(part: Part, rows: _Rows, kept: NDArray[np.bool_] | slice) -> dict[str, Any]:
    """Return what forward blocks alone have for each edge, beside weights."""
    edges = slice(int(part.indptr[rows.start]), int(part.indptr[rows.stop]))
    kinds: dict[str, type[np.generic]] = {}
    if part.edge_features is not None:
        kinds["edge_features"] = np.float32
    if part.edge_type is not None:
        kinds |= {"edge_type": np.int32, "relation_degree": np.int32}
    return {name: own(getattr(part, name)[edges][kept], kind) for name, kind in kinds.items()}


class _Rows(NamedTuple):
    """The rows of a block, among the clones of a part: those from start to stop that are kept."""

    start: int
    stop: int
    kept: NDArray[np.bool_] | None  # among start..stop; dropped rows hold no edges


class _Columns(NamedTuple):
    """The columns of a block, likewise, and their numbers there."""

    start: int
    stop: int
    renumbered: NDArray[np.int32] | None
    is_all: bool  # nothing else is there, so nothing is dropped
    global_id: Tensor | None


class _Ends:
    """One end of the edges: roots first, then the leaves that take part in that role.

    Args:
        part: Any part.
        takes_part: (num_leaves,) bool.
    """

    def __init__(self, part: Part, takes_part: NDArray[np.bool_]) -> None:
        self._num_roots = part.num_roots
        self._takes_part = takes_part
        self._renumbered = (np.cumsum(takes_part) - 1).astype(np.int32)
        self._root_id = _unless_ascending(part.global_id[: part.num_roots])
        self._leaf_id = _unless_ascending(part.global_id[part.num_roots :][takes_part])

    def rows(self, is_leaf: bool) -> _Rows:
        """Return the rows of a block whose targets are leaves, or roots."""
        if not is_leaf:
            return _Rows(0, self._num_roots, None)
        return _Rows(self._num_roots, self._num_roots + len(self._takes_part), self._takes_part)

    def columns(self, is_leaf: bool) -> _Columns:
        """Return the columns of a block whose sources are leaves, or roots."""
        if not is_leaf:
            is_all = len(self._takes_part) == 0
            return _Columns(0, self._num_roots, None, is_all, self._root_id)
        stop = self._num_roots + len(self._takes_part)
        return _Columns(self._num_roots, stop, self._renumbered, False, self._leaf_id)


def _unless_ascending(ids: NDArray[np.int64]) -> Tensor | None:
    return None if np.all(ids[1:] > ids[:-1]) else own(ids, np.int64)


def _select(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], rows: _Rows, columns: _Columns
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_] | slice]:
    """Return the block's indptr and indices, and which of the rows' edges it keeps."""
    first, last = int(indptr[rows.start]), int(indptr[rows.stop])
    found = np.asarray(indices[first:last])
    block_indptr = indptr[rows.start : rows.stop + 1] - first
    if columns.is_all:
        return block_indptr, found, slice(None)
    if columns.start == columns.stop:
        kept = np.zeros(found.size, dtype=bool)
        block_indptr = np.zeros_like(block_indptr)
    else:
        kept = (found >= columns.start) & (found < columns.stop)
        running = np.zeros(found.size + 1, np.int64)
        np.cumsum(kept, out=running[1:])
        block_indptr = running[block_indptr]
    if rows.kept is not None:
        block_indptr = np.concatenate([block_indptr[:1], block_indptr[1:][rows.kept]])
    picked = found[kept] - np.int32(columns.start)
    if columns.renumbered is not None:
        picked = columns.renumbered[picked]
    return block_indptr, picked, kept
