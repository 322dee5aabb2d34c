"""Strike small jobs with drawn faults, resume each, and count what went wrong.

    python examples/lab/campaign.py [--faults 100] [--minutes M] [--seed 0] [FOLDER]
    python examples/lab/campaign.py --table [--record] FOLDER [FOLDER ...]

Faults are SIGKILL, SIGSTOP, SIGSEGV, SIGTERM and SIGINT to one of two ranks, a full disk (no file
of rank 0 may grow) and refused memory (no more addresses). Where there is a C compiler, the clock
of all ranks jumps, too (`clock.c`). Faults come in start-up, in an epoch, while the run evaluates
or writes a checkpoint, and at its end. Jobs use gloo or MPI, under mpirun, torchrun or no launcher,
and MPICH if DISTGNN_MPIRUN names its mpirun. Each fault is a line of FOLDER/faults.jsonl. The
script continues after the last line; several, with a folder and a seed each, may run side by side.

A job must end within 30 s, without a traceback, and name the rank. Resumed, it must end with the
losses and weights of a run that nothing disturbed, bit by bit. A clock that jumps must end no job.
"""

from __future__ import annotations

import nursery  # isort: skip

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import jobs
from results import origin, record, table

NUM_RANKS, EPOCHS = 2, 120
LIMIT_S, LEFT_S = 600.0, 30.0
LONG = ["--hidden", "8", "--epochs", str(EPOCHS), "--threads", "1", "--resume"]
SHORT = ["--heartbeat-timeout", "10", "--start-timeout", "20"]
# A fault of a moment that is short is drawn where the run is at it nearly all the time.
MOMENTS = {
    "start-up": ["--checkpoint-every", "10", "--eval-every", "10"],
    "epoch": ["--checkpoint-every", "10", "--eval-every", "10"],
    "evaluation": ["--checkpoint-every", "10", "--eval-every", "1"],
    "checkpoint": ["--checkpoint-every", "1", "--eval-every", "10"],
    "end": ["--checkpoint-every", "10", "--eval-every", "10"],
}
SIGNALS = ("SIGKILL", "SIGSTOP", "SIGSEGV", "SIGTERM", "SIGINT")
FAULTS = (*SIGNALS, "full disk", "refused memory", *(["clock jump"] if shutil.which("cc") else []))
JUMPS_S = (-400 * 86_400, -86_400, 86_400, 400 * 86_400)
# Transport and launcher; weights of the draw, as a job without a launcher starts soonest.
WAYS = {("gloo", "none"): 4, ("gloo", "torchrun"): 1, ("gloo", "mpirun"): 1, ("mpi", "mpirun"): 2}
WAYS_OF_MPICH = {("mpi", "MPICH"): 2}
BIN = Path(sys.executable).parent
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
LAUNCHERS = ("OMPI_COMM_", "PMIX_", "PMI_", "SLURM_", "TORCHELASTIC_")
ASKING = {"MALLOC_MMAP_THRESHOLD_": "4096"}


class Job:
    """A job of real processes that this script starts, strikes, and ends.

    Args:
        words: Command line of the ranks.
        launcher: mpirun (of Open MPI), MPICH, torchrun or none.
        out: File that all of them write what they say to.
        environ: Added to the environment of ranks that a launcher starts.
    """

    def __init__(
        self, words: list[str], launcher: str, out: Path, environ: dict[str, str] | None = None
    ) -> None:
        self.out = out
        out.unlink(missing_ok=True)
        out.touch()
        self.mark = uuid.uuid4().hex
        self.ranks: list[nursery.Rank] = []
        self.statuses: dict[int, int] = {}
        self.launcher: subprocess.Popen[bytes] | None = None
        if launcher == "none":
            self.ranks = jobs.start(words, NUM_RANKS, out, ASKING)
            return
        program = [str(BIN / "distgnn"), *words]
        mpirun, size = BIN / "mpirun", ["-n", str(NUM_RANKS)]
        ours = {**ASKING, "OMP_NUM_THREADS": "1", "MARK": self.mark, **(environ or {})}
        if launcher == "MPICH":
            mpich = jobs.mpich()
            assert mpich is not None, "DISTGNN_MPIRUN names the mpirun of MPICH"
            mpirun, ours["MPI4PY_LIBMPI"] = mpich.mpirun, str(mpich.library)
        command = {
            # Else Hydra ends the survivors before they can speak.
            "MPICH": [str(mpirun), "-disable-auto-cleanup", *size],
            "mpirun": [str(mpirun), "--oversubscribe", "--bind-to", "none", *size],
            "torchrun": [str(BIN / "torchrun"), "--no-python", "--nproc-per-node", size[1], "--"],
        }[launcher]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        with out.open("ab") as file:
            self.launcher = subprocess.Popen(
                [*command, *program],
                env={**kept, **allowed, **ours},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def pid(self, rank: int) -> int | None:
        """Process of a rank; None if it is not there."""
        if self.ranks:
            there = self.ranks[rank].pid in self.alive()
            return self.ranks[rank].pid if there else None
        names = {f"{name}={rank}".encode() for name in ("RANK", *RANKS)}
        found = [pid for pid, variables in self._marked() if names & variables]
        return found[0] if found else None

    def _marked(self) -> Iterator[tuple[int, set[bytes]]]:
        """Ranks under a launcher, by the mark in their environment."""
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes()
                if b"distgnn" not in words or b"run\0" in words.split(b"distgnn")[0]:
                    continue
                variables = set((entry / "environ").read_bytes().split(b"\0"))
            except OSError:
                continue
            if f"MARK={self.mark}".encode() in variables:
                yield int(entry.name), variables

    def alive(self) -> list[int]:
        """Ranks that run; the launcher if there are none."""
        if self.launcher is not None:
            found = [pid for pid, _ in self._marked()]
            # Without a rank it has not started them, or is about to end.
            return found or [self.launcher.pid] * (self.launcher.poll() is None)
        for number, rank in enumerate(self.ranks):
            if number not in self.statuses and (ended := os.waitpid(rank.pid, os.WNOHANG))[0]:
                self.statuses[number] = os.waitstatus_to_exitcode(ended[1])
        return [rank.pid for n, rank in enumerate(self.ranks) if n not in self.statuses]

    def wait(self, limit_s: float, but: int | None = None) -> float | None:
        """Wait until all have ended but one; seconds, None if they do not."""
        begin_s = time.monotonic()
        while any(pid != but for pid in self.alive()):
            if time.monotonic() > begin_s + limit_s:
                return None
            time.sleep(0.01)
        return time.monotonic() - begin_s

    def status(self) -> list[int]:
        """Status of the ranks, or of the launcher."""
        if self.launcher is not None:
            return [self.launcher.wait()]
        return [self.statuses[rank] for rank in range(NUM_RANKS)]

    def end(self) -> None:
        """End whatever is left."""
        for pid in self.alive():
            for number in (signal.SIGKILL, signal.SIGCONT):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    break
        self.wait(LIMIT_S)

    def said(self) -> str:
        """Text of the job so far."""
        return self.out.read_text(errors="replace")


def strike(fault: str, pid: int) -> None:
    """Do to a process what a fault does."""
    if fault in SIGNALS:
        os.kill(pid, getattr(signal, fault))
    elif fault == "full disk":
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    else:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        limit = pages * resource.getpagesize()
        resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


class Clock:
    """The clock of ranks that a launcher starts.

    Args:
        folder: Folder for the library and the file that it reads.
    """

    def __init__(self, folder: Path) -> None:
        self._library, self._file = folder / "clock.so", folder / "clock"

    def begin(self) -> dict[str, str]:
        """Let the clock be right; the environment that ranks need, to be told a wrong time."""
        if not self._library.exists():
            source = Path(__file__).parent / "clock.c"
            command = ["cc", "-shared", "-fPIC", "-O2", str(source), "-o", str(self._library)]
            subprocess.run([*command, "-ldl"], check=True)
        self.jump(0)
        return {"LD_PRELOAD": str(self._library), "CLOCK_FILE": str(self._file)}

    def jump(self, shift_s: int) -> None:
        """Shift the clock."""
        with self._file.open("r+b" if self._file.exists() else "w+b") as file:
            file.write(struct.pack("q", shift_s))


class Campaign:
    """Faults of one seed in one folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.ways = WAYS if jobs.mpich() is None else WAYS | WAYS_OF_MPICH
        self.parts, self.lines = folder / "parts", folder / "faults.jsonl"
        self.clock = Clock(folder)
        self.start_s: dict[str, float] = {}

    def words(self, run: Path, moment: str, transport: str, limits: list[str] = SHORT) -> list[str]:
        """Command line of a run."""
        words = ["train", str(self.parts), "--run", str(run), "--backend", transport]
        return [*words, *LONG, *limits, *MOMENTS[moment]]

    def straight(self, moment: str, transport: str, launcher: str) -> Path:
        """Run of these settings that nothing disturbs, made once."""
        kind = "".join(MOMENTS[moment]).replace("--", "-")
        run = self.folder / f"straight-{transport}{kind}"
        if launcher not in self.start_s or not (run / "model.safetensors").exists():
            shutil.rmtree(run, ignore_errors=True)
            begin_s = time.monotonic()
            # Ranks of a busy machine may start far apart, and no fault is waited for.
            words = self.words(run, moment, transport, limits=[])
            job = Job(words, launcher, self.folder / "out")
            self._until(job, (run / "config.json").exists)
            self.start_s[launcher] = time.monotonic() - begin_s
            if job.wait(LIMIT_S) is None:
                job.end()
                sys.exit(
                    f"a run that nothing disturbed was not over after {LIMIT_S:.0f} s; start the "
                    f"script again on a machine that is less busy: {job.said()}"
                )
            if any(job.status()):
                sys.exit(f"a run that nothing disturbed ended with {job.status()}: {job.said()}")
        return run

    def once(self, number: int) -> dict[str, object]:
        """Draw a fault, strike, and resume."""
        dice = random.Random(f"{self.seed} {number}")
        fault, moment = dice.choice(FAULTS), dice.choice(list(MOMENTS))
        ways = self.ways
        if fault == "clock jump":  # which forks of this process could not be told to see
            ways = {way: weight for way, weight in ways.items() if way[1] != "none"}
            # UCX, which MPICH loads, waits by the time of day as it starts, if need be for days.
            moment = "epoch" if moment == "start-up" else moment
        transport, launcher = dice.choices(list(ways), list(ways.values()))[0]
        victim = 0 if fault == "full disk" else dice.randrange(NUM_RANKS)
        straight = self.straight(moment, transport, launcher)
        run = self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        words = self.words(run, moment, transport)
        environ = self.clock.begin() if fault == "clock jump" else {}
        job = Job(words, launcher, self.folder / "out", environ)
        try:
            self.wait_for(job, run, moment, dice, launcher)
            pid = job.pid(victim)
            if fault == "clock jump":
                self.clock.jump(dice.choice(JUMPS_S))
            elif pid is not None:
                strike(fault, pid)
            # A rank that is stopped is its launcher's to kill.
            stopped = pid if fault == "SIGSTOP" else None
            ended_s = job.wait(LEFT_S, stopped)
            left = 0 if ended_s is not None else len(set(job.alive()) - {stopped})
            if ended_s is None and fault not in SIGNALS:
                left = 0 if job.wait(LIMIT_S) is not None else left
        finally:
            job.end()
        said = job.said()
        launchers = rf"process rank {victim} |local_rank: {victim}\b|\brank: {victim} "
        found: dict[str, object] = {
            "number": number,
            "fault": fault,
            "moment": moment,
            "transport": transport,
            "launcher": launcher,
            "victim": victim,
            "is_struck": pid is not None,
            "status": job.status(),
            "ended_s": ended_s,
            "left": left,
            "has_traceback": has_traceback(said),
            "is_named": bool(re.search(rf"distgnn: .*\brank {victim}\b", said)),
            "is_named_by_launcher": bool(re.search(launchers, said)),
        }
        # The launcher makes no difference to the bits, and this one starts soonest.
        launcher = launcher if transport == "mpi" else "none"
        job = Job(self.words(run, moment, transport), launcher, self.folder / "out-again")
        is_over = job.wait(LIMIT_S) is not None
        job.end()
        again = job.said()
        found["resumed"] = job.status()
        is_well = not any(job.status()) and (fault != "clock jump" or found["status"] == [0])
        found["has_same_bits"] = is_over and is_well and same(run, straight)
        found["has_traceback"] = found["has_traceback"] or has_traceback(again)
        if found["has_traceback"] or left or not found["has_same_bits"]:
            found["said"], found["said_again"] = said[-4000:], again[-4000:]
            shutil.rmtree(self.folder / f"wrong-{number}", ignore_errors=True)
            if run.exists():
                shutil.copytree(run, self.folder / f"wrong-{number}")
        return found

    def wait_for(
        self, job: Job, run: Path, moment: str, dice: random.Random, launcher: str
    ) -> None:
        """Wait until the job is at a moment, or over."""
        if moment == "start-up":
            time.sleep(dice.uniform(0.0, self.start_s[launcher]))
            self._until(job, lambda: job.pid(0) is not None and job.pid(1) is not None)
            return
        at = EPOCHS if moment == "end" else dice.randrange(2, EPOCHS - 2)
        self._until(job, lambda: num_lines(run) >= at)
        if moment == "checkpoint":
            self._until(job, lambda: any((run / "checkpoints").glob(".epoch-*.tmp")))
        else:
            time.sleep(dice.uniform(0.0, 0.2 if moment == "end" else 0.02))

    @staticmethod
    def _until(job: Job, is_there: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not is_there() and job.alive() and time.monotonic() < deadline_s:
            time.sleep(0.0005 if job.ranks else 0.005)


def has_traceback(said: str) -> bool:
    """Whether a rank printed one; the launcher's own do not count."""
    own = re.split(r"^.*(?:torch/distributed/elastic|ChildFailedError)", said, flags=re.MULTILINE)
    return 'File "' in said and any(
        "distgnn/" in line for line in own[0].splitlines() if 'File "' in line
    )


def num_lines(run: Path) -> int:
    """Epochs that a run has recorded."""
    try:
        return (run / "metrics.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def same(run: Path, straight: Path) -> bool:
    """Whether two runs have the same losses and weights."""
    models = [(one / "model.safetensors").read_bytes() for one in (run, straight)]
    return jobs.losses(run) == jobs.losses(straight) and models[0] == models[1]


def lines_of(rows: list[dict]) -> list[str]:
    """The section of RESULTS.md."""
    header = ["fault", "faults", "too late", "wrong bits", "tracebacks", "left after 30 s"]
    header += ["named", "only by launcher", "ended after (s), median", "most"]
    kinds = [("fault", name) for name in FAULTS]
    kinds += [("moment", name) for name in MOMENTS]
    for row in rows:
        row["way"] = f"{row['transport']}, {row['launcher']}"
    # Rows with MPICH may have been found elsewhere.
    known = [", ".join(way) for way in WAYS]
    kinds += [("way", name) for name in sorted({*known, *(row["way"] for row in rows)})]
    found = []
    for key, name in [*kinds, ("", "all")]:
        some = [row for row in rows if not key or row[key] == name]
        struck = [row for row in some if row["is_struck"]]
        ends = [row for row in struck if row["fault"] in SIGNALS]
        times = [row["ended_s"] for row in ends if row["ended_s"] is not None]
        named = sum(row["is_named"] for row in ends)
        launched = sum(row["is_named_by_launcher"] and not row["is_named"] for row in ends)
        found.append(
            [
                *(name, str(len(some)), str(len(some) - len(struck))),
                str(sum(not row["has_same_bits"] for row in some)),
                *(
                    str(sum(row["has_traceback"] for row in some)),
                    str(sum(r["left"] for r in some)),
                ),
                *(f"{named} of {len(ends)}", str(launched)),
                f"{statistics.median(times):.1f}" if times else "-",
                f"{max(times):.1f}" if times else "-",
            ]
        )
    return [
        f"{len(rows)} faults of jobs of {EPOCHS} epochs on {NUM_RANKS} ranks, with",
        f"`{' '.join(SHORT)}`. Ranks are named, and times count, where a signal struck.",
        "A stopped rank is its launcher's to kill, and not counted as left: torchrun takes 30 s.",
        "",
        *table(header, found),
    ]


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="*", type=Path, default=[Path("fault-campaign")])
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", action="store_true", help="show what was found so far")
    parser.add_argument("--record", action="store_true", help="write the table to RESULTS.md")
    options = parser.parse_args()
    if options.table:
        texts = [(folder / "faults.jsonl").read_text() for folder in options.folder]
        rows = [json.loads(line) for text in texts for line in text.splitlines()]
        print("\n".join([origin(), "", *lines_of(rows)]))
        if options.record:
            record("Drawn faults", lines_of(rows))
        return
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # In the background of a script: ranks would inherit that, and no SIGINT would be a fault.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    (folder,) = options.folder
    campaign = Campaign(folder.resolve(), options.seed)
    if not campaign.lines.exists():
        jobs.make_folder(folder)
        jobs.cut(campaign.parts, NUM_RANKS)
        campaign.lines.touch()
    deadline_s = time.monotonic() + 60 * options.minutes
    for number in range(len(campaign.lines.read_text().splitlines()), options.faults):
        if time.monotonic() > deadline_s:
            break
        found = campaign.once(number)
        with campaign.lines.open("a") as file:
            file.write(json.dumps(found) + "\n")
    rows = [json.loads(line) for line in campaign.lines.read_text().splitlines()]
    print("\n".join(lines_of(rows)))


if __name__ == "__main__":
    main()
