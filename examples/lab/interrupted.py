"""Train 200 epochs straight and interrupted five times, and compare every bit.

    python examples/lab/interrupted.py [--epochs 200] [--ranks 3] [--record] [FOLDER]

Ranks are processes of this machine over gloo. The interruptions come at fixed epochs, in the middle
between checkpoints too, in turn by SIGKILL of one rank and by SIGTERM.
"""

from __future__ import annotations

import nursery  # isort: skip

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import jobs
from results import record

NUM_INTERRUPTIONS = 5
EVERY = 10


def train(
    run: Path, parts: Path, options: argparse.Namespace, algorithm: str
) -> list[nursery.Rank]:
    """Start or resume a run."""
    words = ["train", str(parts), "--run", str(run), "--algorithm", algorithm, "--resume"]
    words += ["--epochs", str(options.epochs), "--checkpoint-every", str(EVERY), "--hidden", "8"]
    words += ["--backend", "gloo", "--quiet"]
    return jobs.start(words, options.ranks, run.with_suffix(".out"))


def interrupt(run: Path, ranks: list[nursery.Rank], number: int, epoch: int) -> list[int]:
    """Send a rank a signal once an epoch is written; what the ranks ended with."""
    while not (run / "metrics.jsonl").exists() or len(jobs.losses(run)) <= epoch:
        time.sleep(0.002)
    os.kill(ranks[epoch % len(ranks)].pid, number)
    return nursery.statuses(ranks, jobs.LIMIT_S)


def compare(algorithm: str, parts: Path, options: argparse.Namespace) -> str:
    """Run both ways; one line about it."""
    straight, run = (options.folder / f"{algorithm}-{name}" for name in ("straight", "run"))
    if any(nursery.statuses(train(straight, parts, options, algorithm), jobs.LIMIT_S)):
        sys.exit(straight.with_suffix(".out").read_text())
    done = []
    for turn in range(NUM_INTERRUPTIONS):
        number = (signal.SIGKILL, signal.SIGTERM)[turn % 2]
        epoch = (2 * turn + 1) * options.epochs // (2 * NUM_INTERRUPTIONS) + turn
        if not any(interrupt(run, train(run, parts, options, algorithm), number, epoch)):
            sys.exit(f"the run ended before the interruption in epoch {epoch}")
        done.append(f"{number.name} after epoch {epoch}")
    if any(nursery.statuses(train(run, parts, options, algorithm), jobs.LIMIT_S)):
        sys.exit(run.with_suffix(".out").read_text())
    jobs.check_end(run, straight)
    return (
        f"- {algorithm}: {options.epochs} epochs on {options.ranks} ranks, interrupted by "
        f"{', '.join(done)}: the losses of all epochs and all weights are those of the straight "
        "run, bit by bit."
    )


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("lab-interrupted"))
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="write the lines to RESULTS.md")
    options = parser.parse_args()
    jobs.make_folder(options.folder)
    parts = options.folder / "parts"
    jobs.cut(parts, options.ranks)
    lines = [compare(algorithm, parts, options) for algorithm in ("cd-0", "cd-5")]
    print("\n".join(lines))
    if options.record:
        record("Interrupted runs", lines)


if __name__ == "__main__":
    main()
