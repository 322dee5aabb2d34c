"""The files of examples/launch start what they say, as far as this machine can tell."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from distgnn.cli import build_parser

BIN = Path(sys.executable).parent
SCRIPTS = ("openmpi.sh", "mpich.sh", "intelmpi.sh", "torchrun.sh", "slurm.sbatch")
ECHO = '#!/usr/bin/env bash\necho "$(basename "$0")" "$@"\nexit "${STATUS:-0}"\n'
# Two ranks with the variables that srun gives; the step fails with the worst of them.
SRUN = f"""#!{sys.executable}
import os, subprocess, sys
words = sys.argv[sys.argv.index("distgnn"):]
step = {{"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_JOB_ID": "7",
         "SLURM_STEP_ID": str(os.getpid())}}
ranks = [subprocess.Popen(words, env={{**os.environ, **step, "SLURM_PROCID": str(rank),
         "SLURM_LOCALID": str(rank)}}) for rank in range(2)]
sys.exit(max(rank.wait() for rank in ranks))
"""
TRAIN = ["--epochs", "3", "--hidden", "4", "--quiet", "--json"]


@pytest.fixture
def launch(repository, tmp_path):
    """Runs a file of examples/launch with commands of this test before all others on the path."""
    folder = tmp_path / "commands"
    folder.mkdir()

    def run(name, *words, commands=(), **variables):
        for command, content in commands:
            (folder / command).write_text(content)
            (folder / command).chmod(0o755)
        left_out = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "TORCHELASTIC_", "MASTER_")
        environ = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
        environ["PATH"] = f"{folder}:{BIN}:{environ['PATH']}"
        return subprocess.run(
            ["bash", repository / "examples/launch" / name, *(str(word) for word in words)],
            env={**environ, "OMP_NUM_THREADS": "1", **variables},
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )

    return run


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_launch_file_starts_a_training_that_the_parser_knows(name, launch):
    starter = {"torchrun.sh": "torchrun", "slurm.sbatch": "srun"}.get(name, "mpirun")
    ranks = () if name == "slurm.sbatch" else ("4",)
    hosts = {"HOSTFILE": "hosts", "NUM_HOSTS": "2", "FIRST_HOST": "node1", "INTERFACE": "ib0"}
    done = launch(name, "parts", "run", *ranks, *TRAIN, commands=[(starter, ECHO)], **hosts)
    assert done.returncode == 0, done.stderr
    before, words = done.stdout.rstrip("\n").split(" distgnn train ")
    assert before.startswith(f"{starter} ")
    arguments = build_parser().parse_args(["train", *words.split()])
    assert (arguments.source, arguments.run_dir, arguments.resume) == ("parts", "run", True)
    assert arguments.epochs == 3
    if starter == "mpirun":
        assert " -n 4" in before
        assert " hosts" in before
        assert "ib0" in before
        assert arguments.interface == "ib0"


def test_ranks_that_do_not_divide_among_hosts_are_refused(launch):
    done = launch("torchrun.sh", "parts", "run", "3", NUM_HOSTS="2")
    assert done.returncode == 2
    assert "3 ranks do not divide among 2 hosts; change NUM_RANKS" in done.stderr


@pytest.mark.parametrize(("status", "attempts"), [("0", 1), ("2", 1), ("75", 3)])
def test_slurm_tries_again_unless_that_is_pointless(status, attempts, launch):
    done = launch("slurm.sbatch", "parts", "run", commands=[("srun", ECHO)], STATUS=status)
    assert done.returncode == int(status)
    assert len(done.stdout.splitlines()) == attempts


def test_the_manifest_starts_a_training_that_the_parser_knows(repository):
    text = (repository / "examples/launch/mpijob.yaml").read_text()
    command = re.findall(r"^ +- (\S+)$", text.partition("command:")[2].partition("volume")[0], re.M)
    words = [word.strip('"') for word in command]
    assert words[0] == "mpirun"
    arguments = build_parser().parse_args(words[words.index("distgnn") + 1 :])
    assert (arguments.source, arguments.run_dir) == ("/data/parts", "/data/run")
    assert words[words.index("-n") + 1] == "4"


def test_the_manifest_has_a_worker_for_each_rank(repository):
    yaml = pytest.importorskip("yaml")
    spec = yaml.safe_load((repository / "examples/launch/mpijob.yaml").read_text())["spec"]
    command = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"]
    assert command[command.index("-n") + 1] == str(spec["mpiReplicaSpecs"]["Worker"]["replicas"])


JOBS = {
    "openmpi.sh": (
        ("2",),
        {
            "BIND": "--oversubscribe --bind-to none",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        },
        [],
    ),
    "torchrun.sh": (("2",), {}, []),
    "slurm.sbatch": ((), {}, [("srun", SRUN)]),
}


@pytest.mark.mpi
@pytest.mark.parametrize("name", JOBS)
def test_a_launch_file_trains(name, launch, distgnn, ring, tmp_path):
    if name == "torchrun.sh" and shutil.which(BIN / "torchrun") is None:
        pytest.skip("no torchrun beside this Python")
    ranks, variables, commands = JOBS[name]
    assert distgnn("partition", ring, "--parts", 2, "--out", tmp_path / "parts").status == 0
    done = launch(
        name, tmp_path / "parts", tmp_path / "run", *ranks, *TRAIN, commands=commands, **variables
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_ranks"] == 2
