"""What the machine offers: processor, threads, memory, network, launchers, versions."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from distgnn.cli.limits import available_memory, memory_limit, total_memory

_PACKAGES = ("distgnn", "torch", "numpy", "scipy", "numba", "pymetis", "mpi4py", "rich", "pyarrow")
_MIN_MEMORY_FRACTION = 0.1


def look() -> dict[str, Any]:
    """Collect facts about this machine.

    Returns:
        JSON values by name; None where something is not there.
    """
    from distgnn import kernels
    from distgnn.comm.binding import choose_threads
    from distgnn.comm.launch import detect

    launch = detect()
    choice = choose_threads(None, launch)
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
        "mpirun": _mpirun(),
        "mpirun_version": _mpirun_version(),
        "is_root": os.geteuid() == 0,
        "memory_bytes": total_memory(),
        "memory_available_bytes": available_memory(),
        "memory_limit_bytes": memory_limit(),
        "openmp_runtimes": _openmp_runtimes(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def advice(found: dict[str, Any]) -> list[str]:
    """Say what would make training work or work faster.

    Args:
        found: From `look`.

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
    return remedies


def processor() -> str:
    """Return the name of the processor, or its architecture where the system does not tell."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _mpirun() -> str | None:
    """The mpirun beside this interpreter comes first: its library is the one in the environment."""
    beside = Path(sys.executable).with_name("mpirun")
    return str(beside) if beside.exists() else shutil.which("mpirun")


def _mpirun_version() -> str | None:
    path = _mpirun()
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
