"""Edges of a block some at a time, for values of edges of which not all should be there at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from distgnn import kernels
from distgnn.kernels import attention

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.kernels.csr import Csr


class Chunk(NamedTuple):
    """Some edges of a block, in its order.

    Attributes:
        edges: Which.
        rows: Rows of the block, from that of the first edge to that of the last.
        indptr: (num_rows + 1,) int64. Where the edges of each of those rows begin, among these.
        row: (num_edges,) int32. Row of each edge, in the block.
        column: (num_edges,) int32. Column of each edge.
    """

    edges: slice
    rows: slice
    indptr: Tensor
    row: Tensor
    column: Tensor

    def add_to_rows(self, values: Tensor, out: Tensor) -> None:
        """Add values to the rows of their edges.

        Args:
            values: (num_edges, width).
            out: (num_block_rows, width). Added to.
        """
        attention.edge_sum(self.indptr, values, out[self.rows], accumulate=True)

    def add_to_columns(self, values: Tensor, out: Tensor) -> None:
        """Add values to the columns of their edges, in the order of the edges.

        Args:
            values: (num_edges, width).
            out: (num_columns, width). Added to.
        """
        kernels.scatter_add_rows(values, self.column, out)


def chunks_of(block: Csr, num_edges: int) -> list[Chunk]:
    """Divide the edges of a block, in order; made at the first call with these arguments.

    Args:
        block: The edges.
        num_edges: Most edges of a chunk; at least 1.

    Returns:
        The chunks.
    """
    name = f"chunks of {num_edges}"
    found: list[Chunk] | None = block.derived.get(name)
    if found is None:
        starts = range(0, block.num_edges, num_edges)
        found = [_chunk(block, start, min(start + num_edges, block.num_edges)) for start in starts]
        block.derived[name] = found
    return found


def _chunk(block: Csr, start: int, stop: int) -> Chunk:
    row = block.row_of_edge[start:stop]
    rows = slice(int(row[0]), int(row[-1]) + 1)
    indptr = (block.indptr[rows.start : rows.stop + 1] - start).clamp(0, stop - start)
    return Chunk(slice(start, stop), rows, indptr, row, block.indices[start:stop])
