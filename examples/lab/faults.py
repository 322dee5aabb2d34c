"""Effect of each fault on a run on each transport: when the last survivor ends, and its message.

    DISTGNN_LAB=DIR [DISTGNN_MPIRUN=MPIRUN_OF_MPICH] \\
        python examples/lab/faults.py [--only WORD] [--skip ROWS] [FOLDER]

Three hosts have one rank each. The fault hits rank 1, or its host, in the middle of a run. Then the
run is resumed on whole hosts, and must end with the bits of a straight one on the same transport.
"""

from __future__ import annotations

import lab  # isort: skip

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jobs
from lab import Job, Lab, epochs_of, is_there, wait_for_epoch
from results import record, table

VICTIM = 1
AT_EPOCH = 23
MODEL = ["--hidden", "16", "--checkpoint-every", "5", "--eval-every", "5"]
LIMIT_S = 90.0
# Of the launcher, once no rank is left.
LAUNCHER_S = 20.0
DISK_BYTES = 6 << 20
MEMORY = Path("/sys/fs/cgroup/memory")
HOG = "x = bytearray(1 << 20)\nwhile True: x += bytes(1 << 20)"


ASKING = {"MALLOC_MMAP_THRESHOLD_": "4096"}


class Outcome(NamedTuple):
    """A row of the table."""

    fault: str
    survivors_s: float
    launcher: str
    said: str
    is_resumed: bool


class Faults:
    """Breaks a rank, its host or its disk, and mends them."""

    def __init__(self, hosts: Lab, disk: Path) -> None:
        self._hosts = hosts
        self._disk = disk
        self._remedy = ""

    def sigkill(self, victim: int) -> None:
        """End the process."""
        os.kill(victim, signal.SIGKILL)

    def sigstop(self, victim: int) -> None:
        """Let it hang."""
        os.kill(victim, signal.SIGSTOP)

    def cut_link(self, victim: int) -> None:
        """The switch drops what the host sends and gets; its interface notices nothing."""
        del victim
        self._hosts.do("fault", f"host{VICTIM}", "drop")
        self._remedy = "undrop"

    def link_down(self, victim: int) -> None:
        """The host's interface loses its carrier."""
        del victim
        self._hosts.do("fault", f"host{VICTIM}", "linkdown")
        self._remedy = "linkup"

    def out_of_memory(self, victim: int) -> None:
        """The memory of its control group runs out, and the kernel ends the rank.

        A process beside it takes the memory; the kernel is told to spare that one.
        """
        group = MEMORY / self._hosts.name
        group.mkdir(exist_ok=True)
        limit = 64 << 20
        (group / "memory.limit_in_bytes").write_text(str(limit))
        (group / "cgroup.procs").write_text(str(victim))
        Path(f"/proc/{victim}/oom_score_adj").write_text("1000")
        enter = f"echo $$ > {group}/cgroup.procs; exec {sys.executable} -c '{HOG}'"
        hog = subprocess.Popen(["sh", "-c", enter])
        while is_there(victim):
            time.sleep(0.005)
        hog.kill()
        hog.wait()

    def no_memory(self, victim: int) -> None:
        """The system refuses the process more addresses (ulimit -v).

        A run under way uses what it has again; with `ASKING` the C library keeps nothing for that.
        """
        pages = int(Path(f"/proc/{victim}/statm").read_text().split()[0])
        limit = pages * resource.getpagesize()
        resource.prlimit(victim, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))

    def full_disk(self, victim: int) -> None:
        """The disk of the run fills up."""
        del victim
        with (self._disk / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 12))
            except OSError:
                return

    def mend(self) -> None:
        """Undo what outlives the job."""
        if self._remedy:
            self._hosts.do("fault", f"host{VICTIM}", self._remedy)
            # They remember for a while that they could not reach each other.
            for host in range(self._hosts.num_hosts):
                self._hosts.do("exec", f"host{host}", "ip", "neigh", "flush", "all")
        self._remedy = ""
        (self._disk / "filler").unlink(missing_ok=True)


FAULTS = {
    "SIGKILL": Faults.sigkill,
    "SIGSTOP": Faults.sigstop,
    "link cut (packets dropped)": Faults.cut_link,
    "link cut (carrier lost)": Faults.link_down,
    "out of memory (kernel ends the rank)": Faults.out_of_memory,
    "out of memory (system refuses it)": Faults.no_memory,
    "full disk": Faults.full_disk,
}


class Bench:
    """Runs cases on one transport."""

    def __init__(self, hosts: Lab, folder: Path, transport: str) -> None:
        self.hosts, self.transport = hosts, transport
        self.folder, self.disk = folder, folder / "disk"
        self.parts = folder / "parts"
        self.straight = folder / f"straight-{len(transport)}"
        self.faults = Faults(hosts, self.disk)

    def words(self, run: Path, *more: str) -> list[str]:
        """The command of a run."""
        return ["train", str(self.parts), "--run", str(run), "--resume", *MODEL, *more]

    def run_straight(self) -> None:
        """Make what the others are compared with."""
        words = self.words(self.straight, "--epochs", "60")
        self.hosts.run(words, self.folder / "out", self.transport)

    def break_one(self, name: str) -> Outcome:
        """Start a run, break it, and resume it."""
        run = self.disk / "run"
        shutil.rmtree(run, ignore_errors=True)
        # Longer, so that it does not end before the fault is noticed.
        words = self.words(run, "--epochs", "400" if name == "full disk" else "100000")
        self.hosts.rank_environ = ASKING if FAULTS[name] is Faults.no_memory else {}
        job = self.hosts.start(words, self.folder / "out", self.transport)
        self.hosts.rank_environ = {}
        try:
            wait_for_epoch(run, AT_EPOCH, job)
            ranks = job.pids()
            begin_s = time.monotonic()
            FAULTS[name](self.faults, ranks[VICTIM])
            survivors_s = _seconds_until_gone(begin_s, ranks, name)
            launcher = _launcher(job)
        finally:
            job.end()
            self.faults.mend()
        said = _said(job.out)
        return Outcome(name, survivors_s, launcher, said, self._resumes(run))

    def _resumes(self, run: Path) -> bool:
        """Whether a run goes on and ends like the straight one."""
        kept = max(int(item.name[6:]) for item in (run / "checkpoints").glob("epoch-??????"))
        out, length = self.folder / "out", str(max(60, kept + 1))
        if self.hosts.start(self.words(run, "--epochs", length), out, self.transport).wait():
            return False
        # Where the broken run came further than the straight one, their common epochs count.
        pairs = zip(epochs_of(run), epochs_of(self.straight), strict=False)
        is_same = all(mine["loss"] == other["loss"] for mine, other in pairs)
        if length != "60":
            longer = self.folder / "longer"
            shutil.rmtree(longer, ignore_errors=True)
            self.hosts.run(self.words(longer, "--epochs", length), out, self.transport)
            return is_same and _weights(run) == _weights(longer)
        return is_same and _weights(run) == _weights(self.straight)

    def diverge(self) -> Outcome:
        """Train with steps so long that the weights stop being numbers."""
        run, short = self.disk / "run", self.folder / "short"
        shutil.rmtree(run, ignore_errors=True)
        shutil.rmtree(short, ignore_errors=True)
        wild = ["--optimizer", "sgd", "--lr", "1e3", "--dropout", "0"]
        job = self.hosts.start(
            self.words(run, "--epochs", "100000", *wild), self.folder / "out", self.transport
        )
        job.wait(LIMIT_S)
        survivors_s = time.time() - (run / "metrics.jsonl").stat().st_mtime
        said = _said(job.out)
        kept = max(int(item.name[6:]) for item in (run / "checkpoints").glob("epoch-??????"))
        for folder in (run, short):
            words = self.words(folder, "--epochs", str(kept + 1), *wild)
            self.hosts.run(words, self.folder / "out", self.transport)
        is_same = _weights(run) == _weights(short)
        return Outcome("NaN weights", survivors_s, "", said, is_same)


def _weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def _seconds_until_gone(begin_s: float, ranks: list[int], name: str) -> float:
    """Seconds until the last survivor has ended; infinite if it does not."""
    # A host without network has a survivor, too: its rank.
    is_spared = "link" in name or name == "full disk"
    waited = [pid for rank, pid in enumerate(ranks) if rank != VICTIM or is_spared]
    while any(map(is_there, waited)):
        if time.monotonic() > begin_s + LIMIT_S:
            return float("inf")
        time.sleep(0.01)
    return time.monotonic() - begin_s


def _launcher(job: Job) -> str:
    """How the launcher took it."""
    if job.mpirun is None:
        return "none"
    begin_s = time.monotonic()
    try:
        status = job.mpirun.wait(timeout=LAUNCHER_S)
    except subprocess.TimeoutExpired:
        return f"hangs (killed after {LAUNCHER_S:g} s)"
    return f"{status} after {time.monotonic() - begin_s:.1f} s more"


def _said(out: Path) -> str:
    """The sentence of the job, short, without what changes from run to run."""
    text = out.read_text(errors="replace").splitlines()
    lines = [line for line in text if "distgnn: " in line]
    if not lines:
        words = ("exited on signal", "EXIT STRING", "KILLED BY SIGNAL", "EXIT CODE", "lost")
        of_launcher = [line.strip() for line in text if any(word in line for word in words)]
        found = f"the launcher's: {of_launcher[0]}" if of_launcher else "nothing"
        return re.sub(r"(PID|pid) \d+", r"\1 N", found)
    line = min(lines, key=lambda text: "no rank is known" in text).partition("distgnn: ")[2]
    line = re.sub(r"pid \d+", "pid N", line)
    return re.sub(r"'/[^']*/", "'", line).replace("|", "/")


def lines_of(outcomes: list[Outcome]) -> list[str]:
    """The section of RESULTS.md."""
    header = ["fault", "last survivor ended after (s)", "launcher", "resumed", "message"]
    rows = []
    for one in outcomes:
        bits = "same bits" if one.is_resumed else "NO"
        rows.append([one.fault, f"{one.survivors_s:.1f}", one.launcher, bits, one.said])
    return [
        "Three hosts at 1gbit, `--heartbeat-timeout` as it is (25 s). gloo's ranks have no",
        "launcher: nobody kills them. With a full disk training goes on; what counts is the end of",
        "the run, in order. Weights that are not numbers end the run when the loss shows it, at",
        "the latest at the next checkpoint; it is resumed up to there.",
        "",
        *table(header, rows),
    ]


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("lab-faults"))
    parser.add_argument("--only", default="", help="transports with this word")
    parser.add_argument("--skip", type=int, default=0, help="rows that are there already")
    options = parser.parse_args()
    lab.folder_of_lab()
    folder = jobs.make_folder(options.folder.resolve())
    disk = folder / "disk"
    disk.mkdir()
    lab.cut("synthetic:planted,num_vertices=300", folder / "parts", 3)
    # Before the hosts, which have their own mounts from then on.
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)], check=True
    )
    transports = ["gloo", "mpi (Open MPI)", *(["mpi (MPICH)"] if jobs.mpich() else [])]
    try:
        with Lab(3, "1gbit") as hosts:
            for transport in transports:
                if options.only in transport:
                    run_all(Bench(hosts, folder, transport), options.skip)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def run_all(bench: Bench, skip: int) -> None:
    """Record the rows of one transport, each as soon as it is there."""
    bench.run_straight()
    outcomes = []
    title = f"Faults: {bench.transport}{', continued' if skip else ''}"
    for name in [*FAULTS, "NaN weights"][skip:]:
        outcomes.append(bench.break_one(name) if name in FAULTS else bench.diverge())
        record(title, lines_of(outcomes))


if __name__ == "__main__":
    main()
