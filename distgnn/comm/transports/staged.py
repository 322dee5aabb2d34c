"""Groups whose ranks hold tensors on CUDA devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.comm.group import Group, ReduceOp, Work
from distgnn.comm.launch import Launch

if TYPE_CHECKING:
    from torch import Tensor


class StagedGroup(Group):
    """Any group, for tensors of a device: they travel through pinned memory of the host.

    Tensors of the processor travel as they would without it.

    Args:
        group: The ranks.
        device: Device that this rank computes on.
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
        if is_near(tensor):
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


def is_near(tensor: Tensor) -> bool:
    """Whether a tensor is in the memory of the host.

    Args:
        tensor: Any tensor.
    """
    return tensor.device.type == "cpu"


def _host_like(tensor: Tensor) -> Tensor:
    """Return memory of the host, pinned for CUDA; torch keeps it for the next message."""
    is_pinned = tensor.device.type == "cuda"
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=is_pinned)


def _to_host(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy that is complete when this returns."""
    if is_near(tensor):
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


def staged(group: Group, device: torch.device) -> Group:
    """Let a group of this process alone take the tensors of a device.

    Ranks that are threads can make passes without gradients there: torch computes the gradients of
    a device on one thread.

    Args:
        group: One rank, or threads.
        device: Device that computes.

    Returns:
        A group for its tensors; the same one for the processor.
    """
    return group if device.type == "cpu" else StagedGroup(group, device)
