"""The examples run, from any folder, and do what they say."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi


def run(*command, cwd, **environ):
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environ},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_quickstart_reaches_the_accuracy_of_the_literature(mpirun, repository, tmp_path):
    script = repository / "examples/quickstart.sh"
    folder = str(Path(sys.executable).parent)
    done = run("bash", script, tmp_path / "a b/out", cwd=tmp_path, PYTHON_BIN_DIR=folder)
    accuracy = re.search(r"^test accuracy  (\d\.\d+)$", done.stdout, re.MULTILINE)
    assert float(accuracy[1]) >= 0.79
    assert "$ mpirun -n 4 " in done.stdout
    out = tmp_path / "a b/out"
    assert len(rows(out / "predictions.csv")) == 2708
    assert (out / "run/model.safetensors").exists()
    assert (out / "run/checkpoints/epoch-000200").is_dir()
    assert "\npartition      a b/out/cora-4\nrun            a b/out/run (" in done.stdout
    assert "\npredictions    a b/out/predictions.csv\n" in done.stdout


def test_own_graph_predicts_under_its_own_ids(mpirun, repository, tmp_path):
    script = repository / "examples/own_graph.py"
    done = run(sys.executable, script, tmp_path / "out", cwd=tmp_path)
    predicted = rows(tmp_path / "out/predictions.csv")
    people = rows(tmp_path / "out/vertices.csv")
    assert [row["id"] for row in predicted] == [row["id"] for row in people]
    known = [
        row["label"] == person["label"]
        for row, person in zip(predicted, people, strict=True)
        if person["label"]
    ]
    assert sum(known) / len(known) > 0.8
    assert "test_metric" in done.stdout


def test_a_graph_from_memory_is_learned(repository, tmp_path):
    script = repository / "examples/from_memory.py"
    done = run(sys.executable, script, tmp_path / "out", cwd=tmp_path)
    assert float(re.search(r"right on (\d\.\d+) of all vertices", done.stdout)[1]) > 0.8


def test_rows_of_libra_are_those_of_its_parts(repository, tmp_path):
    folder, parts = tmp_path / "papers", tmp_path / "parts"
    words = ["datasets", "make", "papers", "--scale", "1/65536", "--out", folder]
    run(sys.executable, "-m", "distgnn", *words, cwd=tmp_path)
    script = repository / "examples/bench/libra_rows.py"
    done = run(sys.executable, script, folder, "--parts", "70", cwd=tmp_path)
    words = ["partition", folder, "--parts", "70", "--method", "libra", "--out", parts, "--json"]
    cut = run(sys.executable, "-m", "distgnn", *words, cwd=tmp_path)
    counted, cut = json.loads(done.stdout), json.loads(cut.stdout)
    assert counted["halo_rows"] == cut["halo_rows"]
    assert counted["edge_balance"] == pytest.approx(cut["edge_balance"])


@pytest.mark.parametrize("launcher", ["norun -n {ranks}", ""])
def test_a_table_on_ranks_without_a_launcher_is_refused_before_anything_is_trained(
    launcher, repository, tmp_path
):
    script = repository / "examples/accuracy/run.py"
    words = ["cora-gcn", "--ranks", "2", "--launcher", launcher, "--out", "runs"]
    done = subprocess.run(
        [sys.executable, script, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    name = launcher.split(" ")[0]
    assert f"--launcher: there is no '{name}' on the PATH; name one that there is" in done.stderr
    assert not (tmp_path / "runs").exists()
