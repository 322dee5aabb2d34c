"""Correct and Smooth: scores improved by the labels of training vertices nearby."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

from distgnn.graph.local_graph import inverse_root

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.graph.local_graph import LocalGraph

_MOST_SCALE = 1000.0
"""Largest factor: errors that nearly vanished are not amplified."""


class CorrectAndSmooth(NamedTuple):
    """Spread of errors on training vertices, then of labels, along edges; exact on any ranks.

    Z is the softmax of the scores, and Y has the one-hot labels. S uses in-degrees or in-weights,
    and a spread is the last of `num_steps` steps from H = X::

        S = D^-1/2 A D^-1/2
        spread(X, a): H' = a S H + (1 - a) X

        correct  E = spread(Y - Z on training vertices, else 0), clamped to [-1, 1] in each step
                 Z_v += s E_v / |E_v|
        smooth   G = spread(Y on training vertices, else Z), clamped to [0, 1] in each step

    |.| is the sum of absolute values, and s its mean over the errors of training vertices. A factor
    s / |E_v| above 1000 counts as 1.

    Attributes:
        correct: Factor a of the first spread.
        smooth: Factor a of the second spread.
        num_steps: Number of steps of each spread.

    References:
        Huang et al., "Combining Label Propagation and Simple Models Out-performs Graph Neural
        Networks", ICLR 2021.
    """

    correct: float
    smooth: float
    num_steps: int = 50

    def apply(self, graph: LocalGraph, scores: Tensor, labels: Tensor, train: Tensor) -> Tensor:
        """Return new scores; collective.

        Args:
            graph: Whole graph or a part, without delays.
            scores: (num_roots, num_classes) scores before softmax.
            labels: (num_roots,) int64 classes.
            train: (num_train,) int64. Roots whose labels may be used.

        Returns:
            (num_roots, num_classes) logarithms of the spread values; softmax gives them back.
        """
        chance = scores.softmax(dim=1)
        known = functional.one_hot(labels[train], scores.shape[1]).to(chance.dtype)
        errors = torch.zeros_like(chance)
        errors[train] = known - chance[train]
        total = float(errors.abs().sum(dtype=torch.float64))
        sums = torch.tensor([total, len(train)], dtype=torch.float64)
        graph.group.all_reduce(sums)
        mean = float(sums[0] / sums[1].clamp(min=1))
        errors = self._spread(graph, errors, self.correct, -1.0)
        # A row that no error reached stays 0 with any factor.
        size = errors.abs().sum(dim=1, keepdim=True)
        factor = torch.where(size > 0, mean / size, 0.0)
        chance = chance + torch.where(factor > _MOST_SCALE, 1.0, factor) * errors
        chance[train] = known
        smooth = self._spread(graph, chance, self.smooth, 0.0)
        return smooth.clamp(min=torch.finfo(smooth.dtype).tiny).log()

    def _spread(self, graph: LocalGraph, start: Tensor, alpha: float, least: float) -> Tensor:
        scale = graph.once(_scale, start.dtype)
        rows = start
        for _ in range(self.num_steps):
            spread = graph.aggregate(rows * scale) * scale
            rows = torch.add((1 - alpha) * start, spread, alpha=alpha).clamp(least, 1.0)
        return rows


def _scale(graph: LocalGraph) -> Tensor:
    """Return (num_rows, 1) D^-1/2, and 0 where the degree is not positive."""
    return inverse_root(graph.in_weight.double())
