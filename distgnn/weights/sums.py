"""Sums over ranks of tensors, of which large matrices travel in a code."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from distgnn.exchange.base import all_reduce_bytes
from distgnn.exchange.sliced import sliced_sum
from distgnn.kernels.seeds import MaskSeeds
from distgnn.ops.buffers import Buffers
from distgnn.weights.groups import add_within
from distgnn.weights.layout import Layout
from distgnn.weights.machines import sum_on_machines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from distgnn.comm.group import Group
    from distgnn.exchange.codec import CodecSpec


class Sums:
    """Sums over all ranks, in one message but for tensors that are coded.

    Args:
        group: All ranks, at least 2.
        machine_size: Ranks of a machine, on which sums are made first, in no code; 0 for sums over
            all ranks at once.
        seeds: Seeds of a code's random rounding, which know the epoch; of no run if None.
        buffers: Memory for codes; its own if None.
    """

    def __init__(
        self,
        group: Group,
        *,
        machine_size: int = 0,
        seeds: MaskSeeds | None = None,
        buffers: Buffers | None = None,
    ) -> None:
        self._group = group
        self._machine_size = machine_size
        self._seeds = seeds or MaskSeeds()
        self._buffers = buffers or Buffers(group.device)

    def of(self, tensors: Sequence[Tensor], codec: CodecSpec) -> tuple[list[Tensor], int]:
        """Return the sums over ranks of tensors, the same bits on every rank; collective.

        Args:
            tensors: Tensors of one type and of the same shapes on every rank, at least one.
            codec: Code of large float32 ones. The others are summed exactly.

        Returns:
            The sums, and the payload bytes that this rank sent.
        """
        sent = 0
        dtype = tensors[0].dtype
        layout = Layout.of([tuple(each.shape) for each in tensors], codec, dtype.itemsize)
        pairs = list(zip(tensors, layout.is_coded, strict=True))
        exact = tensors[0].new_empty(0)
        if layout.num_exact:
            exact = torch.cat([each.reshape(-1) for each, is_coded in pairs if not is_coded])
            sent += self._add_exact(exact)
        rows = layout.rows(tensors, self._buffers)
        if layout.num_rows:
            sent += self._add_coded(rows, codec)
        return layout.split(exact, rows), sent

    def _add_exact(self, values: Tensor) -> int:
        """Replace values by their sums over ranks; the bytes that this one sent."""
        group = self._group
        if self._machine_size:
            return sum_on_machines(group, values, self._machine_size, partial(add_within, group))
        group.all_reduce(values)
        return all_reduce_bytes(values.nbytes, group.size)

    def _add_coded(self, rows: Tensor, codec: CodecSpec) -> int:
        """Replace rows by their sums over ranks, in a code; the bytes that this one sent."""

        def add(part: Tensor, members: list[int] | None = None) -> int:
            return sliced_sum(self._group, part, codec, self._seeds, self._buffers, members)

        if self._machine_size:
            return sum_on_machines(self._group, rows, self._machine_size, add)
        return add(rows)
