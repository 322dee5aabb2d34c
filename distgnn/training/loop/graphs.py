"""Graphs of a run: one for training, and an exact one for evaluation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch

from distgnn.edges.blocks import isolated_part, plan_blocks
from distgnn.edges.self_loops import with_loops
from distgnn.exchange.adaptive import Adaptive
from distgnn.exchange.base import Exchange, Synchronous, SynchronousBlocking
from distgnn.exchange.checks import CheckedRows, evaluation_after
from distgnn.exchange.codec import EXACT_CODECS, HaloCodecs
from distgnn.exchange.delayed import Delayed
from distgnn.exchange.tags import EVALUATION_TAG, SETUP_TAG
from distgnn.graph.local_graph import LocalGraph
from distgnn.graph.receptive_field import ReceptiveField
from distgnn.kernels.devices import PROCESSOR
from distgnn.ops.host_rows import HostRows
from distgnn.training.data.inputs import clone_features

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from distgnn.comm.group import Group
    from distgnn.edges.blocks import Blocks
    from distgnn.edges.walk_orders import WalkOrders
    from distgnn.nn.config import ModelConfig
    from distgnn.ops.rows import Rows
    from distgnn.partition.directory.store import Part
    from distgnn.training.config.settings import TrainConfig


TRIAL_EPOCHS = 2
"""Epochs of the graph before a run tries parts; it has at least twice as many after them."""
_MOST_ON_PARTS = 0.75
"""Share of the epochs of a run that may be on parts; see examples/strategies/adaptive.md."""


class TaskInputs(Protocol):
    """Inputs of a task: features, and the roots whose scores it reads."""

    @property
    def features(self) -> Rows:
        """(num_roots, num_features) input."""

    @property
    def wanted(self) -> Tensor:
        """(num,) int64. Roots whose scores the loss reads."""


class PartsPass(NamedTuple):
    """A part as a graph of its own, as 0c has it: epochs of a start train on it.

    Attributes:
        graph: The part alone; nothing travels on it.
        features: (graph.num_rows, num_features) input.
        quiet: Epochs that train on it.
        coverage: Share of in-edges of a training vertex that start on its part, as the mean over
            those of all ranks; in [0, 1].
    """

    graph: LocalGraph
    features: Rows
    quiet: range
    coverage: float


@dataclass(frozen=True)
class RunGraphs:
    """Graphs and features that a model runs on.

    Attributes:
        training: Graph of the training pass.
        features: (training.num_rows, num_features) input of the training pass.
        loss_rows: (num_train,) int64. Rows of the training scores that the loss reads; None for
            all of them, in order.
        exact: Graph of evaluation: always synchronous and whole.
        part_degree: (num_roots or more, 1) in-degrees that the training graph can see.
        fetched_bytes: Payload bytes that this rank sent for the features of leaves.
        savings: A line for each exact saving: its effect in this run, or why it is off.
        screened: Graph of evaluations over coded rows; None where there are none, or one rank.
        parts: Part of its own that the first epochs train on; None where none do, or one rank.
        is_isolated: Whether all epochs train on a part of its own, with rows of all clones.
    """

    training: LocalGraph
    features: Rows
    loss_rows: Tensor | None
    exact: LocalGraph
    part_degree: Tensor
    fetched_bytes: int
    savings: tuple[str, ...]
    screened: LocalGraph | None = None
    parts: PartsPass | None = None
    is_isolated: bool = False

    @property
    def setup_bytes_sent(self) -> int:
        """Payload bytes that this rank sent once, not per epoch."""
        return self.fetched_bytes + self.exact.setup_bytes_sent


def build_exchange(config: TrainConfig, group: Group, device: torch.device = PROCESSOR) -> Exchange:
    """Build the exchange that a run's algorithm asks for.

    Args:
        config: The run.
        group: All ranks.
        device: Device of the rows.

    Returns:
        A delayed exchange where rows wait or take turns, else a synchronous one. An isolated graph
        sends nothing on it.
    """
    if not config.overlap:
        return SynchronousBlocking(group, config.halo_codecs, device=device)
    if config.halo_rule.is_adaptive:
        return Adaptive(group, config.halo_codecs, device=device)
    if config.halo_rule.is_synchronous:
        return Synchronous(group, config.halo_codecs, device=device)
    return Delayed(group, config.halo_rule, device=device)


def build_graphs(
    config: TrainConfig,
    inputs: TaskInputs,
    part: Part,
    group: Group,
    *,
    walk_orders: WalkOrders,
    device: torch.device = PROCESSOR,
) -> RunGraphs:
    """Build the graphs of a run; collective.

    Args:
        config: The run.
        inputs: This rank's share of the task; `placement` has placed its features.
        part: This rank's part.
        group: One rank per part.
        walk_orders: Decide how sums walk the graphs.
        device: Device of the graphs.

    Returns:
        The graphs, with the features and the rows of scores that the training pass reads.
    """
    setup = setup_exchange(config, group)
    edge_columns = 0 if part.edge_features is None else part.edge_features.shape[1]
    if not config.model.reads_edge_features:
        part = replace(part, edge_features=None)
    blocks = plan_edges(config, part, setup, walk_orders)
    evaluating = Synchronous(group, first_tag=EVALUATION_TAG, device=device)
    exact = LocalGraph(part, blocks, evaluating)
    exact.add_setup_bytes(setup.take_bytes())
    screened = _screened(config, exact)
    features, fetched = inputs.features, 0
    exchange = build_exchange(config, group, device)
    if config.is_isolated:
        features, fetched = _with_leaves(features, part, blocks, setup)
        training = _isolated(config, part, exchange, walk_orders)
    else:
        training = exact.with_exchange(exchange)
    if config.model.kind.is_typed and not inputs.features.shape[1]:
        training.use_relation_sources(exact.find_relation_sources())
    # Evaluation finds the memory that the epoch has just left.
    training.exchange.buffers = exact.exchange.buffers
    training.mask_seeds.seed = config.seed
    training.exchange.seeds = training.mask_seeds
    if config.verify == "rows":
        seeds = training.mask_seeds
        training.exchange.checks = CheckedRows(lambda: f"epoch {seeds.epoch}")
        checks = CheckedRows(lambda: evaluation_after(seeds.epoch))
        for graph in filter(None, (exact, screened)):
            graph.exchange.checks = checks
    if config.static_input and not config.model.kind.is_typed:
        # Evaluation drops nothing, so its input is static even where training's is not.
        exact.set_static(inputs.features)
        training.set_static(features)
    is_sparse = features.is_sparse
    is_input_static = not why_not_static(config, is_sparse=is_sparse)
    degree = training.in_degree
    describe = partial(
        describe_savings,
        config,
        is_sparse=is_sparse,
        num_edge_features=edge_columns,
        has_edge_weights=part.edge_weight is not None,
    )
    runs_on: LocalGraph = training
    loss_rows: Tensor | None = inputs.wanted
    fractions: Sequence[float] = ()
    if not why_not_restricted(config):
        own_part = isolated_part(part) if config.is_isolated else part
        field = _restricted(config, training, inputs, own_part, is_input_static=is_input_static)
        runs_on, features, fractions = field, field.inputs(features), field.edge_fractions
        # A last layer that needs nearly all edges runs on all rows, though the loss reads some.
        is_whole = field.level(config.model.layers - 1) is training
        loss_rows = inputs.wanted if is_whole else None
    parts = None
    if config.may_start_on_parts and group.size > 1:
        coverage = _coverage(inputs, part, group)
        if quiet := config.quiet_epochs or chosen_epochs(config.epochs, coverage):
            given = exact, training, loss_rows
            parts, more = _parts(config, inputs, part, *given, walk_orders, quiet, coverage)
            fetched += more
    savings = describe(edge_fractions=fractions)
    return RunGraphs(
        *(runs_on, features, loss_rows, exact, degree, fetched, savings, screened, parts),
        is_isolated=config.is_isolated,
    )


def _isolated(
    config: TrainConfig, part: Part, exchange: Exchange, walk_orders: WalkOrders
) -> LocalGraph:
    """Return a part as a graph of its own, whose roots count in statistics; collective."""
    alone = isolated_part(part)
    setup = setup_exchange(config, exchange.group)
    blocks = plan_edges(config, alone, setup, walk_orders)
    return LocalGraph(alone, blocks, exchange, num_roots=part.num_roots)


def _parts(
    config: TrainConfig,
    inputs: TaskInputs,
    part: Part,
    exact: LocalGraph,
    training: LocalGraph,
    loss_rows: Tensor | None,
    walk_orders: WalkOrders,
    quiet: range,
    coverage: float,
) -> tuple[PartsPass, int]:
    """Return what a start on parts trains on, and the bytes of features sent; collective."""
    # No row travels over it, but statistics of batch norm do, and count.
    graph = _isolated(config, part, training.exchange, walk_orders)
    graph.mask_seeds = training.mask_seeds
    setup = setup_exchange(config, exact.group)
    rows, fetched = _with_leaves(inputs.features, part, exact.blocks, setup)
    if config.static_input:
        graph.set_static(rows)
    if loss_rows is not None:
        return PartsPass(graph, rows, quiet, coverage), fetched
    is_static = not why_not_static(config, is_sparse=rows.is_sparse)
    # Fewer of the edges of parts end at rows that the loss reads, so that their last layer runs on
    # these alone wherever that of the graph does.
    field = _restricted(config, graph, inputs, isolated_part(part), is_input_static=is_static)
    return PartsPass(field, field.inputs(rows), quiet, coverage), fetched


def _coverage(inputs: TaskInputs, part: Part, group: Group) -> float:
    """Return the share of in-edges that training vertices have on their parts; collective."""
    wanted = inputs.wanted.numpy(force=True)
    own, whole = np.diff(part.indptr)[wanted], np.asarray(part.in_degree)[wanted]
    shares = np.where(whole > 0, own / np.maximum(whole, 1), 1.0)
    total = torch.tensor([shares.sum(), len(shares)], dtype=torch.float64)
    group.all_reduce(total)
    return float(total[0] / total[1].clamp(min=1))


def chosen_epochs(num_epochs: int, coverage: float) -> range:
    """Return the epochs on parts that a run may choose: rows travel in the others.

    Args:
        num_epochs: Epochs of the run.
        coverage: Share of in-edges that epochs on parts see. Twice the share that they do not see
            is left for the end, and a quarter at least: with less, accuracy was lost. So none are
            on parts that see less than half.
    """
    stop = int(min(2 * coverage - 1, _MOST_ON_PARTS) * num_epochs)
    return range(TRIAL_EPOCHS, stop) if stop > 3 * TRIAL_EPOCHS else range(0)


def _screened(config: TrainConfig, exact: LocalGraph) -> LocalGraph | None:
    """Return the graph of evaluations over coded rows, if there are any."""
    if config.screening is None or exact.group.size == 1:
        return None
    # A look has ended on this rank before the exact evaluation begins, so they share tags.
    codecs = HaloCodecs(forward=config.screening.codec)
    exchange = Synchronous(exact.group, codecs, first_tag=EVALUATION_TAG, device=exact.device)
    exchange.buffers = exact.exchange.buffers
    return exact.with_exchange(exchange)


def _with_leaves(
    features: Rows, part: Part, blocks: Blocks, setup: Synchronous
) -> tuple[Rows, int]:
    """Add the features of leaves to those of roots, on the same device; see `clone_features`."""
    rows, sent = clone_features(features.to(PROCESSOR), part, blocks, setup)
    if isinstance(features, HostRows):
        return HostRows.of(rows.to_dense(), features.device), sent
    return rows.to(features.device), sent


def setup_exchange(config: TrainConfig, group: Group) -> Synchronous:
    """Return an exchange for what travels once, before the first epoch.

    Args:
        config: The run, which says whether rows carry checksums.
        group: One rank per part.
    """
    exchange = Synchronous(group, first_tag=SETUP_TAG)
    if config.verify == "rows":
        exchange.checks = CheckedRows(lambda: "the set-up")
    return exchange


def reads_types(model: ModelConfig, part: Part) -> bool:
    """Return whether a model may read types of edges; a layer of the user's may."""
    return model.kind.is_typed or (bool(model.own) and part.edge_type is not None)


def plan_edges(
    config: TrainConfig, part: Part, exchange: Synchronous, walk_orders: WalkOrders | None
) -> Blocks:
    """Plan the edges that a model walks, with self-loops where it has them; collective.

    Args:
        config: The run.
        part: This rank's part.
        exchange: Any synchronous exchange whose tags are free.
        walk_orders: Decide how sums walk the edges; None makes new ones.

    Returns:
        The blocks. Where the model has self-loops, blocks without them are not kept.
    """
    kind = config.model.kind
    if kind.is_attention:
        # It reads no weights.
        part = replace(part, edge_weight=None)
    has_features = config.model.reads_edge_features
    # A layer of the user's may attend.
    is_own = bool(config.model.own)
    blocks = plan_blocks(
        part,
        exchange.group,
        has_positions=kind.is_attention or has_features or is_own,
        has_types=reads_types(config.model, part),
        has_features=has_features,
        walk_orders=walk_orders,
    )
    if not kind.has_loops:
        return blocks
    # The graph could add them when a layer asks, but would then keep both kinds of blocks.
    loops = torch.from_numpy(np.array(part.self_loops))
    return with_loops(blocks, loops, torch.arange(part.num_roots), exchange)


def _restricted(
    config: TrainConfig,
    training: LocalGraph,
    inputs: TaskInputs,
    part: Part,
    *,
    is_input_static: bool,
) -> ReceptiveField:
    wanted = np.zeros(part.num_roots, dtype=bool)
    wanted[inputs.wanted.numpy()] = True
    layers = config.model.layers
    return ReceptiveField(
        training, part, wanted, num_layers=layers, is_input_static=is_input_static
    )


def why_not_static(config: TrainConfig, *, is_sparse: bool) -> str:
    """Say why the first layer aggregates its input in every epoch.

    Args:
        config: The run.
        is_sparse: Whether features are sparse.

    Returns:
        The reason; empty where the input is aggregated once.
    """
    if not config.static_input:
        return "switched off"
    if config.model.input_dropout > 0:
        return "the input is dropped out"
    if config.labels_as_input:
        return "labels in it are drawn again in every epoch"
    reason = config.model.kind.why_not_static(config.model)
    return reason or ("sparse features are mapped first" if is_sparse else "")


def is_summed_once(config: TrainConfig, *, is_sparse: bool) -> bool:
    """Return whether all sums of a run are those of static input: it has one layer, as SGC has.

    Args:
        config: The run.
        is_sparse: Whether features are sparse.
    """
    return config.model.layers == 1 and not why_not_static(config, is_sparse=is_sparse)


def is_input_fixed(config: TrainConfig, *, is_sparse: bool) -> bool:
    """Return whether maps of the first layer multiply the same rows in every epoch.

    Args:
        config: The run.
        is_sparse: Whether features are sparse, which the first layer maps as they are.
    """
    is_drawn = config.model.input_dropout > 0 or config.labels_as_input > 0
    is_mapped = is_sparse and config.static_input and not is_drawn
    return is_mapped or not why_not_static(config, is_sparse=is_sparse)


def why_not_restricted(config: TrainConfig) -> str:
    """Say why layers run on all rows; empty where they run only on rows that the loss reads.

    Args:
        config: The run.
    """
    if not config.receptive_field:
        return "switched off"
    if config.task == "link":
        return "links may end at any vertex"
    if config.model.norm == "batch":
        return "batch norm reads all vertices"
    if config.model.jumping not in ("none", "last"):
        return "jumping knowledge reads all layers"
    return config.model.kind.why_not_restricted(config.model)


def describe_start(config: TrainConfig) -> str:
    """Describe in words which epochs are not of the graph, and what they are of; empty if none.

    Args:
        config: The run.
    """
    quiet = config.quiet_epochs
    if config.may_start_on_parts and not quiet:
        return (
            "epochs that the run chooses on each part alone, which send no rows, where parts see "
            "more than half of the edges"
        )
    after = f" from epoch {quiet.start} on" if quiet.start else ""
    if config.starts_on_parts:
        return f"{len(quiet)} epochs on each part alone{after}, which send no rows"
    evaluated = "which send no rows and are not evaluated"
    return f"{len(quiet)} epochs on each vertex alone, {evaluated}" if quiet else ""


def describe_savings(
    config: TrainConfig,
    *,
    is_sparse: bool,
    num_edge_features: int,
    has_edge_weights: bool,
    edge_fractions: Sequence[float],
) -> tuple[str, ...]:
    """Describe each exact saving of a run, or why it is off, and other unusual settings.

    Args:
        config: The run.
        is_sparse: Whether features are sparse.
        num_edge_features: Number of columns of edge features.
        has_edge_weights: Whether edges have weights.
        edge_fractions: Share of the edges that each layer runs over; empty without a receptive
            field.

    Returns:
        One line each.
    """
    reason = why_not_static(config, is_sparse=is_sparse)
    lines = [_saving("static input", reason, "the first layer aggregates it once")]
    shares = ", ".join(f"{100 * fraction:.0f} %" for fraction in edge_fractions)
    effect = f"the layers run over {shares} of the edges"
    if config.halo_rule.num_bins > 1:
        effect += "; bins are dealt among the rows that still travel"
    lines.append(_saving("receptive field", why_not_restricted(config), effect))
    if num_edge_features:
        is_read = config.model.reads_edge_features
        reads = "each layer reads them as they are" if is_read else "not read"
        lines.append(f"edge features: {num_edge_features} columns, {reads}")
    if has_edge_weights:
        why_not = config.model.kind.why_weightless(config.model)
        reads = f"not read, as {why_not}" if why_not else "rows are multiplied by them"
        lines.append(f"edge weights: {reads}")
    if config.labels_as_input:
        lines.append(
            f"labels: {100 * config.labels_as_input:g} % of the training vertices give theirs as "
            "input, drawn in each epoch; the others are the loss"
        )
    lines += _stored(config)
    if start := describe_start(config):
        lines.append(f"start: {start}")
    if config.task == "link":
        lines.append("links: rows of the ends of edges and of random pairs are sent besides")
    if config.halo_codecs != EXACT_CODECS:
        lines.append(
            f"halo: rows travel as {config.halo}; narrow ones, ids and what a softmax is made of "
            "travel as they are"
        )
    if not config.overlap:
        lines.append("overlap: off, rows are waited for as soon as they were sent")
    if config.recompute:
        lines.append("recompute: backward computes hidden layers again")
    return tuple(lines)


def _stored(config: TrainConfig) -> list[str]:
    """Return a line for each kind of rows that is stored in fewer bytes than fp32."""
    lines = []
    if config.features_dtype != "fp32":
        lines.append(
            f"features: {config.features_dtype}, they and what is made of them once take half the "
            "memory"
        )
    if config.model.activations_dtype != "fp32":
        effect = config.model.kind.narrow_effect(config.model)
        lines.append(f"activations: {config.model.activations_dtype}, rows between layers {effect}")
    return lines


def _saving(name: str, why_not: str, effect: str) -> str:
    return f"{name}: off, {why_not}" if why_not else f"{name}: {effect}"
