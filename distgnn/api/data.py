"""Data of one rank: the graphs that a model runs on, its input, labels, losses and metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from distgnn.datasets.errors import InputError
from distgnn.edges.walk_orders import WalkOrders
from distgnn.exchange.base import Exchange, Synchronous
from distgnn.kernels.tensors import computed
from distgnn.nn.config import OWN, ModelConfig
from distgnn.training.config.settings import TrainConfig
from distgnn.training.data.inputs import SPLITS, Inputs, input_rows, split_rows
from distgnn.training.loop.graphs import build_graphs
from distgnn.training.loop.own_model import check_rows, check_scores, own_name
from distgnn.training.tasks.tasks import choose, resolve

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.api.graphs import Share
    from distgnn.comm.group import Group
    from distgnn.graph.local_graph import LocalGraph
    from distgnn.ops.rows import Rows

ExchangeFactory = Callable[..., Exchange]
"""Class of exchanges, or a function that returns one; called with the ranks and device=."""

# Epochs of an own loop have no end that is known before.
_ENDLESS = 10**9


class ShareOfMean(torch.autograd.Function):
    """Multiplication by a rank's share of the whole; its node marks a loss as divided."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, factor: float) -> Tensor:
        """Return value * factor; 0 where a rank has no terms, whose mean is not a number."""
        ctx.factor = factor
        return value * factor if factor else torch.zeros_like(value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Return grad * factor."""
        return grads[0] * ctx.factor, None


def share_of(value: Tensor, factor: float) -> Tensor:
    """Return value * factor, marked as a rank's share of a loss.

    Args:
        value: () tensor.
        factor: Share of the terms of all ranks.
    """
    result: Tensor = ShareOfMean.apply(value, factor)  # type: ignore[no-untyped-call]
    return result


@dataclass(frozen=True)
class LoadOptions:
    """Options of `Session.load`; see there."""

    split_index: int
    feature_norm: str
    task: str
    metric: str
    sparse: bool
    run: dict[str, Any]
    """Fields of a run's configuration that decide when rows travel."""
    own: ExchangeFactory | None = None
    """Maker of the exchange of training, if the user wrote it."""

    @property
    def names(self) -> set[str]:
        """Names of the arguments of `Session.load` that are settings."""
        return {item.name for item in fields(self)} | set(self.run)

    def may_delay(self, seed: int) -> bool:
        """Say whether rows of other ranks may be older than the epoch in which they are used.

        Args:
            seed: Seed of dropout.
        """
        if self.own is None:
            return not self.config(seed).halo_rule.is_synchronous
        self.config(seed)
        return not (isinstance(self.own, type) and issubclass(self.own, Synchronous))

    def config(self, seed: int) -> TrainConfig:
        """Return the configuration that builds the graphs.

        Args:
            seed: Seed of dropout.

        Raises:
            InputError: If a value is not allowed, or has no effect with another.
        """
        if self.run["algorithm"] == "0c":
            raise InputError(
                "algorithm 0c gives training other rows than evaluation, which a loop of your own "
                "cannot see; use cd-0 or cd-R, or distgnn.train(..., model=Net, algorithm='0c')"
            )
        if self.own is not None and not callable(self.own):
            raise InputError(
                f"halo must be words or a class of exchanges, got a {type(self.own).__name__}; "
                "give the class, as load makes the exchange"
            )
        if self.own is not None and (self.run["algorithm"] != "cd-0" or not self.run["overlap"]):
            raise InputError(
                f"halo={own_name(self.own)} and algorithm={self.run['algorithm']!r} or "
                "overlap=False all say when rows travel; leave the others out"
            )
        return TrainConfig(
            model=ModelConfig(model=OWN, own="a loop"),
            epochs=_ENDLESS,
            receptive_field=False,
            seed=seed,
            split_index=self.split_index,
            feature_norm=self.feature_norm,  # type: ignore[arg-type]
            task=self.task,
            metric=self.metric,
            **self.run,
        )


def _made(own: ExchangeFactory, group: Group) -> Exchange:
    """Call the user's maker of exchanges."""
    exchange = own(group, device=group.device)
    if not isinstance(exchange, Exchange):
        raise InputError(
            f"halo={own_name(own)} returned a {type(exchange).__name__}; return a subclass of "
            "distgnn.exchange.base.Exchange"
        )
    return exchange


class Data:
    """A rank's share of a graph: what a model needs to train on it.

    Vertices of this rank are its rows, in the same order everywhere. No vertex is a row of two
    ranks, and on one rank all vertices are rows.

    Attributes:
        name: Name of the graph.
        graph: Graph to train on; its exchange is the one of the algorithm.
        exact: The same graph with a synchronous exchange, to evaluate on.
        x: (num_rows, num_features) float32. Features of this rank's vertices.
        y: (num_rows,) int64 classes, -1 for unlabelled; or (num_rows, num_classes) float32 flags or
            values, NaN for unknown; None without labels.
        train_mask: (num_rows,) bool. Labelled vertices of the split; None without masks.
        val_mask: The same of validation.
        test_mask: The same of testing.
        num_vertices: Number of vertices of the whole graph.
        num_features: Number of columns of x.
        num_classes: Number of classes, or of columns of y; 0 without labels.
        class_names: Name of each class; empty where they are numbers.
        num_edge_features: Number of columns of edge features; 0 without.
        num_relations: Number of edge types; 0 without.
        task: single-label, multi-label or regression; empty without labels.
        metric_name: Name of what `metric` measures; empty without labels.
        is_delayed: Whether rows of other ranks are older than the epoch in which they are used.
    """

    def __init__(self, share: Share, group: Group, options: LoadOptions, seed: int) -> None:
        part, info = share.part, share.info
        config = resolve(options.config(seed), info)
        self._group, self._where = group, share.where
        self.is_delayed = options.may_delay(seed)
        self._num_channels = 0
        self.name, self.class_names = info.name, info.class_names
        self.num_vertices, self.num_classes = info.num_vertices, info.num_classes
        self.num_features = info.num_features
        self.num_edge_features, self.num_relations = info.num_edge_features, info.num_relations
        norm = config.feature_norm
        rows: Rows = input_rows(part, group, norm=norm, dtype="fp32", needs=False)
        rows = (rows if options.sparse else rows.to_dense()).to(group.device)
        graphs = build_graphs(
            config, _Everything(rows), part, group, walk_orders=WalkOrders(), device=group.device
        )
        self.graph: LocalGraph = graphs.training
        self.exact: LocalGraph = graphs.exact
        if options.own is not None:
            exchange = _made(options.own, group)
            exchange.seeds = self.graph.mask_seeds
            exchange.buffers = self.exact.exchange.buffers
            self.graph.exchange = exchange
        # Any: torch's modules take tensors, and ours sparse rows, too.
        self.x: Any = rows
        # A user may put other rows in its place; what is aggregated once is of these.
        self._loaded_x = rows
        self._version = self._version_of_x()
        self.task, self.metric_name = "", ""
        self.y: Tensor | None = None
        self.train_mask = self.val_mask = self.test_mask = None
        self._inputs: Inputs | None = None
        if part.labels is not None and info.task:
            self.task, self.metric_name = config.task, config.metric
            task, measure = choose(config.task, config.metric)
            self.y = task.targets(np.asarray(part.labels)).to(group.device)
            if part.train_mask is not None:
                found = split_rows(part, config.split_index, config.task)
                counts = torch.tensor([len(found[name]) for name in SPLITS], dtype=torch.int64)
                group.all_reduce(counts)
                self._inputs = Inputs(
                    features=rows,
                    labels=task.targets(np.asarray(part.labels)),
                    rows=found,
                    counts=dict(zip(SPLITS, counts.tolist(), strict=True)),
                    task=task,
                    measure=measure,
                )
                self.train_mask, self.val_mask, self.test_mask = (
                    self._mask(found[name]) for name in SPLITS
                )
        self._loaded = {name: self._now(name) for name in ("y", *(f"{one}_mask" for one in SPLITS))}

    def _mask(self, rows: Tensor) -> Tensor:
        mask = torch.zeros(self.num_rows, dtype=torch.bool)
        mask[rows] = True
        return mask.to(self._group.device)

    def _now(self, name: str) -> tuple[Tensor | None, int]:
        """Return an attribute and its version, which differ from those at load if it changed."""
        tensor: Tensor | None = getattr(self, name)
        return tensor, 0 if tensor is None else tensor._version

    def _version_of_x(self) -> int:
        return self._loaded_x._version if isinstance(self._loaded_x, torch.Tensor) else 0

    @property
    def num_rows(self) -> int:
        """Number of vertices that this rank owns."""
        return self.exact.num_rows

    @property
    def group(self) -> Group:
        """All ranks, for `distgnn.optim.Kfac`."""
        return self._group

    @property
    def num_terms(self) -> float:
        """Number of training vertices of all ranks; of all vertices in a graph without masks."""
        return self.num_vertices if self._inputs is None else max(self._inputs.counts["train"], 1)

    def loss(self, scores: Tensor, split: str = "train") -> Tensor:
        """Return this rank's share of the task's mean loss, to be given to `Session.backward`.

        The loss is the cross-entropy of softmax for classes, the binary cross-entropy for flags,
        and the squared error for values. It is summed over this rank's vertices and divided by the
        number of vertices of all ranks, so that the shares of all ranks add up to the mean.

        Args:
            scores: (num_rows, num_classes) scores of this rank's vertices, before softmax.
            split: train, val or test.

        Returns:
            () tensor, differentiable.

        Raises:
            InputError: If the scores have another shape, or the graph has no labels or masks.
        """
        inputs, rows, count = self._split(split, "y")
        check_scores(scores, self.num_rows, self)
        rows = rows.to(scores.device)
        losses = inputs.task.losses(scores.index_select(0, rows), self._targets(rows))
        return share_of(losses.sum(), 1 / max(count, 1))

    def mean(self, values: Tensor, split: str = "train") -> Tensor:
        """Return this rank's share of the mean of any values, to be given to `Session.backward`.

        Args:
            values: (num_rows,) value of each of this rank's vertices, such as a loss of your own
                with reduction="none".
            split: Vertices that count: train, val or test; or all.

        Returns:
            () tensor, differentiable: the sum over this rank's vertices of the split, divided by
            the number of vertices of the split on all ranks.

        Raises:
            InputError: If there is not one value for each row, or the graph has no masks.
        """
        check_rows(values, self.num_rows, self.num_vertices)
        if values.ndim != 1:
            raise InputError(
                f"data.mean takes one value for each row, got shape {tuple(values.shape)}; reduce "
                "the columns first, for example with .mean(dim=1)"
            )
        if split == "all":
            return share_of(values.sum(), 1 / self.num_vertices)
        _, rows, count = self._split(split)
        picked = values.index_select(0, rows.to(values.device))
        return share_of(picked.sum(), 1 / max(count, 1))

    @torch.no_grad()
    def metric(self, scores: Tensor, split: str = "test") -> float:
        """Measure scores over the vertices of all ranks; collective.

        Args:
            scores: (num_rows, num_classes) scores of this rank's vertices, from `exact` if the
                algorithm delays rows.
            split: train, val or test.

        Returns:
            The value of `metric_name`, the same on every rank.

        Raises:
            InputError: If the scores have another shape, or the split has no vertex on which the
                metric is defined.
        """
        inputs, rows, count = self._split(split, "y")
        check_scores(scores, self.num_rows, self)
        scores = scores.detach().to("cpu", computed(scores.dtype))
        own, labels = scores.index_select(0, rows), inputs.labels[rows]
        shares = inputs.measure.shares(own, labels, self._group)
        self._group.all_reduce(shares)
        self.exact.end_epoch()
        value = inputs.measure.value(shares) if count else None
        if value is None:
            raise InputError(
                f"{self.metric_name} is not defined on the {count} vertices of split '{split}'; "
                "use another split"
            )
        return value

    def _targets(self, rows: Tensor) -> Tensor:
        assert self.y is not None, "a graph with splits has labels"
        return self.y.index_select(0, rows)

    def _split(self, split: str, *read: str) -> tuple[Inputs, Tensor, int]:
        """Return the inputs, and the rows and the count of a split, which are those at load.

        Args:
            split: train, val or test.
            read: Attributes that have to be as they were loaded, beside the mask of the split.
        """
        if split not in SPLITS:
            raise InputError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
        if self._inputs is None:
            missing = "labels" if self.y is None else "train, validation and test masks"
            raise InputError(
                f"the graph has no {missing}; add them to the source, or use data.mean(values, "
                "'all') with a loss of your own"
            )
        for name in (f"{split}_mask", *read):
            (loaded, before), (tensor, now) = self._loaded[name], self._now(name)
            if tensor is not loaded or now != before:
                raise InputError(
                    f"data.{name} was changed after it was loaded, but what was loaded counts in "
                    "data.loss, data.mean and data.metric; leave it, and use tensors of your own: "
                    "ranks.backward(loss, count=int(mask.sum())) takes the mean loss of any "
                    "rows and labels, and ranks.all_reduce adds up what you measure"
                )
        return self._inputs, self._inputs.rows[split], self._inputs.counts[split]

    def end_epoch(self) -> None:
        """End the epoch of both graphs; `Session.backward` calls it.

        Raises:
            InputError: If the loaded x was changed in place, or if a graph with delays was walked
                in another order than in its first epoch.
        """
        if self._version_of_x() != self._version:
            raise InputError(
                "data.x was changed in place, but what was aggregated of it is kept; make a new "
                "tensor, such as x = data.x * 2"
            )
        self.exact.end_epoch()
        num_channels = self.graph.exchange.num_channels
        if self.is_delayed and not num_channels:
            return  # Not walked: its rows wait for the next epoch.
        self._num_channels = self._num_channels or num_channels
        if self.is_delayed and num_channels != self._num_channels:
            raise InputError(
                f"the graph with delays carried {num_channels} messages in this epoch but "
                f"{self._num_channels} in the first; run the model once an epoch on data.graph, "
                "and evaluate on data.exact"
            )
        self.graph.end_epoch()

    def __repr__(self) -> str:
        counts = "no labels"
        if self._inputs is not None:
            counts = ", ".join(f"{n} {name}" for name, n in self._inputs.counts.items())
        return (
            f"Data({self.name!r}: {self._where}, {self.num_rows} of {self.num_vertices} vertices,\n"
            f"     {self.num_features} features, {self.num_classes} classes, {counts})"
        )


@dataclass(frozen=True)
class _Everything:
    """Inputs of a loop that may read the scores of every row."""

    features: Rows

    @property
    def wanted(self) -> Tensor:
        return torch.arange(self.features.shape[0])
