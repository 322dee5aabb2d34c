"""A rank beside its mirror image: all that several ranks do, in one process and without a wire."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from distgnn.comm.group import Group, ReduceOp, Work, check_tensor
from distgnn.comm.launch import Launch

if TYPE_CHECKING:
    from torch import Tensor


class MirrorGroup(Group):
    """Rank 0 of two, whose peer does the same with the same tensors.

    Each message that is sent is one that arrives. A vector of an integer for each rank is turned
    around when it is gathered, because the peer counts itself first. Rows that take turns are
    dealt to bins over all pairs of ranks. So one row more or less may arrive than is sent, and
    then the last place keeps its content.
    """

    backend = "mirror"

    def __init__(self) -> None:
        """Make the group."""
        super().__init__(Launch("single", 0, 2, 0, 2))
        self._sent: defaultdict[int, deque[Tensor]] = defaultdict(deque)

    def isend(self, tensor: Tensor, peer: int, tag: int) -> Work:
        """Keep a tensor for the receive of its tag; see Group."""
        self._check_message(tensor, peer, tag)
        self._sent[tag].append(tensor.detach())
        return _Sent()

    def irecv(self, tensor: Tensor, peer: int, tag: int) -> Work:
        """Name the place for what is sent with a tag; it is filled in wait()."""
        self._check_message(tensor, peer, tag)
        return _Received(tensor.detach(), self._sent[tag])

    def all_reduce(self, tensor: Tensor, op: ReduceOp = "sum") -> None:
        """Reduce two equal tensors; see Group."""
        check_tensor(tensor, is_reduced=True)
        if op == "sum":
            tensor.detach().mul_(2)

    def broadcast(self, tensor: Tensor, root: int = 0) -> None:
        """Leave the tensor as it is, since the peer's is the same."""
        del root
        check_tensor(tensor)

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensor and its mirror image; see Group."""
        check_tensor(tensor)
        own = tensor.detach().clone()
        is_per_rank = own.shape == (2,) and own.dtype == torch.int64
        return [own, own.flip(0) if is_per_rank else own.clone()]

    def barrier(self) -> None:
        """Return at once."""

    def close(self) -> None:
        """Return at once."""


class _Sent:
    def wait(self) -> None:
        pass


@dataclass
class _Received:
    place: Tensor
    sent: deque[Tensor]

    def wait(self) -> None:
        assert self.sent, "a rank waits for what its mirror image has not sent yet"
        sent, place = self.sent.popleft().flatten(), self.place.flatten()
        shared = min(len(sent), len(place))
        place[:shared].copy_(sent[:shared])
