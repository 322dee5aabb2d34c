"""Room for input features on a device, beside all else that training keeps there."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, NamedTuple

from scipy.sparse import issparse

from distgnn.forecast.memory import device_bytes
from distgnn.kernels.devices import PROCESSOR, free_bytes, identity
from distgnn.training.data.placement import why_on_device

if TYPE_CHECKING:
    import torch

    from distgnn.comm.group import Group
    from distgnn.partition.directory.store import Part
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.info import DataInfo

# Share of a device's memory that its allocator cannot use, or that kernels need as scratch.
_SPARE_SHARE = 0.1
_MIB = 1 << 20
_NO_ROOM_ELSEWHERE = "as a device of another rank has no room for them"


def why_crowded(
    config: TrainConfig, ends: DataInfo, part: Part, group: Group, device: torch.device
) -> str:
    """Say why features have no room on the devices of all ranks; collective.

    Args:
        config: Resolved settings of the run.
        ends: Sizes of the data of the whole graph.
        part: Part of this rank.
        group: All ranks.
        device: Device of the model.

    Returns:
        The reason, for the log; empty where features fit, where nobody asks with --features-on
        auto, and where they have to be on the device in any case.
    """
    if device == PROCESSOR or config.features_on != "auto":
        return ""
    if why_on_device(config, ends.num_features, is_sparse=issparse(part.features)):
        return ""
    claims = _claims(config, ends, part, group, device)
    short = [claim for claim in claims if not _fits(claim, claims)]
    if not short:
        return ""
    # On all ranks or on none, as they aggregate them together.
    own = claims[group.rank]
    return _why_short(own, claims) if own in short else _NO_ROOM_ELSEWHERE


class _Claim(NamedTuple):
    """Demand of training on a device for one rank, and the room for all that share it."""

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
    """Return the claims of all ranks, in rank order; collective."""
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
        device: Device of the model. The room of others than CUDA devices is unknown, and unlimited.
    """
    if device.type != "cuda":
        return str(device), sys.maxsize
    return identity(device), free_bytes(device)
