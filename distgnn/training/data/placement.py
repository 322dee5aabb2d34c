"""The place of input features: the device that computes, or host memory, from where they stream.

Streamed rows are constant, and mapped or aggregated before anything else: see `why_on_device`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from distgnn.datasets.errors import InputError
from distgnn.kernels.devices import PROCESSOR
from distgnn.ops.host_rows import HostRows
from distgnn.training.loop.graphs import why_not_static

if TYPE_CHECKING:
    import torch

    from distgnn.ops.rows import Rows
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.inputs import Inputs
    from distgnn.training.data.link_inputs import LinkInputs

_MIB = 1 << 20


def check_features_on(features_on: str, device: str) -> None:
    """Refuse to stream where nothing does.

    Args:
        features_on: Place that the user asked for: auto, device or host.
        device: Name of the device.

    Raises:
        InputError: If they are to be streamed from host memory to the processor.
    """
    if features_on == "host" and device == "cpu":
        raise InputError(
            "--features-on host streams features to a CUDA device, but --device is cpu, which "
            "reads them where they are; drop it or add --device cuda"
        )


def why_on_device(config: TrainConfig, num_columns: int, *, is_sparse: bool) -> str:
    """Say why features have to be on the device.

    Args:
        config: Settings of the run.
        num_columns: Number of columns of the features.
        is_sparse: Whether they are sparse.

    Returns:
        The reason; empty where they may be streamed.
    """
    if is_sparse:
        return "the graph has sparse ones"
    if config.model.own:
        return "a model of your own reads them as they are"
    if not num_columns:
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
    inputs: Inputs | LinkInputs, config: TrainConfig, *, device: torch.device, crowded: str
) -> Inputs | LinkInputs:
    """Put the features of a task where the run reads them.

    Args:
        inputs: This rank's share of the task, its features in host memory.
        config: Settings of the run.
        device: Device of the model.
        crowded: Reason why features have no room there, see `forecast.room`; empty where they do.

    Returns:
        The same with features on the device, or streamed to it.

    Raises:
        InputError: If they are to be streamed, but cannot be, or host memory is too small.
    """
    features = place_rows(inputs.features, config, device=device, crowded=crowded)
    return replace(inputs, features=features)


def place_rows(features: Rows, config: TrainConfig, *, device: torch.device, crowded: str) -> Rows:
    """Put features where the run reads them; see `place`."""
    if device == PROCESSOR or isinstance(features, HostRows):
        return features
    reason = why_on_device(config, features.shape[1], is_sparse=features.is_sparse)
    if config.features_on == "host" and reason:
        raise InputError(
            f"--features-on host streams dense features that stay as they are, but {reason}; use "
            "--features-on device or auto"
        )
    why = "as --features-on host says" if config.features_on == "host" else crowded
    if reason or config.features_on == "device" or not why:
        return features.to(device)  # type: ignore[no-any-return]
    rows = features.to_dense()
    try:
        return HostRows.of(rows, device, why=why)
    except RuntimeError as error:
        line = str(error).splitlines()[0]
        raise InputError(
            f"{rows.nbytes // _MIB} MiB of host memory could not be pinned for features "
            f"({line}); use more parts on more machines, --features-dtype bf16, or --features-on "
            "device"
        ) from error


def describe_streamed(rows: HostRows) -> str:
    """Say of features in host memory what a reader of the log should know.

    Args:
        rows: Features of this rank.
    """
    return (
        f"features: in host memory, {rows.why}; {rows.num_bytes / _MIB:.1f} MiB stream through "
        f"{rows.lane.num_bytes / _MIB:.1f} MiB of the device whenever they are multiplied, and "
        "nothing is replayed as a CUDA graph"
    )
