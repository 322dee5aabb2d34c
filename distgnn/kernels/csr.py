"""Edges by row: the graph, or a block of it, that kernels walk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import torch

from distgnn.kernels.devices import moved
from distgnn.kernels.tensors import array

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.kernels.walk_order import WalkOrder


class Walker(Protocol):
    """Decides in which order kernels walk the rows of a graph; see `distgnn.edges.walk_orders`."""

    def order(self, graph: Csr) -> WalkOrder | None:
        """Return the order of a graph; None where rows had better be walked as numbered."""


@dataclass(frozen=True, eq=False)
class Csr:
    """Edges by row, for one of the two directions of a pass.

    Attributes:
        indptr: (num_rows + 1,) int64. Where the edges of each row begin in `indices`.
        indices: (num_edges,) int32. Columns: rows of the matrix that is read. In blocks of a part
            they ascend by global id inside a row.
        num_columns: Number of rows of that matrix.
        position: (num_edges,) int64. Position of each edge in the forward block; None in the
            forward block itself, and where nobody asks.
        weight: (num_edges,) float32, or None.
        column_id: (num_columns,) int64. Global id of each column; None where columns ascend by it.
        walk_orders: Decide in which order kernels walk the rows; None for the order of their
            numbers.
        edge_features: (num_edges, num_edge_features) float32; in forward blocks where a model asks,
            else None.
        edge_type: (num_edges,) int32. Relations; in forward blocks where a model asks, else None.
        relation_degree: (num_edges,) int32. See `Part`; beside `edge_type`.
        derived: Results that others computed from these edges once, by name.
    """

    indptr: Tensor
    indices: Tensor
    num_columns: int
    position: Tensor | None = None
    weight: Tensor | None = None
    column_id: Tensor | None = None
    walk_orders: Walker | None = None
    edge_features: Tensor | None = None
    edge_type: Tensor | None = None
    relation_degree: Tensor | None = None
    derived: dict[str, Any] = field(default_factory=dict, init=False)

    @cached_property
    def order(self) -> WalkOrder | None:
        """The order in which kernels walk the rows, decided at the first walk.

        Orders are made for the caches of a processor; other devices have none.
        """
        if self.walk_orders is None or self.indptr.device.type != "cpu":
            return None
        return self.walk_orders.order(self)

    def walked(self, order: WalkOrder | None) -> Csr:
        """Return the same edges, walked in a given order."""
        graph = replace(self)
        graph.__dict__["order"] = order
        return graph

    @cached_property
    def row_of_edge(self) -> Tensor:
        """(num_edges,) int32. Row of each edge, for what is computed edge by edge."""
        rows = torch.arange(self.num_rows, dtype=torch.int32, device=self.indptr.device)
        return torch.repeat_interleave(rows, self.indptr.diff())

    @cached_property
    def fingerprint(self) -> str:
        """Hexadecimal digits that differ between graphs with other edges."""
        digest = hashlib.sha256(f"{self.num_columns} ".encode())
        digest.update(self.indptr.numpy().data)
        digest.update(self.indices.numpy().data)
        if self.column_id is not None:
            digest.update(self.column_id.numpy().data)
        return digest.hexdigest()

    def to(self, device: torch.device) -> Csr:
        """Return the graph on a device; itself if it is there."""
        if self.indptr.device == device:
            return self
        return replace(self, **moved(self, device))

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.indptr.shape[0] - 1

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.indices.shape[0]


def ends(graph: Csr) -> tuple[Any, Any]:
    """Return where rows begin, and their columns, as the kernels take them.

    Args:
        graph: Any graph on a device with kernels.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If a tensor is not contiguous.
    """
    indptr = array("indptr", graph.indptr, torch.int64, 1)
    return indptr, array("indices", graph.indices, torch.int32, 1)


def handle(graph: Csr) -> Any:
    """Return the order in which a kernel walks a graph, as the compiled module takes it."""
    order = graph.order
    return None if order is None else order.handle
