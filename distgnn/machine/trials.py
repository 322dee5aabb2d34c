"""Short trials of a machine: how fast memory, disk and the links between ranks are."""

from __future__ import annotations

import os
import statistics
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from distgnn.comm.collective import on_rank_0
from distgnn.datasets.errors import InputError
from distgnn.machine.facts import advice, look

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.comm.group import Group

_MEMORY_BYTES = 1 << 27
_DISK_BYTES = 1 << 26
_BLOCK_BYTES = 1 << 22
_MESSAGE_BYTES = 1 << 24
_ROUNDS = 5
_PINGS = 100


def examine(group: Group, folder: Path, threads: int | None = None) -> dict[str, Any]:
    """Look at the machine, measure it, and advise; collective.

    Args:
        group: All ranks.
        folder: Folder whose disk is measured, on rank 0.
        threads: Threads that the user asked for; None for those of the default choice.

    Returns:
        JSON values by name: those of `facts.look`, speeds, backend, and `advice`.

    Raises:
        InputError: If the folder cannot be written.
    """
    found = look(threads)
    speeds: list[float] = []
    on_rank_0(group, lambda: speeds.append(disk_speed(folder)))
    found["memory_bytes_per_s"] = memory_speed(group)
    found["disk_bytes_per_s"] = speeds[0] if speeds else None
    found["links"] = link_speed(group)
    found["backend"], found["interface"] = group.backend, group.interface
    return {**found, "advice": advice(found)}


def memory_speed(group: Group) -> list[float]:
    """Measure c = a + b on arrays that no cache holds, on all ranks at once; collective.

    Args:
        group: All ranks.

    Returns:
        (size,) bytes read and written per second, rank by rank. Ranks of one machine share it.
    """
    left, right, out = (torch.zeros(_MEMORY_BYTES // 4) for _ in range(3))
    group.barrier()
    seconds = best_seconds(lambda: torch.add(left, right, out=out), _ROUNDS)
    speed = torch.tensor([3 * _MEMORY_BYTES / seconds], dtype=torch.float64)
    return [float(row) for row in group.all_gather(speed)]


def disk_speed(folder: Path) -> float:
    """Measure how fast a file is written until it is safe.

    Args:
        folder: Where; the file is removed.

    Returns:
        Bytes per second.

    Raises:
        InputError: If it cannot be written.
    """
    path = folder / f".distgnn-doctor.{uuid.uuid4().hex[:12]}"
    block = os.urandom(_BLOCK_BYTES)  # a file system may compress anything simpler
    try:
        with path.open("wb") as file:
            start = time.perf_counter()
            for _ in range(_DISK_BYTES // _BLOCK_BYTES):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            return _DISK_BYTES / (time.perf_counter() - start)
    except OSError as error:
        raise InputError(
            f"cannot write to folder '{folder}': {error.strerror}; give another --folder"
        ) from error
    finally:
        with suppress(OSError):
            path.unlink()


def link_speed(group: Group) -> dict[str, Any] | None:
    """Measure messages between ranks; collective.

    Args:
        group: All ranks.

    Returns:
        latency_s: (size,) half a round trip of 8 bytes between rank 0 and each rank, the median;
        bytes_per_s: (size,) what each rank sends to the next one while it receives as much from
        the one before, the median. None of a single rank.
    """
    if group.size == 1:
        return None
    latency = [0.0] + [_latency(group, peer) for peer in range(1, group.size)]
    seconds = torch.tensor([_ring(group)], dtype=torch.float64)
    rows = group.all_gather(torch.tensor(latency, dtype=torch.float64))
    return {
        "latency_s": rows[0].tolist(),
        "bytes_per_s": [_MESSAGE_BYTES / float(row) for row in group.all_gather(seconds)],
    }


def _latency(group: Group, peer: int) -> float:
    """Bounce a word between rank 0 and another one."""
    group.barrier()
    if group.rank not in (0, peer):
        return 0.0
    word, seconds = torch.zeros(1, dtype=torch.int64), []
    for _ in range(_PINGS):
        start = time.perf_counter()
        if group.rank == 0:
            group.isend(word, peer, 1).wait()
            group.irecv(word, peer, 1).wait()
        else:
            group.irecv(word, 0, 1).wait()
            group.isend(word, 0, 1).wait()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) / 2


def _ring(group: Group) -> float:
    """Send to the next rank and receive from the one before."""
    out, into = (torch.zeros(_MESSAGE_BYTES, dtype=torch.uint8) for _ in range(2))
    after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    seconds = []
    for _ in range(_ROUNDS):
        group.barrier()
        start = time.perf_counter()
        works = [group.irecv(into, before, 2), group.isend(out, after, 2)]
        for work in works:
            work.wait()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def best_seconds(action: Callable[[], object], rounds: int = 3) -> float:
    """Return the shortest time of an action, after a first round that does not count.

    Args:
        action: Action to time.
        rounds: Number of rounds that count, at least 1.
    """
    action()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
