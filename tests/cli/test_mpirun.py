"""The command line under real launchers; each job costs seconds, so several tests share one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
import torch
from rank_jobs import Hold

from distgnn.cli import main

pytestmark = pytest.mark.mpi

BIN = Path(sys.executable).parent
PROGRAM = str(BIN / "distgnn")
NUM_EPOCHS = 150
MODEL = ["--model", "gcn", "--hidden", "16", "--feature-norm", "row", "--quiet", "--json"]
LENGTH = ["--epochs", str(NUM_EPOCHS), "--checkpoint-every", "10"]
LIMIT_S = 280


def environ(**more):
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OMPI_", "PMIX_", "SLURM_", "TORCHELASTIC_"))
    }
    return {
        **kept,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
        **more,
    }


def launch(command, *words):
    return subprocess.run(
        [*command, *(str(word) for word in words)],
        env=environ(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses(run):
    return [record["loss"] for record in metrics(run)]


def in_process(*words):
    threads = ["--threads", torch.get_num_threads()] if words[0] != "partition" else []
    assert main([str(word) for word in (*words, *threads)]) == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with Cora in 4 parts."""
    folder = tmp_path_factory.mktemp("cora")
    in_process("partition", "cora", "--parts", 4, "--out", folder / "parts")
    return folder


@pytest.fixture
def mpirun_on(mpirun):
    """The command that starts distgnn on a number of ranks."""

    def command(num_ranks):
        return [mpirun, "--oversubscribe", "-n", str(num_ranks), PROGRAM]

    return command


@pytest.fixture(scope="module")
def straight(folder):
    """A run of 4 ranks that nothing disturbs."""
    mpirun = str(BIN / "mpirun") if (BIN / "mpirun").exists() else shutil.which("mpirun")
    command = [mpirun, "--oversubscribe", "-n", "4", PROGRAM, "train"]
    done = launch(command, folder / "parts", "--run", folder / "straight", *MODEL, *LENGTH)
    assert done.returncode == 0, done.stderr
    return done


def sentences(done):
    """The lines of ours; a launcher adds its own."""
    return [line for line in done.stderr.splitlines() if line.startswith("distgnn: ")]


def test_four_ranks_train_like_one_process(folder, straight):
    in_process("train", "cora", "--run", folder / "one", *MODEL, *LENGTH)
    assert losses(folder / "straight") == pytest.approx(losses(folder / "one"), rel=1e-4)
    one = json.loads((folder / "one/summary.json").read_text())
    four = json.loads((folder / "straight/summary.json").read_text())
    for name in ("num_epochs", "num_parameters", "best_epoch"):
        assert four[name] == one[name]
    for name in ("train_metric", "val_metric", "test_metric"):
        assert four[name] == pytest.approx(one[name], abs=2e-3)
    assert (one["num_ranks"], four["num_ranks"]) == (1, 4)
    assert one["halo_bytes_per_epoch"] == 0 < four["halo_bytes_per_epoch"]
    assert len(four["peak_rss_bytes"]) == 4


def test_four_ranks_send_what_inspect_predicted(folder, straight, capsys):
    capsys.readouterr()
    words = ["inspect", str(folder / "parts"), "--json", "--model", "gcn", "--hidden", "16"]
    assert main(words) == 0
    predicted = json.loads(capsys.readouterr().out)
    counted = json.loads((folder / "straight/summary.json").read_text())
    assert counted["halo_bytes_per_epoch"] == predicted["halo_bytes_per_epoch"] > 0
    assert counted["eval_halo_bytes_per_epoch"] == predicted["eval_halo_bytes"]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["gloo", "mpi"])
def test_coded_gradients_are_as_many_bytes_as_inspect_says(backend, folder, mpirun_on, capsys):
    run = folder / f"coded-{backend}"
    coded = ["--weights", "int8", "--hidden", "16", "--model", "gcn"]
    words = ["--epochs", "3", "--backend", backend, "--dropout", "0", *coded]
    done = launch(mpirun_on(4), "train", folder / "parts", "--run", run, *words)
    assert done.returncode == 0, done.stderr
    capsys.readouterr()
    assert main(["inspect", str(folder / "parts"), "--json", *coded]) == 0
    predicted = json.loads(capsys.readouterr().out)
    counted = json.loads((run / "summary.json").read_text())
    assert counted["weight_bytes_per_epoch"] == predicted["weight_bytes_per_epoch"] > 0
    in_process("train", "cora", "--run", folder / f"exact-{backend}", *words[:2], *words[4:])
    assert losses(run)[0] == pytest.approx(losses(folder / f"exact-{backend}")[0], rel=1e-5)
    assert losses(run)[-1] == pytest.approx(losses(folder / f"exact-{backend}")[-1], rel=1e-2)


def test_rank_0_alone_prints_and_only_the_summary(folder, straight):
    assert json.loads(straight.stdout) == json.loads((folder / "straight/summary.json").read_text())
    assert straight.stderr == ""


def test_predictions_under_mpirun_are_those_of_one_process(folder, straight, mpirun_on):
    out = folder / "four.csv"
    done = launch(mpirun_on(4), "predict", folder / "straight", "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"wrote 2708 predictions to {out}\n"
    in_process("predict", folder / "straight", "--out", folder / "one.csv")
    four, one = ((folder / name).read_text().splitlines() for name in ("four.csv", "one.csv"))
    assert [line.split(",")[:2] for line in four] == [line.split(",")[:2] for line in one]


def process_of_rank(rank, mark):
    """The process number of a rank of the job whose environment has this mark."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        wanted = {f"MARK={mark}".encode(), f"OMPI_COMM_WORLD_RANK={rank}".encode()}
        if wanted.issubset(variables) and b"distgnn" in command:
            return int(entry.name)
    raise AssertionError(f"there is no rank {rank}")


def test_a_killed_rank_ends_the_job_and_resume_ends_with_the_same_bits(
    folder, straight, mpirun_on, tmp_path
):
    mark, hold = uuid.uuid4().hex, Hold(tmp_path)
    run = folder / "killed"
    command = [*mpirun_on(4), "train", str(folder / "parts"), "--run", str(run), *MODEL, *LENGTH]
    hold.at(20)
    with subprocess.Popen(
        command,
        env=environ(MARK=mark, **hold.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        hold.wait(job)
        victim = process_of_rank(2, mark)
        os.kill(victim, signal.SIGKILL)
        hold.end()
        out, err = job.communicate(timeout=LIMIT_S)
    assert job.returncode != 0
    assert out == ""
    if "distgnn: rank 2 (" in err:
        assert f"pid {victim}) died" in err
        assert "start the job again with --resume" in err
    else:
        # mpirun kills the others a second after it has seen the end of a rank. On a busy machine
        # that is before one of them can speak, and mpirun alone names the rank.
        assert f"rank 2 with PID {victim}" in " ".join(err.split()), err
    assert "Traceback" not in err
    assert not (run / "model.safetensors").exists()
    assert len(metrics(run)) < NUM_EPOCHS

    done = launch(command, "--resume")
    assert done.returncode == 0, done.stderr
    assert "resuming from epoch " in done.stderr
    assert losses(run) == losses(folder / "straight")
    model = (run / "model.safetensors").read_bytes()
    assert model == (folder / "straight/model.safetensors").read_bytes()


def test_a_signal_to_mpirun_ends_the_job_with_a_checkpoint(folder, mpirun_on):
    run = folder / "told"
    words = ["train", str(folder / "parts"), "--run", str(run), *MODEL, "--epochs", "100000"]
    with subprocess.Popen(
        [*mpirun_on(4), *words],
        env=environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        deadline_s = time.monotonic() + LIMIT_S
        while not (run / "metrics.jsonl").exists():
            assert job.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.005)
        job.send_signal(signal.SIGUSR1)  # which mpirun hands on to all ranks
        out, err = job.communicate(timeout=LIMIT_S)
    assert (job.returncode, out) == (128 + signal.SIGUSR1, "")
    (sentence,) = [line for line in err.splitlines() if line.startswith("distgnn: ")]
    num_epochs = len(metrics(run))
    assert f") was asked to stop by SIGUSR1: the checkpoint of epoch {num_epochs}" in sentence
    assert (run / f"checkpoints/epoch-{num_epochs:06d}").exists()


def test_the_wrong_number_of_ranks_is_one_sentence(folder, mpirun_on):
    done = launch(mpirun_on(3), "train", folder / "parts", "--run", folder / "refused")
    assert done.returncode == 2
    assert done.stdout == ""
    (sentence,) = sentences(done)
    parts = folder / "parts"
    assert sentence == (
        f"distgnn: partition directory '{parts}' was made for 4 parts, but 3 ranks were started; "
        f"run mpirun -n 4 distgnn train {parts} ..."
    )
    assert "Traceback" not in done.stderr
    assert not (folder / "refused").exists()


def test_a_damaged_part_is_one_sentence_that_names_the_file(folder, mpirun_on):
    shutil.copytree(folder / "parts", folder / "damaged")
    file = folder / "damaged/part-0002/indices.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    done = launch(mpirun_on(4), "train", folder / "damaged", "--run", folder / "refused")
    assert done.returncode == 2
    (sentence,) = sentences(done)
    assert sentence.startswith(f"distgnn: rank 2: file '{file}' was altered: ")
    assert "Traceback" not in done.stderr
    assert not (folder / "refused").exists()


@pytest.mark.slow
def test_torchrun_starts_the_same_job(folder, straight):
    if not (BIN / "torchrun").exists():
        pytest.skip("no torchrun beside this Python")
    # Without the two dashes torchrun takes --run for an abbreviation of a flag of its own.
    torchrun = [str(BIN / "torchrun"), "--nproc-per-node", "4", "--no-python", "--", PROGRAM]
    run = folder / "torchrun"
    done = launch(torchrun, "train", folder / "parts", "--run", run, *MODEL, *LENGTH)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_ranks"] == 4
    # There gloo adds up gradients, here MPI: in another order.
    assert losses(run) == pytest.approx(losses(folder / "straight"), rel=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["gloo", "auto"])
def test_ranks_that_share_a_gpu_train_as_those_of_the_processor(
    backend, folder, straight, mpirun_on
):
    run = folder / f"device-{backend}"
    words = [*MODEL, "--epochs", "20", "--device", "cuda", "--backend", backend]
    done = launch(mpirun_on(4), "train", folder / "parts", "--run", run, *words)
    assert done.returncode == 0, done.stderr
    assert losses(run) == pytest.approx(losses(folder / "straight")[:20], rel=1e-4)
