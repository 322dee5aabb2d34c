"""Models that differ from rank to rank: their mean, and what a checkpoint keeps of each."""

from __future__ import annotations

import math
from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import torch

from distgnn.exchange.base import all_reduce_bytes
from distgnn.exchange.sliced import slice_bytes
from distgnn.weights.groups import average_within
from distgnn.weights.strategy import WeightStrategy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from distgnn.comm.group import Group
    from distgnn.exchange.clock import Clock

_WEIGHT, _MOMENT = "weight.", "moment."


class HasMoments(Protocol):
    """Optimizer whose moments models that differ can merge."""

    @property
    def betas(self) -> tuple[float, float] | None:
        """Shares of the first and the second moment that a step of Adam keeps; None for others."""

    def state_dict(self) -> Mapping[int, Mapping[str, Tensor]]:
        """Return the moments of each parameter by its number, themselves and no copies."""


class OwnModels(WeightStrategy):
    """Ranks whose models differ; an evaluation and a checkpoint take the mean of all.

    Args:
        group: All ranks.
        clock: Gets the time of messages.
        optimizer: Optimizer of the model.
    """

    def __init__(self, group: Group, clock: Clock, *, optimizer: HasMoments) -> None:
        super().__init__(group, clock)
        self._optimizer = optimizer
        self._deviation: float | None = None

    @property
    @abstractmethod
    def _has_one_model(self) -> bool:
        """Whether the models of all ranks are one now."""

    @property
    @abstractmethod
    def _has_one_optimizer(self) -> bool:
        """Whether the moments of all ranks are one now."""

    def _weights(self, model: nn.Module) -> dict[str, Tensor]:
        """Return what is merged of the weights, by name."""
        return {f"{_WEIGHT}{name}": each.detach() for name, each in trained(model).items()}

    def _moments(self, model: nn.Module) -> dict[str, Tensor]:
        """Return what is merged of the optimizer, by name; counters are alike on all ranks."""
        del model
        return {
            f"{_MOMENT}{number}.{name}": value
            for number, moments in self._optimizer.state_dict().items()
            for name, value in moments.items()
            if value.dim()
        }

    @torch.no_grad()
    def _average(self, tensors: Sequence[Tensor], members: list[int]) -> None:
        """Replace tensors by their means over some ranks, which alone need to call this."""
        if len(members) == 1:
            return
        with self.clock.timed("weight_sync"):
            for dtype in dict.fromkeys(each.dtype for each in tensors):
                own = [each for each in tensors if each.dtype == dtype]
                flat = torch.cat([each.reshape(-1) for each in own])
                self.bytes_sent += self._average_flat(flat, members)
                for each, mean in zip(
                    own, torch.split(flat, [e.numel() for e in own]), strict=True
                ):
                    each.copy_(mean.view(each.shape))

    def _average_flat(self, flat: Tensor, members: list[int]) -> int:
        """Replace a vector by its mean over some ranks; return the bytes that this rank sent."""
        size = len(members)
        if size == self.group.size:
            self.group.all_reduce(flat)
            flat /= size
            return all_reduce_bytes(flat.nbytes, size)
        average_within(self.group, flat, members)
        return slice_bytes(len(flat), members.index(self.group.rank), size, flat.element_size())

    @contextmanager
    def consensus(self, model: nn.Module, *, has_moments: bool = False) -> Iterator[None]:
        """Hold the mean of all models inside a block; see `WeightStrategy.consensus`."""
        tensors: list[Tensor] = []
        if not self._has_one_model:
            tensors += self._weights(model).values()
        if has_moments and not self._has_one_optimizer:
            tensors += self._moments(model).values()
        own = [each.clone() for each in tensors]
        if tensors:
            self._average(tensors, list(range(self.group.size)))
        num_weights = 0 if self._has_one_model else len(self._weights(model))
        self._deviation = _deviation(own[:num_weights], tensors[:num_weights])
        try:
            yield
        finally:
            for each, before in zip(tensors, own, strict=True):
                each.copy_(before)

    def take_deviation(self) -> float | None:
        """Return how far this rank's model was from the mean; see `WeightStrategy`."""
        deviation, self._deviation = self._deviation, None
        return deviation

    def _others(self) -> dict[str, Tensor]:
        """Return what a checkpoint keeps besides weights and moments, by name."""
        return {}

    def state(self, model: nn.Module) -> dict[str, Tensor]:
        """Return copies of this rank's weights and moments; none of those that are all ranks'."""
        own = self._others()
        if not self._has_one_model:
            own |= self._weights(model)
        if not self._has_one_optimizer:
            own |= self._moments(model)
        return {name: each.clone() for name, each in own.items()}

    def load_state(self, state: dict[str, Tensor], model: nn.Module, num_steps: int) -> None:
        """Continue after some steps; see `WeightStrategy.load_state`."""
        own = {**self._weights(model), **self._moments(model)} if state else {}
        others = {}
        for name, value in state.items():
            if name.startswith((_WEIGHT, _MOMENT)):
                own[name].copy_(value)
            else:
                others[name] = value
        is_one = not any(name.startswith(_WEIGHT) for name in state)
        self._load_others(others, num_steps, is_one=is_one)

    @abstractmethod
    def _load_others(self, others: dict[str, Tensor], num_steps: int, *, is_one: bool) -> None:
        """Restore what `_others` returned after some steps, and whether models are one now."""


def _deviation(own: Sequence[Tensor], means: Sequence[Tensor]) -> float:
    """Return the squared distance of tensors from means, by the squares of these."""
    changes = [each.double() - mean.double() for each, mean in zip(own, means, strict=True)]
    distance = sum(float(each.square().sum()) for each in changes)
    norm = sum(float(mean.double().square().sum()) for mean in means)
    return distance / norm if norm else distance


_SIGNED = ("exp_avg", "momentum_buffer", "grad_avg", "prev", "ax")


def is_moment(name: str) -> bool:
    """Return whether what is merged under a name belongs to the optimizer, not to the model."""
    return name.startswith(_MOMENT)


def is_signed(name: str) -> bool:
    """Return whether moments may be below 0; others are squares, or lengths of steps.

    Args:
        name: Name of the moment in the optimizer, or one that ends in it after a dot.
    """
    return name.rpartition(".")[2] in _SIGNED


def bound_squares(optimizer: HasMoments) -> None:
    """Keep squares as large as steps would have left them: they are divided by.

    A merge may leave them smaller than any gradients with such a mean do, and a code rounds them
    down to zero while the mean stays. Of RMSprop they are at least the square of the mean. Of Adam,
    with b and B for the shares that its moments keep, Cauchy and Schwarz say::

        m^2 <= v (1 - b)^2 / ((1 - B) (1 - b^2 / B)),  which is 52.8 v for 0.9 and 0.999
    """
    ratio = math.inf
    if optimizer.betas is not None:
        first, second = optimizer.betas
        # Else there is no bound, as an old gradient may have left the squares, not the mean.
        if first**2 < second < 1:
            ratio = (1 - first) ** 2 / ((1 - second) * (1 - first**2 / second))
    for moments in optimizer.state_dict().values():
        for mean, squares, limit in (
            ("grad_avg", "square_avg", 1.0),
            ("exp_avg", "exp_avg_sq", ratio),
        ):
            if mean in moments and squares in moments and limit < math.inf:
                least = moments[mean].square() / limit
                # The square is rounded, and not where a fused operation subtracts it.
                least *= 1 + 4 * torch.finfo(least.dtype).eps
                torch.maximum(moments[squares], least, out=moments[squares])


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights that are trained, by name."""
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def with_gradients(model: nn.Module) -> list[nn.Parameter]:
    """Return the weights that are trained; a missing gradient becomes zeros."""
    parameters = list(trained(model).values())
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return parameters
