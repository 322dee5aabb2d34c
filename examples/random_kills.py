"""Kill ranks of a run at random, resume it, and compare its end with that of a straight run.

    python examples/random_kills.py [--kills 5] [--ranks 2] [--seed 0] [FOLDER]

Trains a small model on Cora with `mpirun`, ends a random rank at a random moment with SIGKILL or
SIGTERM (now and then all of them), and starts it again with --resume, until it was killed so many
times. A run that reaches its end must have the losses and the weights of the straight one, bit by
bit; no rank may print a traceback. Each start takes seconds; a night is good for 1,000 kills.
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
import uuid
from pathlib import Path

BIN = Path(sys.executable).parent
DISTGNN = str(BIN / "distgnn")
EPOCHS = 120
LENGTH = ["--epochs", str(EPOCHS), "--checkpoint-every", "5", "--hidden", "8", "--quiet"]
LIMIT_S = 300


def mpirun() -> str:
    """The launcher beside the interpreter, else the one on the path."""
    beside = BIN / "mpirun"
    path = str(beside) if beside.exists() else shutil.which("mpirun")
    if path is None:
        sys.exit("there is no mpirun: pip install 'distgnn[mpi]'")
    return path


def ranks_of(mark: str) -> list[int]:
    """Process numbers of the ranks whose environment holds the mark."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        is_rank = any(item.startswith(b"OMPI_COMM_WORLD_RANK=") for item in variables)
        if is_rank and f"RANDOM_KILLS={mark}".encode() in variables:
            found.append(int(entry.name))
    return found


def train(parts: Path, run: Path, num_ranks: int) -> tuple[subprocess.Popen[str], str]:
    """Start or resume a run."""
    mark = uuid.uuid4().hex
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    job = subprocess.Popen(
        [
            *(mpirun(), "--oversubscribe", "-n", str(num_ranks), DISTGNN, "train", str(parts)),
            *("--run", str(run), "--algorithm", "cd-2", "--resume", *LENGTH),
        ],
        env={**os.environ, **allowed, "OMP_NUM_THREADS": "1", "RANDOM_KILLS": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    return job, mark


def kill_some(mark: str, dice: random.Random) -> str:
    """Kill a rank or all of them; say what was done, nothing if none was there."""
    ranks = ranks_of(mark)
    if not ranks:
        return ""
    number = dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
    victims = ranks if dice.random() < 0.2 else [dice.choice(ranks)]
    for victim in victims:
        try:
            os.kill(victim, number)
        except ProcessLookupError:
            continue
    return f"{number.name} to {len(victims)} of {len(ranks)} ranks"


def end_of(job: subprocess.Popen[str]) -> str:
    """Wait for a job; return what it said, which must hold no traceback."""
    err = job.communicate(timeout=LIMIT_S)[1]
    if "Traceback" in err:
        sys.exit(f"a rank printed a traceback:\n{err}")
    return err


def check_end(run: Path, straight: Path) -> None:
    """Compare a finished run with the straight one."""
    losses = [
        [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for folder in (run, straight)
    ]
    models = [(folder / "model.safetensors").read_bytes() for folder in (run, straight)]
    if losses[0] != losses[1] or models[0] != models[1]:
        sys.exit(f"'{run}' did not end like '{straight}'")


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("random-kills"))
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    dice = random.Random(options.seed)
    shutil.rmtree(options.folder, ignore_errors=True)
    parts, straight, run = (options.folder / name for name in ("parts", "straight", "run"))
    cut = [DISTGNN, "partition", "cora", "--parts", str(options.ranks), "--out", str(parts)]
    subprocess.run(cut, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    begin_s = time.monotonic()
    end_of(train(parts, straight, options.ranks)[0])
    whole_s = time.monotonic() - begin_s
    num_kills = num_ends = 0
    while num_kills < options.kills:
        job, mark = train(parts, run, options.ranks)
        time.sleep(dice.uniform(0.2, 1.0) * whole_s)
        what = kill_some(mark, dice) if job.poll() is None else ""
        said = end_of(job)
        if what:
            num_kills += 1
            lines = [line for line in said.splitlines() if line.startswith("distgnn: ")]
            print(f"{num_kills:4d}  {what}  {lines[0] if lines else ''}", flush=True)
        if job.returncode == 0:
            check_end(run, straight)
            num_ends += 1
            shutil.rmtree(run)
    job, _ = train(parts, run, options.ranks)
    end_of(job)
    check_end(run, straight)
    print(f"{num_kills} kills, {num_ends + 1} runs that ended like the straight one")


if __name__ == "__main__":
    main()
