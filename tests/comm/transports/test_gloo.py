from __future__ import annotations

import os
import shutil
import signal
import socket
import sys

import pytest
from rank_jobs import HANG_S, MPIRUN, SCRIPT, free_port, mpirun, run, srun

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(shutil.which(MPIRUN[0]) is None, reason="no mpirun beside this Python"),
]


def test_mpirun_ranks_keep_the_contract_and_listen_on_loopback_only() -> None:
    status, out, err = mpirun(3, "contract")
    assert status == 0, err
    assert sorted(out.splitlines()) == [f"{rank}/3 openmpi gloo lo ok []" for rank in range(3)]


@pytest.mark.parametrize(
    ("near", "variables"),
    [("0,1,2", {}), ("", {"LANES": "off"}), ("0,1", {"FAR": "2"})],
    ids=["all", "none", "some"],
)
def test_ranks_of_one_machine_keep_the_contract_with_and_without_lanes(
    near: str, variables: dict[str, str]
) -> None:
    status, out, err = mpirun(3, "lanes", NEAR=near, **variables)
    assert (status, out.split()) == (0, ["ok"] * 3), err


@pytest.mark.parametrize(("size", "small"), [(2, ""), (3, "1")], ids=["slots", "memory"])
def test_ranks_may_post_any_number_of_messages_before_one_of_them_waits(
    size: int, small: str
) -> None:
    status, out, err = mpirun(size, "posts", SMALL=small)
    assert (status, out.split()) == (0, ["ok"] * size), err


@pytest.mark.parametrize("mode", ["sizes", "flood"])
def test_lanes_lose_no_message_and_refuse_another_size(mode: str) -> None:
    status, out, err = mpirun(2, mode)
    assert (status, out.split()) == (0, ["ok"] * 2), err


def test_torchrun_ranks_keep_the_contract() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    status, out, err = run(command, str(SCRIPT), "contract")
    assert status == 0, err
    assert sorted(out.splitlines()) == [f"{rank}/2 torchrun gloo lo ok []" for rank in range(2)]


@pytest.mark.parametrize("is_remote", [False, True])
def test_srun_ranks_keep_the_contract(is_remote: bool) -> None:
    variables = {"SLURM_STEP_TASKS_PER_NODE": "2"}
    if is_remote:  # both hosts are this machine, but neither rank is told
        nodes = {"SLURM_STEP_NODELIST": "localhost,other", "MASTER_PORT": free_port()}
        variables = {"SLURM_STEP_TASKS_PER_NODE": "1(x2)", **nodes}
    ranks = srun("contract", **variables)
    try:
        for rank, started in enumerate(ranks):
            out, err = started.communicate(timeout=HANG_S)
            assert started.returncode == 0, err
            assert out.startswith(f"{rank}/2 srun gloo lo ok")
    finally:
        for started in ranks:
            started.kill()
            started.communicate()


def test_after_a_kill_the_survivors_name_the_rank_and_the_job_ends() -> None:
    # mpirun would end them a second after the kill, which is too early on a busy machine.
    ranks = srun("loop", "kill:1", size=3, SLURM_STEP_TASKS_PER_NODE="3")
    try:
        for survivor in (0, 2):
            _, err = ranks[survivor].communicate(timeout=HANG_S)
            assert ranks[survivor].returncode == 75, err
            assert f"[{survivor}] rank 1 ({socket.gethostname()}, pid {ranks[1].pid})" in err
            assert "died, last seen in" in err
            assert "the last checkpoint is of epoch 3; start the job again with --resume" in err
    finally:
        for started in ranks:
            started.kill()
            started.communicate()


def test_the_cause_of_a_rank_that_raises_is_printed_by_the_others() -> None:
    status, _, err = mpirun(3, "loop", "raise:0")
    assert status == 1
    for survivor in (1, 2):
        cause = f"rank 0 ({socket.gethostname()}): ValueError: boom (epoch 50, halo exchange)"
        assert f"[{survivor}] {cause}" in err


def test_a_stopped_rank_is_named_and_a_waiting_one_is_woken() -> None:
    first, second = srun("loop", "stop:1", SLURM_STEP_TASKS_PER_NODE="2")
    try:
        _, err = first.communicate(timeout=HANG_S)
    finally:
        os.kill(second.pid, signal.SIGKILL)
        second.communicate()
    assert first.returncode == 75
    assert "[0] rank 1" in err
    assert "sent no heartbeat for 4 s" in err


@pytest.mark.slow
def test_a_rank_that_works_alone_for_long_is_waited_for() -> None:
    status, out, err = mpirun(2, "slow")
    assert status == 0, err
    assert "0 [2.0, 2.0]" in out
    assert "1 [2.0, 2.0]" in out
