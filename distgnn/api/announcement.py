"""Notes about a run before its first epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.machine.units import human_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.partition.directory.store import Part
    from distgnn.training.data.info import DataInfo
    from distgnn.training.loop.trainer import Trainer


def announce(
    trainer: Trainer,
    part: Part,
    ends: DataInfo,
    predicted: int,
    *,
    estimates: bool,
    is_quiet: bool,
    say: Callable[[str], None],
) -> None:
    """Say what is about to happen; collective.

    Args:
        trainer: Trainer of the run.
        part: Part that it trains on.
        ends: Sizes of the data of the whole graph.
        predicted: Bytes at the peak of this rank; on a device those that it will take besides.
        estimates: Whether to try how long an epoch will take.
        is_quiet: Whether to say nothing.
        say: Receives the notes, on rank 0.
    """
    import torch

    from distgnn.exchange.rule import HaloRule
    from distgnn.forecast.estimate import estimate_epoch
    from distgnn.forecast.traffic import planned_bytes, planned_weights
    from distgnn.kernels.devices import PROCESSOR
    from distgnn.ops.host_rows import HostRows
    from distgnn.optim.kfac import ADAM_SHARE
    from distgnn.training.data.placement import describe_streamed

    config, group = trainer.config, trainer.group
    # Nobody knows what a model sends that the user wrote.
    model = trainer.gnn
    own = 0 if model is None else planned_bytes(config, model, trainer.graphs)
    sent = torch.tensor([float(own)], dtype=torch.float64)
    group.all_reduce(sent)
    screening = _note_of_screening(trainer)
    if estimates:
        trainer.estimated_epoch_s = estimate_epoch(trainer, part, ends)
    if group.rank > 0 or is_quiet:
        return
    if group.reason:
        say(f"backend: {group.backend}, because {group.reason}")
    say(f"task: {config.task}, measured by {config.metric}")
    if trainer.goal is not None:
        say(f"goal: {trainer.goal}, recorded when it is reached; training continues")
    for saving in trainer.graphs.savings:
        say(saving)
    if screening:
        say(f"evaluation: {screening}")
    for saving in trainer.weights.tables.savings:
        say(saving)
    if isinstance(trainer.inputs.features, HostRows):
        say(describe_streamed(trainer.inputs.features))
    if config.optimizer == "lbfgs":
        say(
            "lbfgs: an epoch is a line search, which evaluates the loss once or more; rows and "
            "weights are predicted for one evaluation"
        )
    if config.optimizer == "kfac":
        rate, others = config.lr, config.lr * ADAM_SHARE
        say(f"kfac: dense maps are stepped with --lr {rate:g}, all else by Adam with {others:g}")
    if model is None:
        say(f"model: {config.model.own}, of your own; its rows and its memory are not predicted")
        return
    if group.size == 1 and (config.given_halo != HaloRule() or config.weights != "sum"):
        say("one rank: strategies send nothing")
    if group.size > 1:
        per_epoch = human_bytes(float(sent))
        most = "at most " * config.halo_rule.sends_at_most
        say(f"rows: {most}{per_epoch} will be sent per epoch by all ranks")
        weights = planned_weights(config, model, trainer.weights.tables, trainer.graphs)
        per_epoch = human_bytes(weights.bytes_per_epoch(group.size))
        most = "at most " * config.weight_rule.sends_at_most
        say(f"weights: {most}{per_epoch} will be sent per epoch by all ranks")
    more = "" if group.device == PROCESSOR else " more of the device"
    say(f"memory: about {human_bytes(predicted)}{more} at the peak of rank 0, predicted")
    if trainer.estimated_epoch_s is not None:
        say(f"time: about {1e3 * trainer.estimated_epoch_s:.1f} ms an epoch, estimated")


def _note_of_screening(trainer: Trainer) -> str:
    """Say what screened evaluations will send; nothing where all are exact; collective."""
    import torch

    from distgnn.exchange.codec import EXACT
    from distgnn.forecast.traffic import planned_evaluation_bytes
    from distgnn.training.loop.screened import margin_of

    config, group, model = trainer.config, trainer.group, trainer.gnn
    screening = config.screening
    if screening is None:
        return ""
    if group.size == 1:
        return "exact, as one rank sends nothing"
    rule = f"screened over {screening.codec_text} rows"
    near = f"exact where the metric is within {margin_of(screening):g} of the best"
    if model is None:
        return f"{rule}, and {near}"
    own = [
        planned_evaluation_bytes(config, model, trainer.graphs, codec)
        for codec in (screening.codec, EXACT)
    ]
    sent = torch.tensor(own)
    group.all_reduce(sent)
    look, exact = sent.tolist()
    if look >= exact:
        return (
            f"{rule} saves nothing, as all of them have fewer than "
            f"{screening.codec.least_columns} columns and travel as they are; use exact"
        )
    return (
        f"{rule}, {human_bytes(look)} each, and {near}, {human_bytes(exact)} more: at most "
        f"{human_bytes(look + exact)}"
    )
