"""Where input features are: on the device that computes, or in host memory, from where they stream.

Streamed rows are constant, and mapped or aggregated before anything else: see `why_on_device`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from distgnn.datasets.errors import InputError
from distgnn.forecast.memory import device_bytes
from distgnn.kernels.devices import PROCESSOR, free_bytes, identity
from distgnn.ops.host_rows import HostRows
from distgnn.training.loop.graphs import why_not_static

if TYPE_CHECKING:
    import torch

    from distgnn.comm.group import Group
    from distgnn.ops.rows import Rows
    from distgnn.partition.directory.store import Part
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.info import DataInfo
    from distgnn.training.data.inputs import Inputs
    from distgnn.training.data.link_inputs import LinkInputs

# Of the device's memory: what its allocator cannot use, and kernels' scratch.
_SPARE_SHARE = 0.1
_MIB = 1 << 20
_NO_ROOM_ELSEWHERE = "as a device of another rank has no room for them"


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
    if features.is_sparse:
        return "the graph has sparse ones"
    if config.model.own:
        return "a model of your own reads them as they are"
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
    ends: DataInfo,
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
    ends: DataInfo,
    part: Part,
    group: Group,
    *,
    device: torch.device,
) -> Rows:
    """As `place`, of the features alone."""
    if device == PROCESSOR or isinstance(features, HostRows):
        return features
    reason = why_on_device(config, features)
    if config.features_on == "host" and reason:
        raise InputError(
            f"--features-on host streams dense features that stay as they are, but {reason}; use "
            "--features-on device or auto"
        )
    if reason or config.features_on == "device":
        return features.to(device)  # type: ignore[no-any-return]
    why = "as --features-on host says"
    if config.features_on == "auto":
        claims = _claims(config, ends, part, group, device)
        short = [claim for claim in claims if not _fits(claim, claims)]
        if not short:
            return features.to(device)  # type: ignore[no-any-return]
        # On all ranks or on none, as they aggregate them together.
        own = claims[group.rank]
        why = _why_short(own, claims) if own in short else _NO_ROOM_ELSEWHERE
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


class _Claim(NamedTuple):
    """What training takes of a device for one rank, and what there is for all that share it."""

    device: str
    """A name that no other device has."""
    left: int
    """Bytes that may be used."""
    here: int
    """Bytes with features on the device."""
    streamed: int
    """Bytes with features in host memory."""


def _claims(
    config: TrainConfig, ends: DataInfo, part: Part, group: Group, device: torch.device
) -> list[_Claim]:
    """Those of all ranks, in rank order; collective."""
    name, left = room(device)
    here, streamed = (
        device_bytes(config, ends, part, features_on=where) for where in ("device", "host")
    )
    own = _Claim(name, int((1 - _SPARE_SHARE) * left), here, streamed)
    rows = group.all_gather_bytes(json.dumps(own).encode())
    return [_Claim(*json.loads(row)) for row in rows]


def _fits(claim: _Claim, claims: list[_Claim]) -> bool:
    """Whether a rank's device has room for all that share it."""
    sharing = [other for other in claims if other.device == claim.device]
    return sum(other.here for other in sharing) <= min(other.left for other in sharing)


def _why_short(claim: _Claim, claims: list[_Claim]) -> str:
    sharing = [other for other in claims if other.device == claim.device]
    here, streamed = (
        sum(getattr(other, where) for other in sharing) // _MIB for where in ("here", "streamed")
    )
    left = min(other.left for other in sharing) // _MIB
    whose = f" for the {len(sharing)} ranks that share it" if len(sharing) > 1 else ""
    return (
        f"as training would need about {here} MiB of the device{whose} with them there, {streamed} "
        f"MiB without, and {left} MiB may be used"
    )


def room(device: torch.device) -> tuple[str, int]:
    """Return a name that no other device has, and the bytes of it that can still be taken.

    Args:
        device: Where the model runs. Of others than CUDA devices nobody says what is left.
    """
    if device.type != "cuda":
        return str(device), sys.maxsize
    return identity(device), free_bytes(device)


def describe_streamed(rows: HostRows) -> str:
    """Say of features in host memory what a reader of the log should know.

    Args:
        rows: This rank's.
    """
    return (
        f"features: in host memory, {rows.why}; {rows.num_bytes / _MIB:.1f} MiB stream through "
        f"{rows.lane.num_bytes / _MIB:.1f} MiB of the device whenever they are multiplied, and "
        "nothing is replayed as a CUDA graph"
    )
