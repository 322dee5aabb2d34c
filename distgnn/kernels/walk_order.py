"""Walk orders: in which order kernels walk a graph, and what must be kept of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from distgnn import _kernels
from distgnn.kernels.tensors import array

if TYPE_CHECKING:
    from torch import Tensor


WALK_ORDER_VERSION = 1
"""Raised whenever another order is made of the same graph, so that those on disk are made again."""


class WalkOrderLayout(NamedTuple):
    """How a walk order divides the rows of its graph: all that must be kept to have it again.

    Attributes:
        row: (num_segments,) int32. Row of each segment, a run of edges; empty if rows are walked
            as they are numbered.
        begin: (num_segments + 1,) int64. Edges before each segment; empty with `row`.
        task: (num_tasks + 1,) int64. First segment of each task.
        num_long: Tasks at the end that hold one long row each.
        is_clustered: Whether rows are walked cluster by cluster; for information.
        sources_per_edge: Different sources per edge of a stretch, as numbered; for information.
        ordered_sources_per_edge: The same in this order.
    """

    row: Tensor
    begin: Tensor
    task: Tensor
    num_long: int
    is_clustered: bool
    sources_per_edge: float
    ordered_sources_per_edge: float


class WalkOrder:
    """The order in which kernels walk one graph, made once.

    It brings rows that share sources together in time, gives threads equal numbers of edges, and
    divides the columns of very long rows among them. Edges keep their order within a row, so a walk
    order changes the time of a kernel and no bit of its result. Making one takes the time of a few
    aggregations on one thread, and its copy of the indices 4 bytes an edge.

    Args:
        indptr: (num_rows + 1,) int64. As for the kernels that are given the walk order.
        indices: (num_edges,) int32.
        num_sources: Rows of the matrix that is read. If there are as many rows as sources, they
            are taken for the same vertices, and clusters of them are looked for.
        clusters: Whether to walk rows cluster by cluster, where rows and sources are the same
            vertices; None to do so if it lowers the sources per stretch of edges.
        blocks: Whether to cut rows by blocks of sources, where there are two and sources ascend in
            every row; None to do so if rows have many edges per block.
        source_id: (num_sources,) int64. What the sources of a row ascend by; their numbers if None.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, an index is num_sources or more, or a tensor is not
            contiguous or not on the CPU.

    References:
        Raghavan et al., "Near linear time algorithm to detect community structures in large-scale
        networks", 2007.
    """

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        *,
        num_sources: int,
        clusters: bool | None = None,
        blocks: bool | None = None,
        source_id: Tensor | None = None,
    ) -> None:
        rank = None
        if source_id is not None:
            order = torch.from_numpy(array("source_id", source_id, torch.int64, 1)).argsort()
            rank = torch.empty(len(order), dtype=torch.int32)
            rank[order] = torch.arange(len(order), dtype=torch.int32)
        self.handle: Any = _kernels.make_walk_order(
            array("indptr", indptr, torch.int64, 1),
            array("indices", indices, torch.int32, 1),
            num_sources=num_sources,
            clusters=clusters,
            blocks=blocks,
            rank=None if rank is None else rank.numpy(),
        )

    @classmethod
    def restore(cls, indptr: Tensor, indices: Tensor, layout: WalkOrderLayout) -> WalkOrder:
        """Make the walk order that a layout was kept of, in the time of a copy of the indices.

        Args:
            indptr: (num_rows + 1,) int64. Of the graph that the walk order was made for.
            indices: (num_edges,) int32.
            layout: From `layout`. Nothing in it is trusted: a walk order reads each edge of the
                graph once and nothing else, or is not made.

        Returns:
            The walk order.

        Raises:
            TypeError: If a dtype is not the documented one.
            ValueError: If the layout is not of this graph, or a tensor is not contiguous.
        """
        walk = cls.__new__(cls)
        walk.handle = _kernels.restore_walk_order(
            array("indptr", indptr, torch.int64, 1),
            array("indices", indices, torch.int32, 1),
            row=array("row", layout.row, torch.int32, 1),
            begin=array("begin", layout.begin, torch.int64, 1),
            task=array("task", layout.task, torch.int64, 1),
            num_long=layout.num_long,
            is_clustered=layout.is_clustered,
            sources_per_edge=layout.sources_per_edge,
            ordered_sources_per_edge=layout.ordered_sources_per_edge,
        )
        return walk

    def layout(self) -> WalkOrderLayout:
        """Return a copy of what must be kept of the walk order."""
        handle = self.handle
        row, begin, task = (
            torch.from_numpy(values.copy()) for values in (handle.row, handle.begin, handle.task)
        )
        return WalkOrderLayout(
            row,
            begin,
            task,
            handle.num_long,
            handle.is_clustered,
            handle.sources_per_edge,
            handle.ordered_sources_per_edge,
        )

    def describe(self) -> dict[str, float]:
        """Return what was decided, and the sources read per edge of a stretch before and after."""
        names = ("is_clustered", "is_cut", "num_tasks", "num_long")
        reuse = ("sources_per_edge", "ordered_sources_per_edge")
        return {name: getattr(self.handle, name) for name in (*names, *reuse)}
