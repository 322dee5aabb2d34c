"""The README of the repository: its programs and commands run as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


def blocks(text, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.mpi
def test_the_readme_can_be_followed_from_top_to_bottom(repository, tmp_path, mpirun):
    """Programs are saved under the names that the text gives them, commands run as printed."""
    text = (repository / "README.md").read_text("utf-8")
    quick, own_loop = blocks(text, "python")
    install, shell = blocks(text, "sh")
    assert re.findall(r"^make (\w+)", install, re.MULTILINE) == ["quickstart"]
    assert "\nquickstart: install\n" in (repository / "Makefile").read_text("utf-8")
    assert ". .venv/bin/activate" in install
    (tmp_path / "quick.py").write_text(quick)
    (tmp_path / "own_loop.py").write_text(own_loop)
    assert "Save it as `own_loop.py`" in text
    # As after `. .venv/bin/activate`, without what would let Open MPI start for root or too often.
    path = os.pathsep.join([str(Path(mpirun).parent), str(Path(sys.executable).parent)])
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PRTE_", "PMIX_"))}
    environ |= {"PATH": os.pathsep.join([path, os.environ["PATH"]]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-e", "-c", f"python quick.py\n{shell}"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.match(r"0\.[78]\d* \(2708, 7\) \(2708, 16\)\n", done.stdout)
    assert re.fullmatch(r"0\.[78]\d*", done.stdout.splitlines()[-1])
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 2709
