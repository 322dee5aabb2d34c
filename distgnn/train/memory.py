"""The memory that a run will need, predicted before its first epoch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.ops import SparseRows
from distgnn.train.metrics import peak_rss_bytes

if TYPE_CHECKING:
    from distgnn.graph import LocalGraph
    from distgnn.nn.models import GNN
    from distgnn.ops import Rows
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
    if graphs.training.is_static(graphs.features) and not isinstance(graphs.features, SparseRows):
        static_bytes = graphs.exact.num_rows * graphs.features.shape[1] * _ITEM_BYTES
    training = _kept_values(model, graphs.training, graphs.features) * _ITEM_BYTES
    evaluating = 3 * graphs.exact.num_rows * model.config.hidden_width * _ITEM_BYTES
    return max(resident_bytes() + static_bytes + max(training, evaluating), peak_rss_bytes())


def _kept_values(model: GNN, graph: LocalGraph, features: Rows) -> int:
    """Hidden values that are kept for backward, and those that it works on in the widest layer."""
    config = model.config
    width = config.hidden_width
    kept = widest = 0
    for number in range(len(model.hidden)):
        num_rows = graph.level(number).num_rows
        kept += num_rows * width
        widest = max(widest, num_rows * width)
        # A first layer keeps its input, which is there anyway, or the aggregate of it.
        if number > 0 and not model.recomputes:
            kept += num_rows * width
    if not isinstance(features, SparseRows) and not graph.is_static(features):
        kept += graph.num_rows * features.shape[1]
    if config.jumping != "none":
        kept += sum(graph.level(number).num_rows * width for number in range(len(model.hidden)))
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
