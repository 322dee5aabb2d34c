"""How long an epoch will take, estimated from short trials before the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from distgnn import kernels
from distgnn.exchange.traffic import ITEM_BYTES
from distgnn.nn.linear import Linear
from distgnn.ops import SparseRows
from distgnn.train.forecast import Forecast, LayerRows, planned_bytes
from distgnn.train.graphs import why_not_static
from distgnn.train.optimizers import Adam
from distgnn.train.pace import (
    Link,
    Pace,
    best_seconds,
    compute_seconds,
    product_seconds,
    reduce_seconds,
)

if TYPE_CHECKING:
    from distgnn.comm.group import Group
    from distgnn.exchange.traffic import LayerTraffic
    from distgnn.train.trainer import Trainer

# Of a trial; what it holds is less than training will.
_EDGES = 1 << 19
_SUMMED_COLUMNS = 32
_MULTIPLIED_COLUMNS = 256
_MESSAGE_BYTES = 1 << 18
_TAG = 1
# What a layer asks of Python and torch: its sum, its products, dropout, its share of the loss and
# of the step.
_OPERATIONS = 8


def estimate_epoch(trainer: Trainer) -> float:
    """Estimate an epoch from the edges it walks, the products it makes and the rows it sends.

    A sum, a product, a step of a tiny model and messages are tried, with all ranks at work as they
    will be: a tenth of a second. Attention is counted as a sum; activations, norms, dropout and the
    loss are left out, so that it is rather too short. Collective.

    Args:
        trainer: Of the run, on the processor.

    Returns:
        Seconds, of the slowest rank; the same on every rank.
    """
    group, config = trainer.group, trainer.config
    layers = _traffic(trainer)
    group.barrier()
    compute_s = _compute_seconds(trainer, layers) + _fixed_seconds(trainer)
    rows_s = weights_s = 0.0
    if group.size > 1:
        link = _try_link(group)
        sent = planned_bytes(config, trainer.model, trainer.graphs) / config.delays.num_bins
        num_steps = sum(len(layer.legs) for layer in layers)
        rows_s = sent / link.bytes_per_s + num_steps * link.latency_s
        num_bytes = ITEM_BYTES * sum(weight.numel() for weight in trainer.model.parameters())
        weights_s = reduce_seconds(num_bytes, group.size, link)
    is_hidden = config.overlap
    own_s = (max(compute_s, rows_s) if is_hidden else compute_s + rows_s) + weights_s
    slowest = torch.tensor([own_s], dtype=torch.float64)
    group.all_reduce(slowest, "max")
    return float(slowest)


def _traffic(trainer: Trainer) -> list[LayerTraffic]:
    is_sparse = isinstance(trainer.features, SparseRows)
    config = trainer.config
    layers = trainer.model.traffic(
        is_sparse=is_sparse,
        is_static=not why_not_static(config, is_sparse=is_sparse),
        feature_bytes=config.feature_bytes,
    )
    return [layer.silent() for layer in layers] if config.is_isolated else layers


def _compute_seconds(trainer: Trainer, layers: list[LayerTraffic]) -> float:
    """What this rank sums and multiplies."""
    nothing, rows = np.zeros((1, 1), np.int64), []
    for number in range(len(layers)):
        level = trainer.graphs.training.level(number)
        counts = (np.array([level.blocks.forward.num_edges]), np.array([level.num_rows]))
        rows.append(LayerRows(nothing, nothing, *counts))
    found = Forecast(
        trainer.model,
        tuple(layers),
        tuple(rows),
        (),
        rows[0],
        trainer.config.delays,
        (1.0,) * len(layers),
        (),
    )
    features, density = trainer.features, 1.0
    num_inputs = max(features.shape[1], 1)
    if isinstance(features, SparseRows):
        density = len(features.columns) / max(features.shape[0] * num_inputs, 1)
    width = min(max(layer.width for layer in layers), _SUMMED_COLUMNS)
    hidden = trainer.config.model.hidden_width
    columns = (min(count, _MULTIPLIED_COLUMNS) for count in (num_inputs, hidden))
    pace = Pace(_edge_seconds(trainer, max(width, 1)), product_seconds(*columns))
    return float(compute_seconds(found, trainer.model, pace, density=density)[0])


def _edge_seconds(trainer: Trainer, width: int) -> float:
    """Time a sum over the first edges between roots, with all rows at hand as in an epoch."""
    block = trainer.graphs.exact.blocks.forward.root_from_root
    num_rows = int(torch.searchsorted(block.indptr, _EDGES, right=True)) - 1
    num_rows = max(num_rows, min(block.num_rows, 1))
    indptr = block.indptr[: num_rows + 1]
    indices = block.indices[: int(indptr[-1])]
    x, out = torch.ones(block.num_columns, width), torch.empty(num_rows, width)
    seconds = best_seconds(
        lambda: kernels.spmm_sum(indptr, indices, None, x, out, accumulate=False)
    )
    return seconds / max(len(indices) * width, 1)


def _fixed_seconds(trainer: Trainer) -> float:
    """Time a step of as many operations on one value: what does not grow with the graph."""
    number = _OPERATIONS * (len(trainer.model.hidden) + 1)
    model, row = torch.nn.Sequential(*(Linear(1, 1) for _ in range(number))), torch.ones(1, 1)
    optimizer = Adam(model.parameters(), lr=0.0, weight_decay=0.0)

    def step() -> None:
        model(row).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return best_seconds(step)


def _try_link(group: Group) -> Link:
    """Time messages to the next rank, all at once."""
    out, into = (torch.zeros(_MESSAGE_BYTES, dtype=torch.uint8) for _ in range(2))
    after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size

    def pass_on(num_bytes: int) -> None:
        works = [group.irecv(into[:num_bytes], before, _TAG)]
        works.append(group.isend(out[:num_bytes], after, _TAG))
        for work in works:
            work.wait()

    short_s = best_seconds(lambda: pass_on(1))
    long_s = best_seconds(lambda: pass_on(_MESSAGE_BYTES))
    return Link(_MESSAGE_BYTES / max(long_s - short_s, 1e-9), short_s)
