"""What `distgnn train` says of a run, before its epochs and after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distgnn.cli.output import human_bytes, note, pairs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distgnn.partition.directory.store import Part
    from distgnn.training.data.info import DataInfo
    from distgnn.training.loop.trainer import Trainer


def announce(
    trainer: Trainer, part: Part, ends: DataInfo, predicted: int, *, is_quiet: bool
) -> None:
    """Say what is about to happen, and estimate how long an epoch will take; collective.

    No time is estimated on a device, as the trials are of the processor, nor of an epoch that
    learns links: it scores pairs and fetches their rows besides.

    Args:
        trainer: Of the run.
        part: That it trains on.
        ends: Of its model.
        predicted: Bytes at the peak of this rank; on a device those that it will take besides.
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
    if group.device == PROCESSOR and config.task != "link":
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
