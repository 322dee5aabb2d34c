"""The rule of what ranks tell each other about weights, apart from how it is carried out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from distgnn.exchange.codec import EXACT, CodecSpec, codes_at
from distgnn.exchange.spared import Gate
from distgnn.weights.groups import (
    Order,
    draw_group,
    grid_group,
    num_groups,
    num_rounds,
    play_group,
)

if TYPE_CHECKING:
    from distgnn.exchange.codec import Bits


@dataclass(frozen=True)
class Significance:
    """Values of gradients that other ranks are told.

    Attributes:
        threshold: Least change of a weight, as a share of it, for which a value is told.
        decays: Whether the threshold falls with the root of the number of steps.
    """

    threshold: float
    decays: bool = False

    @property
    def text(self) -> str:
        """Canonical words of --weights."""
        decay = ",decay=sqrt" if self.decays else ""
        return f"changed({self.threshold:.12g}{decay})+sum"


@dataclass(frozen=True)
class Background:
    """How models move towards a center that ranks find meanwhile, see `BackgroundModels`.

    Attributes:
        lag: Steps from the weights that a center is found of to the step that moves towards it.
        center: Whether it is the mean of all models, a mean that moves with momentum, or a point
            that models and it draw towards each other.
        share: Share of the way that a model moves.
        is_corrected: Whether the way begins at the weights that the center was found of, not at
            those of now.
        momentum: Share of the center's last move that the next one takes again.
        rate: Share of the way to the mean that a center with momentum is pushed.
    """

    lag: int = 0
    center: Literal["mean", "momentum", "elastic"] = "mean"
    share: float = 1.0
    is_corrected: bool = True
    momentum: float = 0.0
    rate: float = 1.0

    @property
    def keeps_center(self) -> bool:
        """Whether the center depends on those of earlier rounds."""
        return self.center != "mean"

    @property
    def text(self) -> str:
        """Canonical words of --weights."""
        lag = f"lag({self.lag})+" if self.lag else ""
        share = f"{self.share:.12g}"
        if self.center == "momentum":
            return f"{lag}momentum({self.momentum:.12g},rate={self.rate:.12g},share={share})"
        if self.center == "elastic":
            return f"{lag}elastic({share})"
        return lag + ("corrected" if self.is_corrected else f"lerp({share})")


@dataclass(frozen=True)
class Travel:
    """Steps between merges that move while a run trains; see `SkewScout`.

    Attributes:
        every: Epochs from one trip of the models to the next; also the most steps.
        loss: Accuracy that a model may lose on vertices of other ranks, a share.
    """

    every: int
    loss: float = 0.05

    @property
    def text(self) -> str:
        """Canonical words of --weights."""
        more = "" if self.loss == Travel.loss else f",loss={self.loss:.12g}"
        return f"travel({self.every}{more})"


@dataclass(frozen=True)
class WeightRule:
    """Rule of the weights that ranks tell each other, and when.

    Attributes:
        codec: Code of large gradients while ranks add them up, or of how models changed, which
            neighbors in a ring are told, or all ranks that find their mean.
        merge_every: Steps from one mean of the models of all ranks to the next; 0 where gradients
            are added up in every step, so that there is one model.
        corrections: Steps after such a mean that are followed by one each, too. Where rows travel
            in these steps alone, they correct models that were trained without.
        keeps_moments: Whether each rank keeps its own moments of the optimizer at a merge, instead
            of their mean.
        group_size: Ranks of a group, whose models are merged. 0 for one group of all ranks.
        group_order: How groups follow each other: drawn for each merge, in the rounds of a
            tournament, or as rows and columns of a grid; see `weights.groups`.
        is_ring: Whether each rank mixes its model with those of two neighbors, see `TrackedRing`.
        gate: Relative changes of the ranks' gradients for which models are merged after a step, see
            `LocalModels`; None where steps are counted.
        significance: Values of gradients that ranks tell each other, see `SignificantUpdates`;
            None where they tell all.
        background: How models move towards a center that is found meanwhile; None where they become
            their mean at once.
        warm_up_steps: Steps after which first moments are summed in place of gradients, see
            `optim.qadam`; 0 for never.
        travel: How `merge_every` moves while a run trains; None where it stays.
        machine_size: Ranks of a machine, on which gradients are added up first, as they are; 0
            where they are added up over all ranks at once.
        later: Codes of gradients that take over in an epoch; by epoch.
        is_chosen: Whether the code of gradients is chosen while a run trains, see `AutoCodes`.
    """

    codec: CodecSpec = EXACT
    merge_every: int = 0
    corrections: int = 0
    keeps_moments: bool = False
    group_size: int = 0
    group_order: Order = "random"
    is_ring: bool = False
    gate: Gate | None = None
    significance: Significance | None = None
    background: Background | None = None
    warm_up_steps: int = 0
    travel: Travel | None = None
    machine_size: int = 0
    later: tuple[tuple[int, CodecSpec], ...] = ()
    is_chosen: bool = False

    @property
    def codecs(self) -> tuple[CodecSpec, ...]:
        """Codes of a run that follow each other, or that may be chosen."""
        if self.is_chosen:
            return tuple(CodecSpec(bits) for bits in CHOICES)
        return (self.codec, *(codec for _, codec in self.later))

    def codec_in(self, epoch: int) -> CodecSpec:
        """Return the code of an epoch; where it is chosen, that of the most bytes.

        Args:
            epoch: From 0.
        """
        return codes_at(epoch, self.codec, self.later)

    @property
    def is_local(self) -> bool:
        """Whether each rank has a model of its own."""
        return self.merge_every > 0 or self.significance is not None

    @property
    def codes_models(self) -> bool:
        """Whether changes of models are told in a code while all ranks find their mean."""
        return self.merge_every > 0 and not self.is_ring and self.codec != EXACT

    @property
    def sends_at_most(self) -> bool:
        """Whether a forecast is a limit: values or clocks decide, or codes follow each other."""
        moves = self.travel is not None or bool(self.later) or self.is_chosen
        return moves or self.votes or self.significance is not None

    @property
    def at_most(self) -> WeightRule:
        """Rule that sends at least as much in every epoch, and does not move."""
        return self if self.travel is None else replace(self, merge_every=1, travel=None)

    @property
    def alike(self) -> WeightRule:
        """Rule with the code of the most bits in all epochs."""
        return replace(self, codec=max(self.codecs, key=lambda codec: codec.bits), later=())

    @property
    def votes(self) -> bool:
        """Whether ranks vote in each step on a merge, so that fewer bytes may travel."""
        gate = self.gate
        return gate is not None and (gate.quantile > 0 or 0 < gate.threshold < math.inf)

    @property
    def tells_all(self) -> bool:
        """Whether each value of a gradient is significant, so that there is one model."""
        return self.significance is not None and self.significance.threshold == 0

    def may_merge(self, num_steps: int) -> bool:
        """Return whether models are merged after a number of steps, or may be by a vote."""
        is_never = self.gate is not None and self.gate.threshold == math.inf
        if not self.merge_every or is_never:
            return False
        return num_steps % self.merge_every <= self.corrections

    def makes_one(self, num_ranks: int) -> bool:
        """Return whether a merge leaves one model, not as many as there are groups."""
        is_whole = not self.is_ring and self.background is None
        return is_whole and not self.has_groups(num_ranks)

    def has_groups(self, num_ranks: int) -> bool:
        """Return whether some ranks merge without the others."""
        return 0 < self.group_size < num_ranks

    def members(
        self, rank: int, num_ranks: int, seed: int, num_steps: int, merge: int | None = None
    ) -> list[int]:
        """Return the ranks that merge their models with that of a rank, itself included, ascending.

        Args:
            rank: The rank.
            num_ranks: Number of ranks.
            seed: Seed of the run.
            num_steps: Steps that were taken before the merge.
            merge: Merges before this one, where votes decide; None where steps tell.
        """
        if not self.has_groups(num_ranks):
            return list(range(num_ranks))
        if merge is None:
            merge = num_steps // self.merge_every - 1
        if self.group_order == "tournament":
            return play_group(rank, num_ranks, self.group_size, merge)
        if self.group_order == "grid":
            return grid_group(rank, num_ranks, self.group_size, merge)
        return draw_group(rank, num_ranks, self.group_size, seed, num_steps)

    def num_groups(self, num_ranks: int, num_steps: int) -> int:
        """Return how many groups of ranks merge by themselves, without drawing them.

        Where votes decide, the fewest of all rounds, which send the most.

        Args:
            num_ranks: Number of ranks.
            num_steps: Steps that were taken before the merge.
        """
        if not self.has_groups(num_ranks):
            return 1
        return min(
            num_groups(num_ranks, self.group_size, self.group_order, merge)
            for merge in self.merges_after(num_steps, num_ranks)
        )

    def merges_after(self, num_steps: int, num_ranks: int) -> range:
        """Return which merges may follow some steps: one, or of each round one where votes decide.

        Args:
            num_steps: Steps that were taken before the merge.
            num_ranks: Number of ranks.
        """
        if self.votes:
            return range(self.num_rounds(num_ranks))
        return range(num_steps // self.merge_every - 1, num_steps // self.merge_every)

    def num_rounds(self, num_ranks: int) -> int:
        """Return the merges after which groups of the same sizes come again.

        Args:
            num_ranks: Number of ranks.
        """
        if not self.has_groups(num_ranks):
            return 1
        return num_rounds(num_ranks, self.group_size, self.group_order)

    @property
    def text(self) -> str:
        """Canonical words of --weights."""
        if self.significance is not None:
            return self.significance.text
        if self.is_local:
            moments = "+own-moments" if self.keeps_moments else ""
            more = f",for={self.corrections}" if self.corrections else ""
            when = f"every({self.merge_every}{more})"
            if self.gate is not None:
                when = f"changed-gradient({self.gate.arguments})"
            code = "" if self.codec == EXACT else f"+{self.codec.text}"
            apply = "mean" if self.background is None else self.background.text
            moves = f"+{self.travel.text}" if self.travel else ""
            return f"{when}{self._whom}{code}+{apply}{moments}{moves}"
        machines = f"+machines({self.machine_size})" if self.machine_size else ""
        if self.is_chosen:
            return "auto"
        if self.later:
            phases = [replace(self, later=()).text]
            phases += [
                f"at({epoch})+{replace(SUM, codec=codec).text}" for epoch, codec in self.later
            ]
            return "+".join(phases)
        if self.warm_up_steps:
            code = "" if self.codec == EXACT else f"+{self.codec.text}"
            return f"qadam({self.warm_up_steps}){code}{machines}"
        return ("sum" if self.codec == EXACT else self.codec.text) + machines

    @property
    def _whom(self) -> str:
        if self.group_size == 0:
            return "+ring" * self.is_ring
        if self.group_order != "random":
            return f"+groups({self.group_size},order={self.group_order})"
        return "+pairs" if self.group_size == 2 else f"+groups({self.group_size})"


CHOICES: tuple[Bits, ...] = (32, 16, 8, 4)
"""Bits of a value of a gradient that are chosen from, the most first."""
VOTE_BYTES = 8
"""Bytes by which a rank tells another one the change of its gradient."""
SUM = WeightRule()
"""Gradients are added up as they are."""
