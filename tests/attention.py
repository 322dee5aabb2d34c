"""Attention on an edge list by autograd, whose gradients are the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import leaky_relu

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from distgnn.datasets import Graph


def with_loops(
    src: NDArray[np.integer], dst: NDArray[np.integer], num_vertices: int
) -> tuple[Tensor, Tensor]:
    """Sources and targets, with an edge from each vertex to itself where there is none."""
    loopless = np.setdiff1d(np.arange(num_vertices), src[src == dst])
    ends = (np.concatenate([end, loopless]).astype(np.int64) for end in (src, dst))
    sources, targets = (torch.from_numpy(end) for end in ends)
    return sources, targets


def looped_edges(graph: Graph) -> tuple[Tensor, Tensor]:
    """The edges of a graph, with loops."""
    return with_loops(graph.src, graph.dst, graph.num_vertices)


def attend(
    edges: tuple[Tensor, Tensor],
    x: Tensor,
    source_score: Tensor,
    target_score: Tensor,
    slope: float,
) -> Tensor:
    """Return (num_vertices, heads * width): a weighted mean of in-neighbours' rows per head."""
    src, dst = edges
    score = leaky_relu(source_score[src] + target_score[dst], slope)
    num_vertices, heads = target_score.shape
    largest = torch.full_like(target_score, -torch.inf).scatter_reduce(
        0, dst[:, None].expand(-1, heads), score.detach(), "amax"
    )
    weight = (score - largest[dst]).exp()
    total = torch.zeros_like(target_score).index_add(0, dst, weight)
    alpha = weight / total[dst]
    rows = x.view(num_vertices, heads, -1)[src] * alpha[:, :, None]
    out = torch.zeros_like(x).view(num_vertices, heads, -1).index_add(0, dst, rows)
    return out.view(x.shape)
