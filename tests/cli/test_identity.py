"""Ranks that were started otherwise than their peers are refused on all ranks, by name."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rank_jobs import MPIRUN, free_port, run

PROGRAM = str(Path(sys.executable).parent / "distgnn")
MODEL = ["--model", "gcn", "--hidden", "16", "--epochs", "2", "--quiet", "--lr", "0.01"]
# Longer than ranks wait for each other at the start.
LIMIT_S = 240
# Python reads this file first. A rank that is about to load torch has come to rank 0. It says
# so, and never loads it.
_LOADING = """
import os, sys, time
def hold(event, arguments):
    if event == "import" and arguments[0] == "torch":
        open(os.environ["LOADS"] + os.environ["RANK"], "w").close()
        while True:
            time.sleep(1)
sys.addaudithook(hold)
"""


@pytest.fixture
def start(tmp_path):
    """Starts the ranks of a job, each with its own words, with torchrun's variables."""
    others = ("OMPI_", "PMIX_", "PMI_", "SLURM_")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(others)}
    place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    own = {"MASTER_PORT": free_port(), "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": str(tmp_path)}
    started = []

    def begin(rank, *words, program=(PROGRAM,), **more):
        variables = {**inherited, **place, **own, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        variables |= more
        command = [*program, *(str(word) for word in words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, env=variables, **pipes))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("words", "difference"),
    [
        (
            ["train", "--lr", "0.1", "--seed", "7", "--run", "other", "--hidden", "8"],
            r"--hidden 8 instead of 16, --lr 0\.1 instead of 0\.01, --seed 7 instead of 0, --run o",
        ),
        (["train", "--algorithm", "cd-2"], "--algorithm cd-2 instead of cd-0, .*"),
        (["train", "--device", "cuda"], "--device cuda instead of cpu"),
        (["evaluate"], "verb evaluate instead of train, .* more settings"),
    ],
)
def test_a_rank_that_was_started_otherwise_ends_the_job(words, difference, parts, tmp_path, start):
    run = tmp_path / "run"
    first = start(0, "train", parts, "--run", run, *MODEL)
    verb, *more = words
    own = [run] if verb == "evaluate" else [parts, "--run", run, *MODEL, *more]
    second = start(1, verb, *own)
    errors = first.communicate(timeout=LIMIT_S)[1], second.communicate(timeout=LIMIT_S)[1]
    sentence = rf"distgnn: rank 1 \(.*, pid {second.pid}\) was started otherwise than rank 0: "
    assert re.search(f"^{sentence}{difference}.*; start all ranks", errors[0], re.MULTILINE), errors
    assert (first.returncode, second.returncode) == (2, 2)
    assert "Traceback" not in errors[0] + errors[1]
    assert not run.exists()


@pytest.mark.parametrize(
    ("words", "more", "difference"),
    [
        (["evaluate"], ["--split-index", "1"], "--split-index 1 instead of None"),
        (
            ["predict", "--out", "o.csv"],
            ["--probabilities"],
            "--probabilities True instead of False",
        ),
        (
            ["tune", "--search", "lr=choice(0.1,0.2)"],
            ["--factor", "3", "--undirected"],
            "--factor 3 instead of 4, --undirected True instead of False",
        ),
    ],
)
def test_ranks_of_other_verbs_are_started_alike_too(words, more, difference, tmp_path, start):
    run, (verb, *own) = tmp_path / "run", words
    own = ["cora", "--run", run, *own] if verb == "tune" else [run, *own]
    first, second = start(0, verb, *own), start(1, verb, *own, *more)
    errors = first.communicate(timeout=LIMIT_S)[1], second.communicate(timeout=LIMIT_S)[1]
    sentence = rf"distgnn: rank 1 \(.*\) was started otherwise than rank 0: {difference}; start"
    assert re.search(f"^{sentence}", errors[0], re.MULTILINE), errors
    assert (first.returncode, second.returncode) == (2, 2)
    assert not run.exists()


@pytest.mark.parametrize(
    ("calls", "difference"),
    [
        (("dg.predict('r', out='o.csv')", "dg.predict('r')"), "--out False instead of True"),
        (("dg.embed('r')", "dg.embed('r', out='o.npy')"), "--out True instead of False"),
        (("dg.init()", "dg.init(device='cuda')"), "--device cuda instead of cpu"),
    ],
)
def test_ranks_of_other_calls_are_refused(calls, difference, start):
    program = (sys.executable, "-c")
    script = "import distgnn as dg\n{}"
    ranks = [start(n, script.format(call), program=program) for n, call in enumerate(calls)]
    errors = [rank.communicate(timeout=LIMIT_S)[1] for rank in ranks]
    assert any(f"was started otherwise than rank 0: {difference}; start" in e for e in errors), (
        errors
    )
    assert all(rank.returncode for rank in ranks)


def test_what_ranks_may_have_of_their_own_is_not_compared(parts, tmp_path, start):
    run = tmp_path / "run"
    first = start(0, "train", parts, "--run", run, *MODEL, "--threads", "1")
    own = ["--threads", "2", "--walk-cache", tmp_path / "walks", "--heartbeat-timeout", "40"]
    second = start(1, "train", parts, "--run", run, *MODEL, "--interface", "lo", *own)
    for process in (first, second):
        errors = process.communicate(timeout=LIMIT_S)[1]
        assert process.returncode == 0, errors


def test_a_rank_that_refuses_its_arguments_is_heard_by_all(parts, tmp_path, start):
    words = ["train", parts, "--run", tmp_path / "run", *MODEL]
    first = start(0, *words)
    second = start(1, *words, "--interface", "eth99")
    errors = first.communicate(timeout=LIMIT_S)[1], second.communicate(timeout=LIMIT_S)[1]
    sentence = r"^distgnn: rank 1 \(.*\): network interface must be one of .* got 'eth99'"
    assert re.search(sentence, errors[0], re.MULTILINE), errors
    assert errors[1] == ""  # a launcher shows both
    assert (first.returncode, second.returncode) == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_what_differs_is_said_before_the_launcher_ends_the_ranks(launcher, parts, tmp_path):
    words = [PROGRAM, "train", str(parts), "--run", str(tmp_path / "run"), *MODEL]
    other = [*words[:-1], "0.2"]
    if launcher == "mpirun":
        command = [*MPIRUN, "-n", "1", *words, ":", "-n", "1", *other]
    else:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
        choice = f"[ $RANK = 1 ] && exec {shlex.join(other)}; exec {shlex.join(words)}"
        command += ["--no-python", "sh", "-c", choice]
    status, _, errors = run(command)
    assert errors.count(r"was started otherwise than rank 0: --lr 0.2 instead of 0.01") == 1, errors
    assert status != 0


def test_a_flaw_that_all_share_is_told_once(parts, tmp_path, start):
    words = ["train", parts, "--run", tmp_path / "run", "--lr", "-1"]
    ranks = [start(rank, *words) for rank in range(2)]
    errors = "".join(process.communicate(timeout=LIMIT_S)[1] for process in ranks)
    assert [process.returncode for process in ranks] == [2, 2]
    assert errors.count("--lr") == 1, errors


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_killed_in_start_up_is_named_by_the_other(victim, parts, tmp_path, start):
    (tmp_path / "sitecustomize.py").write_text(_LOADING)
    inherited = os.environ.get("PYTHONPATH", "")
    path = ":".join(filter(None, (str(tmp_path), inherited)))
    more = {"PYTHONPATH": path, "LOADS": str(tmp_path / "loads")}
    words = ["train", parts, "--run", tmp_path / "run", *MODEL]
    ranks = [start(rank, *words, **more) for rank in range(2)]
    deadline_s = time.monotonic() + LIMIT_S
    while not all((tmp_path / f"loads{rank}").exists() for rank in range(2)):
        assert all(rank.poll() is None for rank in ranks)
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    ranks[victim].kill()
    error = ranks[1 - victim].communicate(timeout=LIMIT_S)[1]
    named = r"rank 1 \(.*\) died" if victim else "(rank 0 ended before|rank 0 .* died)"
    assert re.search(f"^distgnn: {named}", error, re.MULTILINE), error
    assert ranks[1 - victim].returncode == 75
