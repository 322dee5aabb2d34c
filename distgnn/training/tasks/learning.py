"""Inputs and objective of a run, chosen by its task."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from distgnn.nn.models import LinkModel
from distgnn.training.data.inputs import Inputs, load_inputs
from distgnn.training.data.label_input import LabelDraw, append_labels
from distgnn.training.data.link_inputs import LinkInputs, load_link_inputs
from distgnn.training.tasks.class_weights import class_weights_of
from distgnn.training.tasks.links import LinkEvaluator, LinkObjective
from distgnn.training.tasks.objective import Scores, VertexObjective, WithheldLoss, build_loss

if TYPE_CHECKING:
    from torch import Tensor, nn

    from distgnn.comm.group import Group
    from distgnn.partition.directory.store import Part
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.loop.graphs import RunGraphs
    from distgnn.training.tasks.objective import Evaluation, Objective


def load_task(
    part: Part,
    group: Group,
    config: TrainConfig,
    *,
    num_classes: int,
) -> Inputs | LinkInputs:
    """Copy the inputs of a run from a part into host memory; collective.

    Labels stay there, because metrics are taken on the processor; for features see `placement`.

    Args:
        part: This rank's part.
        group: One rank per part.
        config: The run; it knows its task, unless the graph has none.
        num_classes: Number of columns of the model's output.

    Returns:
        This rank's share.

    Raises:
        InputError: If the graph lacks an input of the run.
    """
    if config.task == "link":
        return load_link_inputs(part, group, config)
    inputs = load_inputs(
        part,
        group,
        split_index=config.split_index,
        feature_norm=config.feature_norm,
        features_dtype=config.features_dtype,
        needs_features=not config.model.kind.is_typed,
        task=config.task,
        metric=config.metric,
    )
    if not config.labels_as_input:
        return inputs
    features = append_labels(inputs.features, inputs.labels, inputs.wanted, num_classes)
    return replace(inputs, features=features)


def build_objective(
    config: TrainConfig,
    inputs: Inputs | LinkInputs,
    graphs: RunGraphs,
    model: nn.Module,
    *,
    num_classes: int,
) -> Objective:
    """Build the objective of a run; collective.

    Args:
        config: The run.
        inputs: Inputs of `load_task`.
        graphs: Graphs that the model runs on.
        model: Model to train.
        num_classes: Number of columns of the scores.

    Returns:
        Loss and metric.
    """
    if isinstance(inputs, LinkInputs):
        assert isinstance(model, LinkModel), "links are decoded"
        return LinkObjective(inputs, graphs.training, model.decoder)
    degrees, correction = None, config.coverage_correction or None
    if config.reweight_loss or correction:
        degrees = (graphs.part_degree, graphs.exact.in_degree)
    graph = graphs.training
    loss = build_loss(
        *(inputs, graph.group),
        rows=graphs.loss_rows,
        degrees=degrees,
        correction=correction,
        label_smoothing=config.label_smoothing,
        class_weights=class_weights_of(config.class_weights, inputs, graph.group, num_classes),
    )
    if not config.labels_as_input:
        return VertexObjective(inputs, loss, graph.group)
    draw = LabelDraw(config.labels_as_input, graph.mask_seeds)
    vertex_id = graphs.exact.row_id[inputs.wanted]
    withheld = WithheldLoss(loss, vertex_id, draw, graph.exchange)
    return VertexObjective(inputs, withheld, graph.group)


def evaluate_task(
    inputs: Inputs | LinkInputs, scores: Tensor, model: nn.Module, group: Group
) -> Evaluation:
    """Measure the scores of a trained model; collective.

    Args:
        inputs: Inputs of `load_task`.
        scores: (num_roots, width) scores of this rank.
        model: Model that computed them.
        group: All ranks.

    Returns:
        The metric of each split.
    """
    if isinstance(inputs, LinkInputs):
        assert isinstance(model, LinkModel), "links are decoded"
        return LinkEvaluator(inputs, group).evaluate(scores, model.decoder)
    return Scores(scores, inputs, group)
