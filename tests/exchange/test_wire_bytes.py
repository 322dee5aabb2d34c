"""The bytes that are counted are the bytes on the wire."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("halo", "num_epochs"), [("exact", 10), pytest.param("int8", 40, marks=pytest.mark.slow)]
)
def test_counted_bytes_are_those_of_the_kernel_within_three_percent(
    halo, num_epochs, mpirun, repository
):
    tests = repository / "tests"
    environ = {
        **os.environ,
        "PYTHONPATH": str(tests),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    command = [mpirun, "--oversubscribe", "--bind-to", "none", "-n", "3"]
    script = Path(__file__).with_name("wire_script.py")
    done = subprocess.run(
        [*command, sys.executable, str(script), halo, str(num_epochs)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout.splitlines()[-1])
    assert measured["counted"] > 50e6
    assert measured["wire"] == pytest.approx(measured["counted"], rel=0.03)
