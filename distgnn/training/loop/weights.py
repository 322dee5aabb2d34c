"""The weight channel of a run, as its settings describe it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.nn.models import GNN
from distgnn.optim.qadam import QAdam
from distgnn.weights.background import BackgroundModels
from distgnn.weights.coded_models import CodedModels
from distgnn.weights.local_models import LocalModels
from distgnn.weights.significant_updates import SignificantUpdates, StepRule
from distgnn.weights.summed_gradients import SummedGradients
from distgnn.weights.summed_momentum import SummedMomentum
from distgnn.weights.table_rows import NO_TABLES, TableRows
from distgnn.weights.tracked_ring import TrackedRing

if TYPE_CHECKING:
    from torch import Tensor, nn

    from distgnn.comm.group import Group
    from distgnn.exchange.clock import Clock
    from distgnn.graph.local_graph import LocalGraph
    from distgnn.kernels.seeds import MaskSeeds
    from distgnn.ops.buffers import Buffers
    from distgnn.optim.optimizers import Optimizer
    from distgnn.training.config.settings import TrainConfig
    from distgnn.weights.own_models import HasMoments, OwnModels
    from distgnn.weights.rule import WeightRule
    from distgnn.weights.strategy import WeightStrategy

_PREFIX = "weights."


def build_weights(
    config: TrainConfig, graph: LocalGraph, model: nn.Module, optimizer: Optimizer
) -> WeightStrategy:
    """Build what ranks tell each other about weights; collective.

    Args:
        config: Settings of the run.
        graph: Graph of the training pass.
        model: Model to train.
        optimizer: Its optimizer.
    """
    rule, group, exchange = config.weight_rule, graph.group, graph.exchange
    if rule.is_local:
        return build_local(
            rule,
            group,
            exchange.clock,
            optimizer=optimizer,
            seeds=graph.mask_seeds,
            buffers=exchange.buffers,
        )
    tables = NO_TABLES
    if isinstance(model, GNN):
        tables = TableRows.find(model.table_rows(graph), group)
    seeds, buffers = graph.mask_seeds, exchange.buffers
    if isinstance(optimizer, QAdam):
        return SummedMomentum(
            group,
            exchange.clock,
            tables,
            optimizer=optimizer,
            codec=rule.codec,
            machine_size=rule.machine_size,
            seeds=seeds,
            buffers=buffers,
        )
    return SummedGradients(
        group,
        exchange.clock,
        tables,
        codec=rule.codec,
        later=rule.later,
        machine_size=rule.machine_size,
        seeds=seeds,
        buffers=buffers,
    )


def build_local(
    rule: WeightRule,
    group: Group,
    clock: Clock,
    *,
    optimizer: HasMoments,
    seeds: MaskSeeds,
    buffers: Buffers,
) -> OwnModels:
    """Build the channel of ranks whose models differ.

    Args:
        rule: Rule of the weights that they tell each other.
        group: All ranks.
        clock: Gets the time of messages.
        optimizer: Optimizer of the model.
        seeds: Seeds of the run, also of random rounding.
        buffers: Memory for codes.
    """
    if rule.significance is not None:
        assert isinstance(optimizer, StepRule), "others need one gradient"
        return SignificantUpdates(group, clock, optimizer=optimizer, how=rule.significance)
    if rule.is_ring:
        return TrackedRing(
            group, clock, optimizer=optimizer, rule=rule, seeds=seeds, buffers=buffers
        )
    if rule.codes_models:
        return CodedModels(
            group, clock, optimizer=optimizer, rule=rule, seeds=seeds, buffers=buffers
        )
    kind = LocalModels if rule.background is None else BackgroundModels
    return kind(group, clock, optimizer=optimizer, rule=rule, seed=seeds.seed)


def join_state(rows: dict[str, Tensor], weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Name what a rank keeps for itself in a checkpoint.

    Args:
        rows: State of the exchange.
        weights: State of the weight channel.
    """
    return rows | {f"{_PREFIX}{name}": tensor for name, tensor in weights.items()}


def split_state(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the two states that `join_state` joined."""
    weights = {
        name.removeprefix(_PREFIX): tensor
        for name, tensor in state.items()
        if name.startswith(_PREFIX)
    }
    return {name: each for name, each in state.items() if not name.startswith(_PREFIX)}, weights
