"""Number of threads of a rank, whatever the launcher did to its cores."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.comm.launch import SUPERVISED
from distgnn.datasets import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distgnn.comm.launch import Launch

MAX_THREADS = 1024
_SPARE_CORE_FROM = 8
_REMEDIES = {
    "openmpi": "mpirun --bind-to none, or --map-by ppr:1:socket --bind-to socket",
    "mpich": "mpirun -bind-to none, or -bind-to socket",
    "intelmpi": "mpirun -genv I_MPI_PIN=0",
    "srun": "srun --cpu-bind=none, or --cpus-per-task",
}


@dataclass(frozen=True)
class ThreadChoice:
    """Number of threads of a rank.

    Attributes:
        threads: The number, at least 1.
        reason: Source of the number, for people.
        warning: Advice to the user; None if there is none.
    """

    threads: int
    reason: str
    warning: str | None = None


@dataclass(frozen=True)
class Cores:
    """The cores of this machine as this process sees them.

    Attributes:
        num_cores: Physical cores of the machine.
        num_usable: Physical cores this process may run on.
        is_bound: Whether the launcher gave this process fewer than it has itself.
        quota: Cores' worth of time the container may use; infinite without a limit.
    """

    num_cores: int
    num_usable: int
    is_bound: bool = False
    quota: float = math.inf


def choose_threads(
    requested: int | None,
    launch: Launch,
    *,
    environ: Mapping[str, str] = os.environ,
    cores: Cores | None = None,
) -> ThreadChoice:
    """Choose the number of threads of this rank.

    Never left to torch, whose default is 1 under an MPI launcher.

    Args:
        requested: Number that the user asked for; None if there is none.
        launch: Place of this rank in the job.
        environ: The environment of this process.
        cores: The cores of this machine; None looks at them.

    Raises:
        InputError: If the requested number or OMP_NUM_THREADS is not in 1..MAX_THREADS.
    """
    if requested is not None:
        if not 1 <= requested <= MAX_THREADS:
            raise InputError(
                f"threads must be in 1..{MAX_THREADS}, got {requested}; leave --threads out or "
                "change it"
            )
        return ThreadChoice(requested, "as requested")
    text = environ.get("OMP_NUM_THREADS", "")
    # torchrun sets 1 by itself when it starts several ranks; who sets its variables does not.
    is_from_torchrun = "TORCHELASTIC_RUN_ID" in environ and launch.size > 1 and text == "1"
    is_from_torchrun &= SUPERVISED not in environ
    if text and not is_from_torchrun:
        first = text.split(",")[0].strip()
        if re.fullmatch("[0-9]{1,9}", first) is None or not 1 <= int(first) <= MAX_THREADS:
            raise InputError(
                f"OMP_NUM_THREADS must be in 1..{MAX_THREADS}, got {text!r}; unset or change it"
            )
        return ThreadChoice(int(first), "OMP_NUM_THREADS")
    found = cores if cores is not None else look_at_cores()
    share = found.num_usable if found.is_bound else found.num_usable // launch.local_size
    reason = f"{found.num_usable} usable cores"
    if not found.is_bound and launch.local_size > 1:
        reason += f" shared by {launch.local_size} ranks"
    if found.quota / launch.local_size < share:
        share = int(found.quota / launch.local_size)
        reason = f"a CPU limit of {found.quota:g} cores for {launch.local_size} ranks"
    if launch.size > 1 and share >= _SPARE_CORE_FROM:
        share -= 1
        reason += ", less one for communication"
    return ThreadChoice(max(1, share), reason, _warning(launch, found))


def apply_threads(num_threads: int) -> None:
    """Have torch compute with this number of threads.

    Args:
        num_threads: At least 1.
    """
    import torch

    torch.set_num_threads(num_threads)


def look_at_cores() -> Cores:
    """Return the cores of this machine as this process sees them."""
    if not hasattr(os, "sched_getaffinity"):
        count = os.cpu_count() or 1
        return Cores(count, count)
    siblings = _siblings()
    mask = os.sched_getaffinity(0)
    try:
        launcher_mask = os.sched_getaffinity(os.getppid())
    except OSError:
        launcher_mask = mask
    # A core with two hardware threads counts once, by the lowest of them.
    cores = {siblings.get(cpu, cpu) for cpu in range(os.cpu_count() or 1)}
    usable = {siblings.get(cpu, cpu) for cpu in mask}
    return Cores(len(cores), len(usable), is_bound=mask < launcher_mask, quota=_quota())


def _warning(launch: Launch, cores: Cores) -> str | None:
    per_rank = cores.num_cores // launch.local_size
    if not cores.is_bound or cores.num_usable > 1 or per_rank <= 1:
        return None
    remedy = _REMEDIES.get(launch.kind, "the launcher's option for binding")
    return (
        f"the launcher bound rank {launch.rank} to 1 core, but the machine has {per_rank} per "
        f"rank; use {remedy}"
    )


def _siblings() -> dict[int, int]:
    """Lowest hardware thread of the core of each hardware thread."""
    lowest: dict[int, int] = {}
    for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*"):
        try:
            text = (folder / "topology/thread_siblings_list").read_text(encoding="ascii")
        except OSError:
            continue
        lowest[int(folder.name[3:])] = int(text.replace("-", ",").split(",")[0])
    return lowest


def _quota() -> float:
    """Limit of the control group of a container, in cores."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return math.inf
    return math.inf if quota == "max" else int(quota) / int(period)
