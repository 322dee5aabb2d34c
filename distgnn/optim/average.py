"""Exponential moving average of weights."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor, nn


class NoAverage:
    """No average: the weights of the latest step are evaluated and kept."""

    def update(self) -> None:
        """Take note of a step."""

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the averages, until the context ends."""
        yield

    def working_bytes(self) -> int:
        """Return the bytes that averages take, and weights that an evaluation puts aside."""
        return 0

    def state(self) -> dict[str, Tensor]:
        """Return the averages by name of the weight; none before the first step."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""


class WeightAverage(NoAverage):
    """Exponential moving average of the weights of a model, after every step.

    average = decay * average + (1 - decay) * weights, from the weights after the first step on, as
    `torch.optim.swa_utils.AveragedModel` with `get_ema_multi_avg_fn`. All ranks have the same
    weights, so each keeps the same average. Buffers are not averaged: statistics of batch norm are
    those of training.

    Args:
        model: Model whose weights are averaged.
        decay: Share of the average that stays, above 0 and below 1.

    References:
        Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", SIAM Journal
        on Control and Optimization 1992.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._weights: dict[str, Tensor] = dict(model.named_parameters())
        self._decay = decay
        self._averages: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self) -> None:
        """See `NoAverage`."""
        if self._averages:
            averages, weights = list(self._averages.values()), list(self._weights.values())
            torch._foreach_lerp_(averages, weights, 1 - self._decay)
        else:
            self.load_state(self._weights)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """See `NoAverage`.

        Values are copied, because an evaluation that a device replays reads the same memory.
        """
        raw = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._copy(self._averages)
        try:
            yield
        finally:
            self._copy(raw)

    @torch.no_grad()
    def _copy(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            self._weights[name].copy_(value)

    def working_bytes(self) -> int:
        """See `NoAverage`."""
        return 2 * sum(weight.numel() * weight.element_size() for weight in self._weights.values())

    def state(self) -> dict[str, Tensor]:
        """See `NoAverage`."""
        return dict(self._averages)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """See `NoAverage`."""
        self._averages = {
            name: value.detach().to(self._weights[name].device, copy=True)
            for name, value in state.items()
        }


def build_average(model: nn.Module, decay: float) -> NoAverage:
    """Build the average of a model's weights.

    Args:
        model: Model that is trained.
        decay: Share of the average that stays in each step; 0 for no average.
    """
    return WeightAverage(model, decay) if decay else NoAverage()
