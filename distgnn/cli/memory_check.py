"""Whether a run fits into memory, asked before its first epoch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from distgnn.cli.limits import available_memory
from distgnn.cli.output import human_bytes, note
from distgnn.comm.process import machine
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distgnn.comm.group import Group


@dataclass(frozen=True)
class Need:
    """What one rank still needs, and what its machine still has.

    Attributes:
        rank: The rank.
        host: Its host.
        machine: Equal for ranks that share their memory.
        missing_bytes: What it will take besides what it has taken already.
        available_bytes: What its machine, or its control group, has left for all its ranks.
    """

    rank: int
    host: str
    machine: str
    missing_bytes: int
    available_bytes: int


def check_memory(group: Group, missing_bytes: int, *, what: str, is_forced: bool) -> None:
    """Refuse what does not fit into the memory of each machine; collective.

    Args:
        group: All ranks.
        missing_bytes: What this rank will take besides what it has taken already.
        what: What takes it, for the message, such as "training".
        is_forced: Whether to warn only.

    Raises:
        InputError: If it does not fit, on every rank.
    """
    own = Need(group.rank, group.host, machine(), missing_bytes, available_memory())
    rows = group.all_gather_bytes(json.dumps(asdict(own)).encode())
    problem = next(_problems([Need(**json.loads(row)) for row in rows], what), None)
    if problem is None:
        return
    if not is_forced:
        raise InputError(
            f"{problem}; use more parts on more machines, --recompute, a smaller --hidden, fewer "
            "--layers, or --force to try nevertheless"
        )
    if group.rank == 0:
        note(f"warning: {problem}; trying nevertheless")


def _problems(needs: list[Need], what: str) -> Iterator[str]:
    """A sentence for each machine that has too little, that with the lowest rank first."""
    for first in needs:
        sharing = [need for need in needs if need.machine == first.machine]
        missing = sum(need.missing_bytes for need in sharing)
        available = min(need.available_bytes for need in sharing)
        if first is sharing[0] and missing > available:
            ranks = ", ".join(str(need.rank) for need in sharing)
            who = f"rank {ranks}" if len(sharing) == 1 else f"ranks {ranks} together"
            yield (
                f"{what} needs about {human_bytes(missing)} more memory on {first.host} for {who}, "
                f"but {human_bytes(available)} are free"
            )
