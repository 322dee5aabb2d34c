"""Objective of a run: its loss and its metric; each vertex counts once, at its root."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial, reduce
from typing import TYPE_CHECKING, Protocol

import torch

from distgnn.training.data.inputs import SPLITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.comm.group import Group
    from distgnn.exchange.base import Exchange
    from distgnn.training.data.inputs import Inputs
    from distgnn.training.data.label_input import LabelDraw
    from distgnn.training.tasks.measures import Metric

# Divisor of a loss to which no vertex contributes.
_LEAST_TOTAL = torch.finfo(torch.float32).tiny


class Evaluation(Protocol):
    """Result of an evaluation, the same on every rank.

    Attributes:
        metric: Metric by name of the split; None where it is not measured.
        val_loss: Mean validation loss; it breaks ties between epochs.
    """

    @property
    def metric(self) -> dict[str, float | None]:
        """Metric by name of the split."""

    @property
    def val_loss(self) -> float:
        """Mean validation loss."""


class Objective(ABC):
    """Loss and metric of a run.

    Attributes:
        measure: Metric that chooses the best epoch.
    """

    measure: Metric

    @property
    @abstractmethod
    def num_terms(self) -> float:
        """Number of terms, or sum of their weights, that the last loss is the mean of."""

    @abstractmethod
    def loss(self, scores: Tensor) -> Tensor:
        """Return this rank's share of the loss of the model's training scores."""

    @abstractmethod
    def evaluate(self, scores: Tensor) -> Evaluation:
        """Measure (num_roots, width) scores of the roots; collective."""

    def working_bytes(self, width: int) -> int:
        """Return the bytes of a step besides those of the model.

        Args:
            width: Number of hidden columns.
        """
        del width
        return 0

    def take_bytes(self) -> int:
        """Return the payload bytes of rows that losses sent since the last call."""
        return 0

    def take_eval_bytes(self) -> int:
        """Return the payload bytes of rows that evaluations sent since the last call."""
        return 0


class VertexObjective(Objective):
    """Loss and metric of a task on vertices.

    Args:
        inputs: This rank's share of the task.
        loss: Function from (num_rows, num_classes) scores to this rank's share.
        group: All ranks.
    """

    def __init__(self, inputs: Inputs, loss: Loss | WithheldLoss, group: Group) -> None:
        self.measure = inputs.measure
        self._inputs = inputs
        self._loss = loss
        self._group = group

    @property
    def num_terms(self) -> float:
        """See `Objective`."""
        return self._loss.total

    def loss(self, scores: Tensor) -> Tensor:
        """Return this rank's share of the loss for (num_rows, num_classes) scores."""
        return self._loss(scores)

    def evaluate(self, scores: Tensor) -> Evaluation:
        """Score all splits."""
        return Scores(scores, self._inputs, self._group)


def smoothed(
    losses: Callable[[Tensor, Tensor], Tensor], share: float, class_weights: Tensor | None = None
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the cross-entropy of targets that are spread over all classes.

    The target of a vertex of class c is 1 - share at c, plus share / num_classes everywhere. Its
    cross-entropy is that of c, plus share * (score of c - mean of all scores). With weights w,
    class k counts w[k] / w[c], so that a mean with the weights of vertices is that of torch.

    Args:
        losses: Cross-entropy of each vertex, from (num, num_classes) scores and (num,) classes.
        share: Share that is spread, at least 0 and below 1.
        class_weights: (num_classes,) weights; None for 1 each.

    References:
        Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016.
    """

    def spread(scores: Tensor, classes: Tensor) -> Tensor:
        own = scores.gather(1, classes[:, None])[:, 0]
        return losses(scores, classes) + share * (own - scores.mean(dim=1))

    def spread_weights(scores: Tensor, classes: Tensor) -> Tensor:
        assert class_weights is not None, "asked for with weights alone"
        found = losses(scores, classes)
        # -log softmax(scores)[k] is that of c, plus the score of c, less that of k.
        below = scores.gather(1, classes[:, None]) - scores
        of_all = found * class_weights.mean() + below @ class_weights / len(class_weights)
        return (1 - share) * found + share * of_all / class_weights[classes]

    return spread if class_weights is None else spread_weights


class Loss:
    """Loss of the task over training vertices.

    A rank's value is the sum over its own roots divided by the global count. So the values, and the
    weight gradients, of all ranks add up to those of the whole graph.

    Args:
        inputs: This rank's share of the task; scores are on the device of its features.
        rows: (num_train_rows,) int64. Rows of the scores of training vertices; None for all rows.
        weight: (num_train_rows,) weight of each of this rank's training vertices, or None.
        total: Sum of the weights over all ranks; the count without weights.
        losses: Loss of each vertex, from its scores and its targets.

    Attributes:
        weight: The argument, on the device of the scores.
        total: The argument.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        rows: Tensor | None,
        weight: Tensor | None,
        total: float,
        losses: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        device = inputs.features.device
        self._rows = None if rows is None else rows.to(device)
        self._labels = inputs.labels[inputs.rows["train"]].to(device)
        self._losses = losses
        self.weight = None if weight is None else weight.to(device)
        self.total = total

    def __call__(self, scores: Tensor) -> Tensor:
        """Return this rank's share of the loss for (num_rows, num_classes) scores."""
        return self.of_each(scores).sum() / self.total

    def of_each(self, scores: Tensor) -> Tensor:
        """Return the (num_train_rows,) loss of each training vertex, times its weight."""
        # The backward of scores[rows] would add one row after the other on one thread.
        own = scores if self._rows is None else scores.index_select(0, self._rows)
        losses = self._losses(own, self._labels)
        return losses if self.weight is None else losses * self.weight


WITHHELD_BYTES = 8
"""Bytes of the weight of all vertices of a `WithheldLoss`, which are summed in every epoch."""


class WithheldLoss:
    """Loss over the training vertices whose labels are not input in this epoch; collective.

    A vertex that reads its own label has nothing to learn from it.

    Args:
        whole: Loss over all training vertices.
        vertex_id: (num_train_rows,) int64. Global ids of this rank's training vertices.
        draw: Draw of the vertices whose labels are input.
        exchange: Exchange that sums over ranks.

    Attributes:
        total: Sum of the weights of the last loss over all ranks.
    """

    def __init__(self, whole: Loss, vertex_id: Tensor, draw: LabelDraw, exchange: Exchange) -> None:
        self._whole = whole
        self._vertex_id = vertex_id
        self._draw = draw
        self._exchange = exchange
        self.total = whole.total

    def __call__(self, scores: Tensor) -> Tensor:
        """Return this rank's share of the loss for (num_rows, num_classes) scores."""
        counts = (~self._draw.is_given(self._vertex_id)).float()
        weight = self._whole.weight
        total = (counts if weight is None else counts * weight).sum(dtype=torch.float64).reshape(1)
        self._exchange.all_reduce(total)
        self.total = max(float(total), _LEAST_TOTAL)
        return (self._whole.of_each(scores) * counts).sum() / self.total


def build_loss(
    inputs: Inputs,
    group: Group,
    *,
    rows: Tensor | None,
    degrees: tuple[Tensor, Tensor] | None = None,
    correction: float | None = None,
    label_smoothing: float = 0.0,
    class_weights: Tensor | None = None,
) -> Loss:
    """Build the loss of a run; collective.

    Args:
        inputs: This rank's share of the task.
        group: All ranks.
        rows: (num_train_rows,) int64. Rows of the scores of training vertices; None for all rows.
        degrees: (num_roots or more, 1) in-degrees in the part alone, and in the whole graph: each
            vertex is weighted by their ratio. None weighs all alike.
        correction: Strength in [0, 1] of weights that are inverse to that ratio; None weighs by the
            ratio itself.
        label_smoothing: Share of a target that is spread over all classes.
        class_weights: (num_classes,) weights of classes; None for 1 each.

    Returns:
        The loss.
    """
    losses: Callable[[Tensor, Tensor], Tensor] = inputs.task.losses
    factors = []
    if class_weights is not None:
        own = inputs.task.vertex_weights(inputs.labels[inputs.rows["train"]], class_weights)
        factors += [] if own is None else [own]
        class_weights = class_weights.to(inputs.features.device)
        losses = partial(inputs.task.losses, class_weights=class_weights)
    if label_smoothing:
        losses = smoothed(losses, label_smoothing, class_weights)
    if degrees is not None:
        local, whole = (degree[inputs.rows["train"], 0] for degree in degrees)
        if correction is None:
            factors.append(torch.where(whole > 0, local / whole.clamp(min=1), 1).cpu())
        else:
            factors.append(coverage_weights(local, whole, correction).cpu())
    if not factors:
        total: float = max(inputs.counts["train"], 1)
        return Loss(inputs, rows=rows, weight=None, total=total, losses=losses)
    weight = reduce(torch.mul, factors)
    weights = weight.sum(dtype=torch.float64).reshape(1)
    group.all_reduce(weights)
    total = max(float(weights), _LEAST_TOTAL)
    return Loss(inputs, rows=rows, weight=weight, total=total, losses=losses)


def coverage_weights(local: Tensor, whole: Tensor, strength: float) -> Tensor:
    """Weigh vertices by how few of their in-edges a part has, as importance sampling does.

    The share of its in-edges that a part has stands for the probability that the part sees the
    neighbours of a vertex. The weight is 1 - strength + strength / share. A part that has none of
    them counts as if it had one, as nothing can make up for them.

    Args:
        local: (num,) In-degrees in the part.
        whole: (num,) In-degrees in the graph.
        strength: In [0, 1]. 0 weighs all vertices alike; less than 1 has less variance.

    Returns:
        (num,) weights, at least 1; their mean is not 1.

    References:
        Xu et al., "Grappa: Gradient-Only Communication for Scalable Graph Neural Network Training",
        arXiv:2602.01872, whose weights of batches stand for these weights of vertices.
    """
    inverse = torch.where(whole > 0, whole / local.clamp(min=1), 1)
    return 1 - strength + strength * inverse


class Scores:
    """Metric of each split over all ranks; collective.

    Args:
        scores: (num_roots, num_classes) scores of this rank.
        inputs: This rank's share of the task.
        group: All ranks.

    Attributes:
        metric: Metric by name of the split; None where the split is empty or the metric undefined.
        val_loss: Mean loss over validation vertices; it breaks ties between epochs.
    """

    def __init__(self, scores: Tensor, inputs: Inputs, group: Group) -> None:
        # Labels stay in host memory, where metrics are computed.
        scores = scores.cpu()
        shares, losses = [], torch.zeros(1, dtype=torch.float64)
        for name in SPLITS:
            rows = inputs.rows[name]
            own, labels = scores.index_select(0, rows), inputs.labels.index_select(0, rows)
            shares.append(inputs.measure.shares(own, labels, group))
            if name == "val":
                losses[0] = inputs.task.losses(own, labels).sum(dtype=torch.float64)
        table = torch.cat([*shares, losses])
        group.all_reduce(table)
        sums = torch.split(table, [len(share) for share in shares] + [1])
        self.metric = {
            name: inputs.measure.value(sums[index]) if inputs.counts[name] else None
            for index, name in enumerate(SPLITS)
        }
        self.val_loss = float(table[-1]) / max(inputs.counts["val"], 1)
