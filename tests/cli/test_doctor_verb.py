from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rank_jobs import HANG_S, free_port

from distgnn import __version__, kernels
from distgnn.comm.threads import run_ranks
from distgnn.machine import facts, trials
from distgnn.machine.facts import advice, look


@pytest.fixture
def found():
    """Findings of the doctor on a machine where all is well."""
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
        "numa_nodes": 1,
        "memory_bytes_per_s": [9e9, 8e9],
        "disk_bytes_per_s": 2e8,
        "links": {"latency_s": [0.0, 2e-5], "bytes_per_s": [1e9, 1e9]},
        "interface": "eth9",
    }


@pytest.fixture(autouse=True)
def _ten_gigabits(tmp_path, monkeypatch):
    """An interface of 10 Gb/s, and one that does not tell."""
    for name, text in (("eth9", "10000\n"), ("wifi", "-1\n")):
        (tmp_path / "net" / name).mkdir(parents=True)
        (tmp_path / "net" / name / "speed").write_text(text)
    monkeypatch.setattr(facts, "_NETWORK", tmp_path / "net")


def test_json_tells_what_it_found_and_what_it_would_change(distgnn):
    found = distgnn("doctor", "--json").json
    assert found["cores"] == os.cpu_count()
    assert found["instruction_set"] == kernels.instruction_set()
    assert found["threads"] >= 1
    assert found["launcher"] == "single"
    assert "lo" in found["interfaces"]
    assert found["memory_bytes"] > 2**30
    assert found["memory_bytes_per_s"][0] > 1e8
    assert found["disk_bytes_per_s"] > 1e5
    assert found["links"] is None
    assert found["versions"]["distgnn"] == __version__
    assert isinstance(found["advice"], list)


def test_people_see_a_line_for_each_fact(distgnn):
    lines = distgnn("doctor").out.splitlines()
    facts = dict(line.split(maxsplit=1) for line in lines if line and ":" not in line.split()[0])
    assert facts["versions"].startswith(f"distgnn {__version__}, torch ")
    assert facts["memory_bytes"].endswith(("GiB", "TiB"))
    assert facts["launcher"] == "single"
    assert facts["memory_bytes_per_s"].endswith("iB/s")
    assert "links" not in facts


def test_there_is_nothing_to_change_where_all_is_well(found):
    assert advice(found) == []
    for interface in ("wifi", "", "nosuch"):
        assert advice({**found, "interface": interface, "links": {"bytes_per_s": [1.0]}}) == []
    assert advice({**found, "disk_bytes_per_s": None, "links": None}) == []


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
        ({"numa_nodes": 2}, "2 memory nodes: one rank on each"),
        ({"memory_bytes_per_s": [9e9, 9e9, 4e9]}, "rank 2 reads memory at less than half"),
        ({"disk_bytes_per_s": 1.2e7}, "checkpoints would be written at 12 MB/s"),
        (
            {"links": {"bytes_per_s": [1e9, 5e8]}},
            "rank 1 sends 4.0 Gb/s over eth9, which is made for 10 Gb/s",
        ),
    ],
)
def test_each_thing_that_is_wrong_has_a_remedy(changes, remedy, found):
    (sentence,) = advice({**found, **changes})
    assert remedy in sentence


def test_a_folder_that_cannot_be_written_is_named(distgnn, here):
    sentence = distgnn("doctor", "--folder", here / "nosuch").sentence
    assert sentence == (
        f"cannot write to folder '{here / 'nosuch'}': No such file or directory; give another "
        "--folder"
    )


def test_links_are_measured_between_all_ranks(tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "_MEMORY_BYTES", 1 << 16)
    monkeypatch.setattr(trials, "_MESSAGE_BYTES", 1 << 16)

    def on_rank(group):
        return trials.link_speed(group), trials.memory_speed(group)

    for links, memory in run_ranks(3, on_rank):
        assert links["latency_s"][0] == 0 < min(links["latency_s"][1:]) < 1
        assert len(links["bytes_per_s"]) == len(memory) == 3
        assert min(*links["bytes_per_s"], *memory) > 0
    assert run_ranks(1, trials.link_speed) == [None]


def test_the_file_that_was_written_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "_DISK_BYTES", 1 << 22)
    assert trials.disk_speed(tmp_path / "net") > 0
    assert sorted(item.name for item in (tmp_path / "net").iterdir()) == ["eth9", "wifi"]


@pytest.mark.mpi
def test_several_ranks_measure_together_and_rank_0_speaks(mpirun, tmp_path):
    program = str(Path(sys.executable).with_name("distgnn"))
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        [mpirun, "--oversubscribe", "-n", "2", program, "doctor", "--threads", "1", "--json"],
        cwd=tmp_path,
        env={**os.environ, **allowed},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    found = json.loads(done.stdout)
    assert (found["ranks"], len(found["memory_bytes_per_s"])) == (2, 2)
    assert found["links"]["bytes_per_s"][1] > 1e6
    assert 0 < found["links"]["latency_s"][1] < 1


def test_a_rank_that_does_not_come_is_named_after_the_time_that_was_asked_for():
    rank = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "distgnn", "doctor", "--start-timeout", "1"],
        env={**os.environ, **rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert "rank 1 of 2 did not come within 1 s; rank 0 on " in done.stderr
    assert done.returncode == 75, done.stderr


def test_threads_that_were_asked_for_are_reported(distgnn):
    found = distgnn("doctor", "--threads", "3", "--json").json
    assert (found["threads"], found["threads_reason"]) == (3, "as requested")
