"""Models that ranks train by themselves, and that become their mean now and then."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from distgnn.exchange.votes import Ballot
from distgnn.weights.own_models import OwnModels, with_gradients

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from distgnn.comm.group import Group
    from distgnn.exchange.clock import Clock
    from distgnn.weights.own_models import HasMoments
    from distgnn.weights.rule import WeightRule

_NORM, _MERGES = "norm", "merges"
_WINDOW = 25
_SHARE = 2 / (_WINDOW + 1)  # of a new value in an average over a window


class LocalModels(OwnModels):
    """Each rank steps by its own gradient; every so many steps models become their mean.

    With P ranks, gradients g_p of their shares of the loss, and u the update of the optimizer::

        w_p <- w_p - u(P g_p)
        w_p <- (w_0 + ... + w_(P-1)) / P      every `merge_every` steps, and so the moments of u

    With groups the mean is that of p's group alone, which is drawn again for each merge. It leaves
    the sum of all models as it was, and ranks of a group wait for nobody else.

    With a threshold D ranks vote in every step, and merge if one of them says so::

        s_t = (1 - a) s_(t-1) + a |g_p|^2      a = 2 / 26, which is a window of 25 steps
        rank p votes for a merge if |s_t - s_(t-1)| > D s_(t-1), and in the first step

    With vote=half more than half of the ranks have to, with vote=F at least a share F, and with
    vote=mean the mean of their changes has to be above D. D = 0 merges always and D = inf never,
    both without a vote. A threshold may also be a quantile of the changes of the last 20 steps.

    A share of the loss is the sum over a rank's own training vertices divided by the number of
    all. Times P it is as large as the loss of all, so that a step is as long. With a merge in every
    step and plain gradient descent this is the sum of gradients.

    Args:
        group: All ranks.
        clock: Gets the time of merges.
        optimizer: Optimizer of the model, whose moments are merged.
        rule: Rule of merges: when, with whom, and whether moments stay a rank's own.
        seed: Seed of the run, from which groups are drawn; the same on all ranks.

    References:
        McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
        AISTATS 2017 (federated averaging).
        Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019.
        Gan et al., "BAGUA: Scaling up Distributed Learning with System Relaxations", VLDB 2021
        (pairs).
        Wang et al., "DS-Sync: Addressing Network Bottlenecks with Divide-and-Shuffle
        Synchronization for Distributed DNN Training", INFOCOM 2022 (groups).
        Tyagi and Swany, "Accelerating Distributed ML Training via Selective Synchronization",
        CLUSTER 2023 (threshold).
    """

    def __init__(
        self,
        group: Group,
        clock: Clock,
        *,
        optimizer: HasMoments,
        rule: WeightRule,
        seed: int = 0,
    ) -> None:
        super().__init__(group, clock, optimizer=optimizer)
        self._rule = rule
        self._seed = seed
        self._num_steps = 0
        self._merges_before = 0
        self._is_one = True
        self._norm: float | None = None
        self._change = 0.0
        self._ballot = None if rule.gate is None else Ballot(rule.gate, group.size)

    def set_period(self, merge_every: int) -> None:
        """Change the number of steps from one merge to the next."""
        self._rule = replace(self._rule, merge_every=merge_every)

    def after_backward(self, model: nn.Module) -> None:
        """Scale the gradient of this rank's share; a missing one counts as zeros."""
        gradients = [each.grad for each in with_gradients(model) if each.grad is not None]
        for gradient in gradients:
            gradient *= self.group.size
        if self._votes:
            self._watch(gradients)

    def after_step(self, model: nn.Module) -> None:
        """Merge where it is time."""
        self._num_steps += 1
        is_due = self._rule.may_merge(self._num_steps) and self._is_voted_for()
        self._is_one = is_due and self._rule.makes_one(self.group.size)
        if is_due and self.group.size > 1:
            self.num_merges += 1
            self._merge(model)
            self._merges_before += 1

    def _merge(self, model: nn.Module) -> None:
        """Replace weights and moments by their means over this rank's group."""
        moments = {} if self._rule.keeps_moments else self._moments(model)
        self._average([*self._weights(model).values(), *moments.values()], self._members)

    @property
    def _members(self) -> list[int]:
        """Ranks that merge now; groups take turns merge by merge, also where votes skip steps."""
        merge = self._merges_before if self._votes else None
        return self._rule.members(
            self.group.rank, self.group.size, self._seed, self._num_steps, merge
        )

    @property
    def _has_one_model(self) -> bool:
        """Whether the models of all ranks are one now."""
        return self.group.size == 1 or self._is_one

    @property
    def _has_one_optimizer(self) -> bool:
        """Whether the moments of all ranks are one now."""
        return self.group.size == 1 or (self._is_one and not self._rule.keeps_moments)

    @property
    def _votes(self) -> bool:
        return self._rule.votes and self.group.size > 1

    def _watch(self, gradients: Sequence[Tensor]) -> None:
        """Measure by how much this rank's gradient changed."""
        norms = [torch.linalg.vector_norm(each, dtype=torch.float64) for each in gradients]
        square, before = float(torch.stack(norms).square().sum()), self._norm
        self._norm = square if before is None else (1 - _SHARE) * before + _SHARE * square
        if not before:
            # Nothing to compare with; from zero to zero there is no change.
            self._change = 0.0 if before == square else math.inf
        else:
            self._change = abs(self._norm - before) / before

    def _is_voted_for(self) -> bool:
        """Return whether enough ranks want a merge; collective where they vote."""
        if not self._votes or self._ballot is None:
            return True
        vote = torch.tensor([self._change], dtype=torch.float64)
        with self.clock.timed("weight_sync"):
            changes = [float(each) for each in self.group.all_gather(vote)]
        self.bytes_sent += (self.group.size - 1) * vote.nbytes
        return self._ballot.is_carried(changes)

    def _others(self) -> dict[str, Tensor]:
        if self._norm is None:
            return {}
        past = [] if self._ballot is None else self._ballot.state()
        return {
            _NORM: torch.tensor([self._norm, *past], dtype=torch.float64),
            _MERGES: torch.tensor([self._merges_before]),
        }

    def _load_others(self, others: dict[str, Tensor], num_steps: int, *, is_one: bool) -> None:
        self._num_steps, self._is_one = num_steps, is_one
        values = others[_NORM].tolist() if _NORM in others else []
        self._norm = values[0] if values else None
        # Earlier versions counted steps.
        self._merges_before = int(others[_MERGES]) if _MERGES in others else num_steps
        if self._ballot is not None:
            self._ballot.load_state(values[1:])
