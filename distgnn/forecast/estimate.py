"""How long an epoch will take, estimated from short trials before the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn import kernels
from distgnn.aggregate.traffic import ITEM_BYTES
from distgnn.forecast.pace import (
    Link,
    Pace,
    best_seconds,
    compute_seconds,
    product_seconds,
    reduce_seconds,
)
from distgnn.forecast.rehearsal import epoch_seconds, on_sample, walked
from distgnn.forecast.traffic import planned_bytes

if TYPE_CHECKING:
    from distgnn.comm.group import Group
    from distgnn.partition.directory.store import Part
    from distgnn.training.data.info import DataInfo
    from distgnn.training.loop.trainer import Trainer

# Of a trial; what it holds is less than training will.
_EDGES = 1 << 19
_SUMMED_COLUMNS = 32
_MULTIPLIED_COLUMNS = 256
_MESSAGE_BYTES = 1 << 18
_TAG = 1
# Of an epoch of the sample, as modelled.
_TRIAL_S = 0.05
# More take seconds to be laid out, and input rows for each of more edges memory that a run lacks.
_TRIAL_EDGES = 1 << 20
_TRIAL_BYTES = 1 << 28


def estimate_epoch(trainer: Trainer, part: Part, ends: DataInfo) -> float:
    """Estimate an epoch from those of a sample, the edges it walks and the rows it sends.

    Some epochs on the first rows of the part are trained, all of them where they are few, with all
    ranks at work as they will be. What they take beyond an epoch of next to nothing is scaled by
    sums and products; so attention, activations, norms, dropout, the loss and the optimizer count
    as what they take. Messages are tried. The sample has a million edges at most, and as many as
    have 256 MiB of input rows; it takes time and memory as a trainer of them does, and the memory
    is free again before the first epoch.
    Collective.

    Args:
        trainer: Of the run, on the processor.
        part: That it trains on.
        ends: Of its model.

    Returns:
        Seconds, of the slowest rank; the same on every rank.
    """
    group, config = trainer.group, trainer.config
    group.barrier()
    compute_s = _compute_seconds(trainer, part, ends) if part.num_roots else 0.0
    rows_s = weights_s = 0.0
    if group.size > 1:
        link = _try_link(group)
        sent = planned_bytes(config, trainer.model, trainer.graphs) / config.delays.num_bins
        layers = () if config.is_isolated else walked(trainer)[0].layers
        num_steps = sum(len(layer.legs) for layer in layers)
        rows_s = sent / link.bytes_per_s + num_steps * link.latency_s
        num_bytes = ITEM_BYTES * sum(weight.numel() for weight in trainer.model.parameters())
        weights_s = reduce_seconds(num_bytes, group.size, link)
    is_hidden = config.overlap
    own_s = (max(compute_s, rows_s) if is_hidden else compute_s + rows_s) + weights_s
    slowest = torch.tensor([own_s], dtype=torch.float64)
    group.all_reduce(slowest, "max")
    return float(slowest)


def _compute_seconds(trainer: Trainer, part: Part, ends: DataInfo) -> float:
    """What this rank's processor does in an epoch."""
    config = trainer.config
    widths = max(trainer.graphs.features.shape[1], 1), config.model.hidden_width
    product_s = product_seconds(*(min(width, _MULTIPLIED_COLUMNS) for width in widths))
    modelled_s = _modelled_seconds(trainer, product_s)
    share = min(_TRIAL_S / max(modelled_s, _TRIAL_S), 1.0)
    row_bytes = ITEM_BYTES * widths[0] * walked(trainer)[1]
    num_edges = min(
        int(share * part.num_edges), _TRIAL_EDGES, int(_TRIAL_BYTES / max(row_bytes, 1))
    )
    sample = on_sample(part, ends, config, num_edges)
    epoch_s = epoch_seconds(sample)
    if num_edges == part.num_edges and trainer.group.size == 1:
        return epoch_s
    fixed_s = min(epoch_seconds(on_sample(part, ends, config, 0)), epoch_s)
    return fixed_s + (epoch_s - fixed_s) * modelled_s / _modelled_seconds(sample, product_s)


def _modelled_seconds(trainer: Trainer, product_s: float) -> float:
    """Sums and products of an epoch, those at the speed of this trainer's graph."""
    found, density = walked(trainer)
    width = min(max(layer.width for layer in found.layers), _SUMMED_COLUMNS)
    pace = Pace(_edge_seconds(trainer, max(width, 1)), product_s)
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
