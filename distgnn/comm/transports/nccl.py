"""Groups whose ranks exchange tensors of CUDA devices by NCCL."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from distgnn.comm.transports.staged import StagedGroup, is_near
from distgnn.datasets.errors import InputError
from distgnn.kernels.devices import identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from distgnn.comm.group import Group, ReduceOp, Work


class NcclGroup(StagedGroup):
    """Ranks that exchange tensors of CUDA devices by NCCL, and all others as before.

    NCCL knows no tags. Messages between two ranks match in the order in which both start them,
    which is the order of the channels of an epoch. The messages of one channel start together: one
    that started alone could wait for its other half forever.

    Args:
        group: Group over gloo: it finds the ranks, names the one that fails, and moves tensors of
            the host.
        device: CUDA device of this rank; no other rank has the same.
    """

    def __init__(self, group: Group, device: torch.device) -> None:
        super().__init__(group, device)
        self.backend = "nccl"
        # The watchdog names the rank that fails. That of NCCL would end this process before.
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
        if group.interface:
            os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={group.interface}")
        world = dist.new_group(backend="nccl", device_id=device)
        assert isinstance(world, dist.ProcessGroup), "every rank is a member"
        self._world = world

    def transfer(
        self,
        incoming: Sequence[tuple[Tensor, int]],
        outgoing: Sequence[tuple[Tensor, int]],
        tag: int,
    ) -> list[Work]:
        """Start all messages of a channel at once; see Group."""
        messages = [*incoming, *outgoing]
        if any(is_near(tensor) for tensor, _ in messages):
            return super().transfer(incoming, outgoing, tag)
        verbs = [dist.irecv] * len(incoming) + [dist.isend] * len(outgoing)
        operations = [
            dist.P2POp(verb, tensor.detach(), peer, group=self._world)
            for verb, (tensor, peer) in zip(verbs, messages, strict=True)
            if tensor.numel()
        ]
        works: list[Any] = dist.batch_isend_irecv(operations) if operations else []
        return works

    def all_reduce(self, tensor: Tensor, op: ReduceOp = "sum") -> None:
        """Reduce element by element over all ranks, in place; see Group."""
        if is_near(tensor):
            super().all_reduce(tensor, op)
        elif tensor.numel():
            dist.all_reduce(tensor.detach(), getattr(dist.ReduceOp, op.upper()), self._world)

    def broadcast(self, tensor: Tensor, root: int = 0) -> None:
        """Overwrite the tensor with that of one rank; see Group."""
        if is_near(tensor):
            super().broadcast(tensor, root)
        elif tensor.numel():
            dist.broadcast(tensor.detach(), root, self._world)


def check_nccl(group: Group, device: torch.device) -> None:
    """Check that every rank can exchange by NCCL, on a device of its own; collective.

    Args:
        group: All ranks.
        device: CUDA device of this rank.

    Raises:
        InputError: If torch was built without NCCL, or two ranks share a device.
    """
    error = None
    if not dist.is_nccl_available():
        error = InputError(
            f"--backend nccl: torch {torch.__version__} was built without NCCL; install torch for "
            "CUDA, or use --backend gloo"
        )
    group.agree(error)
    taken: dict[bytes, int] = {}
    for rank, name in enumerate(group.all_gather_bytes(identity(device).encode())):
        other = taken.setdefault(name, rank)
        if other != rank:
            raise InputError(
                f"--backend nccl needs a device for each rank, but ranks {other} and {rank} share "
                "one; start fewer ranks a host, or use --backend gloo"
            )
