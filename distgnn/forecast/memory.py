"""The memory that a run will need, predicted before its first epoch."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import torch

from distgnn.aggregate.traffic import ITEM_BYTES
from distgnn.exchange.codec import EXACT_CODECS
from distgnn.kernels.devices import PROCESSOR
from distgnn.kernels.tensors import DTYPES
from distgnn.nn.convolution import FusedConvolution
from distgnn.nn.gat import AttentionConvolution
from distgnn.nn.models import GNN
from distgnn.nn.relational import LearnedRelationalConv
from distgnn.ops.host_rows import COLUMNS, SLICE_BYTES, HostRows
from distgnn.optim.optimizers import NUM_MOMENTS
from distgnn.training.loop.graphs import why_not_static
from distgnn.training.loop.metrics import peak_rss_bytes, resident_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distgnn.forecast.traffic import Forecast
    from distgnn.nn.config import ModelConfig
    from distgnn.partition.directory.store import Manifest
    from distgnn.settings.names import OptimizerName
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.info import DataInfo
    from distgnn.training.loop.graphs import RunGraphs

# Gradients and scratch of the size of hidden rows where a layer is made of separate operations.
_SEPARATE_GRADIENTS = 4
# Besides on a device, where norms and maxima are several operations, too.
_DEVICE_GRADIENTS = 2
# Where attention sees to what is kept of it: of its result and its mapped rows, and these again.
_ATTENTION_GRADIENTS = 3
# Where targets are mapped apart: the gradient of theirs, sums that become it, that of what they are
# mapped from, and its sum with that of the sources.
_TARGET_GRADIENTS = 4
# Gradients and the best epoch's weights.
_WEIGHT_COPIES = 2
# Indices and weights of both directions, and what sorts the edges of a block.
_RELATION_EDGE_BYTES = 40
# An entry of sparse features.
_ENTRY_BYTES = 8
# An edge and a clone in both directions, and which program of a device walks whose edges, which is
# found in the first epoch.
_EDGE_BYTES = 16
_CLONE_BYTES = 16
_PROGRAM_BYTES = 64
# Columns of all rows while sums of streamed rows are made: read, sums, what kernels work on.
_COLUMN_COPIES = 3
# What torch's checkpoints load in the first epoch.
_COMPILER = "torch._dynamo"
_COMPILER_BYTES = 70 << 20


def predict_peak_bytes(model: GNN, graphs: RunGraphs, *, optimizer: OptimizerName = "adam") -> int:
    """Predict the most memory that this rank will ever have had resident.

    Args:
        model: Model to train.
        graphs: Graphs that the model runs on.
        optimizer: Optimizer of the model.

    Returns:
        Bytes: what is there now and `predict_added_bytes`, or an earlier peak above that.
    """
    added = predict_added_bytes(model, graphs, optimizer=optimizer)
    return max(resident_bytes() + added, peak_rss_bytes())


def predict_added_bytes(model: GNN, graphs: RunGraphs, *, optimizer: OptimizerName = "adam") -> int:
    """Predict what a run will take besides what is resident now.

    Counted are the aggregate of static input, what is as large as the weights, and the hidden rows
    that live at once. In training these are all rows that backward reads and works on; in
    evaluation the input, the aggregate and the output of one layer. Walk orders and buffers of the
    exchange are left out: some percent. `WeightTraffic.working_bytes` has the factors of K-FAC.

    Args:
        model: Model to train.
        graphs: Graphs that the model runs on.
        optimizer: Optimizer of the model.

    Returns:
        Bytes.
    """
    features = graphs.features
    is_static = graphs.training.is_static(features)
    static_bytes = kept_input_bytes = 0
    if isinstance(features, torch.Tensor):
        row_bytes = features.shape[1] * features.dtype.itemsize
        static_bytes = is_static * graphs.exact.num_rows * row_bytes
        is_kept = not is_static or model.config.input_dropout > 0
        kept_input_bytes = is_kept * graphs.training.num_rows * row_bytes
        if graphs.parts is not None:
            static_bytes += is_static * graphs.parts.graph.num_rows * row_bytes
        if graphs.is_isolated:
            # Of all clones, whose graph is another one, whatever rows a layer reads of it.
            part = graphs.exact.part
            static_bytes += is_static * (part.num_roots + part.num_leaves) * row_bytes
    is_device = graphs.exact.device != PROCESSOR
    layers = range(len(model.hidden))
    layer_rows = [graphs.training.level(number).num_rows for number in layers]
    if graphs.parts is not None:
        on_parts = (graphs.parts.graph.level(number).num_rows for number in layers)
        layer_rows = [max(pair) for pair in zip(layer_rows, on_parts, strict=True)]
    values = working_bytes(
        model,
        layer_rows,
        graphs.exact.num_rows,
        kept_input_bytes=kept_input_bytes,
        is_device=is_device,
    )
    is_simple = _is_one_operation(model) or _is_attention(model)
    if model.recomputes and not is_simple and _COMPILER not in sys.modules:
        static_bytes += _COMPILER_BYTES
    num_edges = graphs.exact.blocks.forward.num_edges
    typed = typed_bytes(model, graphs.training.num_rows, num_edges)
    typed += moment_bytes(model, NUM_MOMENTS[optimizer])
    walked = 0
    if is_device:
        part = graphs.exact.part
        walked = walk_bytes(model, part.num_roots + part.num_leaves, num_edges)
    return static_bytes + values + typed + score_bytes(model, num_edges) + walked


def walk_bytes(model: GNN, num_clones: int, num_edges: int) -> int:
    """Say what is kept on a device from the first epoch on, so that its programs walk edges.

    Args:
        model: Model to train.
        num_clones: Number of clones of this rank.
        num_edges: Number of edges of this rank.

    Returns:
        Bytes.
    """
    most = max(conv.walk_bytes for conv in model.convolutions)
    return _PROGRAM_BYTES * num_clones + most * num_edges


def predict_host_bytes(graphs: RunGraphs) -> int:
    """Predict what a run on a device will still take in host memory: what is made of streamed rows.

    Args:
        graphs: Graphs that the model runs on.

    Returns:
        Bytes, at most: sums of static rows, and both picked where layers run on some rows.
    """
    features, exact = graphs.features, graphs.exact
    level = graphs.training.level(0)
    if not isinstance(features, HostRows) or not level.is_static(features):
        return 0
    num_rows = exact.num_rows
    if graphs.parts is not None:
        num_rows += graphs.parts.graph.num_rows
    if graphs.training.num_rows > exact.num_rows:
        num_rows += graphs.training.num_rows
    if level.own_index is not None:
        num_rows += 2 * level.num_rows
    return num_rows * features.shape[1] * features.dtype.itemsize


class PartSizes(Protocol):
    """A part, or what a manifest says of one."""

    @property
    def num_roots(self) -> int:
        """Vertices that it owns."""

    @property
    def num_leaves(self) -> int:
        """Other clones."""

    @property
    def num_edges(self) -> int:
        """Edges."""


def device_bytes(config: TrainConfig, ends: DataInfo, part: PartSizes, *, features_on: str) -> int:
    """Estimate what a run with dense features takes on a device at its peak, before it is there.

    Counted are edges of both directions and their features, scores of edges, and the extra memory
    of typed models. Hidden rows that live at once count as if layers ran on all rows. Features on
    the device count with their aggregate, where they are static, and a copy, where they are dropped
    out. Features in host memory count two buffers, and some columns while the aggregate is made.

    Args:
        config: The run.
        ends: Widths of the model's ends.
        part: Part of the rank.
        features_on: device or host.

    Returns:
        Bytes.
    """
    num_columns = config.model.hidden if config.task == "link" else ends.num_classes
    model = GNN(config.model, ends.num_features, num_columns, ends.size)
    num_clones = part.num_roots + part.num_leaves
    num_rows = part.num_roots
    value_bytes = num_rows * config.feature_bytes
    # Evaluation drops nothing, and reads all labels.
    evaluated = replace(config, model=replace(config.model, input_dropout=0.0), labels_as_input=0.0)
    is_static = not why_not_static(evaluated, is_sparse=False)
    is_here = features_on == "device"
    placed = (1 + is_static) * value_bytes * ends.num_features
    if not is_here:
        row_bytes = ends.num_features * config.feature_bytes
        columns = is_static * _COLUMN_COPIES * value_bytes * COLUMNS
        placed = 2 * max(SLICE_BYTES, row_bytes) + columns
    is_drawn = config.model.input_dropout > 0 or config.labels_as_input > 0
    # Vertices of other parts are rows of a part alone, too.
    has_part_of_its_own = config.is_isolated or config.may_start_on_parts
    most_rows = num_clones if has_part_of_its_own else num_rows
    drawn_rows = num_clones if config.is_isolated else num_rows
    working = working_bytes(
        model,
        [most_rows] * len(model.hidden),
        num_rows,
        kept_input_bytes=is_here * is_drawn * drawn_rows * config.feature_bytes * ends.num_features,
        is_device=True,
    )
    num_edges = part.num_edges
    feature_bytes = ends.size.num_edge_features * config.model.reads_edge_features * ITEM_BYTES
    edges = (_EDGE_BYTES + feature_bytes) * num_edges + _CLONE_BYTES * num_clones
    edges += walk_bytes(model, num_clones, num_edges) + score_bytes(model, num_edges)
    typed = typed_bytes(model, num_clones if config.is_isolated else num_rows, num_edges)
    typed += moment_bytes(model, NUM_MOMENTS[config.optimizer])
    apart = 0
    if has_part_of_its_own and part.num_leaves:
        row_bytes = is_here * (1 + is_static) * ends.num_features * config.feature_bytes
        apart = parts_bytes(num_clones, num_edges, row_bytes)
    return placed + working + edges + typed + apart


def score_bytes(model: GNN, num_edges: int) -> int:
    """Say what the scores of edges take while backward walks the layer that has most of them.

    Args:
        model: Model to train.
        num_edges: Number of edges of this rank.

    Returns:
        Bytes; 0 for models without attention.
    """
    return max(conv.edge_bytes for conv in model.convolutions) * num_edges


def moment_bytes(model: GNN, num_moments: int, *, num_missing_rows: int = 0) -> int:
    """Say what is kept beside the weights: gradients, moments, and the weights of the best epoch.

    Args:
        model: Model to train.
        num_moments: Moments of each weight, see `NUM_MOMENTS`.
        num_missing_rows: Learned rows of its first layer that the model was not built with.

    Returns:
        Bytes.
    """
    weights = sum(parameter.numel() for parameter in model.parameters())
    first = model.convolutions[0]
    if isinstance(first, LearnedRelationalConv):
        weights += num_missing_rows * first.own.shape[1]
    return ITEM_BYTES * (_WEIGHT_COPIES + num_moments) * weights


def typed_bytes(model: GNN, num_rows: int, num_edges: int) -> int:
    """Say what a typed model takes besides: its first rows, and edges by relation.

    Args:
        model: Model to train.
        num_rows: Number of rows that it works on.
        num_edges: Number of edges of this rank.

    Returns:
        Bytes; 0 for other models.
    """
    if not model.config.kind.is_typed:
        return 0
    rows = num_rows * model.config.hidden_width
    return ITEM_BYTES * 2 * rows + _RELATION_EDGE_BYTES * num_edges


def memory_of_ranks(manifest: Manifest, found: Forecast) -> list[int]:
    """Estimate the most memory that each rank will hold, without interpreter and libraries.

    Counted are:

    - features, edges of both directions and their features, and the aggregate of static input;
    - the hidden rows that live at once, see `working_bytes`;
    - buffers for the rows of all leaves, see `leaf_bytes`;
    - scores of edges, see `score_bytes`;
    - messages of weights and factors of K-FAC, see `WeightTraffic.working_bytes`;
    - gradients and moments, see `moment_bytes`. Without features, the first layer of a typed model
      learns at most one row for each vertex and relation, and for each edge;
    - the extra memory of typed models, see `typed_bytes`;
    - where some or all epochs are of parts alone, these, see `parts_bytes`.

    Args:
        manifest: Manifest of the partition.
        found: Forecast of a run on it.

    Returns:
        (num_parts,) bytes.
    """
    if found.model is None:
        widths = [layer.width for layer in found.layers]
        return list(manifest.estimate(widths).memory_bytes)
    model = found.model
    # With labels in it, what is trained on is not what is evaluated on.
    num_inputs = 1 + (model.num_features > manifest.num_features)
    is_static = found.edge_fractions[0] == 0.0
    edge_bytes = model.config.reads_edge_features * manifest.num_edge_features * ITEM_BYTES
    num_learned = min(manifest.num_vertices * manifest.num_relations, manifest.num_edges)
    memory = list(manifest.estimate([]).memory_bytes)
    for number, part in enumerate(manifest.parts):
        input_bytes = part.num_roots * model.num_features * found.feature_bytes
        if not manifest.has_sparse_features:
            memory[number] -= part.num_roots * manifest.num_features * ITEM_BYTES
            memory[number] += num_inputs * input_bytes
        layer_rows = [int(rows.targets[number]) for rows in found.rows[: len(model.hidden)]]
        has_parts = found.has_part_of_its_own and manifest.num_parts > 1
        num_clones = part.num_roots + part.num_leaves
        if has_parts:
            layer_rows = [num_clones] * len(layer_rows)
        is_kept = not (is_static or manifest.has_sparse_features)
        memory[number] += is_static * input_bytes
        memory[number] += part.num_edges * edge_bytes + score_bytes(model, part.num_edges)
        memory[number] += part.num_leaves * leaf_bytes(found)
        memory[number] += found.weights.working_bytes(manifest.num_parts)
        memory[number] += working_bytes(
            model, layer_rows, part.num_roots, kept_input_bytes=is_kept * input_bytes
        )
        memory[number] += typed_bytes(model, part.num_roots, part.num_edges)
        memory[number] += moment_bytes(
            model, found.weights.num_moments, num_missing_rows=num_learned
        )
        if has_parts:
            row_bytes = (1 + is_static) * model.num_features * found.feature_bytes
            if manifest.has_sparse_features:
                row_bytes = _ENTRY_BYTES * part.feature_nnz // max(part.num_roots, 1)
            memory[number] += parts_bytes(num_clones, part.num_edges, row_bytes)
    return memory


def parts_bytes(num_clones: int, num_edges: int, row_bytes: int) -> int:
    """Say what a part takes as a graph of its own, beside that of the run.

    Args:
        num_clones: Number of its clones, which all have features there.
        num_edges: Number of its edges, which are there twice.
        row_bytes: Bytes of the features of a vertex, and of what is made of them once.

    Returns:
        Bytes.
    """
    return num_edges * _EDGE_BYTES + num_clones * (_CLONE_BYTES + row_bytes)


def leaf_bytes(found: Forecast) -> int:
    """Say what a rank's exchange takes for each of its leaves while a message is under way.

    Args:
        found: Forecast of the run.

    Returns:
        Bytes of a row that leaves and one that arrives, of the widest layer. Where rows are coded,
        bytes of two codes and of the row that is read, of the message with the widest of them. And
        of every message that keeps rows between epochs, what it keeps.
    """
    rule = found.rule
    if rule.codecs == EXACT_CODECS:
        widest = 2 * max(layer.width for layer in found.layers) * ITEM_BYTES
    else:
        widest = 0
    kept = 0.0
    for layer in found.layers:
        for legs, is_backward in layer.passes:
            way = rule.of(is_backward=is_backward)
            for leg in legs:
                row_bytes = leg.columns * leg.item_bytes
                is_exact = leg.is_exact(way.codec)
                if not is_exact:
                    widest = max(widest, 2 * leg.row_bytes(way.codec) + row_bytes)
                if not rule.is_synchronous:
                    is_told = way.spared is not None or (
                        way.remembers != "nothing" and not is_exact
                    )
                    # A trend keeps two more of each row that it moves on.
                    trends = (4 if way.tells_values else 2) if way.has_trend else 0
                    kept += row_bytes * (1 + is_told + trends)
                    # Messages under way, and one that is written next.
                    kept += 2 * (way.delay + 1) * way.deal.most * leg.row_bytes(way.codec)
    return widest + int(kept)


def working_bytes(
    model: GNN,
    layer_rows: Sequence[int],
    num_roots: int,
    *,
    kept_input_bytes: int,
    is_device: bool = False,
) -> int:
    """Say what the hidden rows take that live at once, in training or evaluation.

    Args:
        model: Model to train.
        layer_rows: (num_hidden,) rows that each hidden layer makes in training.
        num_roots: Rows of a layer in evaluation.
        kept_input_bytes: Bytes of the input that training keeps for backward.
        is_device: Whether the rows are on a device.

    Returns:
        Bytes.
    """
    training = kept_input_bytes + _kept_bytes(model, layer_rows, is_device=is_device)
    evaluating = num_roots * model.config.hidden_width * _evaluated_bytes(model)
    return max(training, evaluating)


def _is_one_operation(model: GNN) -> bool:
    return model.is_chain and all(
        isinstance(conv, FusedConvolution) and conv.is_one_operation(conv.sum_map.weight)
        for conv in model.hidden
    )


def _is_attention(model: GNN) -> bool:
    """Whether hidden layers are attention with their activations, which need no others for that."""
    hidden = model.hidden
    return model.is_chain and all(isinstance(conv, AttentionConvolution) for conv in hidden)


def _hidden_bytes(model: GNN) -> int:
    """Return the bytes of a value between layers."""
    return DTYPES[model.config.activations_dtype].itemsize


def _inner_bytes(model: GNN) -> int:
    """Return the bytes of a value inside a layer; separate operations pass on fp32."""
    return _hidden_bytes(model) if _is_one_operation(model) else ITEM_BYTES


def _evaluated_bytes(model: GNN) -> int:
    """Return the bytes of a hidden column of a vertex in evaluation: input, aggregate, output."""
    if _is_one_operation(model):
        # The output takes the place of the aggregate.
        return 2 * _hidden_bytes(model)
    return 2 * _hidden_bytes(model) + ITEM_BYTES


def _kept_bytes(model: GNN, layer_rows: Sequence[int], *, is_device: bool) -> int:
    """Return the bytes that are kept for backward, and that it works on in the widest layer."""
    config = model.config
    width = config.hidden_width
    hidden, inner = _hidden_bytes(model), _inner_bytes(model)
    kept = widest = 0
    for number, num_rows in enumerate(layer_rows):
        kept += num_rows * width * hidden
        widest = max(widest, num_rows * width)
        # A first layer keeps its input, which is there anyway, or the aggregate of it. A layer that
        # is one operation and as wide as its input keeps no aggregate.
        keeps_inner = _is_attention(model) or (number > 0 and not _is_one_operation(model))
        if keeps_inner and not model.recomputes:
            kept += num_rows * width * inner
    if config.activation != "relu":
        kept += sum(layer_rows) * width * ITEM_BYTES
    if config.jumping != "none":
        kept += sum(layer_rows) * width * hidden
    attending = [conv for conv in model.convolutions if isinstance(conv, AttentionConvolution)]
    if attending:
        # The last averages rows of all heads, before these are averaged.
        last = attending[-1]
        widest = max(widest, max(layer_rows, default=0) * last.columns)
        in_all = widest if model.recomputes else sum(layer_rows) * width
        kept += (last.num_mapped - 1) * (in_all + _TARGET_GRADIENTS * widest) * ITEM_BYTES
    return kept + _num_gradients(model, is_device=is_device) * widest * inner


def _num_gradients(model: GNN, *, is_device: bool) -> int:
    """Count the gradients of the size of hidden rows that live at once."""
    if _is_one_operation(model):
        # On a device the one that comes is masked in a copy.
        return 1 + is_device
    if _is_attention(model):
        return _ATTENTION_GRADIENTS
    # What a layer computes again is there beside its gradients.
    more = _DEVICE_GRADIENTS * (is_device and _is_divided_there(model.config))
    return _SEPARATE_GRADIENTS + more + model.recomputes


def _is_divided_there(config: ModelConfig) -> bool:
    """Whether what one operation of the processor does is several on a device."""
    is_maximum = config.model == "sage" and config.aggregator in ("max", "pool")
    return is_maximum or config.model == "gin" or config.norm != "none" or config.jumping == "max"
