"""A host of four is lost for good in mid-run: `--restarts` goes on by itself on the three left.

    DISTGNN_LAB=DIR python examples/lab/lost_host.py [--times 1] [--seed 0] [--record] [FOLDER]

A host is lost in two ways: its link is cut, and nothing tells the others, or all its processes are
killed. Time counts from there to the end of the first epoch on three ranks. A copy of the run, made
before that, is resumed by hand without a lab: losses and weights must be the same, bit by bit.
"""

from __future__ import annotations

import nursery  # isort: skip
import lab  # isort: skip

import argparse
import contextlib
import os
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jobs
from lab import BIN, DISTGNN, ENVIRON, Lab, epochs_of
from results import record, table

NUM_HOSTS, EPOCHS = 4, 200
MODEL = ["--hidden", "16", "--epochs", str(EPOCHS), "--checkpoint-every", "10", "--threads", "1"]
LIMIT_S = 300.0
WAYS = ("link cut", "processes killed")
TRANSPORTS = ("gloo", "mpi")


class Loss(NamedTuple):
    """A host that was lost, and what came of it.

    Attributes:
        way: How it was lost.
        transport: How rows travelled.
        host: Its number.
        named_s: Seconds until a rank named the lost one; None if none did.
        again_s: Seconds until the first epoch of three ranks was over.
        epoch: Number of epochs of the checkpoint that they went on from.
        is_same: Whether the run ended with the bits of one resumed by hand on three ranks.
    """

    way: str
    transport: str
    host: int
    named_s: float | None
    again_s: float
    epoch: int
    is_same: bool


class Supervised:
    """A run under `--restarts`, whose supervisor is on the first host."""

    def __init__(self, hosts: Lab, folder: Path, words: list[str]) -> None:
        self.out = folder / "out"
        mpirun = f"{BIN / 'mpirun'} --oversubscribe --bind-to none -x GLOO_SOCKET_IFNAME"
        names = ",".join(f"host{host}" for host in range(NUM_HOSTS))
        words = [*words, "--restarts", "2", "--mpirun", mpirun, "--hosts", names]
        # In the place of netlab's own mpirun: it prepares how mpirun reaches the hosts.
        program = folder / "supervisor"
        program.write_text(f"#!/bin/sh\nexec {shlex.join([sys.executable, DISTGNN, *words])}\n")
        program.chmod(0o755)
        self.process = hosts.launch(["--mpirun", str(program), "--", "-"], self.out)

    def said(self) -> str:
        """Text of the job so far."""
        return self.out.read_text(errors="replace")

    def check(self) -> None:
        """End the script if the job has ended."""
        if self.process.poll() is not None:
            sys.exit(f"the job ended with {self.process.returncode}: {self.said()}")

    def until(self, pattern: str) -> float:
        """Wait until the job has said something, and return the time."""
        deadline_s = time.monotonic() + LIMIT_S
        while not re.search(pattern, self.said()):
            self.check()
            if time.monotonic() > deadline_s:
                sys.exit(f"the job never said {pattern!r}: {self.said()}")
            time.sleep(0.02)
        return time.monotonic()

    def end(self) -> None:
        """Kill what is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def lose(hosts: Lab, folder: Path, way: str, transport: str, dice: random.Random) -> Loss:
    """Lose a host in the middle of a run, and see what becomes of it."""
    run, copy = folder / "run", folder / "copy"
    for old in (run, copy, folder / "parts.merged-3"):
        shutil.rmtree(old, ignore_errors=True)
    words = ["train", str(folder / "parts"), *MODEL, "--backend", transport]
    host, epoch = dice.randrange(1, NUM_HOSTS), dice.randrange(30, EPOCHS // 2)
    job = Supervised(hosts, folder, [*words, "--run", str(run)])
    try:
        while len(epochs_of(run)) <= epoch:
            job.check()
            time.sleep(0.02)
        begin_s = time.monotonic()
        hosts.do("fault", f"host{host}", "drop") if way == WAYS[0] else hosts.crash(host)
        named = rf"distgnn: .*\brank {host} \(host{host}\b"
        named_s = job.until(rf"{named}|restart 1 of") - begin_s
        is_named = re.search(named, job.said()) is not None
        job.until("restart 1 of 2, on 3 ranks")
        # Nobody writes now: the ranks that go on still load their modules.
        shutil.copytree(run, copy)
        kept = max(int(item.name[6:]) for item in (copy / "checkpoints").glob("epoch-??????"))
        while not is_beyond(run, copy, kept):
            job.check()
            time.sleep(0.02)
        again_s = time.monotonic() - begin_s
        if status := job.process.wait(LIMIT_S):
            sys.exit(f"the job ended with {status}: {job.said()}")
    finally:
        job.end()
    resume_by_hand([*words, "--run", str(copy), "--resume", "--merge-parts"], transport, folder)
    models = [(one / "model.safetensors").read_bytes() for one in (run, copy)]
    is_same = jobs.losses(run) == jobs.losses(copy) and models[0] == models[1]
    return Loss(way, transport, host, named_s if is_named else None, again_s, kept, is_same)


def is_beyond(run: Path, copy: Path, epoch: int) -> bool:
    """Whether a resumed run has written an epoch after those of its checkpoint."""
    metrics = [(one / "metrics.jsonl").stat().st_mtime_ns for one in (run, copy)]
    return metrics[0] != metrics[1] and len(epochs_of(run)) > epoch


def resume_by_hand(words: list[str], transport: str, folder: Path) -> None:
    """Resume a run on three ranks of this machine, with parts that are merged anew."""
    out = folder / "out-by-hand"
    shutil.rmtree(folder / "parts.merged-3")
    if transport == "gloo":
        status = max(map(abs, nursery.statuses(jobs.start(words, NUM_HOSTS - 1, out), LIMIT_S)))
    else:
        command = [str(BIN / "mpirun"), "--oversubscribe", "--bind-to", "none", "-n", "3"]
        with out.open("ab") as file:
            status = subprocess.run(
                [*command, DISTGNN, *words],
                env={**os.environ, **ENVIRON},
                stdout=file,
                stderr=file,
                timeout=LIMIT_S,
                check=False,
            ).returncode
    if status:
        sys.exit(f"the run that was resumed by hand ended with {status}: {out.read_text()}")


def lines_of(losses: list[Loss]) -> list[str]:
    """The section of RESULTS.md."""
    header = ["host lost", "transport", "times", "named", "named after (s), median", "most"]
    header += ["next epoch after (s), median", "most", "ended like a resume by hand"]
    rows = []
    for way in WAYS:
        for transport in TRANSPORTS:
            some = [one for one in losses if (one.way, one.transport) == (way, transport)]
            if not some:
                continue
            named = [one.named_s for one in some if one.named_s is not None]
            again = [one.again_s for one in some]
            row = [way, transport, str(len(some)), str(len(named))]
            for times in (named, again):
                row += (
                    [f"{statistics.median(times):.1f}", f"{max(times):.1f}"] if times else ["-"] * 2
                )
            rows.append([*row, str(sum(one.is_same for one in some))])
    return [
        f"Four hosts at 1gbit with a rank each, `{' '.join(MODEL)}`; `--restarts 2` runs on",
        "the first. Another, drawn, is lost after an epoch that is drawn. Time counts from there",
        "to the end of the first epoch on three ranks. The last column counts the runs whose",
        "copy, resumed by hand on three ranks, had the same losses and weights, bit by bit.",
        "",
        *table(header, rows),
    ]


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("lab-lost-host"))
    parser.add_argument("--times", type=int, default=1, help="of each way and transport")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help="write the table to RESULTS.md")
    options = parser.parse_args()
    lab.folder_of_lab()
    folder = jobs.make_folder(options.folder.resolve())
    lab.cut("synthetic:planted,num_vertices=300", folder / "parts", NUM_HOSTS)
    dice, found = random.Random(options.seed), []
    for _ in range(options.times):
        for way in WAYS:
            for transport in TRANSPORTS:
                with Lab(NUM_HOSTS, "1gbit") as hosts:
                    found.append(lose(hosts, folder, way, transport, dice))
                print(found[-1], flush=True)
    print("\n".join(lines_of(found)))
    if options.record:
        record("A host of four is lost", lines_of(found))


if __name__ == "__main__":
    main()
