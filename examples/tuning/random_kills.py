"""Kill a study, its trials or their ranks at random, and compare what comes out of it.

    python examples/tuning/random_kills.py [FOLDER] [--source cora] [--kills 9] [--seed 0]
        [--kinds study,left,trial,rank]

A small study of the grid by halving is run straight. Then it is started with --resume again and
again, and SIGKILL ends one process at a random moment:

    study   the study, whose trials take turns in it
    left    the study, whose trials are processes of their own, which it leaves behind
    trial   one of these processes
    rank    a rank of a trial of two ranks, or the mpirun that started them

Each study that reaches its end must have the best recipe, trials and losses of the straight one.
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
from pathlib import Path
from typing import NoReturn

SEARCH = ["--search", "lr=choice(0.3,0.03,0.003)", "--search", "hidden=choice(4,8)"]
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
FILES = ("best.json", "summary.json")
TIMES = ("seconds", "command")


class Campaign:
    """Kills and ends of one kind of study.

    Args:
        kind: Kind of the process that is killed, a key of KINDS.
        source: Graph; ranks need a partition directory.
        folder: Folder of the studies.
        dice: Draws moments and processes.
    """

    def __init__(self, kind: str, source: str, folder: Path, dice: random.Random) -> None:
        self.kind, self.folder, self.dice = kind, folder, dice
        self.words = [sys.executable, "-m", "distgnn", "tune", source, *SEARCH, *SHARED]
        self.words += [*KINDS[kind], "--quiet"]
        self.counts: Counter[str] = Counter()
        self.patience = 1.0

    def start(self, study: Path) -> subprocess.Popen[bytes]:
        """Start or continue a study."""
        words = [*self.words, "--run", str(study), "--resume"]
        with (self.folder / f"{self.kind}.log").open("ab") as log:
            return subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)

    def straight(self) -> float:
        """Run the study that nobody kills; return its seconds."""
        begun = time.monotonic()
        code = self.end_of(self.start(self.folder / f"{self.kind}-straight"))
        if code != 0:
            self.fail(f"the straight study ended with status {code}")
        return time.monotonic() - begun

    def once(self, most: int, within_s: float) -> None:
        """Start the study, kill until it ends or enough was killed, and look at what is left.

        Args:
            most: Number of kills of this campaign, at most.
            within_s: Time between two kills, at most.
        """
        study = self.folder / f"{self.kind}-killed"
        process, before = self.start(study), lines_of(study)
        while self.counts["kills"] < most and process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(self.dice.uniform(0.0, 1.0) * within_s * self.patience)
                break
            victim = process.pid if self.kind in STUDIES else self.victim(study)
            # It may end by itself just before.
            with suppress(ProcessLookupError):
                if victim is not None:
                    os.kill(victim, signal.SIGKILL)
                    self.count("kills")
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
            self.count("ends")
        elif code != -signal.SIGKILL:
            self.fail(f"the study ended with status {code}")

    def end_of(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for a study to end; return its status."""
        try:
            return process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            self.fail(f"a study has not ended in {LIMIT_S:.0f} s")

    def count(self, what: str) -> None:
        """Count a kill or an end, and say so: a campaign may be stopped at any time."""
        self.counts[what] += 1
        found = f"{self.counts['kills']} kills, {self.counts['ends']} studies ended"
        print(f"{self.kind}: {found}", flush=True)

    def victim(self, study: Path) -> int | None:
        """Choose a process of a trial: a trial, a rank or a launcher."""
        word = f"--run={study.resolve()}/trial-".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            # It may end while it is looked at.
            with suppress(OSError):
                if word in (process / "cmdline").read_bytes():
                    found.append(int(process.name))
        return self.dice.choice(sorted(found)) if found else None

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


def losses(run: Path) -> list[float]:
    """Read the losses of a run."""
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def without_times(value: object) -> object:
    """Leave out what the machine decides, at any depth."""
    if isinstance(value, dict):
        kept = {name: each for name, each in value.items() if name not in TIMES}
        return {name: without_times(each) for name, each in kept.items()}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("study-kills"))
    parser.add_argument("--source", default="cora")
    parser.add_argument("--kills", type=int, default=9, help="of all kinds together")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    dice = random.Random(options.seed)
    kinds = options.kinds.split(",")
    for number, kind in enumerate(kinds):
        source = options.source
        if kind == "rank":
            source = str(options.folder / "parts")
            words = ["partition", options.source, "--parts", "2", "--out", source]
            subprocess.run([sys.executable, "-m", "distgnn", *words], check=True)
        campaign = Campaign(kind, source, options.folder, dice)
        whole_s = campaign.straight()
        share = (options.kills + number) // len(kinds)
        # A study that goes on is killed more than once.
        within_s = whole_s if kind in STUDIES else whole_s / 2
        while campaign.counts["kills"] < share:
            campaign.once(share, within_s)
        campaign.once(share, within_s)


if __name__ == "__main__":
    main()
