"""Place of this process among the ranks of its job, read from the launcher's environment.

Importing this module does not import torch.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from distgnn.datasets import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["torchrun", "openmpi", "mpich", "intelmpi", "srun", "single"]


@dataclass(frozen=True)
class Launch:
    """Place of this process among those that were started together.

    Attributes:
        kind: The launcher.
        rank: This process, in [0, size).
        size: Number of processes.
        local_rank: This process among those of its host.
        local_size: Number of processes on this host.
    """

    kind: Kind
    rank: int
    size: int
    local_rank: int
    local_size: int

    @property
    def is_local(self) -> bool:
        """Whether all ranks are on this host."""
        return self.local_size == self.size


SINGLE = Launch("single", 0, 1, 0, 1)
SUPERVISED = "DISTGNN_SUPERVISED"
"""Variable of the ranks of `--restarts`, which leaves OMP_NUM_THREADS as the user set it.

Its value is the number of the process that started them, and when that began: `pid:start`.
"""
_NAMES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    SUPERVISED,
)
_PREFIXES = ("OMPI_COMM_", "PMIX_", "PMI_", "MPI_LOCAL", "SLURM_", "TORCHELASTIC_")


def without_launcher(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which a process that this one starts is no rank.

    Args:
        environ: The environment of this process.
    """
    return {
        name: value
        for name, value in environ.items()
        if name not in _NAMES and not name.startswith(_PREFIXES)
    }


def detect(environ: Mapping[str, str] = os.environ) -> Launch:
    """Read from environment variables how this process was started.

    torchrun comes before the MPI launchers and those before Slurm, because the variables of an
    outer launcher are inherited by the processes of an inner one.

    Args:
        environ: The environment of this process.

    Raises:
        InputError: If the launcher's variables contradict each other.
    """
    if "RANK" in environ and "WORLD_SIZE" in environ:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        return _launch("torchrun", environ, names)
    if "OMPI_COMM_WORLD_RANK" in environ:
        names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
        first, second, third, fourth = (f"OMPI_COMM_WORLD_{name}" for name in names)
        return _launch("openmpi", environ, (first, second, third, fourth))
    if "PMI_RANK" in environ and "MPI_LOCALNRANKS" in environ:
        is_intel = any(name.startswith(("I_MPI_HYDRA", "I_MPI_MPIRUN")) for name in environ)
        names = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
        return _launch("intelmpi" if is_intel else "mpich", environ, names)
    if "SLURM_STEP_NUM_TASKS" in environ and "SLURM_PROCID" in environ:
        return _detect_slurm(environ)
    return SINGLE


def _detect_slurm(environ: Mapping[str, str]) -> Launch:
    tasks = expand_tasks(environ.get("SLURM_STEP_TASKS_PER_NODE", "1"))
    node = _integer(environ, "SLURM_NODEID", "0")
    local = {"tasks": str(tasks[min(node, len(tasks) - 1)])}
    launch = _launch(
        "srun",
        {**environ, **local},
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "tasks"),
    )
    # The shell of an interactive allocation is a step of one task.
    return SINGLE if launch.size == 1 else launch


def _launch(kind: Kind, environ: Mapping[str, str], names: tuple[str, str, str, str]) -> Launch:
    rank, size = (_integer(environ, name) for name in names[:2])
    local_rank = _integer(environ, names[2], "0")
    local_size = _integer(environ, names[3], "1")
    is_sound = 0 <= rank < size and 0 <= local_rank < local_size <= size
    if not is_sound:
        found = ", ".join(f"{name}={environ[name]}" for name in names if name in environ)
        raise InputError(
            f"the launcher's variables contradict each other: {found}; every rank must be below "
            "its size and the local size at most the size; unset those left from another job"
        )
    return Launch(kind, rank, size, local_rank, local_size)


def _integer(environ: Mapping[str, str], name: str, default: str = "") -> int:
    text = environ.get(name, default)
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"the launcher's variable {name} must be an integer, got {text!r}; "
            "unset it or start through mpirun, srun or torchrun"
        ) from None


def expand_tasks(text: str) -> list[int]:
    """Expand Slurm's tasks per node, such as "2(x3),1" to 2, 2, 2, 1.

    Args:
        text: The value of SLURM_STEP_TASKS_PER_NODE.

    Raises:
        InputError: If it is written otherwise.
    """
    counts: list[int] = []
    for item in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", item)
        if match is None:
            raise InputError(
                f"SLURM_STEP_TASKS_PER_NODE must look like '2(x3),1', got {text!r}; "
                "unset it or start through srun"
            )
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def expand_nodes(text: str) -> list[str]:
    """Expand a Slurm node list, such as "gpu[003-004,9]" to gpu003, gpu004, gpu9.

    Args:
        text: The value of SLURM_STEP_NODELIST.

    Raises:
        InputError: If it is written otherwise.
    """
    hosts: list[str] = []
    item = r"[^\s,\[\]]*(?:\[[\d,-]+\][^\s,\[\]]*)*"
    if not text or re.fullmatch(rf"{item}(,{item})*", text) is None:
        raise _bad_node_list(text)
    for word in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        pieces = re.split(r"\[([^\]]*)\]", word)
        choices = [
            [piece] if index % 2 == 0 else _expand_ranges(piece, text)
            for index, piece in enumerate(pieces)
        ]
        hosts += ["".join(parts) for parts in itertools.product(*choices)]
    return hosts


def _expand_ranges(ranges: str, text: str) -> list[str]:
    numbers: list[str] = []
    for item in ranges.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", item)
        if match is None:
            raise _bad_node_list(text)
        last = int(match[2] or match[1])
        numbers += [str(n).zfill(len(match[1])) for n in range(int(match[1]), last + 1)]
    return numbers


def _bad_node_list(text: str) -> InputError:
    return InputError(
        f"SLURM_STEP_NODELIST must look like 'gpu[003-007,9]', got {text!r}; set MASTER_ADDR "
        "to the host of rank 0"
    )
