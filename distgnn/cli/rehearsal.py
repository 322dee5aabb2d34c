"""Epochs of a sample of a part, run on this machine to tell how fast others would be."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from distgnn.datasets.graph import Graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.nn.models import GNN
    from distgnn.partition.store import Part
    from distgnn.train.config import TrainConfig
    from distgnn.train.forecast import Forecast

MAX_EDGES = 1 << 23
_WARM_UP = 2
_LEAST_EPOCHS, _LEAST_S = 5, 1.5


class Rehearsal(NamedTuple):
    """What was run, and how long it took.

    Attributes:
        found: What its epochs walk, as of a partition with one part.
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
    weight, edge_features = part.edge_weight, part.edge_features
    return Graph(
        name="sample",
        num_vertices=len(roots),
        src=number[sources],
        dst=np.repeat(np.arange(num_rows), np.diff(part.indptr[: num_rows + 1])),
        features=_picked(part.features, roots),
        labels=_labels(part, roots),
        train_mask=is_train[None],
        val_mask=(is_extra == 0)[None],
        test_mask=(is_extra == 1)[None],
        edge_weight=None if weight is None else np.array(weight[: len(sources)]),
        edge_features=None if edge_features is None else np.array(edge_features[: len(sources)]),
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


def rehearse(part: Part, config: TrainConfig, num_classes: int) -> Rehearsal:
    """Train on a sample of a part for a moment, and on next to nothing, with the threads set.

    Args:
        part: As for `sample_of`.
        config: The run, of one rank.
        num_classes: Of the whole graph.

    Returns:
        How long its epochs took.
    """
    # The sample is of one split.
    alone, split_index = replace(config, split_index=0), config.split_index
    fixed = _run(sample_of(part, split_index, 0), alone, num_classes)
    done = _run(sample_of(part, split_index), alone, num_classes)
    return done._replace(fixed_s=min(fixed.epoch_s, done.epoch_s))


def _run(graph: Graph, config: TrainConfig, num_classes: int) -> Rehearsal:
    from distgnn.comm.single import SingleGroup
    from distgnn.partition.assignment import Assignment
    from distgnn.partition.quality import measure
    from distgnn.partition.store import read_part, write
    from distgnn.train.ends import ModelEnds
    from distgnn.train.forecast import forecast
    from distgnn.train.trainer import Trainer

    everything = Assignment(
        1, np.zeros(graph.num_edges, np.int32), np.zeros(graph.num_vertices, np.int32)
    )
    with tempfile.TemporaryDirectory(prefix="distgnn-plan-") as folder:
        directory = Path(folder) / "sample"
        quality = measure(graph, everything)
        manifest = write(
            directory, graph, everything, method="given", options={}, seed=0, quality=quality
        )
        found = forecast(directory, manifest, config)
        part = read_part(directory, 0, verify=False, manifest=manifest)
        ends = replace(ModelEnds.of(graph), num_classes=num_classes)
        trainer = Trainer(config, ends, part, SingleGroup())
        seconds: list[float] = []
        begin = time.perf_counter()
        while len(seconds) < _WARM_UP + _LEAST_EPOCHS or time.perf_counter() - begin < _LEAST_S:
            start = time.perf_counter()
            trainer.train_epoch()
            seconds.append(time.perf_counter() - start)
    return Rehearsal(found, trainer.model, manifest.feature_density, min(seconds[_WARM_UP:]))
