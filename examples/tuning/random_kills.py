"""Kill a study, its trials or their ranks at random, and compare what comes out of it.

    python examples/tuning/random_kills.py [FOLDER] [--source cora] [--kills 100] [--seed 0]
        [--kinds study,left,trial,rank] [--minutes 5]

A small study of the grid by halving is run straight. Then it is started with --resume again and
again, and SIGKILL ends one process at a random moment:

    study   the study, whose trials take turns in it
    left    the study, whose trials are processes of their own, which it leaves behind
    trial   one of these processes
    rank    a rank of a trial of two ranks, or the mpirun that started them

Each study that reaches its end must have the best recipe, trials and losses of the straight one.

The script continues where it was stopped: FOLDER/kills.jsonl has a line for each kill and each end.
With --minutes it stops by itself, and a table says what was killed so far.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import NoReturn

SEARCH = ["--search", "lr=choice(0.3,0.03)", "--search", "hidden=choice(4,8)"]
SHARED = ["--sampler", "grid", "--scheduler", "halving", "--grace", "4", "--factor", "2"]
SHARED += ["--model", "gcn", "--epochs", "16", "--checkpoint-every", "2", "--threads", "1"]
KINDS = {
    "study": [],
    "left": ["--jobs", "2", "--ranks", "1"],
    "trial": ["--jobs", "2", "--ranks", "1"],
    "rank": ["--jobs", "1", "--ranks", "2"],
}
STUDIES = ("study", "left")
LIMIT_S = 3600.0
LOG = "kills.jsonl"
SUMMARY = "summary.json"
FILES = ("best.json", SUMMARY)
TIMES = ("seconds", "command")


class Campaign:
    """Kills and ends of one kind of study.

    Args:
        kind: Kind of the process that is killed, a key of KINDS.
        source: Graph; ranks need a partition directory.
        folder: Folder of the studies.
        seed: Seed of the moments and of the choice of processes.
        until_s: Time at which to stop, on the clock of `time.monotonic`.
    """

    def __init__(self, kind: str, source: str, folder: Path, seed: int, until_s: float) -> None:
        self.kind, self.folder, self.until_s = kind, folder, until_s
        self.words = [sys.executable, "-m", "distgnn", "tune", source, *SEARCH, *SHARED]
        self.words += [*KINDS[kind], "--quiet"]
        self.counts = counts_of(folder, kind)
        # Other moments than those before the script was stopped.
        self.dice = random.Random(f"{seed} {kind} {sorted(self.counts.items())}")
        self.patience = 1.0

    def start(self, study: Path) -> subprocess.Popen[bytes]:
        """Start or continue a study."""
        words = [*self.words, "--run", str(study), "--resume"]
        with (self.folder / f"{self.kind}.log").open("ab") as log:
            return subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)

    def straight(self) -> None:
        """Run the study that nobody kills, unless it has ended or the time is up."""
        study = self.folder / f"{self.kind}-straight"
        if self.is_late or (study / SUMMARY).exists():
            return
        begun, is_new = time.monotonic(), not study.exists()
        process = self.start(study)
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(LIMIT_S, self.until_s - begun))
        if process.poll() is None and self.is_late:
            process.terminate()
            self.end_of(process)
            return
        code = self.end_of(process)
        if code != 0:
            self.fail(f"the straight study ended with status {code}")
        # What was left of a study that was stopped says nothing about a whole one.
        if is_new:
            self.took(time.monotonic() - begun)

    @property
    def whole_s(self) -> float:
        """Shortest time of a study that nobody killed: the machine may be busy at times.

        Of a straight study that was stopped and continued it is the time of its trials.
        """
        file = self.folder / f"{self.kind}-straight.json"
        if file.exists():
            return float(json.loads(file.read_text()))
        summary = json.loads((self.folder / f"{self.kind}-straight" / SUMMARY).read_text())
        return float(summary["seconds"])

    def took(self, seconds: float) -> None:
        """Write down the time of a study that nobody killed."""
        file = self.folder / f"{self.kind}-straight.json"
        file.write_text(json.dumps(min(seconds, self.whole_s) if file.exists() else seconds))

    def once(self, most: int) -> None:
        """Start the study, kill until it ends or enough was killed, and look at what is left.

        Args:
            most: Number of kills of this campaign, at most.
        """
        # A study that continues is killed more than once.
        within_s = self.whole_s / (1 if self.kind == "study" else 3)
        begun, kills = time.monotonic(), self.counts["kill"]
        is_new = not (self.folder / f"{self.kind}-killed").exists()
        study = self.folder / f"{self.kind}-killed"
        process, before = self.start(study), lines_of(study)
        while self.counts["kill"] < most and process.poll() is None:
            moment_s = self.dice.uniform(0.0, 1.0) * within_s * self.patience
            with suppress(subprocess.TimeoutExpired):
                process.wait(min(moment_s, max(0.0, self.until_s - time.monotonic())))
                break
            if self.is_late:
                process.terminate()
                break
            victim, what = process.pid, "study"
            if self.kind not in STUDIES:
                victim, what = self.victim(study)
            # It may end by itself just before.
            with suppress(ProcessLookupError):
                if victim > 0:
                    os.kill(victim, signal.SIGKILL)
                    self.count("kill", what)
            # On a machine that became busy, all kills would hit processes that only begin.
            after = lines_of(study)
            self.patience = 1.0 if after > before else 1.5 * self.patience
            before = after
            if victim == process.pid:
                break
        code = self.end_of(process)
        if code == 0:
            self.check(study)
            shutil.rmtree(study)
            if is_new and kills == self.counts["kill"]:
                self.took(time.monotonic() - begun)
            self.count("end", "study")
        elif code != -signal.SIGKILL and not self.is_late:
            self.fail(f"the study ended with status {code}")

    def has_ended(self, most: int) -> bool:
        """Whether all kills are done, and the study that was killed last has ended."""
        is_left = (self.folder / f"{self.kind}-killed").exists()
        return self.counts["kill"] >= most and not is_left

    @property
    def is_late(self) -> bool:
        """Whether the script was asked to stop by now."""
        return time.monotonic() >= self.until_s

    def end_of(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for a study to end; return its status."""
        try:
            return process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            self.fail(f"a study has not ended in {LIMIT_S:.0f} s")

    def count(self, event: str, what: str) -> None:
        """Count a kill or an end, and write it down: a campaign may be stopped at any time."""
        self.counts[event] += 1
        with (self.folder / LOG).open("a") as log:
            log.write(json.dumps({"kind": self.kind, "event": event, "what": what}) + "\n")
        found = f"{self.counts['kill']} kills, {self.counts['end']} studies ended"
        print(f"{self.kind}: {found}", flush=True)

    def victim(self, study: Path) -> tuple[int, str]:
        """Choose a process of a trial; return its number and kind, or 0 if there is none."""
        word = f"--run={study.resolve()}/trial-".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            # It may end while it is looked at.
            with suppress(OSError):
                words = (process / "cmdline").read_bytes()
                if word in words:
                    is_launcher = b"mpirun" in words or b"prterun" in words
                    what = "mpirun" if is_launcher else self.kind
                    found.append((int(process.name), what))
        return self.dice.choice(sorted(found)) if found else (0, "")

    def check(self, study: Path) -> None:
        """Compare a study that has ended with the straight one."""
        straight = self.folder / f"{self.kind}-straight"
        for name in FILES:
            one, other = (
                without_times(json.loads((s / name).read_text())) for s in (study, straight)
            )
            if one != other:
                self.fail(f"{name} differs: {one} instead of {other}")
        for file in straight.glob("trial-*/metrics.jsonl"):
            curves = [losses(folder / file.parent.name) for folder in (study, straight)]
            if curves[0] != curves[1]:
                self.fail(f"{file.parent.name} has other losses")
        if "Traceback" in (self.folder / f"{self.kind}.log").read_text():
            self.fail("there is a traceback")

    def fail(self, why: str) -> NoReturn:
        """End the script."""
        sys.exit(f"{self.kind}: {why}; see {self.folder / self.kind}.log")


def lines_of(study: Path) -> int:
    """Count the lines of a study's log."""
    log = study / "study.jsonl"
    return len(log.read_bytes().splitlines()) if log.exists() else 0


def counts_of(folder: Path, kind: str) -> Counter[str]:
    """Count the kills and the ends of a kind so far."""
    log = folder / LOG
    lines = log.read_text().splitlines() if log.exists() else []
    events = [json.loads(line) for line in lines]
    return Counter(event["event"] for event in events if event["kind"] == kind)


def losses(run: Path) -> list[float]:
    """Read the losses of a run."""
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def without_times(value: object) -> object:
    """Leave out what the machine decides, at any depth."""
    if isinstance(value, dict):
        kept = {name: each for name, each in value.items() if name not in TIMES}
        return {name: without_times(each) for name, each in kept.items()}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def show(folder: Path) -> None:
    """Print a table of what was killed, and of the studies that ended as the straight one."""
    events = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    killed = Counter((e["kind"], e["what"]) for e in events if e["event"] == "kill")
    print("| kind | killed | kills | studies that ended as the straight one |\n|---|---|---|---|")
    for (kind, what), kills in killed.items():
        print(f"| {kind} | {what} | {kills} | {counts_of(folder, kind)['end']} |")


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("study-kills"))
    parser.add_argument("--source", default="cora")
    parser.add_argument("--kills", type=int, default=100, help="of all kinds together")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=inf, help="stop after so many")
    options = parser.parse_args()
    until_s = time.monotonic() + 60 * options.minutes
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / LOG).touch()
    kinds = options.kinds.split(",")
    for number, kind in enumerate(kinds):
        source = options.source
        if kind == "rank":
            source = str(options.folder / "parts")
            words = ["partition", options.source, "--parts", "2", "--out", source, "--overwrite"]
            # One that was killed has no manifest yet.
            if not (Path(source) / "manifest.json").exists():
                subprocess.run([sys.executable, "-m", "distgnn", *words], check=True)
        campaign = Campaign(kind, source, options.folder, options.seed, until_s)
        campaign.straight()
        share = (options.kills + number) // len(kinds)
        while not campaign.is_late and not campaign.has_ended(share):
            campaign.once(share)
    show(options.folder)


if __name__ == "__main__":
    main()
