"""The scripts of examples/lab that need no lab; the others say what they need."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.mpi


def run(repository, script, *words, cwd, lab=None, **variables):
    ours = ("DISTGNN_LAB", "DISTGNN_MPIRUN")
    kept = {name: value for name, value in os.environ.items() if name not in ours} | variables
    if lab is not None:
        kept["DISTGNN_LAB"] = str(lab)
    return subprocess.run(
        [sys.executable, str(repository / "examples/lab" / script), *map(str, words)],
        cwd=cwd,
        env=kept,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


@pytest.mark.slow
def test_killed_runs_end_like_the_straight_one(repository, tmp_path):
    done = run(repository, "random_kills.py", "--kills", 3, "--seed", 1, "out", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    kills = re.search(r"^(\d+) kills \(", done.stdout, re.MULTILINE)
    ends = re.search(r"^(\d+) runs reached their end", done.stdout, re.MULTILINE)
    assert int(kills[1]) == 3
    assert int(ends[1]) >= 1


@pytest.mark.slow
def test_runs_that_are_killed_under_presets_end_like_the_straight_ones(repository, tmp_path):
    words = ["random_kills.py", "--kills", 1, "--presets", "cgx,skewscout", "out"]
    done = run(repository, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith("| `")]
    assert [row[1].strip() for row in rows] == ["`cgx`", "`skewscout`"]
    assert [row[2].strip() for row in rows] == ["1", "1"]
    assert all(int(row[5]) >= 1 for row in rows)


@pytest.mark.slow
def test_drawn_faults_leave_runs_that_resume_with_the_same_bits(repository, tmp_path):
    for count in (1, 2):  # the second time it goes on
        done = run(repository, "campaign.py", "--faults", count, "--seed", 2, "out", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert len((tmp_path / "out/faults.jsonl").read_text().splitlines()) == count
    shown = run(repository, "campaign.py", "--table", "out", cwd=tmp_path)
    (total,) = [line for line in shown.stdout.splitlines() if line.startswith("| all |")]
    num_faults, _, wrong, tracebacks, left = (int(text) for text in total.split("|")[2:7])
    assert (num_faults, wrong, tracebacks, left) == (2, 0, 0, 0)


def test_faults_found_with_another_mpi_are_shown_without_it(repository, tmp_path):
    found = {"number": 0, "fault": "SIGKILL", "moment": "epoch", "victim": 1, "is_struck": True}
    found |= {"transport": "mpi", "launcher": "MPICH", "ended_s": 1.5, "left": 0}
    found |= {"has_traceback": False, "is_named": True, "is_named_by_launcher": False}
    found |= {"has_same_bits": True}
    (tmp_path / "faults.jsonl").write_text(json.dumps(found) + "\n")
    shown = run(repository, "campaign.py", "--table", ".", cwd=tmp_path)
    assert "| mpi, MPICH | 1 | 0 | 0 | 0 | 0 | 1 of 1 |" in shown.stdout, shown.stderr


def test_an_mpirun_that_is_not_there_is_told_in_one_sentence(repository, tmp_path):
    done = run(repository, "campaign.py", "out", cwd=tmp_path, DISTGNN_MPIRUN="/bin/no-mpirun")
    assert done.returncode == 1
    assert done.stderr == (
        "DISTGNN_MPIRUN is '/bin/no-mpirun', but must be the mpirun of MPICH, in the folder bin "
        "beside lib with its libmpi.so; correct or unset it\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_small_jobs_end_well_under_each_launcher(repository, tmp_path):
    done = run(repository, "starts.py", "--starts", 3, "out", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for way in ("gloo, torchrun", "gloo, mpirun", "mpi, mpirun"):
        assert f"| {way} | 1 | 1 x 0 | 0 |" in done.stdout


def test_without_a_lab_a_script_says_what_it_needs(repository, tmp_path):
    done = run(repository, "faults.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "skipped: DISTGNN_LAB does not name a folder with netlab.py\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "script",
    ["faults.py", "lost_host.py", "campaign.py", "interrupted.py", "random_kills.py"],
)
def test_a_folder_with_files_of_others_is_left_alone(repository, tmp_path, script):
    if script in {"faults.py", "lost_host.py"} and os.geteuid() != 0:
        pytest.skip("only root gets past the question for the lab")
    (tmp_path / "netlab.py").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    done = run(repository, script, "mine", cwd=tmp_path, lab=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    sentence = "mine' exists and is not an empty folder; remove it or name another one\n"
    assert done.stderr.endswith(sentence)
    assert (tmp_path / "mine" / "thesis.tex").exists()
