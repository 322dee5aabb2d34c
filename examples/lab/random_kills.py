"""Kill ranks of a run at random, resume it, and compare its end with that of a straight run.

    python examples/lab/random_kills.py [--kills 5] [--ranks 2] [--minutes M]
        [--presets A,B|all] [--seed 0] [--record] [FOLDER]

Trains a small model on ranks that are processes. Ends a random one or all of them at a random
moment with SIGKILL or SIGTERM, and starts again with --resume, until that was done so often. A
start must continue from a whole checkpoint or from the first epoch, and may not print a traceback.
A run that reaches its end must have the losses and the weights of the straight one, bit by bit.
With --presets that is done under each of them, with as many kills; else under cd-2.
"""

from __future__ import annotations

import nursery  # isort: skip

import argparse
import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import jobs
from results import record, table

from distgnn.training.config.presets import PRESETS

EPOCHS, EVERY = 120, 5
LENGTH = ["--epochs", str(EPOCHS), "--checkpoint-every", str(EVERY), "--hidden", "8"]
SHARE_OF_ALL = 0.4
LAUNCHER_S = 3.0


class Campaign:
    """Kills, starts and ends so far."""

    def __init__(self, folder: Path, num_ranks: int, seed: int, strategy: list[str]) -> None:
        self.num_ranks = num_ranks
        self.strategy = strategy
        self.dice = random.Random(seed)
        self.parts, self.straight, self.run = (folder / n for n in ("parts", "straight", "run"))
        self.out = folder / "out"
        self.kills: Counter[str] = Counter()
        self.starts: Counter[str] = Counter()
        self.num_ends = 0
        self.num_launched_out = 0
        self.longest_s = 0.0

    def start(self, run: Path) -> list[nursery.Rank]:
        """Start or resume a run."""
        self.out.unlink(missing_ok=True)
        words = ["train", str(self.parts), "--run", str(run), *self.strategy, "--resume"]
        return jobs.start([*words, "--backend", "gloo", *LENGTH], self.num_ranks, self.out)

    def begin(self) -> float:
        """Run straight; how long that took."""
        jobs.cut(self.parts, self.num_ranks)
        begin_s = time.monotonic()
        if any(nursery.statuses(self.start(self.straight), jobs.LIMIT_S)):
            sys.exit(self.out.read_text())
        return time.monotonic() - begin_s

    def once(self, after_s: float) -> None:
        """Start, kill after a while, and wait for the end."""
        ranks = self.start(self.run)
        killed = ""
        deadline_s = time.monotonic() + after_s
        while time.monotonic() < deadline_s and any(map(_is_there, ranks)):
            time.sleep(0.002)
        if all(map(_is_there, ranks)):
            killed = self.kill(ranks)
        begin_s = time.monotonic()
        is_launched_out = self.launch_out(ranks)
        statuses = nursery.statuses(ranks, jobs.LIMIT_S)
        if killed and not is_launched_out:
            self.longest_s = max(self.longest_s, time.monotonic() - begin_s)
        self.judge(killed, statuses)

    def launch_out(self, ranks: list[nursery.Rank]) -> bool:
        """End ranks that wait in start-up for one that has died, as launchers do; whether any."""
        deadline_s = time.monotonic() + LAUNCHER_S
        while time.monotonic() < deadline_s and any(map(_is_there, ranks)):
            time.sleep(0.005)
        left = [rank for rank in ranks if _is_there(rank)]
        if len(left) in (0, len(ranks)) or "resuming" in self.out.read_text():
            return False
        self.num_launched_out += 1
        for rank in left:
            os.kill(rank.pid, signal.SIGKILL)
        return True

    def kill(self, ranks: list[nursery.Rank]) -> str:
        """End one rank or all; what was done."""
        number = self.dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        is_all = self.dice.random() < SHARE_OF_ALL
        for rank in ranks if is_all else [self.dice.choice(ranks)]:
            os.kill(rank.pid, number)
        what = f"{number.name} to {'all ranks' if is_all else 'one rank'}"
        self.kills[what] += 1
        return what

    def judge(self, killed: str, statuses: list[int]) -> None:
        """Look at what the ranks said and left; end the script if something is wrong."""
        said = self.out.read_text() if self.out.exists() else ""
        if "Traceback" in said or "an older checkpoint is used" in said:
            sys.exit(f"after {killed or 'no kill'}: {said}")
        found = re.search(r"resuming from (epoch \d+|the start)", said)
        if found is None:
            self.starts["ended before it said where it goes on"] += 1
        elif found[1] == "the start":
            self.starts["from the start"] += 1
        else:
            epoch = int(found[1].removeprefix("epoch "))
            # One that was asked to stop writes a checkpoint where it is.
            self.starts["from a checkpoint"] += 1
            if not 0 < epoch <= EPOCHS:
                sys.exit(f"no run has a checkpoint of epoch {epoch}")
        if not any(statuses):
            jobs.check_end(self.run, self.straight)
            self.num_ends += 1
            shutil.rmtree(self.run)
        elif not killed:
            sys.exit(f"the run ended with {statuses} though nobody killed it: {said}")

    def make(self, num_kills: int, deadline_s: float) -> None:
        """Kill as often, unless it is late before that, and bring the last run to its end."""
        whole_s = self.begin()
        while (done := sum(self.kills.values())) < num_kills and time.monotonic() < deadline_s:
            self.once(self.dice.uniform(0.0, 1.0) * whole_s)
            if done % 10 == 0:
                print(f"{done} kills, {self.num_ends} ends", flush=True)
        ranks = self.start(self.run)
        self.judge("", nursery.statuses(ranks, jobs.LIMIT_S))

    def row(self, preset: str) -> list[str]:
        """The tally, short."""
        starts = [self.starts[f"from {where}"] for where in ("a checkpoint", "the start")]
        counts = [sum(self.kills.values()), *starts, self.num_ends]
        return [f"`{preset}`", *map(str, counts), f"{self.longest_s:.1f}"]

    def lines(self) -> list[str]:
        """The tally."""
        kinds = ", ".join(f"{count} {what}" for what, count in sorted(self.kills.items()))
        starts = ", ".join(f"{count} {what}" for what, count in sorted(self.starts.items()))
        num_kills, num_starts = sum(self.kills.values()), sum(self.starts.values())
        return [
            f"{num_kills} kills ({kinds})",
            f"of runs of {EPOCHS} epochs on {self.num_ranks} ranks, cd-2, a checkpoint every",
            f"{EVERY} epochs. {num_starts} starts: {starts};",
            "none met a damaged checkpoint, none printed a traceback.",
            f"{self.num_ends} runs reached their end, all with the losses and weights of the",
            "straight run, bit by bit.",
            f"{self.num_launched_out} times a rank died before the run had said where it goes on,",
            f"and others waited for it: they were ended after {LAUNCHER_S:g} s, as launchers do.",
            f"The last of all others ended by itself at most {self.longest_s:.1f} s after a kill.",
        ]


def _is_there(rank: nursery.Rank) -> bool:
    """Whether a rank runs, by the zombie that it is until it is waited for."""
    try:
        state = Path(f"/proc/{rank.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("random-kills"))
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--presets", type=_presets, default=[], help="names, or all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help="write the tally to RESULTS.md")
    options = parser.parse_args()
    jobs.make_folder(options.folder)
    deadline_s = time.monotonic() + 60 * options.minutes
    title = f"Random kills on {options.ranks} ranks"
    if options.presets:
        lines = under_presets(options, deadline_s)
        title += ", under presets"
    else:
        words = ["--algorithm", "cd-2"]
        campaign = Campaign(options.folder, options.ranks, options.seed, words)
        campaign.make(options.kills, deadline_s)
        lines = campaign.lines()
    print("\n".join(lines))
    if options.record:
        record(title, lines)


HEADER = ["preset", "kills", "from a checkpoint", "from the start", "ends", "last end (s)"]


def under_presets(options: argparse.Namespace, deadline_s: float) -> list[str]:
    """Kill under each preset; the lines of a table."""
    rows = []
    for number, preset in enumerate(options.presets):
        folder = options.folder / preset
        folder.mkdir()
        words = ["--preset", preset]
        campaign = Campaign(folder, options.ranks, options.seed + number, words)
        print(preset, flush=True)
        campaign.make(options.kills, deadline_s)
        rows.append(campaign.row(preset))
    return [
        f"Runs of {EPOCHS} epochs on {options.ranks} ranks, a checkpoint every {EVERY} epochs; one",
        "rank or all are killed at a random moment, by SIGKILL or SIGTERM. All starts went on from",
        "a whole checkpoint or from the start, and none printed a traceback. All ends have the",
        "losses and weights of the straight run, bit by bit. Last is when the last rank had ended",
        "by itself after a kill, at most.",
        "",
        *table(HEADER, rows),
    ]


def _presets(text: str) -> list[str]:
    return list(PRESETS) if text == "all" else text.split(",")


if __name__ == "__main__":
    main()
