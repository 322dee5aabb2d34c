"""The weight channel: every rank steps with the sum of all ranks' gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.exchange.base import all_reduce_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from distgnn.comm.group import Group
    from distgnn.exchange.clock import Clock


class WeightSync:
    """Sums gradients over ranks in one message.

    A sum, not a mean: each rank's loss is already divided by the global count.

    Args:
        group: All ranks.
        clock: Gets the time that the sum takes.

    Attributes:
        clock: The same.
    """

    def __init__(self, group: Group, clock: Clock) -> None:
        self._group = group
        self.clock = clock
        self.bytes_sent = 0

    def broadcast(self, model: nn.Module) -> None:
        """Give every rank the weights and buffers of rank 0."""
        for tensor in model.state_dict().values():
            if isinstance(tensor, torch.Tensor):
                sent = tensor.contiguous()
                self._group.broadcast(sent)
                tensor.copy_(sent)

    def sync(self, model: nn.Module) -> None:
        """Replace each gradient of a model by the sum over ranks; frozen weights have none."""
        self.sum([each for each in model.parameters() if each.requires_grad])

    def sum(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace each gradient by the sum over ranks, in one message for each dtype.

        A missing one counts as zeros on any number of ranks, so that weight decay does, too.

        Args:
            parameters: Parameters in the same order on every rank.
        """
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if self._group.size == 1:
            return
        for dtype in dict.fromkeys(parameter.dtype for parameter in parameters):
            self._sum([parameter for parameter in parameters if parameter.dtype == dtype])

    def _sum(self, parameters: Sequence[nn.Parameter]) -> None:
        with self.clock.timed("weight_sync"):
            flat = torch.cat([p.grad.reshape(-1) for p in parameters if p.grad is not None])
            self._group.all_reduce(flat)
            pieces = torch.split(flat, [p.numel() for p in parameters])
            for parameter, piece in zip(parameters, pieces, strict=True):
                parameter.grad = piece.reshape(parameter.shape)
        self.bytes_sent += all_reduce_bytes(self._group, flat)

    def take_bytes(self) -> int:
        """Return the payload bytes sent by this rank since the last call."""
        sent, self.bytes_sent = self.bytes_sent, 0
        return sent
