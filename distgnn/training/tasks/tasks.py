"""Tasks on vertices: targets, loss and output, one object a task; and the metrics of all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

from distgnn.datasets.errors import InputError
from distgnn.kernels.tensors import computed
from distgnn.ops import cross_entropy
from distgnn.training.config.optimization import BALANCED, parse_class_weights
from distgnn.training.tasks.link_measures import Hits, LinkMeasure, MeanReciprocalRank
from distgnn.training.tasks.measures import (
    R2,
    Accuracy,
    AveragePrecision,
    MacroF1,
    MeanAbsoluteError,
    MeanSquaredError,
    MicroF1,
    RocAuc,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.info import DataInfo, TaskName
    from distgnn.training.tasks.measures import Measure, Metric

VERTEX_METRICS: dict[str, tuple[type[Measure], ...]] = {
    "single-label": (Accuracy, MacroF1, RocAuc, AveragePrecision),
    "multi-label": (MicroF1, MacroF1, RocAuc, AveragePrecision),
    "regression": (MeanSquaredError, MeanAbsoluteError, R2),
}
"""Metrics by task; the first is the default."""
LINK_METRICS: dict[str, LinkMeasure] = {
    measure.name: measure
    for measure in (MeanReciprocalRank(), *(Hits(k) for k in (10, 20, 50, 100)))
}
"""Metrics by name; the first is the default."""
METRICS: dict[str, tuple[type[Metric] | Metric, ...]] = {
    **VERTEX_METRICS,
    "link": tuple(LINK_METRICS.values()),
}
METRIC_NAMES = tuple(dict.fromkeys(kind.name for kinds in METRICS.values() for kind in kinds))
_BINARY = ("roc-auc", "average-precision")
_UNKNOWN_FLAG = 255


class VertexTask(ABC):
    """Task on vertices.

    Attributes:
        name: Name in `--task`.
    """

    name: TaskName

    def is_labelled(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which vertices have something to learn.

        Args:
            labels: Labels of a part.

        Returns:
            (num,) bool.
        """
        return np.ones(len(labels), dtype=bool)

    @abstractmethod
    def targets(self, labels: NDArray[Any]) -> Tensor:
        """Turn a part's labels into targets of losses and metrics."""

    @abstractmethod
    def losses(
        self, scores: Tensor, targets: Tensor, class_weights: Tensor | None = None
    ) -> Tensor:
        """Return the (num,) loss of each vertex.

        Args:
            scores: (num, num_classes) scores.
            targets: Result of `targets`.
            class_weights: (num_classes,) weights of tasks with classes; None for 1 each.
        """

    def vertex_weights(self, targets: Tensor, class_weights: Tensor) -> Tensor | None:
        """Return the weight of each vertex in the mean of losses; None where all count alike.

        Args:
            targets: Result of `targets`.
            class_weights: (num_classes,) weights.
        """
        del targets, class_weights
        return None

    @abstractmethod
    def output(self, scores: Tensor) -> Tensor:
        """Turn (num, num_classes) scores into probabilities or values."""


class SingleLabel(VertexTask):
    """Task of one class among several: cross-entropy of softmax."""

    name = "single-label"

    def is_labelled(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which vertices have a class; -1 is none."""
        return np.asarray(labels) > -1

    def targets(self, labels: NDArray[Any]) -> Tensor:
        """Return (num,) int64 classes."""
        return torch.from_numpy(labels.astype(np.int64))

    def losses(
        self, scores: Tensor, targets: Tensor, class_weights: Tensor | None = None
    ) -> Tensor:
        """Return -log softmax(scores)[class]; weights of classes are those of vertices."""
        del class_weights
        return cross_entropy(scores.to(computed(scores.dtype)), targets)

    def vertex_weights(self, targets: Tensor, class_weights: Tensor) -> Tensor | None:
        """Return the weight of the class of each vertex."""
        return class_weights[targets]

    def output(self, scores: Tensor) -> Tensor:
        """Return the softmax over classes."""
        return scores.softmax(dim=1)


class MultiLabel(VertexTask):
    """Task of any number of labels: mean binary cross-entropy over a vertex's known labels."""

    name = "multi-label"

    def is_labelled(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which vertices have a known flag; 255 is unknown."""
        known: NDArray[np.bool_] = (labels != _UNKNOWN_FLAG).any(axis=1)
        return known

    def targets(self, labels: NDArray[Any]) -> Tensor:
        """Return (num, num_labels) float32: 0, 1, or NaN where it is unknown."""
        known = torch.from_numpy(labels.astype(np.float32))
        return torch.where(known == _UNKNOWN_FLAG, torch.nan, known)

    def losses(
        self, scores: Tensor, targets: Tensor, class_weights: Tensor | None = None
    ) -> Tensor:
        """Return the mean of -log sigmoid(score) for a yes, -log(1 - sigmoid(score)) for a no.

        The weight of a label multiplies the terms of a yes.
        """
        loss = partial(functional.binary_cross_entropy_with_logits, pos_weight=class_weights)
        return _mean_of_known(loss, scores, targets)

    def output(self, scores: Tensor) -> Tensor:
        """Return the sigmoid of each label."""
        return scores.sigmoid()


class Regression(VertexTask):
    """Task of numbers: the mean squared error over a vertex's known values."""

    name = "regression"

    def is_labelled(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which vertices have a value; NaN is none."""
        known: NDArray[np.bool_] = ~np.isnan(labels).all(axis=1)
        return known

    def targets(self, labels: NDArray[Any]) -> Tensor:
        """Return (num, num_values) float32; NaN where it is unknown."""
        return torch.from_numpy(labels.astype(np.float32))

    def losses(
        self, scores: Tensor, targets: Tensor, class_weights: Tensor | None = None
    ) -> Tensor:
        """Return the mean over values of (score - value)^2."""
        del class_weights
        return _mean_of_known(functional.mse_loss, scores, targets)

    def output(self, scores: Tensor) -> Tensor:
        """Return the scores."""
        return scores


TASKS: dict[str, VertexTask] = {
    task.name: task for task in (SingleLabel(), MultiLabel(), Regression())
}


def _mean_of_known(loss: Any, scores: Tensor, targets: Tensor) -> Tensor:
    is_known = ~targets.isnan()
    scores = scores.to(computed(scores.dtype))
    known = torch.where(is_known, targets, 0).to(scores.dtype)
    each = loss(scores, known, reduction="none")
    total: Tensor = torch.where(is_known, each, 0).sum(dim=1)
    return total / is_known.sum(dim=1).clamp(min=1)


def choose(task: str, metric: str) -> tuple[VertexTask, Measure]:
    """Find the objects of a task on vertices.

    Args:
        task: Its name.
        metric: One of the task's.

    Returns:
        The task and its metric.
    """
    return TASKS[task], {kind.name: kind for kind in VERTEX_METRICS[task]}[metric]()


def resolve(config: TrainConfig, ends: DataInfo) -> TrainConfig:
    """Replace what the graph decides about a run, so that the run remembers it.

    Args:
        config: The run.
        ends: Facts of the graph.

    Returns:
        The run with its task and its metric, where there is something to learn, and with whether
        it reads features of edges, where there are some.

    Raises:
        InputError: If the graph is for another task, the task has no such metric, or it does not go
            with the algorithm or the decoder. Also if an option of the model has no effect, as the
            graph or its edges have no features.
    """
    model = config.model
    if not ends.num_features:
        model.kind.check_without_features(model)
    if model.edge_features == "use" and not ends.num_edge_features:
        raise InputError(
            "--edge-features use has no effect on a graph whose edges have no features; leave it "
            "out, or add edge_features to the source"
        )
    is_read = ends.num_edge_features and "edge_features" in model.kind.options
    if is_read and model.edge_features == "auto":
        config = replace(config, model=replace(model, edge_features="use"))
    return _resolve(config, ends)


def _resolve(config: TrainConfig, ends: DataInfo) -> TrainConfig:
    """Do what `resolve` does for a model that is resolved already."""
    if config.task == "link" or (config.task == "auto" and ends.has_links):
        return _resolve_links(config, ends)
    task = ends.task
    if not task:
        return config
    if config.task not in ("auto", task):
        raise InputError(
            f"--task {config.task} does not suit the graph's labels, which are for {task}; "
            "leave --task out, or store integers (num_vertices,) for single-label, 0 and 1 "
            "(num_vertices, T) for multi-label, float32 for regression (whole numbers of a table: "
            "distgnn partition --task regression)"
        )
    if config.decoder != "dot":
        raise InputError(
            f"--decoder {config.decoder} has no effect on a {task} task; drop it or use --task link"
        )
    if config.labels_as_input and task == "regression":
        raise InputError(
            f"--labels-as-input {config.labels_as_input} gives classes or flags, but the graph's "
            "labels are values to be learned by regression; leave it out"
        )
    _check_smoothing(config, task)
    _check_class_weights(config, task, ends.num_classes)
    asked, where = config.metric, "--metric"
    if asked == "auto" and ends.metric:
        asked, where = ends.metric, "the graph's metric"
    names = [kind.name for kind in METRICS[task]]
    if task == "single-label" and ends.num_classes != 2:
        names = [name for name in names if name not in _BINARY]
    classes = f" with {ends.num_classes} classes" if task == "single-label" else ""
    metric = _one_of(names, asked, where, f"{task} task{classes}")
    _check_goal(config, metric)
    _check_screening(config, metric)
    return replace(config, task=task, metric=metric)


def check_split_index(config: TrainConfig) -> None:
    """Refuse to choose among splits where there is one.

    Args:
        config: The run; it knows its task.

    Raises:
        InputError: If it does.
    """
    if config.task == "link" and config.split_index:
        raise InputError(
            f"--split-index {config.split_index} has no effect on a link task: links are held out "
            "once; leave it out"
        )


def _one_of(names: list[str], asked: str, where: str, task: str) -> str:
    if asked == "auto":
        return names[0]
    if asked not in names:
        raise InputError(
            f"{where} '{asked}' is none of a {task}; use --metric {' or '.join(names)}"
        )
    return asked


def _check_smoothing(config: TrainConfig, task: str) -> None:
    if config.label_smoothing and task != "single-label":
        raise InputError(
            f"--label-smoothing {config.label_smoothing} spreads the one class of a vertex over "
            f"all, but this is a {task} task; leave it out"
        )


def _check_goal(config: TrainConfig, metric: str) -> None:
    """Refuse a goal that no model reaches."""
    is_error = metric in ("mse", "mae")
    if config.goal is None or (config.goal >= 0 if is_error else config.goal <= 1):
        return
    limit = "at least 0" if is_error else "at most 1"
    raise InputError(
        f"--goal {config.goal:g} is never reached, as --metric {metric} is {limit}; use another"
    )


def _check_class_weights(config: TrainConfig, task: str, num_classes: int) -> None:
    text = config.class_weights
    if text and task not in ("single-label", "multi-label"):
        raise InputError(
            f"--class-weights {text} weighs classes, but this is a {task} task; leave it out"
        )
    num_weights = len(parse_class_weights(text))
    if num_weights and num_weights != num_classes:
        raise InputError(
            f"--class-weights has {num_weights} numbers, but the graph has {num_classes} classes; "
            f"give one each, or {BALANCED}"
        )


def _check_screening(config: TrainConfig, metric: str) -> None:
    """Refuse the margin of shares for errors, whose scale is that of the labels."""
    screening = config.screening
    if screening is not None and screening.margin is None and metric in ("mse", "mae"):
        raise InputError(
            f"--evaluation {config.evaluation} needs a margin of its own, as --metric {metric} is "
            f"on the scale of the labels; write screened({screening.codec_text}, margin=X)"
        )


def _resolve_links(config: TrainConfig, ends: DataInfo) -> TrainConfig:
    if not ends.has_links:
        raise InputError(
            "--task link needs links that are held out, but the graph has none; give --edge-split "
            "0.9/0.05/0.05, to distgnn partition where the source is a partition directory"
        )
    if config.is_isolated:
        raise InputError(
            "--algorithm 0c leaves ranks alone, but --task link scores pairs of vertices of "
            "different ranks; use cd-0 or cd-R"
        )
    if config.labels_as_input:
        raise InputError(
            f"--labels-as-input {config.labels_as_input} has no effect on a link task, which reads "
            "no labels; leave it out"
        )
    check_split_index(replace(config, task="link"))
    _check_smoothing(config, "link")
    _check_class_weights(config, "link", ends.num_classes)
    metric = _one_of(list(LINK_METRICS), config.metric, "--metric", "link task")
    _check_goal(config, metric)
    return replace(config, task="link", metric=metric)


def resolve_again(config: TrainConfig, ends: DataInfo) -> TrainConfig:
    """Check that a run that ended learned what its graph is for; the graph may have changed since.

    Args:
        config: The run.
        ends: Facts of the graph now.

    Returns:
        The run with its task and its metric.

    Raises:
        InputError: If the run learned something else.
    """
    try:
        return _resolve(config, ends)
    except InputError as error:
        now = f"the graph's labels are for {ends.task}"
        if config.task == "link":
            now = "the graph holds no links out"
        raise InputError(
            f"the run learned a {config.task} task measured by {config.metric}, but {now}; restore "
            "the graph or train again"
        ) from error
