"""Whole jobs of forked ranks on this machine, and the comparison of their ends."""

from __future__ import annotations

import json
import os
import sys
import uuid
from pathlib import Path
from typing import NamedTuple

import nursery

SOURCE = "synthetic:planted,num_vertices=300"
LIMIT_S = 300.0


class Mpich(NamedTuple):
    """MPICH beside the MPI library of this Python.

    Attributes:
        mpirun: Its launcher.
        library: Its libmpi, which mpi4py is to load (MPI4PY_LIBMPI).
    """

    mpirun: Path
    library: Path


def mpich() -> Mpich | None:
    """The MPICH whose mpirun DISTGNN_MPIRUN names, if it does; a wrong one ends the script."""
    path = os.environ.get("DISTGNN_MPIRUN")
    if path is None:
        return None
    folder = Path(path).resolve().parent.parent
    found = [*folder.glob("lib*/libmpi.so*")] if Path(path).is_file() else []
    if not found:
        sys.exit(
            f"DISTGNN_MPIRUN is '{path}', but must be the mpirun of MPICH, in the folder bin "
            "beside lib with its libmpi.so; correct or unset it"
        )
    # Some of these files are linker scripts or empty.
    return Mpich(Path(path), max(found, key=lambda file: file.stat().st_size))


def make_folder(folder: Path) -> Path:
    """Make the folder of a script; end the script with one sentence if something is in it."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        print(
            f"'{folder}' exists and is not an empty folder; remove it or name another one",
            file=sys.stderr,
        )
        sys.exit(2)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def start(
    words: list[str], num_ranks: int, out: Path, environ: dict[str, str] | None = None
) -> list[nursery.Rank]:
    """Start the ranks of a job; what they say is added to a file."""
    job = {"WORLD_SIZE": str(num_ranks), "LOCAL_WORLD_SIZE": str(num_ranks)}
    # As torchrun would: no launcher is there to kill survivors.
    job |= {"TORCHELASTIC_RUN_ID": uuid.uuid4().hex, "TORCHELASTIC_RESTART_COUNT": "0"}
    job |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    return [
        nursery.start(
            words, {**(environ or {}), **job, "RANK": str(rank), "LOCAL_RANK": str(rank)}, out
        )
        for rank in range(num_ranks)
    ]


def cut(parts: Path, num_ranks: int, source: str = SOURCE) -> None:
    """Cut a graph in a process of its own: what partitions may not be loaded before a fork."""
    words = ["partition", source, "--parts", str(num_ranks), "--out", str(parts)]
    words += ["--method", "random", "--overwrite"]
    child = nursery.start(words, {}, parts.with_suffix(".out"))
    if nursery.statuses([child], LIMIT_S) != [0]:
        sys.exit(parts.with_suffix(".out").read_text())


def losses(run: Path) -> list[float]:
    """Read the loss of each epoch in metrics.jsonl; an unfinished last line is left out."""
    lines = (run / "metrics.jsonl").read_text().split("\n")[:-1]
    return [json.loads(line)["loss"] for line in lines]


def check_end(run: Path, straight: Path) -> None:
    """End the script unless a finished run has the losses and the weights of the straight one."""
    models = [(folder / "model.safetensors").read_bytes() for folder in (run, straight)]
    if losses(run) != losses(straight) or models[0] != models[1]:
        sys.exit(f"'{run}' did not end like '{straight}'")
