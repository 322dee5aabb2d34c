"""Jobs of real processes for the tests of the transports; each rank runs rank_script.py."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from contextlib import suppress
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
# Python reads this file first. A process that has written a checkpoint waits before it gives it its
# name, if that is the name in the file HOLD, and for as long as HOLD.held is there.
_HOLDING = """
import os, sys, time
from contextlib import suppress
def hold(event, arguments, file=os.environ.get("HOLD", "")):
    if event == "os.rename" and file:
        is_wanted = False
        with suppress(FileNotFoundError), open(file) as wanted:
            is_wanted = os.path.basename(arguments[1]) == wanted.read()
        if is_wanted:
            os.replace(file, file + ".held")
            while os.path.exists(file + ".held"):
                time.sleep(0.01)
sys.addaudithook(hold)
"""


class Hold:
    """A moment of a run in which a test can do something to it, however late the test is.

    Args:
        folder: Where the files about it go.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "sitecustomize.py").write_text(_HOLDING)
        self._wanted, self._held = folder / "wanted", folder / "wanted.held"
        paths = (str(folder), os.environ.get("PYTHONPATH", ""))
        #: Variables of the processes.
        self.environ = {"PYTHONPATH": ":".join(filter(None, paths)), "HOLD": str(self._wanted)}

    def at(self, epoch: int) -> None:
        """Have the process wait that writes the checkpoint of an epoch; nothing holds it later."""
        new = self._wanted.with_suffix(".new")
        new.write_text(f"epoch-{epoch:06d}")
        new.replace(self._wanted)

    def wait(self, job: subprocess.Popen[str] | None = None) -> None:
        """Wait until a process waits."""
        deadline_s = time.monotonic() + HANG_S
        while not self.is_held:
            assert job is None or job.poll() is None, job.communicate()[1]
            assert time.monotonic() < deadline_s
            time.sleep(0.01)

    @property
    def is_held(self) -> bool:
        """Whether a process waits."""
        return self._held.exists()

    def end(self) -> None:
        """Let it go on."""
        self._held.unlink()


def free_port() -> str:
    """Draw a port that is free, and that the kernel gives to nobody who asks for any."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    draw = random.Random()
    while True:
        port = draw.randrange(first // 2, first)
        with suppress(OSError), socket.create_server(("", port)):
            return str(port)


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


def srun(
    mode: str, fault: str = "", size: int = 2, **variables: str
) -> list[subprocess.Popen[str]]:
    """Processes with the variables that srun would give them; nothing kills the others."""
    step = {
        "SLURM_STEP_NUM_TASKS": str(size),
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
        for rank in range(size)
    ]
