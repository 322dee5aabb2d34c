"""Sums of learned rows over typed edges, across a cut: R-GCN's first layer without features.

A relation source is a vertex together with a relation of which it has edges out of it. Each has a
learned row, which all ranks hold; so nothing travels to the leaves that read, and one partial from
each leaf that writes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from distgnn import kernels
from distgnn.aggregate.overlap import RowSteps, overlap
from distgnn.aggregate.relations import csr_of, edge_weights, grouped
from distgnn.kernels.devices import PROCESSOR, moved

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from distgnn.aggregate.overlap import BlockName
    from distgnn.comm.group import Group
    from distgnn.edges.blocks import Blocks
    from distgnn.exchange.base import Exchange
    from distgnn.kernels.csr import Csr


class ColumnIds(NamedTuple):
    """Global ids of the columns of a graph's blocks.

    Attributes:
        root: (num_sources,) int64.
        leaf: (num_reading_leaves,) int64.
    """

    root: Tensor
    leaf: Tensor


class RelationSources(NamedTuple):
    """The relation sources of a whole graph, numbered alike on every rank however it is cut.

    Attributes:
        keys: (num_relation_sources,) vertex * num_relations + relation, ascending.
        num_relations: Number of relations of the whole graph.
    """

    keys: NDArray[np.int64]
    num_relations: int

    @classmethod
    def of(cls, blocks: Blocks, ids: ColumnIds, group: Group) -> RelationSources:
        """Find them in the edges of all ranks; collective.

        Args:
            blocks: All edges of this rank, planned with types.
            ids: Global ids of their columns.
            group: One rank per part.
        """
        edges = _edge_blocks(blocks, ids)
        found = torch.tensor([max(_num_relations(block) for block, _ in edges)])
        group.all_reduce(found, "max")
        num_relations = int(found)
        # Block by block, so that a key for each edge is there of one block at a time.
        keys = [np.unique(_keys(block, column_ids, num_relations)) for block, column_ids in edges]
        own = np.unique(np.concatenate(keys)).astype("<i8")
        gathered = group.all_gather_bytes(own.tobytes())
        every = np.concatenate([np.frombuffer(data, "<i8") for data in gathered])
        return cls(np.unique(every).astype(np.int64), num_relations)

    @property
    def digest(self) -> int:
        """An int64 that graphs with other relation sources have another of."""
        digest = hashlib.sha256(f"{self.num_relations} ".encode())
        digest.update(self.keys.astype("<i8").data)
        return int.from_bytes(digest.digest()[:8], "little", signed=True)

    def numbers(self, block: Csr, column_ids: Tensor) -> NDArray[np.intp]:
        """(num_edges,) The number of each edge's relation source.

        Args:
            block: Planned with types.
            column_ids: Global ids of its columns.
        """
        return np.searchsorted(self.keys, _keys(block, column_ids, self.num_relations))

    def read_by(self, blocks: Blocks, ids: ColumnIds) -> NDArray[np.int64]:
        """(num_read,) Ascending numbers of the relation sources that a rank's edges start from.

        Args:
            blocks: Edges of this rank, planned with types.
            ids: Global ids of their columns.
        """
        is_read = np.zeros(len(self.keys), dtype=bool)
        for block, column_ids in _edge_blocks(blocks, ids):
            is_read[self.numbers(block, column_ids)] = True
        return np.flatnonzero(is_read)


def _edge_blocks(blocks: Blocks, ids: ColumnIds) -> list[tuple[Csr, Tensor]]:
    """Return all edges of a rank, each block with the global ids of its columns."""
    forward = blocks.to(PROCESSOR).forward
    return [
        (getattr(forward, f"{row}_from_{column}"), column_ids)
        for row in ("root", "leaf")
        for column, column_ids in zip(ids._fields, ids, strict=True)
    ]


def _num_relations(block: Csr) -> int:
    assert block.edge_type is not None, "the blocks of a typed model know the relations"
    return int(block.edge_type.numpy().max(initial=-1)) + 1


def _keys(block: Csr, column_ids: Tensor, num_relations: int) -> NDArray[np.int64]:
    assert block.edge_type is not None, "the blocks of a typed model know the relations"
    keys: NDArray[np.int64] = column_ids.cpu().numpy()[block.indices.numpy()] * num_relations
    keys += block.edge_type.numpy()
    return keys


@dataclass(frozen=True, eq=False)
class LearnedBlock:
    """The edges of one block, from the learned rows of their sources.

    Attributes:
        forward: (num_rows x num_relation_sources) weights.
        backward: Its transpose.
    """

    forward: Csr
    backward: Csr

    def to(self, device: torch.device) -> LearnedBlock:
        """Return the block on a device."""
        return replace(self, **moved(self, device))

    def add(self, table: Tensor, out: Tensor, *, is_backward: bool = False) -> None:
        """Add the sums of rows, or of their gradients.

        Args:
            table: (num_relation_sources, width), or the gradients of the other one's rows.
            out: (num_rows, width), or (num_relation_sources, width). Added to.
            is_backward: Which of the two.
        """
        block = self.backward if is_backward else self.forward
        weight = None if block.weight is None else block.weight.to(table.dtype)
        kernels.spmm_sum(block, weight, table, out, accumulate=True)


class LearnedBlocks(NamedTuple):
    """The blocks of a graph by what they add to.

    Attributes:
        roots: Those that add to roots.
        leaves: Those that add to leaves.
        whole: Their routes.
    """

    roots: tuple[LearnedBlock, ...]
    leaves: tuple[LearnedBlock, ...]
    whole: Blocks


def learned_blocks(
    blocks: Blocks, ids: ColumnIds, sources: RelationSources, *, is_mean: bool
) -> LearnedBlocks:
    """Plan the sums of a graph; done once.

    Args:
        blocks: Edges and routes.
        ids: Global ids of their columns.
        sources: Relation sources of the whole graph.
        is_mean: Whether a sum over the edges of a relation is divided by their number.
    """
    here = blocks.to(PROCESSOR).forward

    def planned(row: str) -> tuple[LearnedBlock, ...]:
        found = []
        for column, column_ids in zip(ids._fields, ids, strict=True):
            block: Csr = getattr(here, f"{row}_from_{column}")
            if block.num_edges:
                numbers = sources.numbers(block, column_ids)
                made = _planned(block, numbers, len(sources.keys), is_mean)
                found.append(made.to(column_ids.device))
        return tuple(found)

    return LearnedBlocks(planned("root"), planned("leaf"), blocks)


def _planned(block: Csr, source: NDArray[np.intp], num_sources: int, is_mean: bool) -> LearnedBlock:
    weight = edge_weights(block, is_mean=is_mean)
    row = np.repeat(np.arange(block.num_rows, dtype=np.int32), block.indptr.diff().numpy())
    order, start = grouped(source, num_sources)
    t_weight = None if weight is None else weight[order]
    return LearnedBlock(
        csr_of(block.indptr.numpy(), source, weight, num_sources, block),
        csr_of(start, row[order], t_weight, block.num_rows, block),
    )


class SumLearnedRows(torch.autograd.Function):
    """Sum learned rows over typed in-edges of a graph that is cut into parts.

    total_v = sum over relations r and in-edges uv of r of (w_uv / c) e_ur

    w and c are those of `RelateAcrossCut`; e is the (num_relation_sources, width) table, float32 or
    float64.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, blocks: LearnedBlocks, exchange: Exchange) -> Tensor:
        """Return (num_rows, width) totals."""
        direction, width = blocks.whole.forward, table.shape[1]
        exchange.start_pass(is_backward=False)
        partial = table.new_zeros(direction.leaf_from_root.num_rows, width)
        total = table.new_zeros(direction.root_from_root.num_rows, width)
        steps = _Forward(direction, exchange, table, total, partial)
        steps.blocks = {"leaf_from_root": blocks.leaves, "root_from_root": blocks.roots}
        overlap(direction, exchange, steps)
        ctx.blocks, ctx.exchange, ctx.num_sources = blocks, exchange, len(table)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Send gradients to the leaves that wrote, and sum them over the edges of each source."""
        blocks, exchange, grad = ctx.blocks, ctx.exchange, grads[0].contiguous()
        exchange.start_pass(is_backward=True)
        out = grad.new_zeros(ctx.num_sources, grad.shape[1])
        steps = _Backward(blocks.whole.backward, exchange, grad, out, out)
        steps.blocks = {"root_from_root": blocks.roots, "root_from_leaf": blocks.leaves}
        overlap(blocks.whole.backward, exchange, steps)
        return out, None, None


class _Forward(RowSteps):
    """Sums of rows that every rank holds: nothing is sent to leaves, so no edge waits for rows."""

    waits_for_rows = False
    blocks: dict[str, tuple[LearnedBlock, ...]]

    def send(self) -> None:
        self.leaf_rows = self.rows

    def receive(self) -> None:
        pass

    def add(self, name: BlockName, rows: Tensor, out: Tensor) -> None:
        for block in self.blocks.get(name, ()):
            block.add(rows, out)


class _Backward(RowSteps):
    """Gradients of rows that every rank holds: they stay here, and are summed with the weights."""

    blocks: dict[str, tuple[LearnedBlock, ...]]

    def add(self, name: BlockName, rows: Tensor, out: Tensor) -> None:
        for block in self.blocks.get(name, ()):
            block.add(rows, out, is_backward=True)

    def reduce(self) -> None:
        pass

    def finish(self) -> None:
        pass
