"""Learning rates of epochs: constant, cosine, step or plateau, after a warm-up.

torch's schedulers take optimizers of `torch.optim` only, which are not used here. These have the
same formulas. The rate is a function of the epoch and of a few whole numbers, so that a resumed run
has the bits of a straight one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distgnn.optim.optimizers import Optimizer

GRAMMAR = "constant, cosine[:FLOOR], step:EPOCHS[:FACTOR] or plateau[:PATIENCE[:FACTOR]]"
"""Words of a schedule; FLOOR and FACTOR are shares below 1 of the rate."""
_FACTOR = 0.1
_PATIENCE = 10


class ConstantRate:
    """Constant rate.

    Attributes:
        varies: Whether the rate differs between epochs.
        needs_validation: Whether the rate depends on the validation metric.
    """

    varies = False
    needs_validation = False

    def factor(self, epoch: int) -> float:
        """Return the rate of an epoch as a share of the full one.

        Args:
            epoch: Number of the epoch after the warm-up.
        """
        del epoch
        return 1.0

    def watch(self, epoch: int, is_best: bool) -> None:
        """Take note of an evaluation.

        Args:
            epoch: Number of the evaluated epoch.
            is_best: Whether its validation metric is the best so far.
        """

    def state(self) -> dict[str, int]:
        """Return what the next epoch depends on besides its number."""
        return {}

    def load_state(self, state: Mapping[str, int]) -> None:
        """Restore what `state` returned."""


class CosineRate(ConstantRate):
    """Half a wave of a cosine, from the full rate down to a share of it.

    factor(t) = floor + (1 - floor) * (1 + cos(pi t / num_epochs)) / 2, as `CosineAnnealingLR`.

    Args:
        num_epochs: Epochs of the run after the warm-up.
        floor: Share of the rate at the end, at least 0 and below 1.

    References:
        Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017.
    """

    varies = True

    def __init__(self, num_epochs: int, floor: float = 0.0) -> None:
        self._num_epochs = num_epochs
        self._floor = floor

    def factor(self, epoch: int) -> float:
        """See `ConstantRate`."""
        wave = (1 + math.cos(math.pi * epoch / self._num_epochs)) / 2
        return self._floor + (1 - self._floor) * wave


class SteppedRate(ConstantRate):
    """Rate that is multiplied by a factor after every so many epochs, as `StepLR`.

    Args:
        every: Number of epochs with one rate.
        factor: Factor between 0 and 1.
    """

    varies = True

    def __init__(self, every: int, factor: float = _FACTOR) -> None:
        self._every = every
        self._factor = factor

    def factor(self, epoch: int) -> float:
        """See `ConstantRate`."""
        return float(self._factor ** (epoch // self._every))


class PlateauRate(ConstantRate):
    """Rate that is cut when the validation metric gets no better, as `ReduceLROnPlateau`.

    A cut follows the first evaluation after more than `patience` epochs without a better metric;
    the epochs of the warm-up do not count. The threshold of torch is 0 here.

    Args:
        warm_up: Number of epochs before those that count.
        patience: Number of epochs that may pass without a better metric.
        factor: Factor of a cut, between 0 and 1.
    """

    varies = True
    needs_validation = True

    def __init__(self, warm_up: int, patience: int = _PATIENCE, factor: float = _FACTOR) -> None:
        self._patience = patience
        self._factor = factor
        self._num_cuts = 0
        self._counted_from = warm_up - 1

    def factor(self, epoch: int) -> float:
        """See `ConstantRate`."""
        del epoch
        return float(self._factor**self._num_cuts)

    def watch(self, epoch: int, is_best: bool) -> None:
        """See `ConstantRate`."""
        is_due = epoch - self._counted_from > self._patience
        self._num_cuts += is_due and not is_best
        if is_due or is_best:
            self._counted_from = max(epoch, self._counted_from)

    def state(self) -> dict[str, int]:
        """See `ConstantRate`."""
        return {"num_cuts": self._num_cuts, "counted_from": self._counted_from}

    def load_state(self, state: Mapping[str, int]) -> None:
        """See `ConstantRate`."""
        # A search may give a run a plateau that had another schedule before.
        self._num_cuts = state.get("num_cuts", 0)
        self._counted_from = state.get("counted_from", self._counted_from)


def parse_schedule(text: str, *, num_epochs: int = 1, warm_up: int = 0) -> ConstantRate:
    """Read the words of a schedule.

    Args:
        text: Name and parameters in the order of `GRAMMAR`, with colons between them.
        num_epochs: Number of epochs of the run.
        warm_up: Number of epochs of its warm-up.

    Returns:
        The schedule of the epochs after the warm-up.

    Raises:
        ValueError: If the words are no schedule.
    """
    name, *words = text.split(":")
    if name == "constant" and not words:
        return ConstantRate()
    if name == "cosine" and len(words) <= 1:
        return CosineRate(max(num_epochs - warm_up, 1), *map(_floor, words))
    if name == "step" and 1 <= len(words) <= 2:
        return SteppedRate(_positive(words[0]), *map(_factor, words[1:]))
    if name == "plateau" and len(words) <= 2:
        counts, factors = map(_count, words[:1]), map(_factor, words[1:])
        return PlateauRate(warm_up, *counts, *factors)
    raise ValueError(f"'{text}' is no schedule")


def is_schedule(text: str) -> bool:
    """Return whether words are a schedule."""
    try:
        parse_schedule(text)
    except ValueError:
        return False
    return True


def _count(word: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise ValueError(f"'{word}' is no number of epochs")
    return int(word)


def _positive(word: str) -> int:
    if not (number := _count(word)):
        raise ValueError(f"'{word}' is not above 0")
    return number


def _factor(word: str) -> float:
    factor = float(word)
    if not 0 < factor < 1:
        raise ValueError(f"'{word}' is not between 0 and 1")
    return factor


def _floor(word: str) -> float:
    return 0.0 if float(word) == 0 else _factor(word)


class LearningRate:
    """Learning rate of a run, which it sets before each epoch.

    While the warm-up lasts, the rate of epoch e is (e + 1) / (warm_up + 1) of the full one, as
    with `LinearLR(start_factor=1 / (warm_up + 1), total_iters=warm_up)`.

    Args:
        optimizer: Optimizer with the full rate.
        schedule: ConstantRate of the epochs after the warm-up.
        warm_up: Number of epochs of the warm-up.

    Attributes:
        value: Rate of the latest epoch.
        watch: See `ConstantRate`.
        state: See `ConstantRate`.
        load_state: See `ConstantRate`.
    """

    def __init__(self, optimizer: Optimizer, schedule: ConstantRate, warm_up: int) -> None:
        self._optimizer = optimizer
        self._schedule = schedule
        self._warm_up = warm_up
        self._full = self.value = float(optimizer.lr)
        self.watch = schedule.watch
        self.state = schedule.state
        self.load_state = schedule.load_state

    def begin_epoch(self, epoch: int) -> None:
        """Give the optimizer the rate of an epoch.

        Args:
            epoch: Number of the epoch.
        """
        if epoch < self._warm_up:
            factor = (epoch + 1) / (self._warm_up + 1)
        else:
            factor = self._schedule.factor(epoch - self._warm_up)
        self.value = self._full * factor
        if self._warm_up or self._schedule.varies:
            self._optimizer.set_lr(self.value)
