"""Training does not depend on how the rows travel."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from rank_jobs import MPIRUN, run
from transport_job import train

from distgnn.comm.threads import run_ranks

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("backend", ["mpi", "gloo"])
def test_training_on_processes_is_training_on_threads(backend, mpirun, repository):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = run_ranks(3, train)[0]
    torch.set_num_threads(threads)
    script = Path(__file__).parents[2] / "transport_job.py"
    command = [mpirun, *MPIRUN[1:], "-n", "3", sys.executable, str(script)]
    status, out, err = run(command, BACKEND=backend, PYTHONPATH=str(repository / "tests"))
    assert status == 0, err
    trained = json.loads(out)
    if backend == "mpi":  # which adds up gradients in rank order, as threads do
        assert trained == expected
    else:
        for got, wanted in zip(trained, expected, strict=True):
            assert got == pytest.approx(wanted, rel=1e-5, abs=1e-6)
