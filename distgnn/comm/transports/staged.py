"""Groups whose ranks hold tensors on CUDA devices."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from distgnn.comm.group import Group, ReduceOp, Work
from distgnn.comm.launch import Launch
from distgnn.datasets.errors import InputError
from distgnn.kernels.devices import identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class StagedGroup(Group):
    """Any group, for tensors of a device: they travel through pinned memory of the host.

    Tensors of the processor travel as they would without it.

    Args:
        group: The ranks.
        device: That this rank computes on.
    """

    def __init__(self, group: Group, device: torch.device) -> None:
        launch = Launch(group.launcher, group.rank, group.size, group.local_rank, group.local_size)
        super().__init__(launch, interface=group.interface)
        self.host = group.host
        self.backend, self.reason = group.backend, group.reason
        self.device = device
        self._group = group

    def isend(self, tensor: Tensor, peer: int, tag: int) -> Work:
        """Start sending a tensor; see Group."""
        return self._group.isend(_to_host(tensor), peer, tag)

    def irecv(self, tensor: Tensor, peer: int, tag: int) -> Work:
        """Start receiving into a tensor, which is written by wait(); see Group."""
        if _is_near(tensor):
            return self._group.irecv(tensor, peer, tag)
        staged = _host_like(tensor)
        return _Copying(self._group.irecv(staged, peer, tag), staged, tensor)

    def all_reduce(self, tensor: Tensor, op: ReduceOp = "sum") -> None:
        """Reduce element by element over all ranks, in place; see Group."""
        staged = _to_host(tensor)
        self._group.all_reduce(staged, op)
        _write_back(staged, tensor)

    def broadcast(self, tensor: Tensor, root: int = 0) -> None:
        """Overwrite the tensor with that of one rank; see Group."""
        staged = _to_host(tensor)
        self._group.broadcast(staged, root)
        _write_back(staged, tensor)

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks; see Group."""
        rows = self._group.all_gather(_to_host(tensor))
        return [row.to(tensor.device) for row in rows]

    def barrier(self) -> None:
        """Return when every rank has called it."""
        self._group.barrier()

    def note(self, epoch: int, phase: str) -> None:
        """Say what this rank is doing; see Group."""
        self._group.note(epoch, phase)

    def set_checkpoint(self, epoch: int) -> None:
        """Say which epoch was checkpointed last; see Group."""
        self._group.set_checkpoint(epoch)

    def publish_failure(self, error: BaseException) -> None:
        """Tell the other ranks why this one ends; see Group."""
        self._group.publish_failure(error)

    def close(self) -> None:
        """Leave the group once every rank is done with it."""
        self._group.close()


def _is_near(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"


def _host_like(tensor: Tensor) -> Tensor:
    """Return memory of the host, pinned for CUDA; torch keeps it for the next message."""
    is_pinned = tensor.device.type == "cuda"
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=is_pinned)


def _to_host(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy that is complete when this returns."""
    if _is_near(tensor):
        return tensor
    return _host_like(tensor).copy_(tensor.detach())


def _write_back(staged: Tensor, tensor: Tensor) -> None:
    if staged is not tensor:
        tensor.detach().copy_(staged)


class _Copying:
    """A message under way into the host's memory, and on to the device when it is waited for."""

    def __init__(self, work: Work, staged: Tensor, tensor: Tensor) -> None:
        self._work = work
        self._staged: Tensor | None = staged
        self._tensor = tensor

    def wait(self) -> None:
        self._work.wait()
        if self._staged is not None:
            _write_back(self._staged, self._tensor)
            self._staged = None


class NcclGroup(StagedGroup):
    """Ranks that exchange tensors of CUDA devices by NCCL, and all others as before.

    NCCL knows no tags. Messages between two ranks match in the order in which both start them,
    which is the order of the channels of an epoch; those of one channel start together, as one that
    started alone could wait for its other half forever.

    Args:
        group: Of gloo, which finds the ranks, names the one that fails and moves what is not on a
            device.
        device: CUDA device of this rank; no other rank has the same.
    """

    def __init__(self, group: Group, device: torch.device) -> None:
        super().__init__(group, device)
        self.backend = "nccl"
        # Of the rank that fails the watchdog tells; NCCL's would end this process before it could.
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
        if any(_is_near(tensor) for tensor, _ in messages):
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
        if _is_near(tensor):
            super().all_reduce(tensor, op)
        elif tensor.numel():
            dist.all_reduce(tensor.detach(), getattr(dist.ReduceOp, op.upper()), self._world)

    def broadcast(self, tensor: Tensor, root: int = 0) -> None:
        """Overwrite the tensor with that of one rank; see Group."""
        if _is_near(tensor):
            super().broadcast(tensor, root)
        elif tensor.numel():
            dist.broadcast(tensor.detach(), root, self._world)


def _check_nccl(group: Group, device: torch.device) -> None:
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


def on_device(group: Group, device: torch.device, backend: str) -> Group:
    """Let a group take the tensors of a device; collective.

    Args:
        group: The ranks.
        device: That this rank computes on; not the processor.
        backend: As the user named it.

    Returns:
        A group for its tensors.

    Raises:
        InputError: If a rank asks for NCCL and cannot have it, on every rank.
    """
    if backend == "nccl" and group.size > 1:
        _check_nccl(group, device)
        return NcclGroup(group, device)
    return StagedGroup(group, device)


def staged(group: Group, device: torch.device) -> Group:
    """Let a group of this process alone take the tensors of a device.

    Ranks that are threads can make passes without gradients there: torch computes the gradients of
    a device on one thread.

    Args:
        group: One rank, or threads.
        device: That computes.

    Returns:
        A group for its tensors; the same one for the processor.
    """
    return group if device.type == "cpu" else StagedGroup(group, device)
