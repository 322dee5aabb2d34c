"""Weighted sums across a cut, as an autograd function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from distgnn import kernels
from distgnn.aggregate.overlap import RowSteps, overlap
from distgnn.kernels.devices import PROCESSOR
from distgnn.kernels.tensors import computed

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.aggregate.overlap import BlockName
    from distgnn.edges.blocks import Blocks
    from distgnn.exchange.base import Exchange
    from distgnn.kernels.csr import Csr

Factors = tuple["torch.Tensor | None", "torch.Tensor | None"]
_NO_FACTORS = (None, None)
_LINE_BYTES = 64
# Edges a row from which on a copy of the rows, times their factors, costs less than it saves.
_READ_OFTEN = 16


class Weighting(NamedTuple):
    """Factors of a sum over in-edges: row_factor_v * sum of w_uv source_factor_u h_u.

    Attributes:
        row_factor: (num_rows,), or None for ones.
        source_factor: (num_sources,), or None for ones.
        has_loops: Whether a vertex without an edge to itself gets one, of weight 1.
    """

    row_factor: Tensor | None = None
    source_factor: Tensor | None = None
    has_loops: bool = False

    def transposed(self) -> Weighting:
        """Return the weighting of the gradient."""
        return self._replace(row_factor=self.source_factor, source_factor=self.row_factor)


PLAIN = Weighting()
"""A sum of rows as they are."""


class _SumSteps(RowSteps):
    """Sums of rows; `factors` are those that the walk from roots to roots can apply itself.

    `is_alone` says that no other rank and no leaf adds to the totals: they are complete then.
    """

    factors: Factors = _NO_FACTORS
    is_alone = False

    def add(self, name: BlockName, rows: Tensor, out: Tensor) -> None:
        block: Csr = getattr(self.direction, name)
        is_first = name.endswith("root")
        if not is_first and block.num_edges == 0:
            return
        weight = block.weight if block.weight is None else block.weight.to(computed(rows.dtype))
        factors = self.factors if name == "root_from_root" else _NO_FACTORS
        kernels.spmm_sum(
            block,
            weight,
            rows,
            out,
            accumulate=not is_first,
            row_factor=factors[0],
            source_factor=factors[1],
        )

    def finish(self) -> None:
        if self.is_alone:
            self._returning.wait()
        else:
            super().finish()


def pass_sum(
    blocks: Blocks,
    exchange: Exchange,
    rows: Tensor,
    weighting: Weighting,
    *,
    is_backward: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Run one direction of a (weighted) sum, unseen by autograd.

    Rows of bfloat16 are summed in float32. They, and the leaves' partials, travel as bfloat16.

    Args:
        blocks: Edges and routes of both directions.
        exchange: Decides when rows travel.
        rows: (num_sources, width), contiguous.
        weighting: Weighting of the forward direction; the blocks have the loops that it asks for.
        is_backward: Whether to run the transposed direction, on gradients.
        dtype: Type of the totals; that of the rows if None, or float32 for bfloat16.

    Returns:
        (num_roots, width).
    """
    direction = blocks.backward if is_backward else blocks.forward
    row_factor, source_factor, _ = weighting.transposed() if is_backward else weighting
    exchange.start_pass(is_backward=is_backward)
    buffers, width, dtype = exchange.buffers, rows.shape[1], dtype or rows.dtype
    is_alone = direction.root_from_leaf.num_edges == 0 and direction.reduce.route.num_out == 0
    is_here = is_alone and direction.send.route.num_out == direction.leaf_from_root.num_edges == 0
    # The kernel applies source factors edge by edge, for nothing where rows are long. But rows that
    # leaves read, here or on other ranks, need them before they leave; and a kernel takes factors
    # or weights.
    inner = direction.root_from_root
    is_first = not is_here or inner.weight is not None or _is_short(rows, inner.num_edges)
    if source_factor is not None and is_first:
        scaled = buffers.empty(rows.shape[0], width, rows.dtype)
        kernels.scale_rows(rows, source_factor, scaled)
        rows, source_factor = scaled, None
    # Totals that more is added to stay in the type that is computed with, and unscaled.
    summed = dtype if is_alone else computed(rows.dtype)
    partial = buffers.empty(direction.leaf_from_root.num_rows, width, rows.dtype)
    total = buffers.empty(direction.root_from_root.num_rows, width, summed)
    steps = _SumSteps(direction, exchange, rows, total, partial)
    steps.is_alone, steps.factors = is_alone, (row_factor if is_alone else None, source_factor)
    overlap(direction, exchange, steps)
    if is_alone:
        return total
    with exchange.clock.timed("aggregate"):
        result = total if dtype == summed else buffers.empty(total.shape[0], width, dtype)
        if row_factor is not None:
            kernels.scale_rows(total, row_factor, result)
        elif result is not total:
            result.copy_(total)
    return result


def _is_short(rows: Tensor, num_edges: int) -> bool:
    """Return whether a row is one cache line or less, so that reading its factor costs as much.

    Where few edges read the rows, a copy costs more than it saves. A copy of the rows times their
    factors has the same bits in the sum, unless it is rounded.
    """
    row_bytes = rows.shape[1] * rows.element_size()
    is_rounded = computed(rows.dtype) != rows.dtype
    is_read_often = num_edges >= _READ_OFTEN * len(rows)
    return (
        row_bytes <= _LINE_BYTES and is_read_often and not is_rounded and rows.device == PROCESSOR
    )


class SumAcrossCut(torch.autograd.Function):
    """Sum over in-edges of a graph that is cut into parts; see `LocalGraph.aggregate`."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, blocks: Blocks, exchange: Exchange, weighting: Weighting
    ) -> Tensor:
        """Return (num_roots, width) totals of the rows of in-neighbors, times their factors."""
        ctx.blocks, ctx.exchange, ctx.weighting = blocks, exchange, weighting
        return pass_sum(blocks, exchange, rows.contiguous(), weighting)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """Run the transposed blocks with the two halves swapped."""
        grad = grads[0].contiguous()
        total = pass_sum(ctx.blocks, ctx.exchange, grad, ctx.weighting, is_backward=True)
        return total, None, None, None
