"""Gradients of which ranks tell each other single values, once these matter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import torch

from distgnn.exchange.tags import WEIGHTS_TAG
from distgnn.weights.own_models import HasMoments, OwnModels, trained, with_gradients

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

    from distgnn.comm.group import Group
    from distgnn.exchange.clock import Clock
    from distgnn.weights.rule import Significance

_UNSENT = "unsent."


@runtime_checkable
class StepRule(HasMoments, Protocol):
    """Optimizer of which it is known by how much a gradient moves a weight."""

    @property
    def lr(self) -> float | Tensor:
        """Length of a step."""

    def divisor(self, parameter: Tensor) -> float | Tensor:
        """Return by what a gradient times lr is divided for what it moves a weight by."""


class SignificantUpdates(OwnModels):
    """Each rank steps by its own gradient at once, and by values of others once they matter.

    With gradients g_p of their shares of the loss, unsent sums a_p, and the threshold S::

        a_p <- a_p + g_p
        s_p  = a_p where lr |a_p| / d >= S |w_p|, else 0        a_p <- a_p - s_p
        w_p <- w_p - u(g_p + sum of s_q over the other ranks q)

    u is the update of the optimizer. A gradient of a moves a weight by lr a / d in the end, where
    d is 1 - momentum for gradient descent, and sqrt(v) for Adam. Nothing is lost: what was told and
    what is unsent add up to all gradients. A message begins with a bit for each
    value, so that receivers know what to wait for, which is the barrier of the paper; the values
    follow. S = 0 is the sum of gradients, of the same bits where they are added in rank order, and
    S = inf sends nothing.

    Args:
        group: All ranks.
        clock: Gets the time of messages.
        optimizer: Optimizer of the model.
        how: Values that are told.

    References:
        Hsieh et al., "Gaia: Geo-Distributed Machine Learning Approaching LAN Speeds", NSDI 2017,
        sections 4 and 5 (there of updates, as gradient descent without momentum makes them).
    """

    def __init__(
        self, group: Group, clock: Clock, *, optimizer: StepRule, how: Significance
    ) -> None:
        super().__init__(group, clock, optimizer=optimizer)
        self._rule = optimizer
        self._how = how
        self._num_steps = 0
        self._unsent: dict[str, Tensor] = {}

    @property
    def _has_one_model(self) -> bool:
        return self.group.size == 1 or self._how.threshold == 0

    _has_one_optimizer = _has_one_model

    @torch.no_grad()
    def after_backward(self, model: nn.Module) -> None:
        """Add the values of other ranks to each gradient; a missing one counts as zeros."""
        self._num_steps += 1
        parameters = with_gradients(model)
        if self._how.threshold == math.inf or self.group.size == 1:
            return
        with self.clock.timed("weight_sync"):
            for dtype in dict.fromkeys(each.dtype for each in parameters):
                self._add({k: v for k, v in trained(model).items() if v.dtype == dtype})

    def _add(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Add the values of other ranks to the gradients of weights of one dtype."""
        gradients = [each.grad for each in parameters.values() if each.grad is not None]
        chosen = []
        for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
            before = self._unsent.get(name)
            # What a checkpoint kept lies in memory of the host.
            self._unsent[name] = (
                gradient.clone() if before is None else before.to(gradient.device) + gradient
            )
            chosen.append(self._matters(parameter, self._unsent[name]).reshape(-1))
        own, mask = _flat(gradients), torch.cat(chosen)
        unsent = _flat([self._unsent[name] for name in parameters])
        told = self._tell(mask, unsent[mask])
        unsent[mask] = 0
        total = torch.zeros_like(own)
        for rank in range(self.group.size):
            if rank == self.group.rank:
                total += own
            else:
                where, values = told[rank]
                total[where] += values
        sizes = [each.numel() for each in gradients]
        parts = zip(
            parameters,
            gradients,
            torch.split(total, sizes),
            torch.split(unsent, sizes),
            strict=True,
        )
        for name, gradient, sums, rest in parts:
            gradient.copy_(sums.view_as(gradient))
            self._unsent[name] = rest.view_as(gradient).clone()

    def _matters(self, weight: Tensor, unsent: Tensor) -> Tensor:
        """Return which values are told; one that is not finite is."""
        share = self._how.threshold / (math.sqrt(self._num_steps) if self._how.decays else 1)
        least = share * self._rule.divisor(weight) * weight.abs()
        return ~(self._rule.lr * unsent.abs() < least) & (unsent != 0)

    def _tell(self, mask: Tensor, values: Tensor) -> dict[int, tuple[Tensor, Tensor]]:
        """Tell all other ranks values; return which they told, and those, by rank."""
        peers = [peer for peer in range(self.group.size) if peer != self.group.rank]
        bits = torch.from_numpy(np.packbits(mask.cpu().numpy()))
        packed = {peer: torch.empty_like(bits) for peer in peers}
        self._transfer(packed, bits)
        masks = {
            peer: torch.from_numpy(np.unpackbits(each.numpy(), count=len(mask)).astype(bool))
            for peer, each in packed.items()
        }
        arrived = {peer: values.new_empty(int(each.sum())) for peer, each in masks.items()}
        self._transfer(arrived, values)
        return {peer: (masks[peer].to(mask.device), arrived[peer]) for peer in peers}

    def _transfer(self, incoming: Mapping[int, Tensor], sent: Tensor) -> None:
        """Exchange messages with all other ranks; both ends know which are empty."""
        works = self.group.transfer(
            [(each, peer) for peer, each in incoming.items() if len(each)],
            [(sent, peer) for peer in incoming if len(sent)],
            WEIGHTS_TAG,
        )
        for work in works:
            work.wait()
        self.bytes_sent += len(incoming) * sent.nbytes

    def _others(self) -> dict[str, Tensor]:
        return {f"{_UNSENT}{name}": each for name, each in self._unsent.items()}

    def _load_others(self, others: dict[str, Tensor], num_steps: int, *, is_one: bool) -> None:
        del is_one
        self._num_steps = num_steps
        self._unsent = {name.removeprefix(_UNSENT): each for name, each in others.items()}


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([each.reshape(-1) for each in tensors])
