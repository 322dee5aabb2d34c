"""Cut the link between two drawn hosts of small jobs, resume each, and count what went wrong.

    DISTGNN_LAB=DIR [DISTGNN_MPIRUN=MPIRUN_OF_MPICH] \\
        python examples/lab/cut_links.py [--faults 20] [--seed 0] [--record] [FOLDER]
    python examples/lab/cut_links.py --table [--record] FOLDER [FOLDER ...]

Each job has a rank on each of four hosts. Two of these, drawn, can no longer reach each other, in
one direction or in both, while all others still can. It comes in start-up, in an epoch, while the
run evaluates or writes a checkpoint, or at its end. Each cut is a line of FOLDER/cuts.jsonl, and
the script continues after the last one.

All ranks must end within 30 s without a traceback, and one of the two must be named. Mended and
resumed, the run must end with the losses and weights of one that nothing disturbed, bit by bit.
"""

from __future__ import annotations

import nursery  # isort: skip  # noqa: F401

import argparse
import itertools
import json
import random
import re
import shutil
import statistics
import sys
import time
from pathlib import Path

import jobs
import lab
from campaign import EPOCHS, LEFT_S, LONG, MOMENTS, SHORT, has_traceback, num_lines, same
from lab import Job, Lab
from results import origin, record, table

NUM_HOSTS, LIMIT_S, START_S = 4, 300.0, 1.0
WAYS = ("one direction", "both directions")


class Cuts:
    """Cuts of one seed in one folder.

    Args:
        hosts: Hosts of the jobs.
        folder: Folder of partition, runs and lines.
        seed: Seed that the cuts are drawn from.
    """

    def __init__(self, hosts: Lab, folder: Path, seed: int) -> None:
        self.hosts, self.folder, self.seed = hosts, folder, seed
        self.out = folder / "out"
        self.transports = ["gloo", "mpi (Open MPI)", *(["mpi (MPICH)"] if jobs.mpich() else [])]

    def words(self, run: Path, moment: str, limits: list[str]) -> list[str]:
        """Command line of a run."""
        words = ["train", str(self.folder / "parts"), "--run", str(run)]
        return [*words, *LONG, *limits, *MOMENTS[moment]]

    def straight(self, moment: str, transport: str) -> Path:
        """Run of these settings that nothing disturbs, made once."""
        kind = re.sub("[^a-z0-9-]", "", "".join(MOMENTS[moment]).replace("--", "-"))
        run = self.folder / f"straight-{self.transports.index(transport)}{kind}"
        if not (run / "model.safetensors").exists():
            shutil.rmtree(run, ignore_errors=True)
            self.hosts.run(self.words(run, moment, []), self.out, transport)
        return run

    def once(self, number: int) -> dict[str, object]:
        """Draw a cut, make it, mend it, and resume."""
        dice = random.Random(f"{self.seed} {number}")
        one, other = dice.sample(range(NUM_HOSTS), 2)
        way, moment = dice.choice(WAYS), dice.choice(list(MOMENTS))
        transport = dice.choice(self.transports)
        straight, run = self.straight(moment, transport), self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        job = self.hosts.start(self.words(run, moment, SHORT), self.out, transport)
        pairs = [(one, other), (other, one)][: 1 + WAYS.index(way)]
        try:
            self.wait_for(job, run, moment, dice)
            ranks = job.pids()
            begin_s = time.monotonic()
            for a, b in pairs:
                self.hosts.do("fault", f"host{a}", "block", f"host{b}")
            # A launcher may have started no rank yet, or wait for ever once all have ended.
            has_ranks = bool(ranks)
            while (ranks := job.pids()) or not (has_ranks or job.is_over()):
                has_ranks |= bool(ranks)
                if time.monotonic() > begin_s + LEFT_S:
                    break
                time.sleep(0.05)
            is_ended = not ranks and (has_ranks or job.is_over())
            ended_s = time.monotonic() - begin_s if is_ended else None
        finally:
            job.end()
            for a, b in pairs:
                self.hosts.do("fault", f"host{a}", "unblock", f"host{b}")
        said, is_finished = self.out.read_text(errors="replace"), num_lines(run) >= EPOCHS
        found: dict[str, object] = {
            "number": number,
            "between": [one, other],
            "way": way,
            "moment": moment,
            "transport": transport,
            "ended_s": ended_s,
            "left": len(ranks),
            "is_finished": is_finished,
            "has_traceback": has_traceback(said),
            "is_named": is_named(said, one, other),
        }
        # Hydra at times ends with a status of its own after ranks that all ended well.
        self.hosts.start(self.words(run, moment, []), self.out, transport).wait(LIMIT_S)
        again = self.out.read_text(errors="replace")
        found["has_same_bits"] = (run / "model.safetensors").exists() and same(run, straight)
        found["has_traceback"] = found["has_traceback"] or has_traceback(again)
        is_odd = found["has_traceback"] or ranks or not found["has_same_bits"]
        if is_odd or not (found["is_named"] or is_finished):
            found["said"], found["said_again"] = said[-4000:], again[-4000:]
        return found

    @staticmethod
    def wait_for(job: Job, run: Path, moment: str, dice: random.Random) -> None:
        """Wait until the job is at a moment, or over."""
        if moment == "start-up":
            time.sleep(dice.uniform(0.0, START_S))
            return
        at = EPOCHS if moment == "end" else dice.randrange(2, EPOCHS - 2)
        while num_lines(run) < at and not job.is_over():
            time.sleep(0.001)
        while moment == "checkpoint" and not job.is_over():
            if any((run / "checkpoints").glob(".epoch-*.tmp")):
                break
            time.sleep(0.0005)


def is_named(said: str, one: int, other: int) -> bool:
    """Whether a sentence says of one of two ranks that something is wrong with it."""
    sentences = [line.partition("distgnn: ")[2] for line in said.splitlines()]
    # Before "when", others than the speaker; a rank that waited in vain speaks of itself.
    lost = [text.partition(", when rank")[0] for text in sentences if " waited " not in text]
    return any(re.search(rf"\brank ({one}|{other})\b", text) for text in lost)


def lines_of(rows: list[dict]) -> list[str]:
    """The section of RESULTS.md."""
    header = ["cut", "cuts", "run was over first", "wrong bits", "tracebacks", "left after 30 s"]
    header += ["one of the two named", "ended after (s), median", "most"]
    kinds = [(key, sorted({row[key] for row in rows})) for key in ("way", "moment", "transport")]
    found = []
    for key, name in [*((key, name) for key, names in kinds for name in names), ("", "all")]:
        some = [row for row in rows if not key or row[key] == name]
        ended = [row for row in some if not row["is_finished"]]
        times = [row["ended_s"] for row in ended if row["ended_s"] is not None]
        found.append(
            [
                *(name, str(len(some)), str(len(some) - len(ended))),
                str(sum(not row["has_same_bits"] for row in some)),
                str(sum(row["has_traceback"] for row in some)),
                str(sum(row["left"] for row in some)),
                f"{sum(row['is_named'] for row in ended)} of {len(ended)}",
                f"{statistics.median(times):.1f}" if times else "-",
                f"{max(times):.1f}" if times else "-",
            ]
        )
    return [
        f"{len(rows)} cuts between two of {NUM_HOSTS} hosts, in jobs of {EPOCHS} epochs with",
        f"`{' '.join(SHORT)}`. A run whose last epoch was written before the ranks noticed counts",
        "as over first.",
        "",
        *table(header, found),
    ]


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="*", type=Path, default=[Path("lab-cut-links")])
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", action="store_true", help="show what was found so far")
    parser.add_argument("--record", action="store_true", help="write the table to RESULTS.md")
    options = parser.parse_args()
    if not options.table:
        lab.folder_of_lab()
        if len(options.folder) > 1:
            sys.exit("cuts are made in one folder; name one, or add --table")
        draw(options.folder[0].resolve(), options.seed, options.faults, options.minutes)
    texts = [(folder / "cuts.jsonl").read_text() for folder in options.folder]
    rows = [json.loads(line) for line in itertools.chain(*(text.splitlines() for text in texts))]
    print("\n".join([origin(), "", *lines_of(rows)]))
    if options.record:
        record("Links cut between two hosts", lines_of(rows))


def draw(folder: Path, seed: int, num_faults: int, minutes: float) -> None:
    """Make cuts until there are so many lines, or the time is over."""
    lines = folder / "cuts.jsonl"
    if not lines.exists():
        jobs.make_folder(folder)
        lab.cut("synthetic:planted,num_vertices=300", folder / "parts", NUM_HOSTS)
        lines.touch()
    deadline_s = time.monotonic() + 60 * minutes
    with Lab(NUM_HOSTS, "1gbit") as hosts:
        cuts = Cuts(hosts, folder, seed)
        for number in range(len(lines.read_text().splitlines()), num_faults):
            if time.monotonic() > deadline_s:
                break
            found = cuts.once(number)
            with lines.open("a") as file:
                file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
