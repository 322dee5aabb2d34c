"""How long an epoch of a run will take, estimated before its first one where that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.aggregate.traffic import ITEM_BYTES
from distgnn.forecast.pace import Link, probe, reduce_seconds
from distgnn.forecast.rehearsal import rehearse, walked
from distgnn.forecast.traffic import planned_bytes, planned_weights
from distgnn.machine.trials import best_seconds

if TYPE_CHECKING:
    from distgnn.comm.group import Group
    from distgnn.partition.directory.store import Part
    from distgnn.training.data.info import DataInfo
    from distgnn.training.loop.trainer import Trainer

# A larger sample takes seconds to be planned, and its input rows take memory that a run may lack.
_MAX_EDGES = 1 << 20
_MAX_INPUT_BYTES = 1 << 28
_MESSAGE_BYTES = 1 << 18
_TAG = 1


def estimate_epoch(trainer: Trainer, part: Part, ends: DataInfo) -> float:
    """Estimate an epoch from a rehearsal, the edges it walks and the rows it sends.

    All ranks rehearse at the same time, as they will train, and try messages to each other. This
    takes some seconds; the memory of the samples is free again before the first epoch. Collective.

    Args:
        trainer: Trainer of the run, on the processor.
        part: Part that it trains on.
        ends: Sizes of the data of the whole graph.

    Returns:
        Seconds on the slowest rank; the same on every rank.
    """
    group, config = trainer.group, trainer.config
    model = trainer.known_model("--estimate")
    group.barrier()
    compute_s = _compute_seconds(trainer, part, ends) if part.num_roots else 0.0
    rows_s = weights_s = 0.0
    if group.size > 1:
        link = _try_link(group)
        sent = planned_bytes(config, model, trainer.graphs)
        layers = () if config.is_isolated else walked(trainer)[0].layers
        num_steps = sum(len(layer.legs) for layer in layers)
        rows_s = sent / link.bytes_per_s + num_steps * link.latency_s
        planned = planned_weights(config, model, trainer.weights.tables, trainer.graphs)
        weights_s = reduce_seconds(planned.ring_bytes(group.size), group.size, link)
    own_s = (max(compute_s, rows_s) if config.overlap else compute_s + rows_s) + weights_s
    slowest = torch.tensor([own_s], dtype=torch.float64)
    group.all_reduce(slowest, "max")
    return float(slowest)


def _compute_seconds(trainer: Trainer, part: Part, ends: DataInfo) -> float:
    """Scale the rehearsal of this rank's part, or of a sample of it, to the whole part."""
    found, density = walked(trainer)
    num_inputs = max(trainer.graphs.features.shape[1], 1)
    row_bytes = ITEM_BYTES * num_inputs * density
    num_edges = min(part.num_edges, _MAX_EDGES, int(_MAX_INPUT_BYTES / max(row_bytes, 1)))
    done = rehearse(part, ends, trainer.config, max_edges=num_edges)
    if num_edges == part.num_edges and trainer.group.size == 1:
        return done.epoch_s
    width = trainer.config.model.hidden_width
    pace = probe(part, width, columns=(num_inputs, width))
    return done.fixed_s + float(done.scaled(found, density, here=pace, there=pace)[0])


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
