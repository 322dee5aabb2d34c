"""The rule of what ranks tell each other about weights, apart from how it is carried out."""

from __future__ import annotations

from dataclasses import dataclass

from distgnn.exchange.codec import EXACT, CodecSpec


@dataclass(frozen=True)
class WeightRule:
    """Rule of the weights that ranks tell each other, and when.

    Attributes:
        codec: Code of large gradients while ranks add them up.
        merge_every: Steps from one mean of the models of all ranks to the next; 0 where gradients
            are added up in every step, so that there is one model.
        keeps_moments: Whether each rank keeps its own moments of the optimizer at a merge, instead
            of their mean.
    """

    codec: CodecSpec = EXACT
    merge_every: int = 0
    keeps_moments: bool = False

    @property
    def is_local(self) -> bool:
        """Whether each rank has a model of its own between merges."""
        return self.merge_every > 0

    @property
    def text(self) -> str:
        """Canonical words of --weights."""
        if self.is_local:
            moments = "+own-moments" if self.keeps_moments else ""
            return f"every({self.merge_every})+mean{moments}"
        return "sum" if self.codec == EXACT else self.codec.text


SUM = WeightRule()
"""Gradients are added up as they are."""
