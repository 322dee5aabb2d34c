from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
import torch

from distgnn.comm.launch import Launch, detect, expand_nodes, expand_tasks
from distgnn.comm.open import open_group
from distgnn.datasets import InputError

OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_RANK": "3",
    "PMIX_NAMESPACE": "prterun-host0-77@1",
}
HYDRA = {
    "PMI_RANK": "1",
    "PMI_SIZE": "2",
    "MPI_LOCALRANKID": "1",
    "MPI_LOCALNRANKS": "2",
    "PMI_FD": "9",
}
SLURM_STEP = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3)",
    "SLURM_STEP_NODELIST": "host[0-2]",
    "SLURM_JOB_ID": "9",
    "SLURM_STEP_ID": "0",
}
SLURM_BATCH_SHELL = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "9"}
SLURM_INTERACTIVE_SHELL = {
    **SLURM_BATCH_SHELL,
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
}
TORCHRUN = {
    "RANK": "2",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "x",
}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, Launch("single", 0, 1, 0, 1)),
        (OPENMPI, Launch("openmpi", 3, 4, 1, 2)),
        (HYDRA, Launch("mpich", 1, 2, 1, 2)),
        ({**HYDRA, "I_MPI_HYDRA_UUID": "1"}, Launch("intelmpi", 1, 2, 1, 2)),
        (SLURM_STEP, Launch("srun", 5, 6, 1, 2)),
        (
            {**SLURM_STEP, "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "3,2,1"},
            Launch("srun", 5, 6, 1, 2),
        ),
        (TORCHRUN, Launch("torchrun", 2, 4, 0, 2)),
        ({"RANK": "1", "WORLD_SIZE": "2"}, Launch("torchrun", 1, 2, 0, 1)),
        # An inner launcher inherits the variables of the outer one.
        ({**SLURM_STEP, **OPENMPI}, Launch("openmpi", 3, 4, 1, 2)),
        ({**SLURM_STEP, **HYDRA}, Launch("mpich", 1, 2, 1, 2)),
        ({**SLURM_STEP, **OPENMPI, **TORCHRUN}, Launch("torchrun", 2, 4, 0, 2)),
        # srun --mpi=pmi2 sets PMI_RANK without the local ranks.
        ({**SLURM_STEP, "PMI_RANK": "5", "PMI_SIZE": "6"}, Launch("srun", 5, 6, 1, 2)),
        (SLURM_BATCH_SHELL, Launch("single", 0, 1, 0, 1)),
        (SLURM_INTERACTIVE_SHELL, Launch("single", 0, 1, 0, 1)),
    ],
)
def test_the_launcher_is_told_from_the_environment(
    environ: dict[str, str], expected: Launch
) -> None:
    assert detect(environ) == expected


def test_variables_left_from_another_job_are_refused() -> None:
    with pytest.raises(InputError, match=r"contradict each other: RANK=4, WORLD_SIZE=4"):
        detect({"RANK": "4", "WORLD_SIZE": "4"})
    with pytest.raises(InputError, match="variable WORLD_SIZE must be an integer, got 'two'"):
        detect({"RANK": "0", "WORLD_SIZE": "two"})


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("host0", ["host0"]),
        ("gpu[003-005,9]", ["gpu003", "gpu004", "gpu005", "gpu9"]),
        ("login1,gpu[1-2],x", ["login1", "gpu1", "gpu2", "x"]),
        ("rack[1-2]n[08-09]b", ["rack1n08b", "rack1n09b", "rack2n08b", "rack2n09b"]),
    ],
)
def test_a_node_list_is_expanded(text: str, hosts: list[str]) -> None:
    assert expand_nodes(text) == hosts


@pytest.mark.parametrize("text", ["", "gpu[1-", "gpu[a-b]", "gpu[1-2-3]", "a,,[", "a b"])
def test_a_node_list_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="SLURM_STEP_NODELIST must look like"):
        expand_nodes(text)


def test_tasks_per_node_are_expanded() -> None:
    assert expand_tasks("2(x3),1") == [2, 2, 2, 1]
    with pytest.raises(InputError, match=r"must look like '2\(x3\),1', got '2x3'"):
        expand_tasks("2x3")


def test_a_backend_that_does_not_exist_is_refused() -> None:
    with pytest.raises(
        InputError, match="one of auto, gloo, mpi, nccl, got 'smoke'; leave --backend out"
    ):
        open_group(backend="smoke")


def test_an_interface_that_does_not_exist_is_refused() -> None:
    names = [name for _, name in socket.if_nameindex()]
    message = rf"one of {', '.join(names)} on host .*, got 'eth99'; leave --interface out"
    with pytest.raises(InputError, match=message):
        open_group(interface="eth99")


def test_an_interface_that_mpi_would_not_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in HYDRA.items():
        monkeypatch.setenv(name, value)
    name = socket.if_nameindex()[0][1]
    sentence = (
        f"backend 'mpi' uses no network interface between ranks of one host, got '{name}'; "
        "drop --interface or choose --backend gloo"
    )
    with pytest.raises(InputError, match=sentence):
        open_group(backend="mpi", interface=name)


def test_a_process_group_of_the_users_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in HYDRA.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.raises(InputError, match=r"drop torch\.distributed\.init_process_group, or"):
        open_group(backend="gloo")


def test_one_process_without_a_launcher_is_a_group_of_one() -> None:
    group = open_group()
    assert (group.size, group.launcher, group.backend) == (1, "single", "single")
    group.close()


def test_detecting_the_launcher_does_not_import_torch() -> None:
    code = "import sys, distgnn.comm as c; c.detect(); sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False).returncode
        == 0
    )
