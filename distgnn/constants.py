"""What a graph alone decides, for `LocalGraph.once`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from distgnn.graph import LocalGraph


def column(values: NDArray[np.generic]) -> Tensor:
    """Return (num_values, 1) float32."""
    return torch.from_numpy(np.array(values, dtype=np.float32)[:, None])


def inverse_in_degree(graph: LocalGraph) -> Tensor:
    """Return (num_rows,) What a sum over in-edges is multiplied with to be their mean."""
    return 1 / graph.in_degree[:, 0].double().clamp(min=1)


def sum_of_in_weights(graph: LocalGraph) -> Tensor:
    """Return (num_rows, 1) The in-degree where edges have no weights; else collective."""
    if graph.part.edge_weight is None:
        return graph.in_degree
    return graph.at_setup(_sum_at_targets, torch.ones(graph.num_rows, 1))


def sum_of_out_weights(graph: LocalGraph) -> Tensor:
    """Return (num_rows, 1) The out-degree where edges have no weights; else collective."""
    if graph.part.edge_weight is None:
        return column(graph.part.out_degree[: graph.num_rows])
    return graph.at_setup(_sum_at_sources, torch.ones(graph.num_rows, 1))


def _sum_at_targets(graph: LocalGraph, ones: Tensor) -> Tensor:
    return graph.aggregate(ones)


def _sum_at_sources(graph: LocalGraph, ones: Tensor) -> Tensor:
    return graph.sum_backward(ones)
