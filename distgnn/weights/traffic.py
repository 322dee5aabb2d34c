"""Bytes that ranks send about weights in an epoch, known before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from distgnn.exchange.base import all_reduce_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

_ITEM_BYTES = 4


class WeightTraffic(NamedTuple):
    """Sums over ranks in an epoch.

    Attributes:
        num_values: Values of all gradients that are summed in one message, float32.
        statistics: Bytes of each sum of statistics, such as those of batch norm.
    """

    num_values: int = 0
    statistics: tuple[int, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes of the gradients of a rank."""
        return _ITEM_BYTES * self.num_values

    def bytes_of_ranks(self, num_ranks: int) -> int:
        """Return the bytes that all ranks send in an epoch, as each of them counts.

        Args:
            num_ranks: Number of ranks.
        """
        sums = (self.num_bytes, *self.statistics)
        return num_ranks * sum(all_reduce_bytes(each, num_ranks) for each in sums)


NO_WEIGHTS = WeightTraffic()
"""Sums of a run without weights."""


def gradient_values(model: nn.Module, num_rows: Mapping[nn.Parameter, int]) -> int:
    """Count the values of a model's gradients that are summed.

    Args:
        model: The model.
        num_rows: Rows of learned tables that are sent, where these are not those of the table.
    """
    total = 0
    for parameter in model.parameters():
        if parameter.requires_grad:
            count = num_rows.get(parameter)
            whole = parameter.numel()
            total += whole if count is None else count * parameter.shape[1]
    return total
