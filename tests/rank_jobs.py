"""Jobs of real processes for the tests of the transports; each rank runs rank_script.py."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = Path(__file__).with_name("rank_script.py")
BIN = Path(sys.executable).parent
_LAUNCHERS = ("OMPI_", "PMIX_", "PMI_", "MPI_", "SLURM_")
ENVIRON = {
    **{k: v for k, v in os.environ.items() if not k.startswith(_LAUNCHERS)},
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMP_NUM_THREADS": "1",
}
# For a job that hangs: on a busy machine, processes take a minute to start.
HANG_S = 300
MPIRUN = [str(BIN / "mpirun"), "--oversubscribe", "--bind-to", "none"]


def run(command: list[str], *words: str, fault: str = "", **variables: str) -> tuple[int, str, str]:
    """Status, output and errors of a job."""
    result = subprocess.run(
        [*command, *words],
        env={**ENVIRON, "FAULT": fault, **variables},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    return result.returncode, result.stdout, result.stderr


def mpirun(size: int, mode: str, fault: str = "", **variables: str) -> tuple[int, str, str]:
    """A job of the mpirun beside this Python."""
    command = [*MPIRUN, "-n", str(size), sys.executable]
    return run(command, str(SCRIPT), mode, fault=fault, **variables)


def srun(mode: str, fault: str = "", **variables: str) -> list[subprocess.Popen[str]]:
    """Two processes with the variables that srun would give them; nothing kills the other."""
    step = {
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_ID": str(time.monotonic_ns()),
        "FAULT": fault,
        **variables,
    }
    return [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), mode],
            env={**ENVIRON, **step, "SLURM_PROCID": str(rank), "SLURM_NODEID": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
