"""Measurements of an epoch, gathered over ranks in one message."""

from __future__ import annotations

import math
import resource
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from distgnn.exchange.clock import PHASES
from distgnn.training.loop.screened import with_confirmed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from distgnn.comm.group import Group
    from distgnn.training.loop.goal import Goal

SUMMED = (
    "loss",
    "halo_bytes_sent",
    "weight_bytes_sent",
    "eval_halo_bytes_sent",
    "code_bits",
    "coded_values",
    "deviation",
)
SLOWEST = (
    "epoch_s",
    "update_s",
    "preconditioner_s",
    "eval_s",
    "max_staleness",
    "codec_error",
    "stop_number",
    "weight_syncs",
    *(f"{phase}_s" for phase in PHASES),
)
_METRICS = ("train_metric", "val_metric", "test_metric")
_SUMMARISED = (
    "loss",
    "epoch_s",
    "eval_s",
    "halo_bytes_sent",
    "eval_halo_bytes_sent",
    "weight_bytes_sent",
    "max_staleness",
)
_COUNTS = (
    "halo_bytes_sent",
    "weight_bytes_sent",
    "eval_halo_bytes_sent",
    "max_staleness",
    "stop_number",
    "weight_syncs",
)


def over_ranks(group: Group, own: Mapping[str, float]) -> dict[str, Any]:
    """Gather one epoch's values: sums for loss and bytes, the slowest rank for times.

    Collective.

    Args:
        group: All ranks.
        own: This rank's value for every name of `SUMMED` and `SLOWEST`.

    Returns:
        Value by name, the same on every rank. `codec_bits` are the mean bits of a value that
        travels in a code; 0 where none does. Where ranks have models w_p of their own, and their
        mean w was evaluated in this epoch, `consensus_distance` is::

            sqrt(mean of |w_p - w|^2 over the ranks p) / |w|
    """
    names = (*SUMMED, *SLOWEST)
    vector = torch.tensor([float(own[name]) for name in names], dtype=torch.float64)
    table = torch.stack(group.all_gather(vector))
    sums, slowest = table.sum(dim=0), table.amax(dim=0)
    values: dict[str, Any] = {}
    for index, name in enumerate(names):
        value = float(sums[index] if name in SUMMED else slowest[index])
        values[name] = int(value) if name in _COUNTS else value
    bits, coded = values.pop("code_bits"), values.pop("coded_values")
    values["codec_bits"] = bits / max(coded, 1)
    deviation = values.pop("deviation")
    if not math.isnan(deviation):
        values["consensus_distance"] = math.sqrt(deviation / group.size)
    return values


def peak_rss_bytes() -> int:
    """Return the peak of this process's resident memory, in bytes.

    /proc/self/status counts this program alone. The fallback, getrusage, includes the peak of the
    program that started it.
    """
    return _status_bytes("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes() -> int:
    """Return the resident memory of this process, in bytes; the peak if it is unknown."""
    return _status_bytes("VmRSS") or peak_rss_bytes()


def _status_bytes(field: str) -> int:
    """Return a size of /proc/self/status in bytes; 0 where the system has no such file."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    sizes = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(next(sizes, "0")) * 1024


def is_record(values: Mapping[str, Any]) -> bool:
    """Return whether a line of metrics.jsonl has all values that `summarise` reads.

    Args:
        values: Values by name; a damaged file may lack some.
    """
    metrics = [values.get(name) for name in _METRICS if values.get(name) is not None]
    numbers = [values.get(name) for name in _SUMMARISED] + metrics
    return (
        type(values.get("epoch")) is int
        and all(name in values for name in _METRICS)
        and all(type(number) in (int, float) for number in numbers)
        # A whole number may have more digits than a float has.
        and all(abs(number) < 2**63 for number in numbers if type(number) is int)
        and 0 <= values["epoch"] < 2**63
    )


def summarise(
    records: Sequence[Mapping[str, Any]],
    best_epoch: int | None,
    goal: Goal | None = None,
    *,
    num_epochs: int,
) -> dict[str, Any]:
    """Reduce the epochs of a run to the figures of summary.json.

    Args:
        records: Lines of metrics.jsonl, in order; a resumed run may have lost some.
        best_epoch: Epoch whose weights were kept.
        goal: Validation metric that was to be reached; None without.
        num_epochs: Epochs that are done, also those whose records were lost.

    Returns:
        Values by name.
    """
    records = with_confirmed(records)
    best = next((record for record in records if record["epoch"] == best_epoch), None)
    until_best = [r["epoch_s"] for r in records if best and r["epoch"] <= best["epoch"]]
    return {
        "num_epochs": num_epochs,
        "best_epoch": best_epoch,
        "train_metric": best and best["train_metric"],
        "val_metric": best and best["val_metric"],
        "test_metric": best and best["test_metric"],
        "final_loss": records[-1]["loss"] if records else None,
        "median_epoch_s": _over(records, "epoch_s", statistics.median),
        "total_s": sum(record["epoch_s"] + record["eval_s"] for record in records),
        "time_to_best_s": sum(until_best),
        "halo_bytes_per_epoch": _over(records, "halo_bytes_sent", statistics.mean),
        "eval_halo_bytes_per_epoch": _over(records, "eval_halo_bytes_sent", statistics.mean),
        "weight_bytes_per_epoch": _over(records, "weight_bytes_sent", statistics.mean),
        "max_staleness": _over(records, "max_staleness", max),
        "codec_error": max((record.get("codec_error", 0.0) for record in records), default=0.0),
        **({} if goal is None else goal.figures(records)),
    }


def _over(
    records: Sequence[Mapping[str, Any]], name: str, reduce: Callable[[list[Any]], Any]
) -> Any:
    return reduce([record[name] for record in records]) if records else 0
