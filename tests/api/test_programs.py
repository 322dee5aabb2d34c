"""The programs of examples/ that use the door: short, and the same on one process and on three."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROGRAMS = ("own_model.py", "own_loop.py", "own_layer.py")
SHORT = (*PROGRAMS, "from_pyg.py", "strategy.py")


def environ():
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("OMPI_", "PMIX_"))
    }
    return {
        **kept,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
    }


def output(folder, *words):
    folder.mkdir()
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=environ(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def losses(text):
    return [
        float(value) for value in re.findall(r"^epoch \d+: loss ([\d.e-]+)$", text, re.MULTILINE)
    ]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Folder of Cora in 3 parts."""
    folder = tmp_path_factory.mktemp("cora") / "parts"
    program = Path(sys.executable).parent / "distgnn"
    words = [str(program), "partition", "cora", "--parts", "3", "--out", str(folder)]
    subprocess.run(words, check=True, capture_output=True, timeout=200)
    return folder


@pytest.mark.mpi
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_the_same_losses_on_three_processes(name, parts, tmp_path, mpirun):
    one = output(tmp_path / "one", sys.executable, EXAMPLES / name)
    launch = (mpirun, "-n", "3", "--oversubscribe", "--allow-run-as-root")
    three = output(tmp_path / "three", *launch, sys.executable, EXAMPLES / name, parts)
    assert len(losses(one)) == 3
    assert losses(three) == pytest.approx(losses(one), rel=1e-5)
    assert losses(one)[2] < 0.8 * losses(one)[0]
    assert re.search(r"test (accuracy )?0\.[78]", three)
    # Rank 0 alone prints, as many lines as one process.
    assert three.count("\n") == one.count("\n")


@pytest.mark.mpi
def test_coded_rows_train_in_the_trainer_and_in_a_loop(parts, tmp_path, mpirun):
    launch = (mpirun, "-n", "3", "--oversubscribe", "--allow-run-as-root")
    text = output(tmp_path / "three", *launch, sys.executable, EXAMPLES / "strategy.py", parts)
    found = re.findall(r"^(\S+): test ([\d.]+), ([\d.]+) kB of rows", text, re.MULTILINE)
    assert [name for name, _, _ in found] == ["exact", "int8", "fwd:int8+bwd:int4"]
    exact, coded, mixed = (float(sent) for _, _, sent in found)
    assert exact > 2 * coded > 2 * mixed > 0
    loop = re.search(r"^a loop with int4: test ([\d.]+)$", text, re.MULTILINE)
    assert min(float(loop[1]), *(float(test) for _, test, _ in found)) > 0.7


def test_one_process_joins_the_parts_of_a_loop(parts, tmp_path):
    one = output(tmp_path / "one", sys.executable, EXAMPLES / "own_loop.py", parts)
    assert len(losses(one)) == 3


@pytest.mark.parametrize("name", SHORT)
def test_a_program_is_short(name):
    text = (EXAMPLES / name).read_text()
    strings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    code = [
        line
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and number not in strings
    ]
    assert len(code) <= 25


def test_a_graph_of_pyg_is_trained_on(tmp_path):
    pytest.importorskip("torch_geometric")
    text = output(tmp_path / "pyg", sys.executable, EXAMPLES / "from_pyg.py")
    assert float(re.search(r"right on ([\d.]+) of Data", text)[1]) > 0.7
    assert "embedding=[2708, 16]" in text
    assert float(re.search(r"PyG differs by ([\d.e-]+)", text)[1]) < 1e-5
    assert "Partition('from-pyg-parts'): memory in 4 parts by metis" in text


FAILING = """
import sys, torch
import distgnn as dg

with dg.init() as ranks:
    data = ranks.load(sys.argv[1])
    model = ranks.replicate(torch.nn.Linear(data.num_features, data.num_classes))
    for epoch in range(1000):
        if epoch == 3 and ranks.rank == 1:
            raise ValueError("the third is one too many")
        ranks.backward(data.loss(data.graph.aggregate(model(data.x))))
"""


@pytest.mark.mpi
def test_an_exception_on_one_rank_ends_all_and_each_names_it(parts, tmp_path, mpirun):
    (tmp_path / "failing.py").write_text(FAILING)
    done = subprocess.run(
        [mpirun, "-n", "3", "--oversubscribe", sys.executable, tmp_path / "failing.py", parts],
        env=environ(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode != 0
    assert "ValueError: the third is one too many" in done.stderr
    named = re.findall(r"^distgnn: .*rank 1 .*the third is one too many", done.stderr, re.MULTILINE)
    assert named
    assert done.stdout == ""
