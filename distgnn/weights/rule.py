"""The rule of what ranks tell each other about weights, apart from how it is carried out."""

from __future__ import annotations

from dataclasses import dataclass

from distgnn.exchange.codec import EXACT, CodecSpec
from distgnn.weights.groups import draw_group


@dataclass(frozen=True)
class WeightRule:
    """Rule of the weights that ranks tell each other, and when.

    Attributes:
        codec: Code of large gradients while ranks add them up.
        merge_every: Steps from one mean of the models of all ranks to the next; 0 where gradients
            are added up in every step, so that there is one model.
        keeps_moments: Whether each rank keeps its own moments of the optimizer at a merge, instead
            of their mean.
        group_size: Ranks of a group, whose models are merged; groups are drawn for each merge. 0
            for one group of all ranks.
    """

    codec: CodecSpec = EXACT
    merge_every: int = 0
    keeps_moments: bool = False
    group_size: int = 0

    @property
    def is_local(self) -> bool:
        """Whether each rank has a model of its own between merges."""
        return self.merge_every > 0

    def is_merging(self, num_steps: int) -> bool:
        """Return whether models are merged after a number of steps."""
        return self.is_local and num_steps % self.merge_every == 0

    def members(self, rank: int, num_ranks: int, seed: int, num_steps: int) -> list[int]:
        """Return the ranks that merge their models with that of a rank, itself included, ascending.

        Args:
            rank: The rank.
            num_ranks: Number of ranks.
            seed: Seed of the run.
            num_steps: Steps that were taken before the merge.
        """
        if not 0 < self.group_size < num_ranks:
            return list(range(num_ranks))
        return draw_group(rank, num_ranks, self.group_size, seed, num_steps)

    def has_one_model(self, num_ranks: int, num_steps: int) -> bool:
        """Return whether the models of all ranks are the same after a number of steps.

        A merge within groups leaves as many models as groups.

        Args:
            num_ranks: Number of ranks.
            num_steps: Steps that were taken.
        """
        if num_ranks == 1 or num_steps == 0 or not self.is_local:
            return True
        return not 0 < self.group_size < num_ranks and self.is_merging(num_steps)

    @property
    def text(self) -> str:
        """Canonical words of --weights."""
        if self.is_local:
            moments = "+own-moments" if self.keeps_moments else ""
            return f"every({self.merge_every}){self._whom}+mean{moments}"
        return "sum" if self.codec == EXACT else self.codec.text

    @property
    def _whom(self) -> str:
        if self.group_size == 0:
            return ""
        return "+pairs" if self.group_size == 2 else f"+groups({self.group_size})"


SUM = WeightRule()
"""Gradients are added up as they are."""
