"""The memory that a run will need, predicted before its first epoch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.ops import SparseRows
from distgnn.train.metrics import peak_rss_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distgnn.nn.models import GNN
    from distgnn.train.graphs import RunGraphs

_ITEM_BYTES = 4
# Gradients and scratch of the size of hidden rows where a layer is made of separate operations.
_SEPARATE_GRADIENTS = 4


def predict_peak_bytes(model: GNN, graphs: RunGraphs) -> int:
    """Predict the most memory that this rank will have resident.

    What is there now, the aggregate of static input, and the hidden rows that live at once: in
    training all that backward will read and what it works on; in evaluation the input, the
    aggregate and the output of one layer. Plans, buffers of the exchange and the dense input of
    models with input dropout are left out: some percent.

    Args:
        model: As it will be trained.
        graphs: What it runs on.

    Returns:
        Bytes.
    """
    static_bytes = 0
    is_static = graphs.training.is_static(graphs.features)
    if is_static and not isinstance(graphs.features, SparseRows):
        static_bytes = graphs.exact.num_rows * graphs.features.shape[1] * _ITEM_BYTES
    layers = range(len(model.hidden))
    layer_rows = [graphs.training.level(number).num_rows for number in layers]
    has_kept_input = not isinstance(graphs.features, SparseRows) and not is_static
    kept_input = graphs.training.num_rows * graphs.features.shape[1] if has_kept_input else 0
    values = working_bytes(model, layer_rows, graphs.exact.num_rows, kept_input=kept_input)
    return max(resident_bytes() + static_bytes + values, peak_rss_bytes())


def working_bytes(model: GNN, layer_rows: Sequence[int], num_roots: int, *, kept_input: int) -> int:
    """Say what the hidden rows take that live at once, in training or evaluation.

    Args:
        model: As it will be trained.
        layer_rows: (num_hidden,) rows that each hidden layer makes in training.
        num_roots: Rows of a layer in evaluation.
        kept_input: Values of the input that training keeps for backward.

    Returns:
        Bytes.
    """
    training = kept_input + _kept_values(model, layer_rows)
    evaluating = 3 * num_roots * model.config.hidden_width
    return max(training, evaluating) * _ITEM_BYTES


def _kept_values(model: GNN, layer_rows: Sequence[int]) -> int:
    """Hidden values that are kept for backward, and those that it works on in the widest layer."""
    config = model.config
    width = config.hidden_width
    kept = widest = 0
    for number, num_rows in enumerate(layer_rows):
        kept += num_rows * width
        widest = max(widest, num_rows * width)
        # A first layer keeps its input, which is there anyway, or the aggregate of it.
        if number > 0 and not model.recomputes:
            kept += num_rows * width
    if config.jumping != "none":
        kept += sum(layer_rows) * width
    is_one_operation = model.is_chain and (config.model, config.aggregator) == ("sage", "mean")
    gradients = _SEPARATE_GRADIENTS if not is_one_operation else 1 + model.recomputes
    return kept + gradients * widest


def resident_bytes() -> int:
    """Return the memory that this process has resident now; its peak where the system hides it."""
    try:
        fields = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return peak_rss_bytes()
    sizes = (line.split()[1] for line in fields if line.startswith("VmRSS:"))
    return int(next(sizes, "0")) * 1024 or peak_rss_bytes()
