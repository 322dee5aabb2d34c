"""Metrics of links: the ranks of their scores among those of random pairs.

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
    """Metric of links.

    Attributes:
        num_own: Number of random pairs of each link; 0 where all links share them.
        num_shared: Least number of pairs that all links share.
    """

    num_own: int = 0
    num_shared: int = 0

    @abstractmethod
    def shares(self, links: Tensor, others: Tensor, group: Group) -> Tensor:
        """Return this rank's share of the metric; collective.

        Args:
            links: (num,) scores of this rank's links.
            others: (num, num_own) scores of each link's random pairs. If pairs are shared,
                (num_others,) scores of this rank's share of them.
            group: All ranks.

        Returns:
            (2,) float64 sum and count, to be summed over ranks.
        """

    def value(self, sums: Tensor) -> float | None:
        """Return sum divided by count; None where there is no link."""
        return float(sums[0] / sums[1]) if sums[1] else None


class MeanReciprocalRank(LinkMeasure):
    """Mean of 1 / rank of a link among itself and 1000 pairs with its first end.

    Among equal scores its rank is the mean of the best and the worst possible rank. A link whose
    score is NaN is last; a random pair whose score is NaN is above it. ogbl-citation2 uses 1000.
    """

    name = "mrr"
    num_own = 1000

    def shares(self, links: Tensor, others: Tensor, group: Group) -> Tensor:
        """Return the sum of 1 / rank, and the number of links."""
        del group
        # A comparison with NaN is false, so its denial puts NaN above.
        above = (~(others <= links[:, None])).sum(dim=1)
        not_below = (~(others < links[:, None])).sum(dim=1)
        rank = (above + not_below).double() / 2 + 1
        return _share((1 / rank).sum(), len(links))


class Hits(LinkMeasure):
    """Share of links that score higher than the K-th best of the shared pairs.

    K is 20 for ogbl-ddi, 50 for ogbl-collab, 100 for ogbl-ppa.

    Args:
        k: K.
    """

    def __init__(self, k: int) -> None:
        self.name = f"hits@{k}"
        self.num_shared = k

    def shares(self, links: Tensor, others: Tensor, group: Group) -> Tensor:
        """Return the number of such links, and of all links."""
        best = others.new_full((self.num_shared,), -torch.inf)
        own = others.topk(min(self.num_shared, len(others))).values
        best[: len(own)] = own
        least = torch.cat(group.all_gather(best)).topk(self.num_shared).values[-1]
        return _share((links > least).sum(), len(links))


def _share(total: Tensor, count: int) -> Tensor:
    return torch.tensor([float(total), count], dtype=torch.float64)
