"""Metrics of links: how high their scores stand among those of pairs drawn at random.

Definitions are those of OGB's evaluator.

References:
    Hu et al., "Open Graph Benchmark: Datasets for Machine Learning on Graphs", NeurIPS 2020.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import torch

from distgnn.training.tasks.measures import Metric

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.comm.group import Group


class LinkMeasure(Metric):
    """A metric of links.

    Attributes:
        num_own: Pairs that are drawn for each link; 0 where all links share theirs.
        num_shared: Pairs that all links share, at least.
    """

    num_own: int = 0
    num_shared: int = 0

    @abstractmethod
    def shares(self, links: Tensor, others: Tensor, group: Group) -> Tensor:
        """Return what this rank adds to the metric; collective.

        Args:
            links: (num,) scores of this rank's links.
            others: (num, num_own) scores of the pairs drawn for each; or, where they are shared,
                (num_others,) scores of this rank's share of them.
            group: All ranks.

        Returns:
            (2,) float64 sum and count, to be summed over ranks.
        """

    def value(self, sums: Tensor) -> float | None:
        """Divide."""
        return float(sums[0] / sums[1]) if sums[1] else None


class MeanReciprocalRank(LinkMeasure):
    """The mean of 1 / rank of a link among itself and 1000 pairs with its first end.

    Among equal scores it is in the middle: the mean of the best and the worst rank it could have.
    A score that is no number ranks a link last, and another pair above it. 1000 is what
    ogbl-citation2 has.
    """

    name = "mrr"
    num_own = 1000

    def shares(self, links: Tensor, others: Tensor, group: Group) -> Tensor:
        """Return the sum of 1 / rank, and the links."""
        del group
        # Nothing compares with a score that is no number, so it is what is denied.
        above = (~(others <= links[:, None])).sum(dim=1)
        not_below = (~(others < links[:, None])).sum(dim=1)
        rank = (above + not_below).double() / 2 + 1
        return _share((1 / rank).sum(), len(links))


class Hits(LinkMeasure):
    """The share of links that score higher than the K-th best of the pairs that all share.

    K is 20 for ogbl-ddi, 50 for ogbl-collab, 100 for ogbl-ppa.

    Args:
        k: K.
    """

    def __init__(self, k: int) -> None:
        self.name = f"hits@{k}"
        self.num_shared = k

    def shares(self, links: Tensor, others: Tensor, group: Group) -> Tensor:
        """Return the links that do, and all."""
        best = others.new_full((self.num_shared,), -torch.inf)
        own = others.topk(min(self.num_shared, len(others))).values
        best[: len(own)] = own
        least = torch.cat(group.all_gather(best)).topk(self.num_shared).values[-1]
        return _share((links > least).sum(), len(links))


def _share(total: Tensor, count: int) -> Tensor:
    return torch.tensor([float(total), count], dtype=torch.float64)
