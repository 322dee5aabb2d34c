"""Duties of every transport; run on each of them."""

from __future__ import annotations

import pytest
import torch

from distgnn.comm.group import Group
from distgnn.datasets import InputError


def run_contract(group: Group) -> None:
    for check in (
        check_messages_keep_their_order,
        check_waits_in_another_order,
        check_every_type_travels,
        check_reductions,
        check_broadcast_and_gathers,
        check_empty_tensors,
        check_agreement,
    ):
        check(group)
        group.note(0, check.__name__)
        group.barrier()
    group.set_checkpoint(1)


def check_messages_keep_their_order(group: Group) -> None:
    peers = [peer for peer in range(group.size) if peer != group.rank]
    received = {
        (peer, tag, turn): torch.full((5,), -1.0)
        for peer in peers
        for tag in (0, 7)
        for turn in range(3)
    }
    works = [group.irecv(tensor, peer, tag) for (peer, tag, _), tensor in received.items()]
    for peer in peers:
        for turn in range(3):
            for tag in (7, 0):
                value = 100.0 * group.rank + 10 * turn + tag
                works.append(group.isend(torch.full((5,), value), peer, tag))
    for work in works:
        work.wait()
    for (peer, tag, turn), tensor in received.items():
        assert tensor.tolist() == [100.0 * peer + 10 * turn + tag] * 5


def check_waits_in_another_order(group: Group) -> None:
    peers = [peer for peer in range(group.size) if peer != group.rank]
    received = {(peer, turn): torch.zeros(2) for peer in peers for turn in range(3)}
    works = [group.irecv(tensor, peer, 2) for (peer, _), tensor in received.items()]
    for peer in peers:
        works += [group.isend(torch.full((2,), float(turn)), peer, 2) for turn in range(3)]
    for work in reversed(works):
        work.wait()
        work.wait()
    for (_, turn), tensor in received.items():
        assert tensor.tolist() == [turn, turn]


def check_every_type_travels(group: Group) -> None:
    peers = [peer for peer in range(group.size) if peer != group.rank]
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8):
        received = {peer: torch.zeros(3, 2, dtype=dtype) for peer in peers}
        works = [group.irecv(tensor, peer, 3) for peer, tensor in received.items()]
        works += [group.isend(_typed(group.rank, dtype), peer, 3) for peer in peers]
        for work in reversed(works):
            work.wait()
        for peer, tensor in received.items():
            assert torch.equal(tensor, _typed(peer, dtype))


def _typed(rank: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.arange(6).reshape(3, 2) + 10 * rank).to(dtype)


def check_reductions(group: Group) -> None:
    generator = torch.Generator().manual_seed(group.rank)
    mine = torch.randn(1001, generator=generator)
    rows = torch.stack(group.all_gather(mine)).double()
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        total = mine.to(dtype, copy=True).reshape(7, 143).requires_grad_()
        group.all_reduce(total)
        torch.testing.assert_close(
            total.detach().flatten().double(), rows.sum(dim=0), rtol=tolerance, atol=tolerance
        )
        again = mine.to(dtype, copy=True)
        group.all_reduce(again)
        assert torch.equal(again, total.detach().flatten())
        assert all(torch.equal(again, other) for other in group.all_gather(again))
    for op, expected in (("max", rows.amax(dim=0)), ("min", rows.amin(dim=0))):
        best = mine.clone()
        group.all_reduce(best, op)
        assert torch.equal(best.double(), expected)
    count = torch.tensor([group.rank + 1])
    group.all_reduce(count)
    assert count.item() == group.size * (group.size + 1) // 2


def check_broadcast_and_gathers(group: Group) -> None:
    for root in range(group.size):
        tensor = torch.tensor([group.rank, 5])
        group.broadcast(tensor, root)
        assert tensor.tolist() == [root, 5]
    rows = group.all_gather(torch.tensor([[group.rank]]))
    assert [row.tolist() for row in rows] == [[[rank]] for rank in range(group.size)]
    texts = group.all_gather_bytes(b"x" * (3 * group.rank))
    assert texts == [b"x" * (3 * rank) for rank in range(group.size)]


def check_empty_tensors(group: Group) -> None:
    peers = [peer for peer in range(group.size) if peer != group.rank]
    works = [group.irecv(torch.empty(0, 4), peer, 1) for peer in peers]
    works += [group.isend(torch.empty(0, 4), peer, 1) for peer in peers]
    for work in works:
        work.wait()
    group.all_reduce(torch.empty(0))
    group.broadcast(torch.empty(0))
    assert [len(row) for row in group.all_gather(torch.empty(0))] == [0] * group.size


def check_agreement(group: Group) -> None:
    group.agree(None)
    with pytest.raises(InputError, match=r"^seed must be positive$"):
        group.agree(InputError("seed must be positive"))
    last = group.size - 1
    prefix = f"rank {last}: " if last > 0 else ""
    with pytest.raises(InputError, match=rf"^{prefix}part is missing$"):
        group.agree(InputError("part is missing") if group.rank == last else None)
    with pytest.raises(RuntimeError, match="OSError: disk full 0"):
        group.agree(OSError(f"disk full {group.rank}"))
