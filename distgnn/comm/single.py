"""A group of one rank: the whole graph in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.comm.group import Group, ReduceOp, Work, check_tensor
from distgnn.comm.launch import SINGLE, Launch

if TYPE_CHECKING:
    from torch import Tensor


class SingleGroup(Group):
    """A group without peers; its collectives leave their tensor as it is."""

    backend = "single"

    def __init__(self, launch: Launch = SINGLE) -> None:
        """Make the group.

        Args:
            launch: Launch of this rank; its size is 1.
        """
        assert launch.size == 1, f"{launch.size} ranks are no single one"
        super().__init__(launch)

    def isend(self, tensor: Tensor, peer: int, tag: int) -> Work:
        """Fail: there is nobody to send to."""
        self._check_message(tensor, peer, tag)
        raise AssertionError("a group of one rank has no peer")

    def irecv(self, tensor: Tensor, peer: int, tag: int) -> Work:
        """Fail: there is nobody to receive from."""
        self._check_message(tensor, peer, tag)
        raise AssertionError("a group of one rank has no peer")

    def all_reduce(self, tensor: Tensor, op: ReduceOp = "sum") -> None:
        """Leave the tensor as it is."""
        del op
        check_tensor(tensor, is_reduced=True)

    def broadcast(self, tensor: Tensor, root: int = 0) -> None:
        """Leave the tensor as it is."""
        assert root == 0, f"no rank {root}"
        check_tensor(tensor)

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return a copy of the tensor."""
        check_tensor(tensor)
        return [tensor.detach().clone()]

    def barrier(self) -> None:
        """Return at once."""

    def close(self) -> None:
        """Return at once."""
