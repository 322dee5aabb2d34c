"""A check, before the first epoch of a run, that it fits into memory."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from distgnn.comm.process import machine
from distgnn.datasets.errors import InputError
from distgnn.datasets.limits import available_by_pool
from distgnn.kernels.devices import PROCESSOR, free_bytes, identity
from distgnn.machine.units import human_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from distgnn.comm.group import Group

_REMEDY = "use more parts on more {where}, --recompute, a smaller --hidden, fewer --layers"


@dataclass(frozen=True)
class Need:
    """Memory that one rank still needs, and the memory that is left there.

    Attributes:
        rank: The rank.
        place: Host of the rank, or its device and the host, for the message.
        missing_bytes: Bytes that it will take besides those that it has taken already.
        available: Bytes left for all ranks that take from a pool, by pool. Pools are the rank's
            machine and the limited control groups around it, or its device. Ranks share a pool
            that has the same name.
    """

    rank: int
    place: str
    missing_bytes: int
    available: dict[str, int]


def check_memory(
    group: Group,
    missing_bytes: int,
    *,
    what: str,
    is_forced: bool,
    say: Callable[[str], None],
    device: torch.device = PROCESSOR,
    remedy: str = _REMEDY,
) -> None:
    """Refuse work that does not fit into each machine and control group, or device; collective.

    Args:
        group: All ranks.
        missing_bytes: Bytes that this rank will take besides those that it has taken already.
        what: Name of the work, for the message, such as "training".
        is_forced: Whether to warn only.
        say: Receives the warning, on rank 0.
        device: Device whose memory this rank will take.
        remedy: Advice for the message; {where} stands for machines or devices.

    Raises:
        InputError: If it does not fit, on every rank.
    """
    if device == PROCESSOR:
        # Every machine has a pool of the same name, and numbers its control groups for itself.
        available = {f"{machine()} {pool}": left for pool, left in available_by_pool().items()}
        place = group.host
    else:
        available = {identity(device): free_bytes(device)}
        place = f"{device} of {group.host}"
    own = Need(group.rank, place, missing_bytes, available)
    rows = group.all_gather_bytes(json.dumps(asdict(own)).encode())
    problem = next(_problems([Need(**json.loads(row)) for row in rows], what), None)
    if problem is None:
        return
    if not is_forced:
        where = "machines" if device == PROCESSOR else "devices"
        raise InputError(f"{problem}; {remedy.format(where=where)}, or --force to try nevertheless")
    if group.rank == 0:
        say(f"warning: {problem}; trying nevertheless")


def _problems(needs: list[Need], what: str) -> Iterator[str]:
    """Yield a sentence for each pool with too little: lowest rank, then smallest pool, first."""
    seen: set[str] = set()
    for first in needs:
        new = [(left, pool) for pool, left in first.available.items() if pool not in seen]
        for _, pool in sorted(new):
            seen.add(pool)
            sharing = [need for need in needs if pool in need.available]
            missing = sum(need.missing_bytes for need in sharing)
            available = min(need.available[pool] for need in sharing)
            if missing > available:
                ranks = ", ".join(str(need.rank) for need in sharing)
                who = f"rank {ranks}" if len(sharing) == 1 else f"ranks {ranks} together"
                yield (
                    f"{what} needs about {human_bytes(missing)} more memory on {first.place} for "
                    f"{who}, but {human_bytes(available)} are free"
                )
