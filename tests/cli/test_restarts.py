"""Training that goes on by itself after a rank or a host was lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from rank_jobs import BIN, ENVIRON, Hold

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

PROGRAM = BIN / "distgnn"
SOURCE = "synthetic:planted,num_vertices=300"
WORDS = ["--hidden", "8", "--quiet", "--epochs", "300", "--eval-every", "50"]
WORDS += ["--checkpoint-every", "10", "--backend", "gloo", "--threads", "1"]
LIMIT_S = 280.0
# An mpirun whose host "gone" answers until a file says otherwise; all hosts are this one.
HOSTS = """#!{python}
import os, sys
words = sys.argv[1:]
at = words.index("--host")
hosts = words[at + 1]
if words[-1] == "true":
    sys.exit(int(hosts == "gone" and os.path.exists("{flag}")))
os.execv("{mpirun}", ["mpirun", "--oversubscribe", *words[:at], *words[at + 2:]])
"""


def start(command, mark, **variables):
    return subprocess.Popen(
        [str(word) for word in command],
        env={**ENVIRON, "MARK": mark, "PATH": f"{BIN}:{os.environ['PATH']}", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def completed(command):
    job = start(command, "")
    out, err = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 0, err
    return out


def losses(run):
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def ranks_of(mark, rank=None):
    """Processes that train, or those of one rank, of the job with this mark."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = set((entry / "environ").read_bytes().split(b"\0"))
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        numbers = {f"{name}={rank}".encode() for name in ("RANK", "OMPI_COMM_WORLD_RANK")}
        is_rank = rank is None or bool(numbers & variables)
        # A launcher has the variables, too.
        is_launcher = b"torchrun" in words or b"mpirun" in words.split(b"\0")[0]
        is_marked = f"MARK={mark}".encode() in variables and b"distgnn" in words
        if is_marked and is_rank and not is_launcher:
            found.append(int(entry.name))
    return found


def kill_held(job, hold, mark, rank, then=None):
    """Kill a rank while rank 0 is held, and have it held again in another epoch."""
    hold.wait(job)
    for pid in ranks_of(mark, rank):
        os.kill(pid, signal.SIGKILL)
    if then is not None:
        hold.at(then)
    hold.end()


@pytest.fixture
def hold(tmp_path):
    """Holds rank 0 when it writes the checkpoint of epoch 30."""
    made = Hold(tmp_path / "hold")
    made.at(30)
    return made


@pytest.fixture(autouse=True)
def _none_left(monkeypatch):
    """End jobs of a test that failed."""
    jobs, begin = [], start

    def kept(*words, **variables):
        jobs.append(begin(*words, **variables))
        return jobs[-1]

    monkeypatch.setitem(globals(), "start", kept)
    yield
    for job in jobs:
        job.kill()
        job.communicate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a graph in 3 parts, and a run on them that nothing disturbs."""
    folder = tmp_path_factory.mktemp("restarts")
    parts = folder / "parts"
    words = ["partition", SOURCE, "--parts", "3", "--out", parts]
    completed([PROGRAM, *words])
    command = [PROGRAM, "train", parts, "--run", folder / "straight", *WORDS, "--restarts", "1"]
    assert "test" in completed(command)
    return folder


@pytest.mark.parametrize("starter", ["processes", "mpirun"])
def test_a_lost_rank_is_started_again_and_the_run_ends_with_the_same_bits(
    folder, mpirun, starter, hold
):
    mark, run = uuid.uuid4().hex, folder / starter
    more = ["--mpirun", f"{mpirun} --oversubscribe"] if starter == "mpirun" else []
    words = ["train", folder / "parts", "--run", run, *WORDS, "--json", "--restarts", 2, *more]
    job = start([PROGRAM, *words], mark, **hold.environ)
    kill_held(job, hold, mark, 1)
    out, err = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 0, err
    assert json.loads(out)["num_ranks"] == 3
    assert "restart 1 of 2, on 3 ranks" in err
    assert "restart 2" not in err
    assert "Traceback" not in err
    assert losses(run) == losses(folder / "straight")
    models = [(one / "model.safetensors").read_bytes() for one in (run, folder / "straight")]
    assert models[0] == models[1]
    assert ranks_of(mark) == []


def test_without_a_host_training_goes_on_on_merged_parts(folder, mpirun, tmp_path, hold):
    mark, run, flag = uuid.uuid4().hex, folder / "hosts", tmp_path / "lost"
    program = tmp_path / "mpirun-of-hosts"
    program.write_text(HOSTS.format(python=sys.executable, flag=flag, mpirun=mpirun))
    program.chmod(0o755)
    parts = folder / "parts"
    words = ["train", parts, "--run", run, *WORDS, "--json", "--restarts", 1]
    job = start([PROGRAM, *words, "--mpirun", program, "--hosts", "a,b,gone"], mark, **hold.environ)
    flag.touch()
    kill_held(job, hold, mark, 2)
    out, err = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 0, err
    assert "without gone, on which nothing could be started" in err
    assert "restart 1 of 1, on 2 ranks" in err
    assert "merging 3 parts to 2" in err
    assert json.loads(out)["num_ranks"] == 2
    found = losses(run)
    # Those of two ranks from that checkpoint on, which differ from those of three by rounding.
    again = folder / "again"
    config = json.loads((run / "config.json").read_text())
    assert config["source"]["source"] == f"{parts}.merged-2"
    assert found == pytest.approx(losses(folder / "straight"), rel=1e-4)
    command = [mpirun, "--oversubscribe", "-n", "2", PROGRAM, "train", f"{parts}.merged-2"]
    completed([*command, "--run", again, *WORDS])
    assert found[-1] == pytest.approx(losses(again)[-1], rel=1e-4)


def test_torchrun_starts_ranks_again_and_fewer_of_them(folder, hold):
    mark, run, parts = uuid.uuid4().hex, folder / "torchrun", folder / "parts"
    words = ["train", parts, "--run", run, *WORDS, "--resume", "--merge-parts"]
    torchrun = [BIN / "torchrun", "--no-python", "--nproc-per-node", 2, "--max-restarts", 1]
    job = start([*torchrun, "--", PROGRAM, *words], mark, **hold.environ)
    kill_held(job, hold, mark, 1)
    _, err = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 0, err
    assert "Traceback" not in err.partition("Root Cause")[0].replace("traceback :", "")
    assert losses(run) == pytest.approx(losses(folder / "straight"), rel=1e-4)
    assert ranks_of(mark) == []


def test_a_signal_ends_ranks_in_order_and_starts_none_again(folder):
    mark, run = uuid.uuid4().hex, folder / "asked"
    words = ["train", folder / "parts", "--run", run, *WORDS, "--restarts", 3]
    words += ["--epochs", 1_000_000]  # that go on until the signal, however late it comes
    job = start([PROGRAM, *words], mark)
    deadline_s = time.monotonic() + LIMIT_S
    while not list((run / "checkpoints").glob("epoch-*")):
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    job.send_signal(signal.SIGTERM)
    _, err = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 128 + signal.SIGTERM, err
    assert "restart" not in err
    assert ranks_of(mark) == []


def test_a_mistake_is_not_tried_again(folder):
    words = ["train", folder / "parts", "--run", folder / "straight", *WORDS, "--restarts", 3]
    job = start([PROGRAM, *words], "")
    out, err = job.communicate(timeout=LIMIT_S)
    assert (job.returncode, out) == (2, "")
    assert "already holds a run" in err
    assert "restart 1" not in err


def test_a_rank_that_is_lost_each_time_ends_with_the_status_of_a_later_try(folder, hold):
    mark, run = uuid.uuid4().hex, folder / "often"
    words = ["train", folder / "parts", "--run", run, *WORDS, "--restarts", 1]
    job = start([PROGRAM, *words], mark, **hold.environ)
    kill_held(job, hold, mark, 1, then=100)
    kill_held(job, hold, mark, 0)
    _, err = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 75, err
    assert "rank 1 ended with SIGKILL" in err
    assert "rank 0 ended with SIGKILL" in err
