"""The lab for these scripts: hosts of their own network on one machine, and how ranks run there."""

from __future__ import annotations

import nursery  # isort: skip

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jobs

BIN = Path(sys.executable).parent
DISTGNN = str(BIN / "distgnn")
ENVIRON = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
}
PORT = "29500"


def folder_of_lab() -> Path:
    """The folder with netlab.py; ends the script with one sentence where there is no lab."""
    folder = os.environ.get("DISTGNN_LAB")
    if folder is None or not (Path(folder) / "netlab.py").exists():
        print("skipped: DISTGNN_LAB does not name a folder with netlab.py")
        sys.exit(0)
    if os.geteuid() != 0:
        print("skipped: only root may make network namespaces")
        sys.exit(0)
    return Path(folder)


class Counters(NamedTuple):
    """Bytes and packets that a host's interface has sent since it was made."""

    num_bytes: int
    num_packets: int


class Job:
    """Ranks under way: forks of this process, which nobody watches, or those of an mpirun."""

    def __init__(
        self, lab: Lab, out: Path, forks: list[nursery.Rank], mpirun: subprocess.Popen[bytes] | None
    ) -> None:
        self._lab = lab
        self.out = out
        self._forks = forks
        self.mpirun = mpirun

    def pids(self) -> list[int]:
        """Numbers of the processes of the ranks that have not ended, by host."""
        if self.mpirun is None:
            return [rank.pid for rank in self._forks if is_there(rank.pid)]
        return [pid for host in range(self._lab.num_hosts) for pid in self._lab.ranks(host)]

    def is_over(self) -> bool:
        """Whether no rank is left."""
        return not self.pids() if self.mpirun is None else self.mpirun.poll() is not None

    def wait(self, limit_s: float = 900) -> int:
        """Wait for the end; a status that is not 0 if there is one."""
        if self.mpirun is None:
            return next((s for s in nursery.statuses(self._forks, limit_s) if s), 0)
        try:
            return self.mpirun.wait(timeout=limit_s)
        finally:
            self.end()

    def end(self) -> None:
        """Kill what is left."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.mpirun is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.mpirun.pid, signal.SIGKILL)
            self.mpirun.wait()
        else:
            with contextlib.suppress(ChildProcessError):
                nursery.statuses(self._forks, 10)


class Lab:
    """Hosts with one rank each; gone when the block ends.

    Args:
        num_hosts: How many.
        rate: Rate of their links, such as 1gbit. 20mbit/50ms are links on which each packet is
            under way for 50 ms, too.
        is_bound: Whether gloo's ranks keep to a core, several to each where there are fewer, and
            to real-time priority. The threads of a rank then take turns when they wait, and not
            while one holds what the other spins for.
        is_steady: Whether links let through at once no more than they carry in 50 us, or 16 kB.
            By default it is what they carry in 2 ms, which hides shorter messages.

    Attributes:
        rank_environ: Added to the environment of ranks that are started.
    """

    def __init__(
        self, num_hosts: int, rate: str, *, is_bound: bool = False, is_steady: bool = False
    ) -> None:
        self.num_hosts = num_hosts
        self._is_bound = is_bound
        self._is_steady = is_steady
        self.rank_environ: dict[str, str] = {}
        self._rate, _, delay = rate.partition("/")
        self._delay = ["--delay-ms", delay.removesuffix("ms")] if delay else []
        number = os.getpid() % 50_000
        self.name = f"d{number}"
        self._net = f"10.{80 + number // 250 % 100}.{number % 250}"
        self._folder = Path("/tmp") / f"netlab-{self.name}"
        self._netlab = [sys.executable, str(folder_of_lab() / "netlab.py")]
        self._environ = {
            **os.environ,
            **ENVIRON,
            "NETLAB_NAME": self.name,
            "NETLAB_DIR": str(self._folder),
            "NETLAB_NET": self._net,
        }

    def __enter__(self) -> Lab:
        # So that the block ends in order: the hosts would outlive this process.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
        links = ["--rate", self._rate, *self._delay]
        print(self.do("up", "-n", str(self.num_hosts), *links), end="", flush=True)
        if self._is_steady:
            for host in range(self.num_hosts):
                self._steady(f"{self.name}v{host}", [])
                self._steady("eth0", ["-n", f"{self.name}n{host}"])
        return self

    def _steady(self, device: str, where: list[str]) -> None:
        """Give a device of `netlab.py up` a smaller bucket, and packets that fit into it."""
        number, unit = self._rate[:-4], self._rate[-4]
        per_s = float(number) * {"m": 1e6, "g": 1e9}[unit] / 8
        burst = int(max(16_000, per_s * 50e-6))
        rate = ["rate", self._rate, "burst", str(burst), "limit", str(int(per_s * 0.05) + 300_000)]
        packets = ["gso_max_size", str(min(burst, 65_536))]
        subprocess.run(["ip", *where, "link", "set", device, *packets], check=True)
        change = ["qdisc", "replace", "dev", device, "root", "tbf"]
        subprocess.run(["tc", *where, *change, *rate], check=True)

    def __exit__(self, *_: object) -> None:
        self.do("down")

    def do(self, *words: str) -> str:
        """Run a verb of netlab.py; what it printed."""
        done = subprocess.run(
            [*self._netlab, *words],
            env=self._environ,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout

    def start(self, words: list[str], out: Path, transport: str = "gloo") -> Job:
        """Start `distgnn` with these words on all hosts, one rank each; it speaks to a file."""
        out.unlink(missing_ok=True)
        if transport != "gloo":
            return Job(self, out, [], self._mpirun([*words, "--backend", "mpi"], out, transport))
        size = str(self.num_hosts)
        job = {**ENVIRON, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}
        job |= {"MASTER_ADDR": f"{self._net}.1", "MASTER_PORT": PORT, "TMPDIR": "/dev/shm"}
        job |= self.rank_environ
        words = [*words, "--backend", "gloo"]
        forks = [
            nursery.start(words, {**job, "RANK": str(host)}, out, self._first_process(host))
            for host in range(self.num_hosts)
        ]
        if self._is_bound:
            for rank, core in zip(forks, itertools.cycle(sorted(os.sched_getaffinity(0)))):
                os.sched_setaffinity(rank.pid, {core})
                os.sched_setscheduler(rank.pid, os.SCHED_RR, os.sched_param(1))
        return Job(self, out, forks, None)

    def _first_process(self, host: int) -> int:
        return int((self._folder / f"pid{host}").read_text())

    def _mpirun(self, words: list[str], out: Path, transport: str) -> subprocess.Popen[bytes]:
        environ, count = {**self._environ, **self.rank_environ}, ["-n", str(self.num_hosts), "--"]
        if transport == "mpi (Open MPI)":
            passed = [f"--extra=-x {name}" for name in self.rank_environ]
            line = ["--mpirun", str(BIN / "mpirun"), *passed, *count]
        else:
            mpich = jobs.mpich()
            assert mpich is not None, "DISTGNN_MPIRUN names the mpirun of MPICH"
            environ["MPI4PY_LIBMPI"] = str(mpich.library)
            # Else Hydra ends the survivors before they can speak.
            quiet = "--extra=-disable-auto-cleanup"
            line = ["--mpi", "hydra", "--mpirun", str(mpich.mpirun), quiet, *count]
        return self.launch([*line, sys.executable, DISTGNN, *words], out, environ)

    def launch(
        self, words: list[str], out: Path, environ: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start `netlab.py mpirun`, in a session of its own.

        Args:
            words: Options of that, and the command.
            out: File for what it says.
            environ: Its environment; None for that of the lab.
        """
        with out.open("wb") as file:
            return subprocess.Popen(
                [*self._netlab, "mpirun", *words],
                env=environ or self._environ,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def run(self, words: list[str], out: Path, transport: str = "gloo") -> None:
        """Run `distgnn` on all hosts until it ends well."""
        if status := self.start(words, out, transport).wait():
            sys.exit(f"distgnn {' '.join(words)}: status {status}\n{out.read_text()}")

    def ranks(self, host: int) -> list[int]:
        """Numbers of the processes of launched ranks on a host that run or are stopped."""
        words = ["ip", "netns", "pids", f"{self.name}n{host}"]
        listed = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        return [pid for pid in map(int, listed.split()) if _is_rank(pid)]

    def crash(self, host: int) -> None:
        """Kill all processes of a host, for good."""
        os.kill(self._first_process(host), signal.SIGKILL)

    def counters(self) -> list[Counters]:
        """Count what each host's interface has sent."""
        found = []
        for host in range(self.num_hosts):
            table = self.do("exec", f"host{host}", "cat", "/proc/net/dev")
            line = next(line for line in table.splitlines() if line.strip().startswith("eth0:"))
            fields = line.partition(":")[2].split()
            found.append(Counters(int(fields[8]), int(fields[9])))
        return found


def is_there(pid: int) -> bool:
    """Whether a process runs or is stopped; it has ended if only its parent has not asked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _is_rank(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return is_there(pid) and words[0].decode() == sys.executable and DISTGNN.encode() in words[:2]


def epochs_of(run: Path) -> list[dict[str, float]]:
    """The whole lines of a run's metrics."""
    try:
        lines = (run / "metrics.jsonl").read_text().split("\n")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines[:-1]]


def wait_for_epoch(run: Path, epoch: int, job: Job) -> None:
    """Return once a run has written an epoch's line; end the script if it ends before."""
    while len(epochs_of(run)) <= epoch:
        if job.is_over():
            sys.exit(f"the run ended before epoch {epoch}: {job.out.read_text()}")
        time.sleep(0.02)


def cut(source: str, parts: Path, num_parts: int) -> None:
    """Cut a graph at random, unless that was done before."""
    if not (parts / "manifest.json").exists():
        jobs.cut(parts, num_parts, source)
