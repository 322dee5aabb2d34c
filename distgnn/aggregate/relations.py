"""Sums over typed edges, a linear map for each relation, across a cut.

    partial_v = sum over relations r of (sum over edges u -> v of r of w_uv h_u) W_r

Each part computes it where the edges are. Rows of the input's width travel to the leaves that read.
One partial of the output's width travels from each leaf that writes, however many relations there
are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from distgnn import kernels
from distgnn.aggregate.overlap import RowSteps, overlap
from distgnn.datasets.errors import InputError
from distgnn.edges.blocks import transposed
from distgnn.kernels.csr import Csr
from distgnn.kernels.devices import PROCESSOR, moved
from distgnn.kernels.tensors import own
from distgnn.ops.gradients import differentiable_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from distgnn.aggregate.overlap import BlockName
    from distgnn.edges.blocks import Blocks
    from distgnn.exchange.base import Exchange


@dataclass(frozen=True, eq=False)
class Relation:
    """The edges of one relation in one block, among the vertices that it touches.

    Attributes:
        number: Number of the relation.
        sources: (num_sources,) int32. The block's columns that it reads.
        targets: (num_targets,) int32. The block's rows that it adds to.
        forward: (num_targets x num_sources) weights w_uv.
        backward: Its transpose.
    """

    number: int
    sources: Tensor
    targets: Tensor
    forward: Csr
    backward: Csr

    def to(self, device: torch.device) -> Relation:
        """Return the relation on a device."""
        return replace(self, **moved(self, device))

    def maps_first(self, weight: Tensor) -> bool:
        """Whether mapping rows before they are summed takes fewer multiplications.

        Args:
            weight: (in_width, out_width).
        """
        in_width, out_width = weight.shape
        num_edges, num_values = self.forward.num_edges, weight.numel()
        first = len(self.sources) * num_values + num_edges * out_width
        return first < len(self.targets) * num_values + num_edges * in_width

    def add(self, rows: Tensor, weight: Tensor, out: Tensor) -> None:
        """Add the relation's sums.

        Args:
            rows: (num_columns, in_width).
            weight: (in_width, out_width).
            out: (num_rows, out_width). Added to.
        """
        read = _picked(rows, self.sources)
        if self.maps_first(weight):
            made = _summed(self.forward, read @ weight)
        else:
            made = _summed(self.forward, read) @ weight
        kernels.scatter_add_rows(made, self.targets, out)

    def add_gradients(
        self, rows: Tensor, grad: Tensor, weight: Tensor, out: tuple[Tensor, Tensor]
    ) -> None:
        """Add the gradients of what `add` was given.

        Args:
            rows: Rows that `add` was given.
            grad: (num_rows, out_width) gradient of its output.
            weight: Weight that `add` was given.
            out: (num_columns, in_width) and (in_width, out_width), for those of rows and weight.
        """
        read, made = _picked(rows, self.sources), _picked(grad, self.targets)
        if self.maps_first(weight):
            mapped = _summed(self.backward, made)
            out[1].addmm_(read.t(), mapped)
            of_rows = mapped @ weight.t()
        else:
            out[1].addmm_(_summed(self.forward, read).t(), made)
            of_rows = _summed(self.backward, made @ weight.t())
        kernels.scatter_add_rows(of_rows, self.sources, out[0])


def _picked(rows: Tensor, numbers: Tensor) -> Tensor:
    out = rows.new_empty(len(numbers), rows.shape[1])
    kernels.gather_rows(rows, numbers, out)
    return out


def _summed(block: Csr, rows: Tensor) -> Tensor:
    out = rows.new_empty(block.num_rows, rows.shape[1])
    weight = None if block.weight is None else block.weight.to(rows.dtype)
    kernels.spmm_sum(block, weight, rows, out, accumulate=False)
    return out


def relations_of(block: Csr, *, is_mean: bool) -> tuple[Relation, ...]:
    """Divide the edges of a block by their relations; done once.

    Args:
        block: Planned with types.
        is_mean: Whether weights are divided by how many in-edges of the relation a vertex has in
            the whole graph.

    Returns:
        The relations that the block has edges of, ascending.
    """
    name = f"relations {is_mean}"
    if name not in block.derived:
        device = block.indptr.device
        here = _relations_of(block.to(PROCESSOR), is_mean)
        block.derived[name] = tuple(relation.to(device) for relation in here)
    found: tuple[Relation, ...] = block.derived[name]
    return found


def _relations_of(block: Csr, is_mean: bool) -> Iterator[Relation]:
    if block.edge_type is None:
        raise InputError(
            "a layer reads types of edges, but the graph has none; use a layer without relations, "
            "or load a graph whose edges have types"
        )
    row = np.repeat(np.arange(block.num_rows, dtype=np.int32), block.indptr.diff().numpy())
    column, kind = block.indices.numpy(), block.edge_type.numpy()
    weight = edge_weights(block, is_mean=is_mean)
    order, start = grouped(kind, int(kind.max(initial=-1)) + 1)
    for number in range(len(start) - 1):
        edges = order[start[number] : start[number + 1]]
        if len(edges):
            weights = None if weight is None else weight[edges]
            yield _relation(number, (row[edges], column[edges], weights), block)


def edge_weights(block: Csr, *, is_mean: bool) -> NDArray[np.float32] | None:
    """Return what each edge of a block counts.

    Args:
        block: Planned with types.
        is_mean: Whether that is divided by how many in-edges of its relation the target has in the
            whole graph.

    Returns:
        (num_edges,), or None where all count 1.
    """
    weight = None if block.weight is None else block.weight.numpy()
    if not is_mean:
        return weight
    assert block.relation_degree is not None, "blocks with types know their numbers"
    share = (1 / block.relation_degree.numpy()).astype(np.float32)
    return share if weight is None else weight * share


def _relation(
    number: int,
    edges: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32] | None],
    block: Csr,
) -> Relation:
    """Number the vertices of some edges, which come by row, and sort the edges by column, too."""
    row, column, weight = edges
    targets, target = np.unique(row, return_inverse=True)
    sources, source = np.unique(column, return_inverse=True)
    order, t_start = grouped(source, len(sources))
    _, start = grouped(target, len(targets))
    t_weight = None if weight is None else weight[order]
    return Relation(
        number,
        own(sources, np.int32),
        own(targets, np.int32),
        csr_of(start, source, weight, len(sources), block),
        csr_of(t_start, target[order], t_weight, len(targets), block),
    )


def grouped(key: NDArray[Any], num_keys: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sort positions by a key.

    Args:
        key: (num,) ints in [0, num_keys).
        num_keys: How many keys there may be.

    Returns:
        (num,) positions by key, equal ones in their order, and (num_keys + 1,) where each begins.
    """
    start = np.zeros(num_keys + 1, np.int64)
    np.cumsum(np.bincount(key, minlength=num_keys), out=start[1:])
    return np.argsort(key, kind="stable"), start


def csr_of(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    weight: NDArray[np.float32] | None,
    num_columns: int,
    block: Csr,
) -> Csr:
    """Make a block of other edges.

    Args:
        indptr: (num_rows + 1,) where each row's edges begin.
        indices: (num_edges,) columns.
        weight: (num_edges,), or None where all weigh 1.
        num_columns: How many columns there are.
        block: Its walk orders are taken.
    """
    return Csr(
        own(indptr, np.int64),
        own(indices, np.int32),
        num_columns,
        None,
        None if weight is None else own(weight, np.float32),
        None,
        block.walk_orders,
    )


class RelateAcrossCut(torch.autograd.Function):
    """Sum mapped rows over typed in-edges of a graph that is cut into parts.

    total_v = sum over relations r and in-edges uv of r of (w_uv / c) h_u W_r

    w_uv is the weight of the edge, or 1. If is_mean, c is the number of in-edges of r that vertex v
    has in the whole graph; else 1. Rows (num_sources, in_width) and weight (num_relations,
    in_width, out_width) are float32 or float64, both alike; the blocks are planned with types.

    References:
        Schlichtkrull et al., "Modeling Relational Data with Graph Convolutional Networks", ESWC
        2018, equation 2.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor,
        blocks: Blocks,
        exchange: Exchange,
        is_mean: bool,
    ) -> Tensor:
        """Return (num_rows, out_width) totals."""
        rows, weight, forward = rows.contiguous(), weight.contiguous(), blocks.forward
        exchange.start_pass(is_backward=False)
        total = rows.new_zeros(forward.root_from_root.num_rows, weight.shape[2])
        partial = rows.new_zeros(forward.leaf_from_root.num_rows, weight.shape[2])
        steps = _Forward(forward, exchange, rows, total, partial)
        steps.weight, steps.is_mean = weight, is_mean
        overlap(forward, exchange, steps)
        ctx.save_for_backward(rows, steps.leaf_rows, weight)
        ctx.blocks, ctx.exchange, ctx.is_mean = blocks, exchange, is_mean
        return total

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        """Run the relations backward with the two halves swapped."""
        rows, leaf_rows, weight = ctx.saved_tensors
        exchange, backward = ctx.exchange, ctx.blocks.backward
        exchange.start_pass(is_backward=True)
        grad = grads[0].contiguous()
        of_rows, of_leaves = torch.zeros_like(rows), torch.zeros_like(leaf_rows)
        steps = _Backward(backward, exchange, grad, of_rows, of_leaves)
        steps.weight, steps.is_mean = weight, ctx.is_mean
        steps.blocks, steps.read = ctx.blocks, {"root": rows, "leaf": leaf_rows}
        steps.of_weight = torch.zeros_like(weight)
        overlap(backward, exchange, steps)
        return of_rows, steps.of_weight, None, None, None


class _Forward(RowSteps):
    """Sums of mapped rows; totals and partials start as zeros."""

    weight: Tensor
    is_mean: bool

    def add(self, name: BlockName, rows: Tensor, out: Tensor) -> None:
        for relation in relations_of(getattr(self.direction, name), is_mean=self.is_mean):
            if relation.number >= len(self.weight):
                raise InputError(
                    f"the graph has a relation {relation.number}, but the layer was made with "
                    f"num_relations={len(self.weight)}; take Data.num_relations"
                )
            relation.add(rows, self.weight[relation.number], out)


class _Backward(RowSteps):
    """Gradients of rows, and of the weights: these from the rows that forward read."""

    blocks: Blocks
    weight: Tensor
    is_mean: bool
    read: dict[str, Tensor]
    of_weight: Tensor

    def add(self, name: BlockName, rows: Tensor, out: Tensor) -> None:
        block, read = getattr(self.blocks.forward, transposed(name)), self.read[name[:4]]
        for relation in relations_of(block, is_mean=self.is_mean):
            number = relation.number
            relation.add_gradients(read, rows, self.weight[number], (out, self.of_weight[number]))
