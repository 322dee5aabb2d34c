"""The loss and the metric, each vertex counted once, at its root."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from distgnn.train.inputs import SPLITS

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.comm.group import Group
    from distgnn.train.inputs import Inputs


class Loss:
    """Cross-entropy (one label) or binary cross-entropy (several) over training vertices.

    A rank's value is the sum over its own roots divided by the global count, so that the values,
    and the weight gradients, of all ranks add up to those of the whole graph.

    Args:
        inputs: This rank's share of the task.
        rows: (num_train_rows,) int64. Where the scores of this rank's training vertices stand;
            None if there are no others.
        weight: (num_train_rows,) weight of each of this rank's training vertices, or None.
        total: Sum of the weights over all ranks; the count without weights.
    """

    def __init__(
        self, inputs: Inputs, *, rows: Tensor | None, weight: Tensor | None, total: float
    ) -> None:
        self._rows = rows
        self._labels = inputs.labels[inputs.rows["train"]]
        self._is_multilabel = inputs.is_multilabel
        self._weight = weight
        self._total = total

    def __call__(self, scores: Tensor) -> Tensor:
        """Return this rank's share of the loss for (num_rows, num_classes) scores."""
        # Not scores[rows], whose backward adds one row after the other on one thread.
        own = scores if self._rows is None else scores.index_select(0, self._rows)
        losses = vertex_losses(own, self._labels, self._is_multilabel)
        if self._weight is not None:
            losses = losses * self._weight
        return losses.sum() / self._total


def vertex_losses(scores: Tensor, labels: Tensor, is_multilabel: bool) -> Tensor:
    """Return the (num,) loss of each vertex; with several labels, their mean."""
    if is_multilabel:
        per_label = functional.binary_cross_entropy_with_logits(
            scores, labels.to(scores.dtype), reduction="none"
        )
        return per_label.mean(dim=1)
    return functional.cross_entropy(scores, labels, reduction="none")


def build_loss(
    inputs: Inputs,
    group: Group,
    *,
    rows: Tensor | None,
    degrees: tuple[Tensor, Tensor] | None = None,
) -> Loss:
    """Build the loss of a run.

    Collective.

    Args:
        inputs: This rank's share of the task.
        group: All ranks.
        rows: (num_train_rows,) int64. Where the scores of this rank's training vertices stand;
            None if there are no others.
        degrees: (num_roots or more, 1) each: in-degrees in the part alone and in the whole graph,
            to let each vertex count by their ratio; None lets all count the same.

    Returns:
        The loss.
    """
    if degrees is None:
        return Loss(inputs, rows=rows, weight=None, total=max(inputs.counts["train"], 1))
    local, whole = (degree[inputs.rows["train"], 0] for degree in degrees)
    weight = torch.where(whole > 0, local / whole.clamp(min=1), 1)
    weights = weight.sum(dtype=torch.float64).reshape(1)
    group.all_reduce(weights)
    least = torch.finfo(torch.float32).tiny
    total = max(float(weights), least)
    return Loss(inputs, rows=rows, weight=weight, total=total)


class Scores:
    """The metric of each split over all ranks: accuracy, or micro-F1 with several labels.

    Args:
        scores: (num_roots, num_classes) of this rank.
        inputs: This rank's share of the task.
        group: All ranks.

    Attributes:
        metric: By name of the split; None for a split without vertices.
        val_loss: Mean loss over validation vertices; breaks ties between epochs.
    """

    def __init__(self, scores: Tensor, inputs: Inputs, group: Group) -> None:
        table = torch.zeros(len(SPLITS) + 1, 2, dtype=torch.float64)
        for index, name in enumerate(SPLITS):
            rows = inputs.rows[name]
            own, labels = scores.index_select(0, rows), inputs.labels.index_select(0, rows)
            table[index] = _hits(own, labels, inputs.is_multilabel)
            if name == "val":
                losses = vertex_losses(own, labels, inputs.is_multilabel)
                table[-1, 0] = losses.sum(dtype=torch.float64)
        group.all_reduce(table)
        # Where no label is true and none predicted, micro-F1 is 0 by the usual convention.
        self.metric = {
            name: float(hits / of.clamp(min=1)) if inputs.counts[name] else None
            for name, (hits, of) in zip(SPLITS, table[:-1], strict=True)
        }
        self.val_loss = float(table[-1, 0]) / max(inputs.counts["val"], 1)


def _hits(scores: Tensor, labels: Tensor, is_multilabel: bool) -> Tensor:
    """(2,) float64 numerator and denominator of the metric; both add up over ranks.

    Micro-F1 is 2 TP / (2 TP + FP + FN), and 2 TP + FP + FN is the number of predicted plus the
    number of true labels.
    """
    if is_multilabel:
        predicted, true = scores > 0, labels > 0
        return torch.stack([2 * (predicted & true).sum(), predicted.sum() + true.sum()]).double()
    return torch.tensor([int((scores.argmax(dim=1) == labels).sum()), len(labels)]).double()
