from __future__ import annotations

import os

import pytest

from distgnn import __version__, kernels
from distgnn.cli.machine import advice, look


@pytest.fixture
def found():
    """What the doctor finds on a machine where all is well."""
    return {
        **look(),
        "binding": None,
        "mpirun": "/usr/bin/mpirun",
        "mpirun_version": "mpirun (Open MPI) 5.0.11",
        "is_root": False,
        "instruction_set": "x86-64-v3",
        "openmp_runtimes": ["/lib/libgomp.so.1"],
        "memory_bytes": 100,
        "memory_limit_bytes": None,
        "memory_available_bytes": 50,
    }


def test_json_tells_what_it_found_and_what_it_would_change(distgnn):
    found = distgnn("doctor", "--json").json
    assert found["cores"] == os.cpu_count()
    assert found["instruction_set"] == kernels.instruction_set()
    assert found["threads"] >= 1
    assert found["launcher"] == "single"
    assert "lo" in found["interfaces"]
    assert found["memory_bytes"] > 2**30
    assert found["versions"]["distgnn"] == __version__
    assert isinstance(found["advice"], list)


def test_people_see_a_line_for_each_fact(distgnn):
    lines = distgnn("doctor").out.splitlines()
    facts = dict(line.split(maxsplit=1) for line in lines if line and ":" not in line.split()[0])
    assert facts["versions"].startswith(f"distgnn {__version__}, torch ")
    assert facts["memory_bytes"].endswith(("GiB", "TiB"))
    assert facts["launcher"] == "single"


def test_there_is_nothing_to_change_where_all_is_well(found):
    assert advice(found) == []


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"binding": "the launcher bound rank 0 to 1 core"}, "bound rank 0 to 1 core"),
        ({"mpirun": None}, "pip install 'distgnn[mpi]'"),
        ({"is_root": True}, "--allow-run-as-root"),
        ({"instruction_set": "baseline"}, "no AVX2"),
        ({"openmp_runtimes": ["/lib/libgomp.so.1", "/lib/libomp.so"]}, "2 OpenMP runtimes"),
        ({"memory_available_bytes": 9}, "less than a tenth of the memory is free"),
        ({"memory_limit_bytes": 1000}, "less than a tenth of the memory is free"),
    ],
)
def test_each_thing_that_is_wrong_has_a_remedy(changes, remedy, found):
    (sentence,) = advice({**found, **changes})
    assert remedy in sentence


def test_it_speaks_on_rank_0_only(distgnn, monkeypatch):
    for name, value in {"RANK": 1, "SIZE": 2, "LOCAL_RANK": 1, "LOCAL_SIZE": 2}.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", str(value))
    assert distgnn("doctor") == (0, "", "")
