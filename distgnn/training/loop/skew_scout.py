"""The steps between merges, by the accuracy that models lose on vertices of other ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

from distgnn.datasets.errors import InputError
from distgnn.training.data.inputs import Inputs
from distgnn.training.tasks.measures import Accuracy, MacroF1, MicroF1
from distgnn.weights.local_models import LocalModels
from distgnn.weights.own_models import trained

if TYPE_CHECKING:
    from torch import Tensor, nn

    from distgnn.comm.group import Group
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.link_inputs import LinkInputs
    from distgnn.training.loop.controllers import Record
    from distgnn.weights.rule import Travel
    from distgnn.weights.strategy import WeightStrategy

_WEIGHT_OF_LOSS = 50.0


class Climber:
    """Climbs to the number of steps with the least cost, a factor of 2 at a time.

    With the accuracy A that models lose away from home, and the loss L that is allowed::

        cost(K) = 50 max(0, A - L) + 1 / K

    A factor that raised the cost is followed by its inverse, and one that lowered it by the same.
    Where more is lost than allowed it is 1/2 in any case; K = 1 is followed by 2 otherwise.

    Args:
        period: Steps between merges at first.
        loss: Accuracy that may be lost, a share.
        most: Most steps.

    Attributes:
        period: Steps between merges.
    """

    def __init__(self, period: int, loss: float, most: int) -> None:
        self.period = period
        self._loss, self._most = loss, most
        self._is_rising = True
        self._last: float | None = None

    def move(self, lost: float) -> None:
        """Choose the next number of steps.

        Args:
            lost: Accuracy that was lost with this one.
        """
        cost = _WEIGHT_OF_LOSS * max(0.0, lost - self._loss) + 1 / self.period
        if lost > self._loss:
            self._is_rising = False
        elif self.period == 1:
            self._is_rising = True
        elif self._last is not None and cost > self._last:
            self._is_rising = not self._is_rising
        self._last = cost
        period = self.period * 2 if self._is_rising else self.period // 2
        self.period = min(max(period, 1), self._most)

    def state(self) -> dict[str, Any]:
        """Return what a run that is resumed needs, as JSON values."""
        return {"period": self.period, "is_rising": self._is_rising, "last": self._last}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.period, self._is_rising = int(state["period"]), bool(state["is_rising"])
        self._last = state["last"]


class Scored(Protocol):
    """Trainer of a run, as far as it is read here.

    Attributes:
        config: Settings of the run.
        group: All ranks.
        inputs: This rank's share of the task.
        model: This rank's model.
        weights: Channel of the weights.
    """

    config: TrainConfig
    group: Group
    inputs: Inputs | LinkInputs
    model: nn.Module
    weights: WeightStrategy

    def exact_scores(self) -> Tensor:
        """Return the scores of this rank's vertices by an exact pass; collective."""


class SkewScout:
    """Lets the models of ranks travel, and climbs to a number of steps between merges.

    Once so many epochs have passed, all ranks score the model of each rank after the step before a
    merge, where models differ most. The accuracy that a model loses is that on the validation
    vertices of its own rank, less that on those of all others. The mean over models decides about
    the next steps, alike on all ranks, see `Climber`.

    Args:
        trainer: Trainer of the run.
        how: When models travel, and what they may lose.

    Raises:
        InputError: If the metric is not a sum over vertices.

    References:
        Hsieh et al., "The Non-IID Data Quagmire of Decentralized Machine Learning", ICML 2020,
        section 7 (SkewScout).
    """

    def __init__(self, trainer: Scored, how: Travel) -> None:
        inputs = trainer.inputs
        assert isinstance(inputs, Inputs), "models of links are the same on every rank"
        measure = inputs.measure
        if not isinstance(measure, (Accuracy, MicroF1, MacroF1)):
            raise InputError(
                f"--weights {trainer.config.weight_rule.text} compares ranks, but --metric "
                f"{measure.name} is of the vertices of all together; use accuracy, micro-f1 or "
                "macro-f1"
            )
        self._trainer, self._how = trainer, how
        self._inputs, self._measure = inputs, measure
        self._climber = Climber(trainer.config.weight_rule.merge_every, how.loss, how.every)
        self._is_due = False
        self._note: str | None = None
        self._bytes = 0

    def begin(self) -> None:
        """Do nothing: the first epochs have the steps of the words."""

    def observe(self, record: Record) -> None:
        """Let models travel where that is due; see `Controller`."""
        epoch = record["epoch"] + 1
        self._is_due |= epoch % self._how.every == 0
        is_last = (epoch + 1) % self._climber.period == 0
        if not (self._is_due and is_last) or epoch >= self._trainer.config.epochs:
            return
        self._is_due = False
        lost = self._accuracy_lost()
        self._climber.move(lost)
        self._apply()
        self._note = (
            f"weights: models lose {100 * lost:.2f} points away from home; merged every "
            f"{self._climber.period} steps from epoch {epoch} on"
        )

    def _apply(self) -> None:
        weights = self._trainer.weights
        assert isinstance(weights, LocalModels), "the words say every(K)"
        weights.set_period(self._climber.period)

    @torch.no_grad()
    def _accuracy_lost(self) -> float:
        """Return the mean loss over models; 0 where no rank's can be told; collective."""
        group = self._trainer.group
        weights = list(trained(self._trainer.model).values())
        own = [each.detach().clone() for each in weights]
        flat = torch.cat([each.reshape(-1) for each in own])
        models = group.all_gather(flat)
        self._bytes += (group.size - 1) * flat.nbytes
        lost = []
        for home, model in enumerate(models):
            self._load(weights, torch.split(model, [each.numel() for each in weights]))
            table = self._shares()
            here, there = (
                self._measure.value(part) for part in (table[home], table.sum(dim=0) - table[home])
            )
            is_known = table[home].any() and (table.sum(dim=0) - table[home]).any()
            if is_known and here is not None and there is not None:
                lost.append(here - there)
        self._load(weights, own)
        return sum(lost) / len(lost) if lost else 0.0

    def _load(self, weights: list[torch.nn.Parameter], values: Any) -> None:
        for weight, value in zip(weights, values, strict=True):
            weight.copy_(value.view(weight.shape))

    def _shares(self) -> Tensor:
        """Return the share of each rank in the validation metric of the model as it is now."""
        inputs, group = self._inputs, self._trainer.group
        rows = inputs.rows["val"]
        scores = self._trainer.exact_scores().cpu().index_select(0, rows)
        own = self._measure.shares(scores, inputs.labels.index_select(0, rows), group)
        return torch.stack(group.all_gather(own))

    def take_note(self) -> str | None:
        """Return what was changed; see `Controller`."""
        note, self._note = self._note, None
        return note

    def take_bytes(self) -> int:
        """Return the bytes of models that travelled; see `Controller`."""
        sent, self._bytes = self._bytes, 0
        return sent

    def figures(self) -> dict[str, Any]:
        """Return the steps between merges at the end; see `Controller`."""
        return {"merge_every": self._climber.period}

    def state(self) -> dict[str, Any]:
        """Return where the climb is; see `Controller`."""
        return {**self._climber.state(), "is_due": self._is_due}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        if state:
            self._climber.load_state(state)
            self._is_due = bool(state["is_due"])
            self._apply()
