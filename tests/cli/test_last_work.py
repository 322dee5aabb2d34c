"""Work of rank 0 while the other ranks have nothing left to do."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from rank_jobs import BIN, ENVIRON, HANG_S, MPIRUN
from ring import ring_arrays

from distgnn.cli import main

# Ranks wait for each other's end for half a second, and rank 0 writes its file for three.
_SLOW = """
import sys, time
from distgnn.api import tables
from distgnn.comm import mpi_library
mpi_library._FINALIZE_S = 0.5
write = tables.write_table
tables.write_table = lambda *given: (time.sleep(3), write(*given))
from distgnn.__main__ import main
raise SystemExit(main())
"""


def mpirun(*words):
    return subprocess.run(
        [str(word) for word in (*MPIRUN, "-n", 2, *words)],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env=ENVIRON,
        check=False,
    )


@pytest.mark.mpi
@pytest.mark.parametrize("verb", ["predict", "embed"])
def test_a_file_that_takes_long_is_written_while_the_others_wait(tmp_path, verb):
    np.savez(tmp_path / "ring.npz", **ring_arrays())
    words = ["partition", tmp_path / "ring.npz", "--parts", 2, "--out", tmp_path / "parts"]
    assert main([str(word) for word in words]) == 0
    run, out = tmp_path / "run", tmp_path / "out.csv"
    words = ["train", tmp_path / "parts", "--run", run, "--epochs", 1, "--hidden", 4]
    done = mpirun(BIN / "distgnn", *words)
    assert done.returncode == 0, done.stderr
    done = mpirun(sys.executable, "-c", _SLOW, verb, run, "--out", out, "--backend", "mpi")
    assert (done.returncode, out.exists()) == (0, True), done.stderr
