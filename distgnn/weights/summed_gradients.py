"""The weight channel: every rank steps with the sum of all ranks' gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.exchange.codec import EXACT, codes_at
from distgnn.kernels.seeds import MaskSeeds
from distgnn.kernels.tensors import computed
from distgnn.weights.strategy import WeightStrategy
from distgnn.weights.sums import Sums
from distgnn.weights.table_rows import NO_TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from distgnn.comm.group import Group
    from distgnn.exchange.clock import Clock
    from distgnn.exchange.codec import CodecSpec
    from distgnn.ops.buffers import Buffers
    from distgnn.weights.table_rows import TableRows


class SummedGradients(WeightStrategy):
    """Sums gradients over ranks, in one message but for those that are coded.

    A sum, not a mean: each rank's loss is already divided by the global count.

    Args:
        group: All ranks.
        clock: Gets the time that the sum takes.
        tables: Rows of learned tables that can have a gradient; the others are not sent.
        codec: Code of large float32 gradients. Other gradients are summed exactly.
        later: Epochs from which other codes hold, ascending, and these.
        machine_size: Ranks of a machine, on which sums are made first, in no code; 0 for sums over
            all ranks at once.
        seeds: Seeds of the code's random rounding, which know the epoch; of no run if None.
        buffers: Memory for codes; its own if None.

    Attributes:
        codec: The same, for a controller to change.
    """

    def __init__(
        self,
        group: Group,
        clock: Clock,
        tables: TableRows = NO_TABLES,
        *,
        codec: CodecSpec = EXACT,
        later: tuple[tuple[int, CodecSpec], ...] = (),
        machine_size: int = 0,
        seeds: MaskSeeds | None = None,
        buffers: Buffers | None = None,
    ) -> None:
        super().__init__(group, clock, tables)
        self.codec = codec
        self._later = later
        self._seeds = seeds or MaskSeeds()
        self._sums = Sums(group, machine_size=machine_size, seeds=self._seeds, buffers=buffers)

    def after_backward(self, model: nn.Module) -> None:
        """Replace each gradient of a model by the sum over ranks; frozen weights have none."""
        self.sum([each for each in model.parameters() if each.requires_grad])

    def sum(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace each gradient by the sum over ranks, for each dtype apart.

        A missing one counts as zeros on any number of ranks, so that weight decay does, too.

        Args:
            parameters: Parameters in the same order on every rank.
        """
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if self.group.size == 1:
            return
        for dtype in dict.fromkeys(parameter.dtype for parameter in parameters):
            self._sum([parameter for parameter in parameters if parameter.dtype == dtype])

    def _sum(self, parameters: Sequence[nn.Parameter]) -> None:
        with self.clock.timed("weight_sync"):
            rows = [self.tables.of(parameter) for parameter in parameters]
            sent = [_picked(*pair) for pair in zip(parameters, rows, strict=True)]
            codec = codes_at(self._seeds.epoch, self.codec, self._later)
            sums, num_bytes = self._sums.of(sent, codec)
            self.bytes_sent += num_bytes
            for parameter, picked, of_type in zip(parameters, rows, sums, strict=True):
                total = of_type.to(parameter.dtype)
                if picked is None:
                    parameter.grad = total
                else:
                    # The other rows are zero on every rank, and so is their sum.
                    assert parameter.grad is not None, "missing ones were replaced by zeros"
                    parameter.grad[picked] = total


def _picked(parameter: nn.Parameter, rows: Tensor | None) -> Tensor:
    """Return the rows of a gradient that are sent."""
    assert parameter.grad is not None, "missing ones were replaced by zeros"
    grad = parameter.grad if rows is None else parameter.grad[rows]
    return grad.to(computed(grad.dtype))
