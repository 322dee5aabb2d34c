"""Epochs of a sample of a part, run on this machine to tell how long others will take."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from distgnn.comm.single import SingleGroup
from distgnn.datasets.graph import Graph
from distgnn.ops import SparseRows
from distgnn.partition.store import whole_part
from distgnn.train.forecast import Forecast, LayerRows
from distgnn.train.graphs import why_not_static
from distgnn.train.trainer import Trainer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.nn.models import GNN
    from distgnn.partition.store import Part
    from distgnn.train.config import TrainConfig
    from distgnn.train.ends import ModelEnds

MAX_EDGES = 1 << 23
_WARM_UP = 2
_LEAST_EPOCHS, _LEAST_S = 5, 1.5


class Rehearsal(NamedTuple):
    """What was run, and how long it took.

    Attributes:
        found: What its epochs walk.
        model: What was trained.
        density: Share of the entries of the input that are stored.
        epoch_s: The fastest epoch, which other work on the machine disturbed least.
        fixed_s: The same of a row or few: what does not grow with the graph.
    """

    found: Forecast
    model: GNN
    density: float
    epoch_s: float
    fixed_s: float = 0.0


def sample_of(part: Part, split_index: int, max_edges: int = MAX_EDGES) -> Graph:
    """Make a graph of the first rows of a part, with the sources that they have.

    Leaves borrow the features of roots: values make no difference to time.

    Args:
        part: With features, labels, and at least one root.
        split_index: Row of the masks; its training vertices are those of the sample.
        max_edges: Rows are taken until they have so many.

    Returns:
        The graph: at least one of its vertices is trained on.
    """
    num_rows = int(np.searchsorted(part.indptr, max_edges, side="right")) - 1
    num_rows = max(num_rows, min(part.num_clones, 1))
    sources = np.asarray(part.indices[: int(part.indptr[num_rows])])
    used = np.union1d(np.arange(num_rows), sources)
    number = np.zeros(part.num_clones, dtype=np.int64)
    number[used] = np.arange(len(used))
    # Two more, without edges, are validated and tested on: each needs a vertex, but is not run.
    roots = np.append(used, [0, 0]) % part.num_roots
    assert part.train_mask is not None, "a part that can be trained on has masks"
    is_train = np.asarray(part.train_mask)[split_index][roots]
    is_train[used.searchsorted(part.num_roots) :] = False
    is_train[0] |= not is_train.any()
    is_extra = np.arange(len(roots)) - len(used)
    of_edges: dict[str, Any] = {
        name: np.array(values[: len(sources)])
        for name in ("edge_weight", "edge_type", "edge_features")
        if (values := getattr(part, name)) is not None
    }
    kind = part.vertex_type
    return Graph(
        name="sample",
        num_vertices=len(roots),
        src=number[sources],
        dst=np.repeat(np.arange(num_rows), np.diff(part.indptr[: num_rows + 1])),
        features=None if part.features is None else _picked(part.features, roots),
        labels=_labels(part, roots),
        train_mask=is_train[None],
        val_mask=(is_extra == 0)[None],
        test_mask=(is_extra == 1)[None],
        vertex_type=None if kind is None else np.array(kind[roots]),
        **of_edges,
    )


def _picked(features: Any, roots: NDArray[np.int64]) -> Any:
    return sp.csr_matrix(features[roots]) if sp.issparse(features) else np.array(features[roots])


def _labels(part: Part, roots: NDArray[np.int64]) -> NDArray[Any]:
    labels: NDArray[Any] = np.array(part.labels)[roots]
    if labels.ndim == 1:
        labels[labels < 0] = 0  # so that any vertex may be trained on
    elif labels.dtype == np.float32:
        labels[np.isnan(labels)] = 0
    return labels


def rehearse(part: Part, ends: ModelEnds, config: TrainConfig) -> Rehearsal:
    """Train on a sample of a part for a moment, and on next to nothing, with the threads set.

    Args:
        part: As for `sample_of`.
        ends: Of the model on the whole graph.
        config: The run.

    Returns:
        How long its epochs took.
    """
    fixed_s = epoch_seconds(on_sample(part, ends, config, 0), least_s=_LEAST_S)
    sample = on_sample(part, ends, config)
    epoch_s = epoch_seconds(sample, least_s=_LEAST_S)
    found, density = walked(sample)
    return Rehearsal(found, sample.model, density, epoch_s, min(fixed_s, epoch_s))


def on_sample(
    part: Part, ends: ModelEnds, config: TrainConfig, max_edges: int = MAX_EDGES
) -> Trainer:
    """Build what trains on a sample of a part, in one process.

    Args:
        part: As for `sample_of`.
        ends: Of the model on the whole graph.
        config: The run; what only several ranks do is left out.
        max_edges: As for `sample_of`.
    """
    alone = replace(
        config,
        split_index=0,  # the sample is of one split
        algorithm="cd-0",
        reweight_loss=False,
        bins=None,
        delay=None,
        delay_cache=True,
        gradient_cache=None,
        smoothing=0.0,
        gradient_smoothing=None,
        warm_up_epochs=0,
    )
    graph = sample_of(part, config.split_index, max_edges)
    return Trainer(alone, ends, whole_part(graph), SingleGroup())


def epoch_seconds(trainer: Trainer, *, least_s: float = 0.0) -> float:
    """Train for some epochs.

    Args:
        trainer: Of a sample.
        least_s: Time that they take together, at least.

    Returns:
        Seconds of the fastest epoch.
    """
    seconds: list[float] = []
    begin = time.perf_counter()
    while len(seconds) < _WARM_UP + _LEAST_EPOCHS or time.perf_counter() - begin < least_s:
        start = time.perf_counter()
        trainer.train_epoch()
        seconds.append(time.perf_counter() - start)
    return min(seconds[_WARM_UP:])


def walked(trainer: Trainer) -> tuple[Forecast, float]:
    """Count what this rank sums and multiplies in an epoch.

    Args:
        trainer: Of the run, or of a sample.

    Returns:
        As of a partition with one part, without what it sends, and the share of the entries of the
        input that are stored.
    """
    features, config, density = trainer.graphs.features, trainer.config, 1.0
    is_sparse = isinstance(features, SparseRows)
    if isinstance(features, SparseRows):
        density = len(features.columns) / max(features.shape[0] * features.shape[1], 1)
    layers = trainer.model.traffic(
        is_sparse=is_sparse,
        is_static=not why_not_static(config, is_sparse=is_sparse),
        feature_bytes=config.feature_bytes,
    )
    nothing, rows = np.zeros((1, 1), np.int64), []
    for number in range(len(layers)):
        level = trainer.graphs.training.level(number)
        counts = (np.array([level.blocks.forward.num_edges]), np.array([level.num_rows]))
        rows.append(LayerRows(nothing, nothing, *counts))
    shares = (1.0,) * len(layers)
    found = Forecast(
        trainer.model, tuple(layers), tuple(rows), (), rows[0], config.delays, shares, ()
    )
    return found, density
