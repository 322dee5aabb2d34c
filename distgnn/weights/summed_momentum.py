"""The weight channel of QAdam: gradients for some steps, and then first moments in a code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.exchange.codec import EXACT
from distgnn.weights.own_models import with_gradients
from distgnn.weights.summed_gradients import SummedGradients
from distgnn.weights.table_rows import NO_TABLES

if TYPE_CHECKING:
    from torch import nn

    from distgnn.comm.group import Group
    from distgnn.exchange.clock import Clock
    from distgnn.exchange.codec import CodecSpec
    from distgnn.kernels.seeds import MaskSeeds
    from distgnn.ops.buffers import Buffers
    from distgnn.optim.qadam import QAdam
    from distgnn.weights.table_rows import TableRows


class SummedMomentum(SummedGradients):
    """Sums gradients as they are while the optimizer warms up, and then first moments in a code.

    Args:
        group: All ranks.
        clock: Gets the time that the sum takes.
        tables: Rows of learned tables that can have a gradient; the others are not sent.
        optimizer: Optimizer of the model, which says what is summed.
        codec: Code of large float32 moments.
        machine_size: Ranks of a machine, on which sums are made first; 0 for all ranks at once.
        seeds: Seeds of the code's random rounding, which know the epoch; of no run if None.
        buffers: Memory for codes; its own if None.

    References:
        Gan et al., "BAGUA: Scaling up Distributed Learning with System Relaxations", VLDB 2021
        (QAdam).
    """

    def __init__(
        self,
        group: Group,
        clock: Clock,
        tables: TableRows = NO_TABLES,
        *,
        optimizer: QAdam,
        codec: CodecSpec = EXACT,
        machine_size: int = 0,
        seeds: MaskSeeds | None = None,
        buffers: Buffers | None = None,
    ) -> None:
        super().__init__(
            group, clock, tables, machine_size=machine_size, seeds=seeds, buffers=buffers
        )
        self._optimizer = optimizer
        self._codec = codec

    def after_backward(self, model: nn.Module) -> None:
        """Replace gradients by what the optimizer steps by."""
        parameters = with_gradients(model)
        # An optimizer that begins again warms up once more.
        self.codec = self._codec if self._optimizer.is_resting else EXACT
        if self._optimizer.is_resting:
            for each in parameters:
                rows = self.tables.of(each)
                each.grad = self._optimizer.moment(each, rows, self.group.size)
        self.sum(parameters)
