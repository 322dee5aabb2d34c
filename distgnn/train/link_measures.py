"""Metrics of links: how high their scores stand among those of pairs drawn at random.

Definitions are those of OGB's evaluator.

References:
    Hu et al., "Open Graph Benchmark: Datasets for Machine Learning on Graphs", NeurIPS 2020.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch

from distgnn.train.measures import Metric

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.comm.group import Group


class LinkMeasure(Metric):
    """A metric of links.

    Attributes:
        num_own: Pairs that are drawn for each link; 0 where all links share theirs.
        num_shared: Pairs that all links share, at least.
    """

    num_own: ClassVar[int] = 0
    num_shared: ClassVar[int] = 0

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
        return torch.stack([(1 / rank).sum(), rank.new_tensor(len(links))])


class Hits(LinkMeasure):
    """The share of links that score higher than the K-th best of the pairs that all share."""

    def shares(self, links: Tensor, others: Tensor, group: Group) -> Tensor:
        """Return the links that do, and all."""
        best = torch.full((self.num_shared,), -torch.inf, dtype=others.dtype)
        own = others.topk(min(self.num_shared, len(others))).values
        best[: len(own)] = own
        least = torch.cat(group.all_gather(best)).topk(self.num_shared).values[-1]
        return torch.stack([(links > least).sum(), torch.tensor(len(links))]).double()


class Hits10(Hits):
    """K is 10."""

    name = "hits@10"
    num_shared = 10


class Hits20(Hits):
    """K is 20, as for ogbl-ddi."""

    name = "hits@20"
    num_shared = 20


class Hits50(Hits):
    """K is 50, as for ogbl-collab."""

    name = "hits@50"
    num_shared = 50


class Hits100(Hits):
    """K is 100, as for ogbl-ppa."""

    name = "hits@100"
    num_shared = 100
