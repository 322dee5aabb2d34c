"""Train on a graph of your own: two tables in, predictions under your ids out.

    python examples/own_graph.py [OUTPUT_DIRECTORY]      default: examples/out/people

Writes a small made-up graph of people and the clubs they belong to, as one would export it from a
database. Cuts it into 2 parts, trains on 2 processes, and predicts the club of everybody.
"""

from __future__ import annotations

import csv
import os
import random
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

CLUBS = ("chess", "rowing", "theatre")
NUM_PEOPLE = 120
FRIENDSHIPS = 4


def write_tables(folder: Path) -> None:
    """Write edges.csv (source, target) and vertices.csv (id, label, and any numeric columns)."""
    rng = random.Random(0)
    club = {f"person-{number:03d}": rng.choice(CLUBS) for number in range(NUM_PEOPLE)}
    with (folder / "edges.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["source", "target"])
        for person in club:
            for _ in range(FRIENDSHIPS):
                # Most friends are of the same club, which is what the model can learn.
                pool = [other for other in club if club[other] == club[person]]
                friend = rng.choice(pool if rng.random() < 0.8 else list(club))
                rows.writerow([person, friend])
    with (folder / "vertices.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "label", "age", "evenings"])
        for person in club:
            # Every fifth club is not known: an empty label is left out of training, not predicted.
            known = "" if rng.random() < 0.2 else club[person]
            evenings = CLUBS.index(club[person]) + rng.gauss(0, 0.7)
            rows.writerow([person, known, rng.randint(18, 80), f"{evenings:.2f}"])


def run(*command: str | Path) -> None:
    """Show a command, then run it with the programs beside this Python first on the path."""
    words = [str(word) for word in command]
    print(f"\n$ {shlex.join(words)}", flush=True)
    beside = str(Path(sys.executable).parent)
    environ = {
        **os.environ,
        "PATH": os.pathsep.join([beside, os.environ.get("PATH", "")]),
        # Open MPI refuses root unless told otherwise.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    program = shutil.which(words[0], path=environ["PATH"])
    if program is None:
        raise SystemExit(f"own_graph: there is no {words[0]}; run make install")
    subprocess.run([program, *words[1:]], env=environ, check=True)


def main() -> None:
    """Write the tables and run the four commands."""
    default = Path(__file__).resolve().parent / "out" / "people"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    folder.mkdir(parents=True, exist_ok=True)
    write_tables(folder)
    parts, trained, predictions = folder / "parts", folder / "run", folder / "predictions.csv"
    edges, vertices = folder / "edges.csv", folder / "vertices.csv"
    cut = ("--undirected", "--split", "0.5/0.25/0.25", "--parts", "2", "--overwrite")
    run("distgnn", "partition", edges, "--vertices", vertices, "--out", parts, *cut)
    launch = ("mpirun", "-n", "2", "--oversubscribe")
    model = ("--hidden", "16", "--epochs", "60", "--feature-norm", "standard")
    run(*launch, "distgnn", "train", parts, "--run", trained, *model, "--overwrite", "--quiet")
    run("distgnn", "evaluate", trained)
    run("distgnn", "predict", trained, "--out", predictions)
    print(f"\n{predictions} begins with")
    print("".join(predictions.read_text().splitlines(keepends=True)[:5]), end="")


if __name__ == "__main__":
    main()
