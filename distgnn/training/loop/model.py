"""The model and the optimizer of a run, as its settings describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from distgnn.datasets.errors import InputError
from distgnn.nn.models import GNN, LinkModel
from distgnn.optim.kfac import Kfac
from distgnn.optim.lbfgs import Lbfgs
from distgnn.optim.optimizers import build_optimizer
from distgnn.optim.qadam import QAdam, QAdamW
from distgnn.optim.schedules import LearningRate, parse_schedule
from distgnn.settings.kfac import parse
from distgnn.training.loop.own_model import trainable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from distgnn.aggregate.learned_rows import RelationSources
    from distgnn.comm.group import Group
    from distgnn.optim.optimizers import Optimizer
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.info import DataInfo
    from distgnn.training.tasks.objective import Objective


def build_model(config: TrainConfig, ends: DataInfo, sources: RelationSources | None = None) -> GNN:
    """Draw the model of a run; the same seed gives the same weights.

    Args:
        config: Settings of the run.
        ends: Sizes of the data of the whole graph.
        sources: Sources by relation of a typed graph without features; None for a model whose
            weights will be read, or that is only asked what it sends.

    Returns:
        The model.
    """
    size = ends.size
    if sources is not None:
        number, digest = len(sources.keys), sources.digest
        size = size._replace(num_relation_sources=number, relation_digest=digest)
    if config.task == "link":
        model: GNN = LinkModel(config.model, ends.num_features, size, config.decoder)
    else:
        model = GNN(config.model, num_inputs(config, ends), ends.num_classes, size)
    model.reset_parameters(torch.Generator().manual_seed(config.seed))
    return model


def num_inputs(config: TrainConfig, ends: DataInfo) -> int:
    """Return the number of columns that a model reads: features, and labels that are given.

    Args:
        config: Settings of the run.
        ends: Sizes of the graph.
    """
    return ends.num_features + (ends.num_classes if config.labels_as_input else 0)


class WholeLoss(NamedTuple):
    """The loss of all ranks.

    Attributes:
        group: All ranks.
        objective: Objective of the run.
        is_input_fixed: Whether the model reads the same input in every epoch.
    """

    group: Group
    objective: Objective
    is_input_fixed: bool

    @property
    def num_terms(self) -> float:
        """Number of terms that the last loss is the mean of."""
        return self.objective.num_terms


def optimizer_of(config: TrainConfig, model: nn.Module, whole: WholeLoss) -> Optimizer:
    """Build the optimizer of a run.

    Args:
        config: Settings of the run.
        model: Model whose weights it steps.
        whole: Loss of all ranks.
    """
    decaying = None
    if config.decay_of == "first":
        assert isinstance(model, GNN), "others have no layers that are known"
        decaying = model.convolutions[0].parameters()
    if config.optimizer == "kfac":
        return Kfac(
            model,
            whole,
            lr=config.lr,
            weight_decay=config.weight_decay,
            decaying=decaying,
            options=parse(config.kfac),
            finds_constants=whole.is_input_fixed,
        )
    parameters = trainable([model])
    if config.optimizer == "lbfgs":
        lr, decay = config.lr, config.weight_decay
        return Lbfgs(parameters, whole.group, lr=lr, weight_decay=decay, decaying=decaying)
    if warm_up_steps := config.weight_rule.warm_up_steps:
        return (QAdamW if config.optimizer == "adamw" else QAdam)(
            parameters,
            lr=config.lr,
            weight_decay=config.weight_decay,
            decaying=decaying,
            warm_up_steps=warm_up_steps,
        )
    return build_optimizer(
        config.optimizer,
        parameters,
        lr=config.lr,
        weight_decay=config.weight_decay,
        decaying=decaying,
    )


def learning_rate_of(
    config: TrainConfig, optimizer: Optimizer, counts: Mapping[str, int]
) -> LearningRate:
    """Build the learning rate of a run.

    Args:
        config: Settings of the run.
        optimizer: Optimizer of `optimizer_of`.
        counts: Number of vertices or links by name of the split, over all ranks.

    Raises:
        InputError: If the schedule watches a metric that is not measured.
    """
    text, warm_up = config.lr_schedule, config.lr_warm_up
    schedule = parse_schedule(text, num_epochs=config.epochs, warm_up=warm_up)
    if schedule.needs_validation and not counts["val"]:
        raise InputError(
            f"--lr-schedule {text} watches the validation metric, but the split has no validation "
            "vertices; use constant, cosine or step"
        )
    return LearningRate(optimizer, schedule, warm_up)
