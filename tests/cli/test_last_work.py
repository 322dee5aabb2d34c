"""Work of rank 0 while the other ranks have nothing left to do."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from rank_jobs import BIN, ENVIRON, HANG_S, MPIRUN
from ring import ring_arrays

from distgnn.cli import main

# Once the ranks have parted, the others wait for rank 0 for a short time only.
_NOTES = """
import sys
from distgnn.api import tables
from distgnn.comm.transports.mpi import MpiGroup
order, write, close = [], tables.write_table, MpiGroup.close
tables.write_table = lambda *given: (order.append("write"), write(*given))
MpiGroup.close = lambda group: (order.append("close"), close(group))
from distgnn.__main__ import main
status = main()
sys.stdout.write(" ".join(["order:", *order, chr(10)]))
raise SystemExit(status)
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
def test_a_file_is_written_before_the_ranks_part(tmp_path, verb):
    np.savez(tmp_path / "ring.npz", **ring_arrays())
    words = ["partition", tmp_path / "ring.npz", "--parts", 2, "--out", tmp_path / "parts"]
    assert main([str(word) for word in words]) == 0
    run, out = tmp_path / "run", tmp_path / "out.csv"
    words = ["train", tmp_path / "parts", "--run", run, "--epochs", 1, "--hidden", 4]
    done = mpirun(BIN / "distgnn", *words)
    assert done.returncode == 0, done.stderr
    done = mpirun(sys.executable, "-c", _NOTES, verb, run, "--out", out, "--backend", "mpi")
    assert (done.returncode, out.exists()) == (0, True), done.stderr
    assert "order: write close" in done.stdout
