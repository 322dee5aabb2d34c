"""Bytes that ranks send about weights in an epoch, known before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from distgnn.exchange.base import all_reduce_bytes
from distgnn.exchange.codec import EXACT
from distgnn.exchange.sliced import slice_bytes
from distgnn.weights.layout import WIDTH, Layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from distgnn.exchange.codec import CodecSpec

_ITEM_BYTES = 4


class WeightTraffic(NamedTuple):
    """Sums over ranks in an epoch.

    Attributes:
        shapes: Shape of each gradient that is summed, float32.
        codec: Code of large ones.
        statistics: Bytes of each sum of statistics, such as those of batch norm.
    """

    shapes: tuple[tuple[int, ...], ...] = ()
    codec: CodecSpec = EXACT
    statistics: tuple[int, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes of the gradients of a rank, as they travel."""
        layout, row_bytes = self._layout
        return _ITEM_BYTES * layout.num_exact + layout.num_rows * row_bytes

    def bytes_of(self, rank: int, num_ranks: int) -> int:
        """Return the bytes that a rank sends in an epoch, as it counts.

        Args:
            rank: The rank.
            num_ranks: Number of ranks.
        """
        layout, row_bytes = self._layout
        sums = (_ITEM_BYTES * layout.num_exact, *self.statistics)
        exact = sum(all_reduce_bytes(each, num_ranks) for each in sums)
        return exact + slice_bytes(layout.num_rows, rank, num_ranks, row_bytes)

    def bytes_of_ranks(self, num_ranks: int) -> int:
        """Return the bytes that all ranks send in an epoch, as each of them counts.

        Args:
            num_ranks: Number of ranks.
        """
        return sum(self.bytes_of(rank, num_ranks) for rank in range(num_ranks))

    def coding_bytes(self, num_ranks: int) -> int:
        """Return the memory that a rank takes for codes while gradients are summed.

        Codes that leave, those of its slice that arrive from the others, and those of all sums; the
        sum of its slice, and a decoded one.

        Args:
            num_ranks: Number of ranks.
        """
        layout, row_bytes = self._layout
        if num_ranks == 1:
            return 0
        return layout.num_rows * (3 * row_bytes + 2 * _ITEM_BYTES * WIDTH // num_ranks)

    @property
    def _layout(self) -> tuple[Layout, int]:
        return Layout.of(self.shapes, self.codec), self.codec.row_bytes(WIDTH, _ITEM_BYTES)


NO_WEIGHTS = WeightTraffic()
"""Sums of a run without weights."""


def gradient_shapes(
    model: nn.Module, num_rows: Mapping[nn.Parameter, int]
) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a model's gradients as they are summed.

    Args:
        model: The model.
        num_rows: Rows of learned tables that are sent, where these are not those of the table.
    """
    return tuple(
        (num_rows.get(parameter, len(parameter)), *parameter.shape[1:]) if parameter.dim() else ()
        for parameter in model.parameters()
        if parameter.requires_grad
    )
