"""Weights of classes in the loss, so that rare ones count as much as frequent ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.training.config.optimization import BALANCED, parse_class_weights

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.comm.group import Group
    from distgnn.training.data.inputs import Inputs


def class_weights_of(text: str, inputs: Inputs, group: Group, num_classes: int) -> Tensor | None:
    """Return the weights of classes in the loss; collective.

    Balanced weights are counted over the training vertices of all ranks. That of a class is
    num_vertices / (num_classes * count), over the classes that occur, as in scikit-learn. That of a
    label is the number of vertices without it divided by the number of those with it.

    Args:
        text: Value of --class-weights.
        inputs: This rank's share of a task with classes.
        group: All ranks.
        num_classes: Number of classes, or of labels that a vertex may have.

    Returns:
        (num_classes,) float32; 0 for a class that does not occur. None without weights.
    """
    if not text:
        return None
    if text != BALANCED:
        return torch.tensor(parse_class_weights(text))
    targets = inputs.labels[inputs.rows["train"]]
    if targets.ndim == 1:
        counts = torch.bincount(targets, minlength=num_classes).double()
        group.all_reduce(counts)
        occurs = counts > 0
        balanced = counts.sum() / (occurs.sum() * counts.clamp(min=1))
        return torch.where(occurs, balanced, 0).float()
    both = torch.stack([(targets == known).sum(dim=0) for known in (0, 1)]).double()
    group.all_reduce(both)
    without, having = both
    return torch.where(having > 0, without / having.clamp(min=1), 0).float()
