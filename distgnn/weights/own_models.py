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

    def state_dict(self) -> Mapping[int, Mapping[str, Tensor]]:
        """Return the moments of each parameter by its number, themselves and no copies."""

    def betas(self, number: int) -> tuple[float, float] | None:
        """Return the shares of both moments that a step of Adam keeps; None for other rules.

        Args:
            number: Number of the parameter.
        """


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


_SQUARES = (
    *("exp_avg_sq", "max_exp_avg_sq", "square_avg", "acc_delta", "sum"),
    *("row_var", "col_var", "variance"),
)
_LENGTHS = ("exp_inf", "step_size")


def is_moment(name: str) -> bool:
    """Return whether what is merged under a name belongs to the optimizer, not to the model."""
    return name.startswith(_MOMENT)


def is_square(name: str) -> bool:
    """Return whether moments are means or sums of squares.

    Args:
        name: Name of the moment in the optimizer, or one that ends in it after a dot.
    """
    return name.rpartition(".")[2] in _SQUARES


def is_never_negative(name: str) -> bool:
    """Return whether moments are squares, or lengths; the name as of `is_square`."""
    return name.rpartition(".")[2] in _SQUARES + _LENGTHS


def bound_squares(optimizer: HasMoments) -> None:
    """Keep what steps are divided by as large as any gradients leave it.

    A merge may leave it smaller beside a mean, and a code rounds it down to zero while the mean
    stays. After t steps of Adam, of Adamax, or of a centered RMSprop there is::

        m^2 <= v (1 - b)^2 / (1 - B) (1 + r + ... + r^(t-1)),   r = b^2 / B
        |m| <= u (1 - b)             (1 + r + ... + r^(t-1)),   r = b / B
        mean of gradients, squared <= mean of squares

    Moments keep the shares b and B. The first is what Cauchy and Schwarz say.
    """
    for number, moments in optimizer.state_dict().items():
        if "square_avg" in moments and "grad_avg" in moments:
            _raise(moments["square_avg"], moments["grad_avg"].square())
        betas = optimizer.betas(number)
        if betas is None or "exp_avg" not in moments:
            continue
        mean, (first, second) = moments["exp_avg"], betas
        num_steps = int(moments["step"]) if "step" in moments else _MANY_STEPS
        if "exp_avg_sq" in moments:
            limit = _powers(first**2 / second, num_steps) * (1 - first) ** 2 / (1 - second)
            _raise(moments["exp_avg_sq"], mean.square() / limit)
        if "exp_inf" in moments:
            limit = _powers(first / second, num_steps) * (1 - first)
            _raise(moments["exp_inf"], mean.abs() / limit)


_MANY_STEPS = 1000


def _powers(ratio: float, count: int) -> float:
    """Return 1 + r + ... + r^(count - 1), at most the largest number."""
    if ratio == 1 or count < 2:
        return float(max(count, 1))
    # A power that is too large for a float is no bound.
    power = math.exp(min(count * math.log(ratio), 600.0)) if ratio > 0 else 0.0
    return (1 - power) / (1 - ratio)


def _raise(values: Tensor, least: Tensor) -> None:
    """Raise values to the least that they can be, and a bit more.

    The least is rounded, and not where a fused operation subtracts it.
    """
    least *= 1 + 4 * torch.finfo(least.dtype).eps
    torch.maximum(values, least, out=values)


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
