"""L-BFGS: steps along curvature that past gradients show, each as long as a line search finds.

`torch.optim.LBFGS` is not used: it loads torch's compiler, which takes seconds, and it computes the
gradient of a step's end again where the next step begins.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from distgnn.exchange.base import all_reduce_bytes
from distgnn.optim.line_search import Point, search
from distgnn.optim.optimizers import Optimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch import Tensor

    from distgnn.comm.group import Group
    from distgnn.optim.optimizers import Moments

MEMORY = 10
"""Pairs of steps and changes of the gradient that are remembered."""
MOST_EVALUATIONS = 10
"""Evaluations of the loss in a line search, at most."""
NUMBERS_BYTES = (16, 8, 8, 8, 8)
"""Bytes of each sum of numbers that decide, in a search that evaluates once.

They are slope and length of the direction; then loss, penalty and slope there; and a square.
"""
_LEAST_CURVATURE = 1e-10


class Evaluated(NamedTuple):
    """Loss and gradient at one place, the same on every rank.

    Attributes:
        loss: Loss that is reported, without the penalty.
        objective: Loss that is minimised, with it.
        gradient: (num_weights,) of the objective.
    """

    loss: float
    objective: float
    gradient: Tensor


class Lbfgs(Optimizer):
    """Minimises the loss by L-BFGS with a line search for the strong Wolfe conditions.

    One step of an epoch is one line search, which evaluates loss and gradient once or more. Sums
    over ranks are exact and the numbers that decide are those of rank 0, so that every rank takes
    the same steps. The loss must be a function of the weights alone: no dropout.

    Args:
        parameters: Weights that it steps.
        group: All ranks, which have the same weights and summed gradients.
        lr: Length that a search tries first; 1 is that of Newton's step.
        weight_decay: Weight of the L2 penalty.
        decaying: Weights that the penalty is on; all if None.

    References:
        Liu and Nocedal, "On the Limited Memory BFGS Method for Large Scale Optimization",
        Mathematical Programming 1989; Nocedal and Wright, "Numerical Optimization", 2006,
        algorithms 3.5, 3.6 and 7.4.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        group: Group,
        *,
        lr: float,
        weight_decay: float,
        decaying: Iterable[Tensor] | None = None,
    ) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay, decaying=decaying)
        self._group = group
        self._sizes = [each.numel() for each in self._parameters]
        self._steps: list[Tensor] = []
        self._changes: list[Tensor] = []
        self._here: Evaluated | None = None
        self._num_failed = 0
        self._bytes_sent = 0
        self._note: str | None = None

    @torch.no_grad()
    def take(self, evaluate: Callable[[], Tensor]) -> Tensor:
        """Search along one line; see `Optimizer.take`.

        The loss is that before the step: the whole on rank 0, and 0 on the others.
        """
        here = self._here or self._evaluate(evaluate)
        self._here = here
        if math.isfinite(here.objective) and self._num_failed < 2:
            self._search(here, evaluate)
        self.zero_grad()
        return torch.tensor(here.loss if self._group.rank == 0 else 0.0, dtype=torch.float64)

    def _search(self, here: Evaluated, evaluate: Callable[[], Tensor]) -> None:
        direction = self._direction(here.gradient)
        slope, length = self._agreed(_dot(direction, here.gradient), float(direction.abs().sum()))
        if self._is_rounding(slope, here):
            self._end()
            return
        first = float(self.lr) * (1.0 if self._steps else min(1.0, 1.0 / length))
        origin = torch.cat([each.reshape(-1) for each in self._parameters])
        reached: dict[float, Evaluated] = {}

        def measure(at: float) -> Point:
            self._go(origin + at * direction)
            there = reached[at] = self._evaluate(evaluate)
            (slope_there,) = self._agreed(_dot(direction, there.gradient))
            return Point(at, there.objective, slope_there)

        start = Point(0.0, here.objective, slope)
        found = search(measure, start, first, MOST_EVALUATIONS)
        if found is start:
            self._go(origin)
            self._fail()
            return
        self._go(origin + found.length * direction)
        self._here, self._num_failed = reached[found.length], 0
        change = self._here.gradient - here.gradient
        curvature = found.length * (found.slope - slope)
        (square,) = self._agreed(_dot(change, change))
        if curvature > _LEAST_CURVATURE * square:
            self._steps = [*self._steps, found.length * direction][-MEMORY:]
            self._changes = [*self._changes, change][-MEMORY:]

    def _fail(self) -> None:
        """Forget the curvature after a search in vain; the second one in turn ends the descent."""
        if self._num_failed or not self._steps:
            self._end()
        else:
            self._num_failed = 1
        self._steps, self._changes = [], []

    def _is_rounding(self, slope: float, here: Evaluated) -> bool:
        """Return whether a step would lower the loss by less than its last digit.

        A step along known curvature lowers it by about half the slope. A search would then try all
        lengths that it may, and find one that is lower by chance.
        """
        least = torch.finfo(here.gradient.dtype).eps * abs(here.objective) if self._steps else 0.0
        return abs(slope) <= least

    def _end(self) -> None:
        """Leave the weights as they are from now on."""
        self._num_failed = 2
        self._note = (
            "lbfgs: no step lowers the loss any more; the weights stay as they are from now on"
        )

    def _direction(self, gradient: Tensor) -> Tensor:
        """Return minus the inverse Hessian that the memory approximates times a gradient."""
        result, weights = -gradient, []
        pairs = list(zip(self._steps, self._changes, strict=True))
        for step, change in reversed(pairs):
            weight = _dot(step, result) / _dot(step, change)
            result = result - weight * change
            weights.append(weight)
        if pairs:
            step, change = pairs[-1]
            result = result * (_dot(step, change) / _dot(change, change))
        for (step, change), weight in zip(pairs, reversed(weights), strict=True):
            result = result + (weight - _dot(change, result) / _dot(step, change)) * step
        return result

    def _evaluate(self, evaluate: Callable[[], Tensor]) -> Evaluated:
        with torch.enable_grad():
            share = float(evaluate())
        penalty, gradients = 0.0, []
        for each in self._parameters:
            grad = torch.zeros_like(each) if each.grad is None else each.grad
            if self.weight_decay and id(each) in self._decaying:
                penalty += 0.5 * self.weight_decay * _dot(each, each)
                grad = grad + self.weight_decay * each
            gradients.append(grad.reshape(-1))
        self.zero_grad()
        # Ranks must agree on what a search compares, to the last bit.
        loss = self._summed([share])[0]
        (penalty,) = self._agreed(penalty)
        return Evaluated(loss, loss + penalty, torch.cat(gradients))

    def _go(self, place: Tensor) -> None:
        for each, values in zip(self._parameters, torch.split(place, self._sizes), strict=True):
            each.copy_(values.view_as(each))

    def _agreed(self, *values: float) -> list[float]:
        """Return the numbers of rank 0; processors may round sums of many differently."""
        return self._summed(list(values) if self._group.rank == 0 else [0.0] * len(values))

    def _summed(self, values: list[float]) -> list[float]:
        if self._group.size == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64)
        self._group.all_reduce(total)
        self._bytes_sent += all_reduce_bytes(total.nbytes, self._group.size)
        summed: list[float] = total.tolist()
        return summed

    def take_bytes(self) -> int:
        """Return the payload bytes that steps sent from this rank since the last call."""
        sent, self._bytes_sent = self._bytes_sent, 0
        return sent

    def take_note(self) -> str | None:
        """Return a line for the log about steps since the last call, or None."""
        note, self._note = self._note, None
        return note

    def state_dict(self) -> dict[int, Moments]:
        """Return the memory and the last gradient, with the number of the first parameter."""
        if self._here is None:
            return {}
        numbers = [self._here.loss, self._here.objective, self._num_failed]
        state = {
            _GRADIENT: self._here.gradient,
            _NUMBERS: torch.tensor(numbers, dtype=torch.float64),
        }
        if self._steps:
            state |= {_STEPS: torch.stack(self._steps), _CHANGES: torch.stack(self._changes)}
        return {0: state}

    def load_state_dict(self, state: Mapping[int, Moments]) -> None:
        """Restore what `state_dict` returned; copied."""
        self._here, self._num_failed, self._steps, self._changes = None, 0, [], []
        if not state:
            return
        device = self._parameters[0].device
        own = {name: value.to(device, copy=True) for name, value in state[0].items()}
        loss, objective, num_failed = own[_NUMBERS].tolist()
        self._here = Evaluated(loss, objective, own[_GRADIENT])
        self._num_failed = int(num_failed)
        if _STEPS in own:
            self._steps, self._changes = list(own[_STEPS]), list(own[_CHANGES])


_GRADIENT, _NUMBERS = "lbfgs_gradient", "lbfgs_numbers"
_STEPS, _CHANGES = "lbfgs_steps", "lbfgs_changes"
"""Names of what a checkpoint holds."""


def _dot(left: Tensor, right: Tensor) -> float:
    return float(torch.dot(left.double().reshape(-1), right.double().reshape(-1)))
