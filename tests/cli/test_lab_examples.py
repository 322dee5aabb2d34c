"""The scripts of examples/lab that need no lab; the others say what they need."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.mpi


def run(repository, script, *words, cwd):
    kept = {name: value for name, value in os.environ.items() if name != "DISTGNN_LAB"}
    return subprocess.run(
        [sys.executable, str(repository / "examples/lab" / script), *map(str, words)],
        cwd=cwd,
        env=kept,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_killed_runs_end_like_the_straight_one(repository, tmp_path):
    done = run(repository, "random_kills.py", "--kills", 3, "--seed", 1, "out", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    kills = re.search(r"^(\d+) kills \(", done.stdout, re.MULTILINE)
    ends = re.search(r"^(\d+) runs reached their end", done.stdout, re.MULTILINE)
    assert int(kills[1]) == 3
    assert int(ends[1]) >= 1


def test_without_a_lab_a_script_says_what_it_needs(repository, tmp_path):
    done = run(repository, "faults.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "skipped: DISTGNN_LAB does not name a folder with netlab.py\n"
    assert list(tmp_path.iterdir()) == []
