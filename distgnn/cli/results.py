"""What `distgnn train` says of a run, before its epochs and after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distgnn.cli.output import human_bytes, note, pairs
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from pathlib import Path

    from distgnn.partition.directory.store import Part
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.info import DataInfo
    from distgnn.training.loop.trainer import Trainer


def announce(
    trainer: Trainer, part: Part, ends: DataInfo, predicted: int, *, estimates: bool, is_quiet: bool
) -> None:
    """Say what is about to happen; collective.

    Args:
        trainer: Trainer of the run.
        part: Part that it trains on.
        ends: Sizes of the data of the whole graph.
        predicted: Bytes at the peak of this rank; on a device those that it will take besides.
        estimates: Whether to try how long an epoch will take.
        is_quiet: Whether to say nothing.
    """
    import torch

    from distgnn.forecast.estimate import estimate_epoch
    from distgnn.forecast.traffic import planned_bytes
    from distgnn.kernels.devices import PROCESSOR
    from distgnn.ops.host_rows import HostRows
    from distgnn.training.data.placement import describe_streamed

    config, group = trainer.config, trainer.group
    sent = torch.tensor([planned_bytes(config, trainer.model, trainer.graphs)])
    group.all_reduce(sent)
    if estimates:
        trainer.estimated_epoch_s = estimate_epoch(trainer, part, ends)
    if group.rank > 0 or is_quiet:
        return
    if group.reason:
        note(f"backend: {group.backend}, because {group.reason}")
    note(f"task: {config.task}, measured by {config.metric}")
    for saving in trainer.graphs.savings:
        note(saving)
    if isinstance(trainer.inputs.features, HostRows):
        note(describe_streamed(trainer.inputs.features))
    if group.size > 1:
        per_epoch = human_bytes(int(sent) * config.delays.sent_fraction(config.epochs))
        note(f"rows: {per_epoch} will be sent per epoch by all ranks")
    more = "" if group.device == PROCESSOR else " more of the device"
    note(f"memory: about {human_bytes(predicted)}{more} at the peak of rank 0, predicted")
    if trainer.estimated_epoch_s is not None:
        note(f"time: about {1e3 * trainer.estimated_epoch_s:.1f} ms an epoch, estimated")


def check_estimate(arguments: argparse.Namespace, config: TrainConfig) -> None:
    """Refuse to estimate the time of epochs that no trial resembles.

    Args:
        arguments: Arguments of train.
        config: The run; its task may be still to be resolved.

    Raises:
        InputError: If an estimate is asked for on a device, or of an epoch that learns links.
    """
    if arguments.estimate and arguments.device != "cpu":
        raise InputError(
            f"--estimate tries epochs on the processor, got --device {arguments.device}; leave it "
            "out"
        )
    if arguments.estimate and config.task == "link":
        raise InputError(
            "--estimate tries epochs of tasks on vertices, but this is a link task; leave it out"
        )


def result_lines(summary: Mapping[str, Any], folder: Path) -> list[str]:
    """Describe a run for people.

    Args:
        summary: Of the run.
        folder: Its directory.

    Returns:
        Lines of text.
    """
    shown = {
        f"{split} metric": "-"
        if summary[f"{split}_metric"] is None
        else f"{summary[f'{split}_metric']:.4f}"
        for split in ("test", "val", "train")
    }
    sent = (("halo", "rows"), ("weight", "gradients"), ("eval_halo", "rows to evaluate"))
    return pairs(
        {
            "metric": summary["metric"],
            **shown,
            "best epoch": f"{summary['best_epoch']} of {summary['num_epochs']}",
            "median epoch": f"{summary['median_epoch_s'] * 1e3:.2f} ms",
            "sent per epoch": ", ".join(
                f"{human_bytes(summary[f'{name}_bytes_per_epoch'])} of {what}"
                for name, what in sent
            ),
            "peak memory": human_bytes(max(summary["peak_rss_bytes"])) + " on the largest rank",
            "results": folder,
        }
    )
