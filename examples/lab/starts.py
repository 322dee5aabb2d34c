"""Start small jobs and let them end, under torchrun and mpirun, and count what was odd.

    python examples/lab/starts.py [--starts 100] [--minutes M] [FOLDER]
    python examples/lab/starts.py --table [--record] FOLDER [FOLDER ...]

A job of two ranks trains for three epochs. It must end with status 0, print its results once, and
say nothing of a traceback or an aborted process. Each start is a line of FOLDER/starts.jsonl.
"""

from __future__ import annotations

import campaign  # isort: skip

import argparse
import collections
import json
import shutil
import time
from pathlib import Path

import jobs
from campaign import LIMIT_S, NUM_RANKS, Job
from results import record, table

WAYS = [("gloo", "torchrun"), ("gloo", "mpirun"), ("mpi", "mpirun")]
WORDS = ["--hidden", "8", "--epochs", "3", "--threads", "1"]


def once(folder: Path, transport: str, launcher: str) -> dict[str, object]:
    """Start a job, and wait for its end."""
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    words = ["train", str(folder / "parts"), "--run", str(run), "--backend", transport, *WORDS]
    job = Job(words, launcher, folder / "out")
    is_over = job.wait(LIMIT_S) is not None
    job.end()
    (status,) = job.status()
    said = job.said()
    num_results = sum(line.startswith("results ") for line in said.splitlines())
    is_odd = not is_over or status != 0 or num_results != 1 or campaign.has_traceback(said)
    found: dict[str, object] = {"transport": transport, "launcher": launcher, "status": status}
    return {**found, "is_odd": is_odd, "said": said[-4000:] if is_odd else ""}


def lines_of(rows: list[dict]) -> list[str]:
    """The section of RESULTS.md."""
    found = []
    for transport, launcher in WAYS:
        some = [row for row in rows if (row["transport"], row["launcher"]) == (transport, launcher)]
        kinds = collections.Counter(row["status"] for row in some)
        statuses = ", ".join(f"{number} x {status}" for status, number in sorted(kinds.items()))
        odd = sum(row["is_odd"] for row in some)
        found.append([f"{transport}, {launcher}", str(len(some)), statuses, str(odd)])
    return [
        f"Jobs of {NUM_RANKS} ranks and three epochs that nothing disturbed. Odd is a status that",
        "is not 0, results that are printed twice or not at all, or a traceback.",
        "",
        *table(["way", "starts", "statuses", "odd"], found),
    ]


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="*", type=Path, default=[Path("lab-starts")])
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--table", action="store_true", help="show what was found so far")
    parser.add_argument("--record", action="store_true", help="write the table to RESULTS.md")
    options = parser.parse_args()
    if not options.table:
        (folder,) = options.folder
        jobs.make_folder(folder)
        folder = folder.resolve()
        jobs.cut(folder / "parts", NUM_RANKS)
        end_s = time.monotonic() + 60 * options.minutes
        for number in range(options.starts):
            if time.monotonic() > end_s:
                break
            with (folder / "starts.jsonl").open("a") as file:
                file.write(json.dumps(once(folder, *WAYS[number % len(WAYS)])) + "\n")
    texts = [(folder / "starts.jsonl").read_text() for folder in options.folder]
    rows = [json.loads(line) for text in texts for line in text.splitlines()]
    print("\n".join(lines_of(rows)))
    if options.record:
        record("Starts and ends", lines_of(rows))


if __name__ == "__main__":
    main()
