from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from group_contract import run_contract
from second_device import DEVICE, FarTensor, SecondDevice

from distgnn.comm.open import on_device
from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.comm.transports.nccl import NcclGroup
from distgnn.comm.transports.staged import StagedGroup
from distgnn.datasets.errors import InputError


def test_tensors_of_the_processor_travel_as_before() -> None:
    run_ranks(3, lambda group: run_contract(StagedGroup(group, DEVICE)))


def test_tensors_of_a_device_travel_through_the_host() -> None:
    def on_rank(group):
        with SecondDevice():
            group = on_device(group, DEVICE, "auto")
            own = torch.full((2, 3), float(group.rank), device=DEVICE)
            peer, got = 1 - group.rank, torch.zeros(2, 3, device=DEVICE)
            works = group.transfer([(got, peer)], [(own, peer)], 4)
            for work in [*works, *works]:
                work.wait()
            total, largest, first = own + 1, own.clone(), own.clone()
            group.all_reduce(total)
            group.all_reduce(largest, "max")
            group.broadcast(first, root=1)
            gathered = group.all_gather(own)
            group.close()
            assert all(isinstance(each, FarTensor) for each in (got, total, first, *gathered))
            return [each.cpu() for each in (got, total, largest, first, *gathered)]

    for rank, found in enumerate(run_ranks(2, on_rank)):
        expected = [1 - rank, 3, 1, 1, 0, 1]
        for tensor, value in zip(found, expected, strict=True):
            assert torch.equal(tensor, torch.full((2, 3), float(value)))


def test_nccl_is_refused_where_torch_lacks_it(monkeypatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    with pytest.raises(
        InputError, match=r"--backend nccl: torch .+ was built without NCCL; install torch for CUDA"
    ):
        run_ranks(2, lambda group: on_device(group, torch.device("cuda", 0), "nccl"))


def test_nccl_is_refused_for_ranks_that_share_a_device(monkeypatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    uuids = [SimpleNamespace(uuid=name) for name in ("one", "two", "one")]
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: uuids[device.index])
    with pytest.raises(
        InputError,
        match=r"--backend nccl needs a device for each rank, but ranks 0 and 2 share one; start "
        "fewer ranks a host, or use --backend gloo",
    ):
        run_ranks(3, lambda group: on_device(group, torch.device("cuda", group.rank), "nccl"))


@pytest.mark.gpu
def test_nccl_keeps_the_contract_with_one_device_a_rank() -> None:
    from rank_jobs import mpirun

    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    status, out, errors = mpirun(2, "nccl")
    assert status == 0, errors
    assert out.count("nccl done") == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_nccl_reduces_on_one_device_alone() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        group = NcclGroup(SingleGroup(), torch.device("cuda", 0))
        for op in ("sum", "max"):
            values = torch.arange(5.0, device=group.device)
            group.all_reduce(values, op)
            group.broadcast(values)
            assert values.tolist() == [0, 1, 2, 3, 4]
        near = torch.ones(2)
        group.all_reduce(near)
        assert group.backend == "nccl"
        assert near.tolist() == [1, 1]
    finally:
        dist.destroy_process_group()
