"""Where input features are: on the device that computes, or in host memory, from where they stream.

Streamed rows are constant, and mapped or aggregated before anything else: see `why_on_device`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from distgnn.datasets.errors import InputError
from distgnn.devices import PROCESSOR, free_bytes
from distgnn.ops import SparseRows
from distgnn.streamed import StreamedRows
from distgnn.train.graphs import why_not_static
from distgnn.train.memory import device_bytes

if TYPE_CHECKING:
    from distgnn.comm.group import Group
    from distgnn.ops import Rows
    from distgnn.partition.store import Part
    from distgnn.train.config import TrainConfig
    from distgnn.train.ends import ModelEnds
    from distgnn.train.inputs import Inputs
    from distgnn.train.link_inputs import LinkInputs

# Of the device's memory: what its allocator cannot use, and kernels' scratch.
_SPARE_SHARE = 0.1
_MIB = 1 << 20


def check_features_on(features_on: str, device: str) -> None:
    """Refuse to stream where nothing does.

    Args:
        features_on: Of the run.
        device: Name of the device.

    Raises:
        InputError: If they are to be in host memory, which is where they are.
    """
    if features_on == "host" and device == "cpu":
        raise InputError(
            "--features-on host streams features to a CUDA device, but --device is cpu, which "
            "reads them where they are; drop it or add --device cuda"
        )


def why_on_device(config: TrainConfig, features: Rows) -> str:
    """Say why features have to be on the device.

    Args:
        config: The run.
        features: Of the run.

    Returns:
        The reason; empty where they may be streamed.
    """
    if isinstance(features, SparseRows):
        return "the graph has sparse ones"
    if not features.shape[1]:
        return "the graph has none"
    if config.labels_as_input:
        return f"--labels-as-input {config.labels_as_input:g} changes them in every epoch"
    if config.model.reads_edge_features and config.model.model == "gin":
        return "the first layer of --model gin adds features of edges to them"
    reason = why_not_static(config, is_sparse=False)
    if config.model.model == "sage" and config.model.aggregator == "max" and reason:
        return f"--aggregator max takes maxima of them in every epoch, as {_because(reason)}"
    return ""


def _because(reason: str) -> str:
    return "static input is off" if reason == "switched off" else reason


def place(
    inputs: Inputs | LinkInputs,
    config: TrainConfig,
    ends: ModelEnds,
    part: Part,
    group: Group,
    *,
    device: torch.device,
) -> Inputs | LinkInputs:
    """Put the features of a task where the run reads them; collective.

    Args:
        inputs: This rank's share of the task, its features in host memory.
        config: The run.
        ends: Widths of the model's ends.
        part: This rank's part.
        group: All ranks.
        device: Where the model runs.

    Returns:
        The same with features on the device, or streamed to it.

    Raises:
        InputError: If they are to be streamed, but cannot be, or host memory is too small.
    """
    features = place_rows(inputs.features, config, ends, part, group, device=device)
    return replace(inputs, features=features)


def place_rows(
    features: Rows,
    config: TrainConfig,
    ends: ModelEnds,
    part: Part,
    group: Group,
    *,
    device: torch.device,
) -> Rows:
    """As `place`, of the features alone."""
    if device == PROCESSOR or isinstance(features, StreamedRows):
        return features
    reason = why_on_device(config, features)
    if config.features_on == "host" and reason:
        raise InputError(
            f"--features-on host streams dense features that stay as they are, but {reason}; use "
            "--features-on device or auto"
        )
    if isinstance(features, SparseRows) or reason or config.features_on == "device":
        return features.to(device)
    why = "as --features-on host says"
    if config.features_on == "auto":
        needed = device_bytes(config, ends, part, features_on="device")
        left = int((1 - _SPARE_SHARE) * bytes_left(device))
        # On all ranks or on none, as they aggregate them together.
        worst = torch.tensor([max(needed - left, 0)])
        group.all_reduce(worst)
        if not int(worst):
            return features.to(device)
        streamed = device_bytes(config, ends, part, features_on="host")
        why = (
            f"as training would need about {needed // _MIB} MiB of a device with them there, "
            f"{streamed // _MIB} MiB without, and {left // _MIB} MiB may be used on rank 0"
            if needed > left
            else "as a device of another rank has no room for them"
        )
    try:
        return StreamedRows.of(features, device, why=why)
    except RuntimeError as error:
        line = str(error).splitlines()[0]
        raise InputError(
            f"{features.nbytes // _MIB} MiB of host memory could not be pinned for features "
            f"({line}); use more parts on more machines, --features-dtype bf16, or --features-on "
            "device"
        ) from error


def bytes_left(device: torch.device) -> int:
    """Return the bytes of a device that this process can still take.

    Args:
        device: Where the model runs. Of others than CUDA devices nobody says it.
    """
    return free_bytes(device) if device.type == "cuda" else sys.maxsize


def describe_streamed(rows: StreamedRows) -> str:
    """Say of features in host memory what a reader of the log should know.

    Args:
        rows: This rank's.
    """
    return (
        f"features: in host memory, {rows.why}; {rows.num_bytes / _MIB:.1f} MiB stream through "
        f"{rows.lane.num_bytes / _MIB:.1f} MiB of the device whenever they are multiplied, and "
        "nothing is replayed as a CUDA graph"
    )
