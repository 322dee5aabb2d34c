from __future__ import annotations

import pytest
import torch

from distgnn.comm.binding import Cores, apply_threads, choose_threads, look_at_cores
from distgnn.comm.launch import SINGLE, SUPERVISED, Launch
from distgnn.datasets import InputError

MPIRUN = Launch("openmpi", 0, 4, 0, 4)
TORCHRUN = Launch("torchrun", 0, 4, 0, 4)
FREE = Cores(16, 16)


@pytest.mark.parametrize(
    ("launch", "environ", "cores", "threads"),
    [
        (SINGLE, {}, FREE, 16),
        (SINGLE, {"OMP_NUM_THREADS": "3"}, FREE, 3),
        (MPIRUN, {"OMP_NUM_THREADS": "5,2"}, FREE, 5),
        (MPIRUN, {}, FREE, 4),
        (MPIRUN, {}, Cores(64, 64), 15),  # one of 16 for communication
        (MPIRUN, {}, Cores(16, 3, is_bound=True), 3),
        (MPIRUN, {}, Cores(2, 2), 1),
        (MPIRUN, {}, Cores(16, 16, quota=8.0), 2),
        # torchrun sets 1 by itself; another number is the user's, as is 1 without torchrun.
        (TORCHRUN, {"OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "7"}, FREE, 4),
        (TORCHRUN, {"OMP_NUM_THREADS": "1"}, FREE, 1),
        (TORCHRUN, {"OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "7", SUPERVISED: "1"}, FREE, 1),
        (TORCHRUN, {"OMP_NUM_THREADS": "2"}, FREE, 2),
        (Launch("torchrun", 0, 1, 0, 1), {"OMP_NUM_THREADS": "1"}, FREE, 1),
    ],
)
def test_threads_are_this_ranks_share_of_the_cores(
    launch: Launch, environ: dict[str, str], cores: Cores, threads: int
) -> None:
    choice = choose_threads(None, launch, environ=environ, cores=cores)
    assert choice.threads == threads
    assert choice.warning is None


def test_a_requested_number_is_taken() -> None:
    choice = choose_threads(7, MPIRUN, environ={"OMP_NUM_THREADS": "3"}, cores=FREE)
    assert (choice.threads, choice.reason) == (7, "as requested")
    for number in (0, 10**9):
        with pytest.raises(
            InputError, match=rf"threads must be in 1\.\.1024, got {number}; leave -"
        ):
            choose_threads(number, MPIRUN)


@pytest.mark.parametrize(
    "text", ["0", "-1", "many", " ", "1.5", "1000000000", "9" * 5000, "0,4", "\N{SUPERSCRIPT TWO}"]
)
def test_a_bad_environment_variable_is_refused(text: str) -> None:
    # The middle of a long sentence is left out.
    shown = f"{text}'; un" if len(text) < 100 else text[:100]
    with pytest.raises(InputError, match=rf"OMP_NUM_THREADS must be in 1\.\.1024, got '{shown}"):
        choose_threads(None, SINGLE, environ={"OMP_NUM_THREADS": text})


def test_a_rank_bound_to_one_core_of_many_is_warned_with_the_flag() -> None:
    choice = choose_threads(None, MPIRUN, environ={}, cores=Cores(16, 1, is_bound=True))
    assert choice.threads == 1
    assert choice.warning is not None
    assert "bound rank 0 to 1 core, but the machine has 4 per rank" in choice.warning
    assert "--bind-to none, or --map-by" in choice.warning
    few = choose_threads(None, MPIRUN, environ={}, cores=Cores(4, 1, is_bound=True))
    assert few.warning is None


def test_this_machine_has_cores_and_torch_takes_the_number() -> None:
    cores = look_at_cores()
    assert 1 <= cores.num_usable <= cores.num_cores
    before = torch.get_num_threads()
    apply_threads(before + 1)
    assert torch.get_num_threads() == before + 1
    apply_threads(before)
