"""Coded rows, and rows that travel by their values, are on processes what they are on threads."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from conformance.halo_job import RUNS, train
from rank_jobs import MPIRUN, run

from distgnn.comm.threads import run_ranks
from distgnn.training.config.codecs import parse_halo

pytestmark = [pytest.mark.mpi, pytest.mark.slow]
NUM_RANKS = 4


@pytest.mark.parametrize("backend", ["mpi", "gloo"])
def test_rows_on_processes_are_those_on_threads(backend, mpirun, repository):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = run_ranks(NUM_RANKS, train)[0]
    torch.set_num_threads(threads)
    script = Path(__file__).with_name("halo_job.py")
    command = [mpirun, *MPIRUN[1:], "-n", str(NUM_RANKS), sys.executable, str(script)]
    status, out, err = run(command, BACKEND=backend, PYTHONPATH=str(repository / "tests"))
    assert status == 0, err
    trained = json.loads(out)
    if backend == "mpi":  # which adds up gradients in rank order, as threads do
        assert trained == expected
        return
    for (halo, _), got, wanted in zip(RUNS, trained, expected, strict=True):
        # The first epoch has seen no sum of gradients.
        assert got[0] == wanted[0]
        rule = parse_halo(halo)
        for one, other in zip(got, wanted, strict=True):
            if rule.sends_at_most:  # a row that is near the threshold may be on its other side
                most = 0.05 * got[0]["halo_bytes_sent"]
                assert abs(one["halo_bytes_sent"] - other["halo_bytes_sent"]) <= most
            else:
                assert one["halo_bytes_sent"] == other["halo_bytes_sent"]
            # A value near the middle of two codes may be rounded to the other one.
            assert one["loss"] == pytest.approx(other["loss"], rel=0.02)
