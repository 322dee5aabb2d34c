from __future__ import annotations

import time

import pytest
import torch
from group_contract import run_contract

from distgnn.comm.group import Group
from distgnn.comm.launch import Launch
from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_ranks_as_threads_keep_the_contract(size: int) -> None:
    run_ranks(size, run_contract)


def test_a_group_of_one_keeps_the_contract() -> None:
    group = SingleGroup()
    run_contract(group)
    group.publish_failure(ValueError("nobody listens"))
    group.close()
    with pytest.raises(AssertionError, match="no rank 1 among 1"):
        group.isend(torch.zeros(1), 1, 0)
    with pytest.raises(AssertionError, match="rank 0 cannot send to itself"):
        group.irecv(torch.zeros(1), 0, 0)
    with pytest.raises(AssertionError, match="2 ranks are no single one"):
        SingleGroup(Launch("openmpi", 0, 2, 0, 2))


def test_results_come_in_rank_order() -> None:
    def work(group: Group) -> tuple[int, str]:
        group.close()
        return group.rank, group.backend

    assert run_ranks(3, work) == [(0, "threads"), (1, "threads"), (2, "threads")]


def test_the_first_real_error_is_raised_and_ends_the_others() -> None:
    def work(group: Group) -> None:
        if group.rank == 1:
            raise InputError("the cause")
        group.barrier()

    with pytest.raises(InputError, match="the cause"):
        run_ranks(3, work)


def test_a_deadlock_is_an_error_at_once() -> None:
    def work(group: Group) -> None:
        if group.rank == 0:
            group.irecv(torch.empty(1), 1, 5).wait()

    with pytest.raises(RuntimeError, match="no rank can go on: rank 0 waits for rank 1 to send"):
        run_ranks(2, work, timeout_s=3600)


def test_a_rank_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(group: Group) -> None:
        if group.rank == 1:
            time.sleep(1.5)
        group.barrier()

    with monkeypatch.context() as patch:
        patch.setattr("distgnn.comm.threads._HEAD_START_S", 60.0)  # however late the rank is
        with pytest.raises(RuntimeError, match=r"rank 0 waited 0\.1 s for all ranks in barrier"):
            run_ranks(2, work, timeout_s=0.1)
    with pytest.raises(RuntimeError, match=r"ranks 0, 1 still ran after 0\.1 s"):
        run_ranks(2, lambda group: time.sleep(2.0), timeout_s=0.1)


def test_different_collectives_are_refused() -> None:
    def work(group: Group) -> None:
        if group.rank == 0:
            group.barrier()
        else:
            group.all_reduce(torch.zeros(2))

    with pytest.raises(RuntimeError, match=r"collective 0 is .* all ranks must call the same"):
        run_ranks(2, work)


def test_a_message_of_another_size_is_refused() -> None:
    def work(group: Group) -> None:
        if group.rank == 0:
            group.isend(torch.zeros(2), 1, 3).wait()
        else:
            group.irecv(torch.zeros(3), 0, 3).wait()

    with pytest.raises(RuntimeError, match=r"sent 2 x torch.float32 with tag 3, but rank 1 expec"):
        run_ranks(2, work)


def test_a_sent_tensor_may_not_change_and_a_received_one_is_filled_in_wait() -> None:
    def work(group: Group) -> None:
        if group.rank == 0:
            tensor = torch.zeros(2)
            sending = group.isend(tensor, 1, 0)
            tensor += 1
            sending.wait()
        else:
            tensor = torch.full((2,), 9.0)
            receiving = group.irecv(tensor, 0, 0)
            time.sleep(0.05)
            assert tensor.tolist() == [9.0, 9.0]
            receiving.wait()
            assert tensor.tolist() == [0.0, 0.0]

    with pytest.raises(AssertionError, match=r"a sent tensor changed before wait\(\)"):
        run_ranks(2, work)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.zeros(4, 4).t(), "tensor must be contiguous"),
        (torch.zeros(1, dtype=torch.bool), "cannot reduce torch.bool"),
        (torch.zeros(1, device="meta"), "tensor must be on the CPU, got meta"),
    ],
)
def test_a_tensor_no_transport_can_take_is_refused(tensor: torch.Tensor, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        SingleGroup().all_reduce(tensor)
