"""Epochs of a sample of a part, run on this machine to tell how long others will take."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from distgnn.comm.mirror import MirrorGroup
from distgnn.comm.single import SingleGroup
from distgnn.datasets.graph import Graph
from distgnn.exchange.rule import HaloRule
from distgnn.forecast.pace import Pace, compute_seconds
from distgnn.forecast.traffic import Forecast, LayerRows
from distgnn.ops import SparseRows
from distgnn.partition.directory.store import whole_part
from distgnn.settings.kfac import parse
from distgnn.training.config.codecs import halo_text
from distgnn.training.config.presets import PRESETS
from distgnn.training.loop.graphs import why_not_static
from distgnn.training.loop.trainer import Trainer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.nn.models import GNN
    from distgnn.partition.directory.store import Part
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.info import DataInfo

MAX_EDGES = 1 << 23
_WARM_UP = 2
_LEAST_EPOCHS, _LEAST_S = 5, 1.5


class Rehearsal(NamedTuple):
    """Result of a rehearsal.

    Attributes:
        found: Forecast of its epochs.
        model: Model that was trained.
        density: Share of the entries of the input that are stored.
        epoch_s: Seconds of the median epoch.
        fixed_s: Seconds of an epoch of a few rows, which do not grow with the graph.
    """

    found: Forecast
    model: GNN
    density: float
    epoch_s: float
    fixed_s: float = 0.0

    def scaled(
        self, found: Forecast, density: float, *, here: Pace, there: Pace
    ) -> NDArray[np.float64]:
        """Scale what grows with the graph by the sums and products of another epoch.

        Args:
            found: The other epoch.
            density: Share of the entries of its input that are stored.
            here: Pace of the kernels in the rehearsal.
            there: Pace of the kernels in the other epoch.

        Returns:
            (num_parts,) float64 seconds without `fixed_s`.
        """
        own = compute_seconds(self.found, self.model, here, density=self.density)
        factor = (self.epoch_s - self.fixed_s) / float(own.max())
        return factor * compute_seconds(found, self.model, there, density=density)


def sample_of(part: Part, split_index: int, max_edges: int = MAX_EDGES) -> Part:
    """Take the first rows of a part, those of roots and those of leaves, with their sources.

    As many rows as have so many edges, roots and leaves in proportion; at least a root, and a leaf
    of each kind that the part has. What the sample gets from others, it gets from its mirror image:
    its leaves are those of a part just like it.

    Args:
        part: With features, labels, and at least one root.
        split_index: Row of the masks; its training vertices are those of the sample.
        max_edges: Rows are taken until they have so many.

    Returns:
        One of two parts, for a `MirrorGroup`; the only part if the part is. Values make no
        difference to time: degrees are those of its own edges, and at least one of its vertices is
        trained on.
    """
    rows = _first_rows(part, max_edges)
    lengths = part.indptr[rows + 1] - part.indptr[rows]
    edge = np.repeat(part.indptr[rows] - (np.cumsum(lengths) - lengths), lengths)
    edge += np.arange(len(edge))
    sources = np.asarray(part.indices)[edge]
    used = np.union1d(rows, sources)
    used_roots, used_leaves = np.split(used, [used.searchsorted(part.num_roots)])
    # Two more, without edges, are validated and tested on: each needs a vertex, but is not run.
    roots = np.append(used_roots, [0, 0])
    number = np.zeros(part.num_clones, dtype=np.int64)
    number[used_roots] = np.arange(len(used_roots))
    number[used_leaves] = len(roots) + np.arange(len(used_leaves))
    kind = part.vertex_type
    of_edges: dict[str, Any] = {
        name: np.asarray(values)[edge]
        for name in ("edge_weight", "edge_type", "edge_features")
        if (values := getattr(part, name)) is not None
    }
    graph = Graph(
        name="sample",
        num_vertices=len(roots) + len(used_leaves),
        src=number[sources],
        dst=np.repeat(number[rows], lengths),
        vertex_type=None if kind is None else np.array(kind)[np.append(roots, used_leaves)],
        **of_edges,
    )
    alone = replace(whole_part(graph), num_roots=len(roots), **_of_roots(part, split_index, roots))
    return _mirrored(alone, part, number) if part.num_parts > 1 else alone


def _first_rows(part: Part, max_edges: int) -> NDArray[np.int64]:
    """Local ids of clones, ascending: the rows of a sample."""
    starts, num_roots = part.indptr, part.num_roots
    of_roots = int(starts[num_roots])
    share = min(max_edges / max(part.num_edges, 1), 1.0)
    last = int(np.searchsorted(starts[: num_roots + 1], share * of_roots, side="right")) - 1
    found = [np.arange(max(last, 1))]
    if part.num_leaves:
        wanted = of_roots + share * (part.num_edges - of_roots)
        last = int(np.searchsorted(starts[num_roots:], wanted, side="right")) - 1
        found.append(num_roots + np.arange(last))
        # A row is made for the first leaf that is written, and from the first that is read.
        found.append(num_roots + part.is_writing.nonzero()[0][:1])
        first = part.t_indptr[num_roots + part.is_reading.nonzero()[0][:1]]
        found.append(np.asarray(part.t_indices)[first].astype(np.int64))
    return np.unique(np.concatenate(found))


def _of_roots(part: Part, split_index: int, roots: NDArray[np.int64]) -> dict[str, Any]:
    """Return the values of a part's roots for those of a sample; the last two are not run."""
    assert part.train_mask is not None, "a part that can be trained on has masks"
    is_train = np.asarray(part.train_mask)[split_index][roots]
    is_train[-2:] = False
    is_train[0] |= not is_train.any()
    is_extra = np.arange(len(roots)) - (len(roots) - 2)
    return {
        "features": None if part.features is None else _picked(part.features, roots),
        "labels": _labels(part, roots),
        "train_mask": is_train[None],
        "val_mask": (is_extra == 0)[None],
        "test_mask": (is_extra == 1)[None],
    }


def _mirrored(alone: Part, part: Part, number: NDArray[np.int64]) -> Part:
    """Let the clones behind the roots of a part be leaves of its mirror image's roots."""
    num_roots, num_clones = alone.num_roots, len(alone.indptr) - 1
    is_reading = np.diff(alone.t_indptr)[num_roots:] > 0
    is_writing = np.diff(alone.indptr)[num_roots:] > 0

    def rows_for(rows: NDArray[np.int32], count: int) -> NDArray[np.int32]:
        """Return as many roots as there are leaves, in the order that the part packs its own."""
        kept = number[np.asarray(rows)]
        return np.resize(kept if len(kept) else np.zeros(1, np.int64), count).astype(np.int32)

    num_read, num_written = int(is_reading.sum()), int(is_writing.sum())
    return replace(
        alone,
        num_parts=2,
        num_leaves=num_clones - num_roots,
        leaf_counts=np.array([0, num_clones - num_roots]),
        is_reading=is_reading,
        is_writing=is_writing,
        send_counts=np.array([0, num_read]),
        send_rows=rows_for(part.send_rows, num_read),
        reduce_counts=np.array([0, num_written]),
        reduce_rows=rows_for(part.reduce_rows, num_written),
        self_loops=alone.self_loops[:num_roots],
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


def rehearse(
    part: Part, ends: DataInfo, config: TrainConfig, *, max_edges: int = MAX_EDGES
) -> Rehearsal:
    """Train on a sample of a part for a moment, and on next to nothing, with the threads set.

    Beside a mirror image, so that a rank's time is what it does for and with others, too: it packs,
    posts and adds rows, and waits for nobody. What a transport does with messages is left out.

    Args:
        part: Part, as for `sample_of`.
        ends: Widths of the model on the whole graph.
        config: The run.
        max_edges: Limit of edges, as for `sample_of`.

    Returns:
        How long its epochs took.
    """
    fixed_s = epoch_seconds(on_sample(part, ends, config, 0), least_s=_LEAST_S)
    sample = on_sample(part, ends, config, max_edges)
    epoch_s = epoch_seconds(sample, least_s=_LEAST_S)
    found, density = walked(sample)
    model = sample.known_model("a rehearsal")
    return Rehearsal(found, model, density, epoch_s, min(fixed_s, epoch_s))


def on_sample(part: Part, ends: DataInfo, config: TrainConfig, max_edges: int) -> Trainer:
    """Build what trains on a sample of a part, in one process.

    Args:
        part: Part, as for `sample_of`.
        ends: Widths of the model on the whole graph.
        config: The run.
        max_edges: Limit of edges, as for `sample_of`.
    """
    sample = sample_of(part, config.split_index, max_edges)
    # The sample is of one split, and rows are never late.
    weights: dict[str, Any] = {"reweight_loss": False, "coverage_correction": 0.0}
    if config.preset is not None and PRESETS[config.preset].settings:
        weights["preset"] = None
    alone = replace(config, split_index=0, warm_up_epochs=0, start="graph", **weights)
    if config.optimizer == "lbfgs":
        # An epoch is a search of any length, of which one evaluation is predicted.
        alone = replace(alone, optimizer="sgd", lr=1e-3)
    if config.optimizer == "kfac":
        # The first epochs read and decompose factors each, and would be all that a rehearsal sees.
        alone = replace(alone, kfac=str(replace(parse(config.kfac), first=1)))
    if (auto := config.given_halo.auto) is not None:
        # A rehearsal is of the graph, whose cut the sample does not have.
        alone = replace(alone, halo=halo_text(HaloRule(auto=replace(auto, may_start=False))))
    if config.given_halo.is_adaptive:
        # The mirror knows no bits of the rows of others, and uniform ones take as long.
        alone = replace(alone, preset=None, halo=halo_text(config.given_halo.plain))
    # A model that learns a row for each vertex has one for the two more of the sample, too.
    ends = replace(ends, num_vertices=max(ends.num_vertices, len(sample.global_id)))
    return Trainer(alone, ends, sample, MirrorGroup() if sample.num_parts > 1 else SingleGroup())


def epoch_seconds(trainer: Trainer, *, least_s: float) -> float:
    """Train for some epochs.

    Args:
        trainer: Trainer of a sample.
        least_s: Time that they take together, at least.

    Returns:
        Seconds of the epoch in the middle: a run's meet interrupts and others' work, too. Of K-FAC,
        the mean of epochs that read or decompose factors and of those that do not.
    """
    seconds: list[float] = []
    begin = time.perf_counter()
    while len(seconds) < _WARM_UP + _LEAST_EPOCHS or time.perf_counter() - begin < least_s:
        start = time.perf_counter()
        trainer.train_epoch()
        seconds.append(time.perf_counter() - start)
    return _mean_seconds(seconds, trainer.config)


def _mean_seconds(seconds: list[float], config: TrainConfig) -> float:
    """Return the middle of the seconds of epochs, from `_WARM_UP` on; of K-FAC see above."""
    if config.optimizer != "kfac":
        return statistics.median(seconds[_WARM_UP:])
    options = parse(config.kfac)
    both = 1 / math.lcm(options.factors, options.inverses)
    read, decomposed = 1 / options.factors - both, 1 / options.inverses - both
    shares = {
        (True, True): both,
        (True, False): read,
        (False, True): decomposed,
        (False, False): 1 - both - read - decomposed,
    }
    alike: dict[tuple[bool, bool], list[float]] = {}
    for step in range(_WARM_UP, len(seconds)):
        kind = options.is_read(step), options.is_decomposed(step)
        alike.setdefault(kind, []).append(seconds[step])
    # What comes so seldom that no epoch met it counts for nothing.
    total = sum(shares[kind] * statistics.median(own) for kind, own in alike.items())
    return total / sum(shares[kind] for kind in alike)


def walked(trainer: Trainer) -> tuple[Forecast, float]:
    """Count what this rank sums and multiplies in an epoch.

    Args:
        trainer: Trainer of the run, or of a sample.

    Returns:
        The forecast of a partition with one part, without traffic, and the share of the entries of
        the input that are stored.
    """
    features, config, density = trainer.graphs.features, trainer.config, 1.0
    is_sparse = isinstance(features, SparseRows)
    if isinstance(features, SparseRows):
        density = len(features.columns) / max(features.shape[0] * features.shape[1], 1)
    model = trainer.known_model("a rehearsal")
    layers = model.traffic(
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
    found = Forecast(model, tuple(layers), tuple(rows), (), rows[0], config.halo_rule, shares, ())
    return found, density
