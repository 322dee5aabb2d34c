"""The contract of the weight channel: what a step calls, and what a checkpoint keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch

from distgnn.weights.table_rows import NO_TABLES

if TYPE_CHECKING:
    from torch import Tensor, nn

    from distgnn.comm.group import Group
    from distgnn.exchange.clock import Clock
    from distgnn.weights.table_rows import TableRows


class WeightStrategy(ABC):
    """Channel of the weights that ranks tell each other; a step calls the two hooks.

    Every method is collective.

    Args:
        group: All ranks.
        clock: Gets the time that messages take.
        tables: Rows of learned tables that can have a gradient; the others are not sent.

    Attributes:
        group: The same.
        clock: The same.
        tables: The same.
        bytes_sent: Payload bytes that this rank sent since `take_bytes`.
        num_merges: Merges of models since `take_merges`.
    """

    def __init__(self, group: Group, clock: Clock, tables: TableRows = NO_TABLES) -> None:
        self.group = group
        self.clock = clock
        self.tables = tables
        self.bytes_sent = 0
        self.num_merges = 0

    def broadcast(self, model: nn.Module) -> None:
        """Give every rank the weights and buffers of rank 0."""
        for tensor in model.state_dict().values():
            if isinstance(tensor, torch.Tensor):
                sent = tensor.contiguous()
                self.group.broadcast(sent)
                tensor.copy_(sent)

    @abstractmethod
    def after_backward(self, model: nn.Module) -> None:
        """Act on gradients before the optimizer steps."""

    def after_step(self, model: nn.Module) -> None:
        """Act on weights after the optimizer has stepped; here nothing."""
        del model

    def consensus(
        self, model: nn.Module, *, has_moments: bool = False
    ) -> AbstractContextManager[None]:
        """Return a block in which the model is that of all ranks; here it always is.

        Args:
            model: The model.
            has_moments: Whether the moments of the optimizer are, too.
        """
        del model, has_moments
        return nullcontext()

    def state(self, model: nn.Module) -> dict[str, Tensor]:
        """Return what this rank has and the others do not, by name; here nothing."""
        del model
        return {}

    def load_state(self, state: dict[str, Tensor], model: nn.Module, num_steps: int) -> None:
        """Continue after some steps.

        Args:
            state: Tensors that `state` returned on this rank; none on another partition, where
                the model is the consensus.
            model: The model.
            num_steps: Steps that were taken.
        """
        assert not state, "ranks that have one model keep nothing of their own"
        del model, num_steps

    def take_bytes(self) -> int:
        """Return the payload bytes sent by this rank since the last call."""
        sent, self.bytes_sent = self.bytes_sent, 0
        return sent

    def take_deviation(self) -> float | None:
        """Return how far this rank's model was from the mean of all in a `consensus`, since then.

        Returns:
            |w_p - w|^2 / |w|^2, with the mean w; 0 where the models were one. None where there is
            one model anyway, or no consensus was taken since the last call.
        """
        return None

    def take_merges(self) -> int:
        """Return the number of merges of models since the last call."""
        merges, self.num_merges = self.num_merges, 0
        return merges
