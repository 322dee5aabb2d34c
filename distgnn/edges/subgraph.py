"""The edges and rows that one layer needs, when only some of its outputs are ever read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from distgnn.edges.blocks import Blocks, Direction, Half, plan_blocks, plan_half
from distgnn.edges.self_loops import with_loops
from distgnn.kernels.csr import Csr

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from distgnn.exchange.base import Synchronous
    from distgnn.exchange.route import Route
    from distgnn.partition.directory.store import Part


def keep_edges_into(part: Part, exchange: Synchronous, targets: NDArray[np.bool_]) -> Part:
    """Keep the edges into needed vertices, and the leaves that then still take part.

    Collective.

    Args:
        part: This rank's part.
        exchange: Any synchronous exchange whose tags are free.
        targets: (num_roots,) bool. Roots whose aggregate is needed.

    Returns:
        The part without the other edges; its clones keep their numbers.
    """
    reading, writing = np.asarray(part.is_reading), np.asarray(part.is_writing)
    owner = np.repeat(np.arange(part.num_parts), part.leaf_counts)
    group = exchange.group
    send = plan_half(group, part.send_counts, part.send_rows, owner[reading])
    reduce = plan_half(group, part.reduce_counts, part.reduce_rows, owner[writing])

    leaf_targets = np.zeros(part.num_leaves, dtype=bool)
    leaf_targets[writing] = _swap(exchange, reduce.route, targets[part.reduce_rows])
    is_target = np.concatenate([targets, leaf_targets])
    counts = np.where(is_target, np.diff(part.indptr), 0)
    is_kept, t_counts = edges_into(part, is_target)

    now_reading = t_counts[part.num_roots :] > 0
    now_writing = leaf_targets
    still_sent = _swap(exchange, send.route.reversed(), now_reading[reading])
    still_reduced = targets[part.reduce_rows]
    return replace(
        part,
        indptr=_pointers(counts),
        indices=part.indices[is_kept],
        t_indptr=_pointers(t_counts),
        t_indices=part.t_indices[is_target[part.t_indices]],
        t_edge=None,
        **_kept_values(part, is_kept),
        is_reading=now_reading,
        is_writing=now_writing,
        send_rows=part.send_rows[still_sent],
        send_counts=_kept_counts(part.send_counts, still_sent),
        reduce_rows=part.reduce_rows[still_reduced],
        reduce_counts=_kept_counts(part.reduce_counts, still_reduced),
    )


def _kept_values(part: Part, is_kept: NDArray[np.bool_]) -> dict[str, Any]:
    """Pick what there is for each edge; degrees stay those of the whole graph."""
    names = ("edge_weight", "edge_features", "edge_type", "relation_degree")
    values = {name: getattr(part, name) for name in names}
    return {name: None if value is None else value[is_kept] for name, value in values.items()}


def edges_into(
    part: Part, is_target: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Find the edges of a part into some of its clones.

    Args:
        part: Any part.
        is_target: (num_clones,) bool.

    Returns:
        is_kept: (num_edges,) bool. Whether an edge ends at one of them.
        t_counts: (num_clones,) int64. Such edges out of each clone: who reads, and who is read.
    """
    is_kept = np.repeat(is_target, np.diff(part.indptr))
    return is_kept, np.bincount(part.indices[is_kept], minlength=part.num_clones)


def sources_of(kept: Part) -> NDArray[np.bool_]:
    """Return (num_roots,) bool: the roots whose rows the kept edges read, on any part."""
    sources: NDArray[np.bool_] = np.diff(kept.t_indptr)[: kept.num_roots] > 0
    sources[kept.send_rows] = True
    return sources


def restricted_blocks(
    kept: Part,
    exchange: Synchronous,
    *,
    sources: NDArray[np.bool_],
    targets: NDArray[np.bool_],
    like: Blocks,
) -> Blocks:
    """Plan the kept edges over the rows that a layer reads and makes.

    Collective.

    Args:
        kept: From `keep_edges_into`.
        exchange: Any synchronous exchange whose tags are free.
        sources: (num_roots,) bool. Roots whose rows the layer is given; at least those of
            `sources_of`.
        targets: (num_roots,) bool. Roots whose rows it makes.
        like: Blocks of the whole part. The result has positions, weights, features and edges from
            targets to themselves if these have them (targets are then among the sources). The same
            walk orders are taken.

    Returns:
        Blocks whose columns are numbered among the sources and whose rows among the targets.
    """
    block = like.backward.root_from_root
    has_positions = block.position is not None
    has_types = like.forward.root_from_root.edge_type is not None
    has_features = like.forward.root_from_root.edge_features is not None
    if block.weight is None:
        kept = replace(kept, edge_weight=None)
    columns, rows = _Numbering.of(sources), _Numbering.of(targets)
    blocks = plan_blocks(
        kept,
        exchange.group,
        has_positions=has_positions,
        has_types=has_types,
        has_features=has_features,
        walk_orders=block.walk_orders,
    )
    blocks = _renumbered(blocks, columns, rows)
    if not like.forward.has_loops:
        return blocks
    loops = torch.from_numpy(np.asarray(kept.self_loops)[targets])
    return with_loops(blocks, loops, columns.number[rows.kept].long(), exchange)


def _swap(exchange: Synchronous, route: Route, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Send one flag a row along a route."""
    rows = torch.from_numpy(flags.astype(np.uint8))[:, None].contiguous()
    arrived = exchange.begin(route, rows, exchange.new_channel()).wait()
    return arrived[:, 0].numpy().astype(bool)


def _pointers(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts)])


def _kept_counts(counts: NDArray[np.int64], kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    peer = np.repeat(np.arange(len(counts)), counts)
    return np.bincount(peer[kept], minlength=len(counts)).astype(np.int64)


@dataclass(frozen=True)
class _Numbering:
    """Roots that are kept, and their new numbers."""

    kept: Tensor
    number: Tensor

    @classmethod
    def of(cls, kept: NDArray[np.bool_]) -> _Numbering:
        number = (np.cumsum(kept) - 1).astype(np.int32)
        return cls(torch.from_numpy(kept), torch.from_numpy(number))

    def rows(self, block: Csr) -> Csr:
        """Drop the rows of roots that are not kept; they hold no edges."""
        kept = torch.cat([block.indptr[:1], block.indptr[1:][self.kept]])
        return replace(block, indptr=kept)

    def columns(self, block: Csr) -> Csr:
        indices = self.number.index_select(0, block.indices)
        ids = None if block.column_id is None else block.column_id[self.kept]
        return replace(block, indices=indices, num_columns=int(self.kept.sum()), column_id=ids)

    def half(self, half: Half) -> Half:
        return replace(half, root_rows=self.number[half.root_rows.long()])


def _renumbered(blocks: Blocks, sources: _Numbering, targets: _Numbering) -> Blocks:
    send, reduce = sources.half(blocks.forward.send), targets.half(blocks.forward.reduce)
    return Blocks(
        _one_direction(blocks.forward, columns=sources, rows=targets, halves=(send, reduce)),
        _one_direction(blocks.backward, columns=targets, rows=sources, halves=(reduce, send)),
    )


def _one_direction(
    direction: Direction, *, columns: _Numbering, rows: _Numbering, halves: tuple[Half, Half]
) -> Direction:
    return Direction(
        root_from_root=rows.rows(columns.columns(direction.root_from_root)),
        leaf_from_root=columns.columns(direction.leaf_from_root),
        root_from_leaf=rows.rows(direction.root_from_leaf),
        leaf_from_leaf=direction.leaf_from_leaf,
        send=halves[0],
        reduce=halves[1],
    )
