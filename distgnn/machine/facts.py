"""Facts about the machine: processor, threads, memory, network, launchers, versions."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.datasets.errors import InputError
from distgnn.datasets.limits import available_memory, memory_limit, total_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGES = ("distgnn", "torch", "numpy", "scipy", "numba", "pymetis", "mpi4py", "rich", "pyarrow")
_MIN_MEMORY_FRACTION = 0.1
_MIN_DISK_BYTES_PER_S = 50e6
_MIN_LINK_FRACTION = 0.5
_MAX_SLOWNESS = 2.0
_NETWORK = Path("/sys/class/net")


def look(threads: int | None = None) -> dict[str, Any]:
    """Collect facts about this machine.

    Args:
        threads: Threads that the user asked for; None for those of the default choice.

    Returns:
        JSON values by name; None where something is not there.
    """
    from distgnn import kernels
    from distgnn.comm.binding import choose_threads
    from distgnn.comm.launch import detect

    launch = detect()
    choice = choose_threads(threads, launch)
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "cores_of_this_process": len(os.sched_getaffinity(0)),
        "instruction_set": kernels.instruction_set(),
        "threads": choice.threads,
        "threads_reason": choice.reason,
        "binding": choice.warning,
        "launcher": launch.kind,
        "rank": launch.rank,
        "ranks": launch.size,
        "host": socket.gethostname(),
        "interfaces": [name for _, name in socket.if_nameindex()],
        "mpirun": find_mpirun(),
        "mpirun_version": _mpirun_version(),
        "is_root": os.geteuid() == 0,
        "memory_bytes": total_memory(),
        "memory_available_bytes": available_memory(),
        "memory_limit_bytes": memory_limit(),
        "numa_nodes": _numa_nodes(),
        "openmp_runtimes": _openmp_runtimes(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def advice(found: dict[str, Any]) -> list[str]:
    """Say what would make training work or work faster.

    Args:
        found: Facts of `look` and measurements of `trials`.

    Returns:
        One sentence per remedy.
    """
    remedies = []
    if found["binding"]:
        remedies.append(found["binding"])
    if found["mpirun"] is None:
        remedies.append("no mpirun was found: pip install 'distgnn[mpi]' brings one")
    elif found["is_root"] and "Open MPI" in (found["mpirun_version"] or ""):
        remedies.append(
            "you are root: Open MPI's mpirun needs --allow-run-as-root, and --oversubscribe for "
            "more ranks than cores"
        )
    if found["instruction_set"] == "baseline":
        remedies.append("this processor has no AVX2, so the kernels run at their slowest")
    if len(found["openmp_runtimes"]) > 1:
        remedies.append(
            f"{len(found['openmp_runtimes'])} OpenMP runtimes are loaded and will fight for the "
            "cores: build distgnn with GCC"
        )
    limit = found["memory_limit_bytes"] or found["memory_bytes"]
    if found["memory_available_bytes"] < _MIN_MEMORY_FRACTION * limit:
        remedies.append("less than a tenth of the memory is free: end other programs first")
    if found["numa_nodes"] > 1 and found["ranks"] == 1:
        remedies.append(
            f"this machine has {found['numa_nodes']} memory nodes: one rank on each is faster than "
            "one over all, as by mpirun --map-by numa --bind-to numa"
        )
    return [*remedies, *_advice_on_speeds(found)]


def _advice_on_speeds(found: dict[str, Any]) -> Iterator[str]:
    memory, links = found["memory_bytes_per_s"], found["links"]
    if len(memory) > 1 and max(memory) > _MAX_SLOWNESS * min(memory):
        yield (
            f"rank {memory.index(min(memory))} reads memory at less than half the speed of the "
            "fastest, and all wait for it: see what else runs there and how ranks are bound"
        )
    if found["disk_bytes_per_s"] is not None and found["disk_bytes_per_s"] < _MIN_DISK_BYTES_PER_S:
        yield (
            f"checkpoints would be written at {found['disk_bytes_per_s'] / 1e6:.0f} MB/s: use a "
            "faster --run, or --checkpoint-every with a larger number"
        )
    nominal = _interface_speed(found["interface"])
    if links is not None and nominal and min(links["bytes_per_s"]) < _MIN_LINK_FRACTION * nominal:
        yield (
            f"rank {links['bytes_per_s'].index(min(links['bytes_per_s']))} sends "
            f"{8e-9 * min(links['bytes_per_s']):.1f} Gb/s over {found['interface']}, which is made "
            f"for {8e-9 * nominal:.0f} Gb/s: see what else uses it, or name another --interface"
        )


def _interface_speed(name: str) -> float | None:
    """Return the nominal bytes per second of a network interface; None where it is unknown."""
    try:
        megabits = int((_NETWORK / name / "speed").read_text())
    except (OSError, ValueError):
        return None
    return megabits * 1e6 / 8 if name and megabits > 0 else None


def _numa_nodes() -> int:
    """Count the memory nodes of this machine, at least 1."""
    return max(len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))), 1)


def processor() -> str:
    """Return the name of the processor, or its architecture where the name is unknown."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def find_mpirun() -> str | None:
    """Find mpirun, first beside this interpreter: its library is the one in the environment."""
    beside = Path(sys.executable).with_name("mpirun")
    return str(beside) if beside.exists() else shutil.which("mpirun")


def command_words(flag: str, text: str) -> list[str]:
    """Split the command that starts ranks.

    Args:
        flag: Where it was given.
        text: The command.

    Raises:
        InputError: If it cannot be split, or has no words.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(
            f"{flag} must be a command as a shell takes it, got {text!r} ({error}); close "
            "its quotation marks"
        ) from error
    if not words:
        raise InputError(
            f"{flag} must be a command such as 'srun -n 4', got {text!r}; name one, or leave "
            f"{flag} out"
        )
    return words


def _mpirun_version() -> str | None:
    path = find_mpirun()
    if path is None:
        return None
    try:
        printed = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = (printed.stdout or printed.stderr).splitlines()
    return lines[0].strip() if lines else None


def _openmp_runtimes() -> list[str]:
    maps = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split()[-1] for line in maps if len(line.split()) > 5}
    names = ("libgomp", "libomp", "libiomp")
    return sorted(path for path in paths if Path(path).name.startswith(names))


def _version(package: str) -> str | None:
    if importlib.util.find_spec(package) is None:
        return None
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
