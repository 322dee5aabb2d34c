"""Traffic of an epoch, computed from a partition directory without training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from distgnn.aggregate.traffic import ITEM_BYTES, sum_traffic
from distgnn.edges.subgraph import edges_into
from distgnn.exchange.codec import EXACT, HaloCodecs
from distgnn.exchange.rule import HaloRule
from distgnn.graph.receptive_field import plan_layers
from distgnn.nn.norm import BatchNorm
from distgnn.nn.relational import LearnedRelationalConv
from distgnn.ops import SparseRows
from distgnn.optim.described import describe_factors
from distgnn.optim.lbfgs import NUMBERS_BYTES
from distgnn.optim.optimizers import NUM_MOMENTS
from distgnn.partition.directory.store import read_part
from distgnn.settings.kfac import parse
from distgnn.training.data.info import DataInfo
from distgnn.training.data.inputs import split_rows
from distgnn.training.loop.graphs import (
    describe_savings,
    is_input_fixed,
    why_not_restricted,
    why_not_static,
)
from distgnn.training.loop.model import build_model
from distgnn.training.tasks.objective import WITHHELD_BYTES
from distgnn.training.tasks.tasks import resolve
from distgnn.weights.traffic import NO_WEIGHTS, WeightTraffic, gradient_shapes

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import nn

    from distgnn.aggregate.traffic import LayerTraffic, Leg
    from distgnn.exchange.codec import CodecSpec
    from distgnn.graph.receptive_field import Restricted
    from distgnn.nn.models import GNN
    from distgnn.partition.directory.store import Manifest, Part
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.loop.graphs import RunGraphs
    from distgnn.weights.table_rows import TableRows


@dataclass(frozen=True, eq=False)
class LayerRows:
    """Rows and edges of a layer on all ranks.

    Attributes:
        read: (num_parts, num_parts) int64. [p][q]: leaves on q that read, whose roots are on p.
        write: (num_parts, num_parts) int64. [p][q]: leaves on q that write, whose roots are on p.
        edges: (num_parts,) int64. Number of edges of each part that the layer runs over.
        targets: (num_parts,) int64. Number of roots of each part whose rows it makes.
    """

    read: NDArray[np.int64]
    write: NDArray[np.int64]
    edges: NDArray[np.int64]
    targets: NDArray[np.int64]

    def sent_rows(self, leg: Leg) -> NDArray[np.int64]:
        """Return (num_parts, num_parts) int64, [p][q]: rows that p sends to q on a leg."""
        rows = self.of_roots(leg)
        return rows.T if leg.is_to_root else rows

    def of_roots(self, leg: Leg) -> NDArray[np.int64]:
        """Return (num_parts, num_parts) int64, [p][q]: rows between roots of p and leaves of q.

        Rows of a leg are numbered in this order, whichever way they go.
        """
        return self.read if leg.role == "read" else self.write


@dataclass(frozen=True)
class Forecast:
    """Traffic of a run on a partition.

    Attributes:
        model: Model that is trained, with weights of no value; None where widths alone were given.
        layers: Traffic of each convolution in a training pass.
        rows: Rows that it works on, layer by layer.
        evaluation: Traffic of each convolution in an evaluation, which runs on all rows.
        evaluation_rows: Those rows.
        rule: When rows travel, and in which codes.
        edge_fractions: Share of the graph's edges that each layer runs over in an epoch.
        savings: A line for each exact saving, as training notes them; none for 0c, whose ranks
            have graphs of their own.
        feature_bytes: Bytes of a value of dense features.
        weights: Traffic of weights and statistics.
        num_epochs: Epochs of the run, over which codes that follow each other are averaged.
        quiet_epochs: Epochs that send no rows, as they train on vertices or parts alone.
        has_part_of_its_own: Whether some or all epochs, or some that a run may choose, train on
            each part alone, which has rows of all clones.
    """

    model: GNN | None
    layers: tuple[LayerTraffic, ...]
    rows: tuple[LayerRows, ...]
    evaluation: tuple[LayerTraffic, ...]
    evaluation_rows: LayerRows
    rule: HaloRule
    edge_fractions: tuple[float, ...]
    savings: tuple[str, ...]
    feature_bytes: int = ITEM_BYTES
    weights: WeightTraffic = NO_WEIGHTS
    num_epochs: int = 1
    quiet_epochs: range = range(0)
    has_part_of_its_own: bool = False

    @property
    def weight_bytes(self) -> float:
        """Mean bytes of weights that all ranks send in an epoch: `weight_bytes_sent`.

        Exact; whole where all epochs send as much. What local models send in an epoch with an
        evaluation is that of `WeightTraffic.bytes_in_epoch`.
        """
        return self.weights.bytes_per_epoch(len(self.evaluation_rows.edges))

    def bytes_in_epoch(self, epoch: int) -> int:
        """Return what all ranks send in an epoch: `halo_bytes_sent` of metrics.jsonl, exactly.

        Where values of rows decide what travels, they send at most as much.

        Args:
            epoch: From 0.
        """
        rule, size = self.rule, len(self.evaluation_rows.edges)
        voted = size * (size - 1) * rule.vote_bytes
        if epoch in self.quiet_epochs:
            return voted
        return voted + sum(
            leg.row_bytes(rule.codec_in(epoch, is_backward=is_backward))
            * rule.num_rows(rows.of_roots(leg), epoch, is_backward=is_backward)
            + rule.mask_bytes(rows.of_roots(leg), epoch, is_backward=is_backward)
            for layer, rows in zip(self.layers, self.rows, strict=True)
            for legs, is_backward in layer.passes
            for leg in legs
        )

    @property
    def num_bins(self) -> int:
        """Epochs until the rows that travel are those of the beginning again."""
        return self.rule.period

    @property
    def bytes_per_epoch(self) -> float:
        """Bytes that all ranks send in an epoch on the graph, on average; whole if alike."""
        return int(self.bytes_between.sum()) / self.num_bins

    @property
    def evaluation_bytes(self) -> int:
        """Bytes that all ranks send in an evaluation: `eval_halo_bytes_sent`."""
        return self.evaluation_bytes_in(EXACT)

    def evaluation_bytes_in(self, codec: CodecSpec) -> int:
        """Return what all ranks send in an evaluation whose rows are written in a code.

        Args:
            codec: The code.
        """
        return sum(
            int(bytes_of_legs(layer.forward, self.evaluation_rows, codec).sum())
            for layer in self.evaluation
        )

    @property
    def bytes_between(self) -> NDArray[np.int64]:
        """(num_parts, num_parts) int64. [p][q]: bytes that p sends to q in `num_bins` epochs.

        Those of one epoch where all are alike.
        """
        num_ranks = len(self.evaluation_rows.edges)
        votes = self.num_bins * self.rule.vote_bytes
        total: NDArray[np.float64] = np.full((num_ranks, num_ranks), float(votes))
        np.fill_diagonal(total, 0)
        for layer, rows in zip(self.layers, self.rows, strict=True):
            for legs, is_backward in layer.passes:
                way = self.rule.of(is_backward=is_backward)
                epochs = [e for e in range(self.num_bins) if not way.refresh or e % way.refresh]
                num_whole = self.num_bins - len(epochs)
                turns = way.deal.turns_between(epochs, num_ranks)
                share = turns * float(1 if way.spared is None else way.spared.share)
                exact = EXACT if way.refresh else way.codec
                total += num_whole * bytes_of_legs(legs, rows, exact)
                shares = self.rule.codec_shares(self.num_epochs, is_backward=is_backward)
                for codec, part in shares:
                    total += share * float(part) * bytes_of_legs(legs, rows, codec)
                if way.spared is not None:
                    total += turns * sum(-(-rows.sent_rows(leg) // 8) for leg in legs)
        return np.asarray(np.rint(total).astype(np.int64))

    @property
    def messages_between(self) -> NDArray[np.int64]:
        """(num_parts, num_parts) int64. [p][q]: messages that p sends to q in an epoch."""
        total = np.zeros_like(self.evaluation_rows.read)
        for layer, rows in zip(self.layers, self.rows, strict=True):
            for leg in layer.legs:
                total += rows.sent_rows(leg) > 0
        return total

    @property
    def num_steps(self) -> int:
        """How often an epoch waits for messages that were sent at the same time."""
        return sum(
            bool(rows.sent_rows(leg).any())
            for layer, rows in zip(self.layers, self.rows, strict=True)
            for leg in layer.legs
        )


def bytes_of_legs(
    legs: Sequence[Leg], rows: LayerRows, codec: CodecSpec = EXACT
) -> NDArray[np.int64]:
    """Add up the bytes between parts.

    Args:
        legs: Legs of a layer.
        rows: Rows that it works on.
        codec: Code that rows are written in.

    Returns:
        (num_parts, num_parts) int64, [p][q]: bytes that p sends to q.
    """
    total = np.zeros_like(rows.read)
    for leg in legs:
        total += leg.row_bytes(codec) * rows.sent_rows(leg)
    return total


def screened_bytes(found: Forecast, config: TrainConfig | None) -> int | None:
    """Return what all ranks send in an evaluation that is screened; an exact one may follow.

    Args:
        found: Forecast of the run.
        config: Settings of the run.

    Returns:
        Bytes; None where every evaluation is exact, or one rank sends nothing.
    """
    screening = None if config is None else config.screening
    if screening is None or len(found.evaluation_rows.edges) == 1:
        return None
    return found.evaluation_bytes_in(screening.codec)


def forecast_of_widths(manifest: Manifest, widths: Sequence[int]) -> Forecast:
    """Compute what sums of rows of given widths send, forward and backward, over all edges.

    Args:
        manifest: Manifest of the partition.
        widths: (num_layers,) width of the rows that each layer sums.

    Returns:
        The forecast.

    Raises:
        InputError: If a width is not in 1..MAX_WIDTH of `distgnn.partition.quality`.
    """
    manifest.estimate(widths)  # checks them
    whole = _whole_rows(manifest)
    layers = tuple(sum_traffic(width) for width in widths)
    return Forecast(
        None,
        layers,
        (whole,) * len(layers),
        layers,
        whole,
        HaloRule(),
        (1.0,) * len(layers),
        (),
    )


def planned_bytes(
    config: TrainConfig, model: GNN, graphs: RunGraphs, codec: CodecSpec | None = None
) -> float:
    """Say what this rank will send in an epoch of the run, on average.

    Args:
        config: The run.
        model: Model to train.
        graphs: Graphs that the model runs on.
        codec: Code of all rows in all epochs; None for those of the run.

    Returns:
        Bytes.
    """
    is_mapped = not isinstance(graphs.features, torch.Tensor)
    is_sparse = isinstance(graphs.features, SparseRows)
    is_static = not why_not_static(config, is_sparse=is_sparse)
    total = 0.0
    layers = model.traffic(
        is_sparse=is_mapped, is_static=is_static, feature_bytes=config.feature_bytes
    )
    rule, codecs = config.halo_rule, graphs.training.exchange.codecs
    if codec is not None:
        rule, codecs = HaloRule(), HaloCodecs(codec, codec)
    rule = replace(rule, later=codecs.later)
    total += (graphs.training.group.size - 1) * rule.vote_bytes
    for number, layer in enumerate(layers):
        halves = graphs.training.level(number).blocks.forward
        routes = {"read": halves.send.route, "write": halves.reduce.route}
        for legs, is_backward in layer.passes:
            first = codecs.of(is_backward=is_backward)
            shares = rule.codec_shares(config.epochs, is_backward=is_backward)[1:]
            shares = [(first, Fraction(1 - sum(part for _, part in shares))), *shares]
            whole = rule.whole_fraction(config.epochs, is_backward=is_backward)
            exact = first if rule.is_synchronous else EXACT
            way = rule.of(is_backward=is_backward)
            turns = (1 - whole) * way.deal.share
            share = (1 - whole) * way.share
            for leg in legs:
                coded = sum(part * leg.row_bytes(one) for one, part in shares)
                mean = whole * leg.row_bytes(exact) + share * coded
                num_rows = leg.sent_rows(routes[leg.role])
                masks = num_rows / 8 if way.spared is not None else 0
                total += float(mean) * num_rows + float(turns) * masks
    return total


def planned_evaluation_bytes(
    config: TrainConfig, model: GNN, graphs: RunGraphs, codec: CodecSpec = EXACT
) -> int:
    """Say what this rank will send in an evaluation.

    Args:
        config: The run.
        model: Model that will be trained.
        graphs: Graphs that it runs on.
        codec: Code that rows are written in.

    Returns:
        Bytes.
    """
    is_static = config.static_input and not isinstance(graphs.features, SparseRows)
    layers = model.traffic(
        is_sparse=not isinstance(graphs.features, torch.Tensor),
        is_static=is_static,
        feature_bytes=config.feature_bytes,
    )
    halves = graphs.exact.blocks.forward
    routes = {"read": halves.send.route, "write": halves.reduce.route}
    return sum(
        leg.row_bytes(codec) * leg.sent_rows(routes[leg.role])
        for layer in layers
        for leg in layer.forward
    )


def forecast(
    directory: str | os.PathLike[str], manifest: Manifest, config: TrainConfig
) -> Forecast:
    """Compute what a run on a partition will send, exactly.

    One part at a time is read, besides a few bytes for each vertex.

    Args:
        directory: The partition directory.
        manifest: Its manifest.
        config: The run.

    Returns:
        The forecast.

    Raises:
        InputError: If the graph has no labels, no masks, or no such split, or a part is damaged, or
            links are held out and do not go with the flags.
    """
    # What a damaged manifest claims of widths shows in its files.
    read_part(directory, 0, verify=False, manifest=manifest)
    ends = DataInfo.of(manifest)
    config = resolve(config, ends)
    is_sparse = manifest.has_sparse_features
    is_static = not why_not_static(config, is_sparse=is_sparse)
    is_eval_static = config.static_input and not is_sparse
    model = build_model(config, ends)
    evaluation = model.traffic(
        is_sparse=is_sparse, is_static=is_eval_static, feature_bytes=config.feature_bytes
    )
    model.set_recompute(config.recompute)
    layers = model.traffic(
        is_sparse=is_sparse, is_static=is_static, feature_bytes=config.feature_bytes
    )
    whole = _whole_rows(manifest)
    rows, fractions = [whole] * len(layers), [1.0] * len(layers)
    if is_static:
        fractions[0] = 0.0
    has_tables = isinstance(model.convolutions[0], LearnedRelationalConv)
    walk = (_IsolatedWalk if config.is_isolated else _DirectoryWalk)(directory, manifest)
    plans: list[Restricted[LayerRows]] = []
    if not why_not_restricted(config) and (has_tables or not config.is_isolated):
        wanted = walk.wanted(config.split_index, config.task)
        plans = plan_layers(walk, wanted, len(layers), is_input_static=is_static)
    if config.is_isolated:
        layers = [layer.silent() for layer in layers]
    else:
        for number, plan in zip(reversed(range(len(layers))), reversed(plans), strict=False):
            rows[number] = plan.kept or walk.without_edges(plan.targets)
            fractions[number] = plan.edge_fraction
    first, num_rows = model.convolutions[0], {}
    if isinstance(first, LearnedRelationalConv):
        # Models are merged with all rows of their tables.
        is_restricted = len(plans) == len(layers) and not config.weight_rule.is_local
        num_vertices, num_sources = walk.count_read(plans[0].targets if is_restricted else None)
        num_rows = {first.own: num_vertices, first.rows: num_sources}
    return Forecast(
        model,
        tuple(layers),
        tuple(rows),
        tuple(evaluation),
        whole,
        config.halo_rule,
        tuple(fractions),
        ()
        if config.is_isolated
        else describe_savings(
            config,
            is_sparse=is_sparse,
            num_edge_features=manifest.num_edge_features,
            has_edge_weights=manifest.has_edge_weights,
            edge_fractions=fractions,
        ),
        config.feature_bytes,
        weight_traffic(config, model, num_rows, is_sparse=is_sparse, is_mapped=is_sparse),
        config.epochs,
        config.quiet_epochs,
        config.may_start_on_parts or config.is_isolated,
    )


def planned_weights(
    config: TrainConfig, model: GNN, tables: TableRows, graphs: RunGraphs
) -> WeightTraffic:
    """Say what ranks will tell each other about weights and statistics in an epoch.

    Args:
        config: The run.
        model: Model to train.
        tables: Rows of its learned tables that are sent.
        graphs: Graphs that it runs on, and its input.
    """
    num_rows = {table: len(rows) for table, rows in zip(tables.tables, tables.rows, strict=True)}
    is_mapped = not isinstance(graphs.features, torch.Tensor)
    is_sparse = isinstance(graphs.features, SparseRows)
    return weight_traffic(config, model, num_rows, is_sparse=is_sparse, is_mapped=is_mapped)


def weight_traffic(
    config: TrainConfig,
    model: GNN,
    num_rows: Mapping[nn.Parameter, int],
    *,
    is_sparse: bool,
    is_mapped: bool,
) -> WeightTraffic:
    """Say what ranks will tell each other about weights and statistics in an epoch.

    Args:
        config: The run.
        model: Model to train.
        num_rows: Rows of learned tables that are sent, where these are not those of the table.
        is_sparse: Whether features are sparse.
        is_mapped: Whether they are mapped before they are aggregated, as sparse and streamed ones.
    """
    statistics = [
        num_bytes
        for module in model.modules()
        if isinstance(module, BatchNorm)
        for num_bytes in module.summed_bytes
    ]
    if config.labels_as_input:
        statistics.append(WITHHELD_BYTES)
    if config.optimizer == "lbfgs":
        statistics += NUMBERS_BYTES
    shapes = gradient_shapes(model, num_rows)
    factors = None
    if config.optimizer == "kfac":
        factors = describe_factors(
            model,
            parse(config.kfac),
            is_sparse=is_mapped,
            is_static=not why_not_static(config, is_sparse=is_sparse),
            is_fixed=is_input_fixed(config, is_sparse=is_sparse),
            is_repeated=not (config.model.input_dropout or config.labels_as_input),
        )
    return WeightTraffic(
        shapes,
        config.weight_rule.at_most,
        tuple(statistics),
        NUM_MOMENTS[config.optimizer],
        factors,
        config.seed,
        config.restarts_at,
    )


def _whole_rows(manifest: Manifest) -> LayerRows:
    """All rows of a layer, as the partitioner counted them."""
    read, write = (np.array(manifest.quality[f"{role}_rows"]) for role in ("read", "write"))
    edges, roots = np.array([[part.num_edges, part.num_roots] for part in manifest.parts]).T
    return LayerRows(read, write.T, edges, roots)


class _DirectoryWalk:
    """Goes from rows to the rows they are made of, over all vertices, one part at a time.

    Flags are those of vertices.

    Args:
        directory: The partition directory.
        manifest: Its manifest.
    """

    def __init__(self, directory: str | os.PathLike[str], manifest: Manifest) -> None:
        self._directory = directory
        self._manifest = manifest
        self._num_flags = manifest.num_vertices
        self._num_checked = 0

    def _ids(self, part: Part) -> NDArray[np.integer[Any]]:
        """(num_clones,) The flag of each clone: all clones of a vertex have one."""
        return part.global_id

    def _parts(self) -> Iterator[Part]:
        manifest = self._manifest
        for number in range(manifest.num_parts):
            # Each layer goes over all parts; their row numbers are looked at once.
            is_new = number >= self._num_checked
            part = read_part(
                self._directory, number, verify=False, every_edge=is_new, manifest=manifest
            )
            self._num_checked += is_new
            yield part

    def wanted(self, split_index: int, task: str) -> NDArray[np.bool_]:
        """Return (num_vertices,) bool: whose scores the loss reads."""
        wanted = np.zeros(self._num_flags, dtype=bool)
        for part in self._parts():
            rows = split_rows(part, split_index, task)["train"]
            wanted[self._ids(part)[rows.numpy()]] = True
        return wanted

    def edge_fraction(self, targets: NDArray[np.bool_]) -> float:
        """Return the share of the graph's edges that end at some vertices."""
        num_edges = 0
        for part in self._parts():
            num_edges += int(np.diff(part.indptr)[targets[self._ids(part)]].sum())
        return num_edges / max(self._manifest.num_edges, 1)

    def keep(self, targets: NDArray[np.bool_]) -> tuple[LayerRows, NDArray[np.bool_]]:
        """Count the rows that travel for some vertices; also return what they are made of."""
        rows = self._no_rows()
        sources = np.zeros_like(targets)
        for part in self._parts():
            is_target = targets[self._ids(part)]
            is_kept, t_counts = edges_into(part, is_target)
            sources[self._ids(part)[t_counts > 0]] = True
            owner = np.repeat(np.arange(part.num_parts), part.leaf_counts)
            is_reading = t_counts[part.num_roots :] > 0
            is_writing = np.asarray(part.is_writing) & is_target[part.num_roots :]
            for table, taking_part in ((rows.read, is_reading), (rows.write, is_writing)):
                table[:, part.part] = np.bincount(owner[taking_part], minlength=part.num_parts)
            rows.edges[part.part] = np.count_nonzero(is_kept)
            rows.targets[part.part] = np.count_nonzero(is_target[: part.num_roots])
        return rows, sources

    def without_edges(self, targets: NDArray[np.bool_]) -> LayerRows:
        """Return the rows of a layer that makes those of some vertices from what is there."""
        rows = self._no_rows()
        for part in self._parts():
            is_target = targets[part.global_id[: part.num_roots]]
            rows.targets[part.part] = np.count_nonzero(is_target)
        return rows

    def count_read(self, targets: NDArray[np.bool_] | None) -> tuple[int, int]:
        """Count the learned rows that a first layer without features reads.

        Args:
            targets: Flags of the rows that the layer makes; None for all.

        Returns:
            Vertices whose rows it makes, and relation sources of the edges into them.
        """
        made = np.zeros(self._manifest.num_vertices, dtype=bool)
        keys: list[NDArray[np.int64]] = []
        for part in self._parts():
            assert part.edge_type is not None, "the model is typed"
            is_target = np.ones(part.num_clones, bool)
            if targets is not None:
                is_target = targets[self._ids(part)]
            made[part.global_id[is_target]] = True
            is_kept, _ = edges_into(part, is_target)
            source = part.global_id[part.indices[is_kept]].astype(np.int64)
            keys.append(np.unique(source * self._manifest.num_relations + part.edge_type[is_kept]))
        return int(made.sum()), len(np.unique(np.concatenate(keys)))

    def _no_rows(self) -> LayerRows:
        num_parts = self._manifest.num_parts
        tables = (np.zeros((num_parts, num_parts), np.int64) for _ in range(2))
        counts = (np.zeros(num_parts, np.int64) for _ in range(2))
        return LayerRows(*tables, *counts)


class _IsolatedWalk(_DirectoryWalk):
    """The walk of 0c, in which each clone goes its own way."""

    def __init__(self, directory: str | os.PathLike[str], manifest: Manifest) -> None:
        super().__init__(directory, manifest)
        counts = [part.num_roots + part.num_leaves for part in manifest.parts]
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self._num_flags = int(self._starts[-1])

    def _ids(self, part: Part) -> NDArray[np.integer[Any]]:
        return np.arange(self._starts[part.part], self._starts[part.part + 1])
