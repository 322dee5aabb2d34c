"""Contract between layers and an optimizer that reads the factors of their gradients.

The gradient of a dense map is a sum over rows of outer products. Its two factors, the rows that
were multiplied and the gradient of what came out, are at hand where that sum is computed. A layer
with an observer shows them there; nothing more is kept or sent for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.ops.rows import Rows


class SeenMap(NamedTuple):
    """A dense map, and the rows that it multiplied.

    Attributes:
        weights: Parameters whose sum is the map, (out_channels, in_channels) each; or parameters
            that hold several maps, (num_maps, in_channels, out_channels).
        rows: (num_rows, in_channels), or more rows if some were picked.
        picked: (num_rows,) int32. Rows that were multiplied; None for all in order.
        number: Number of the map in parameters that hold several; None for all of them.
    """

    weights: tuple[Tensor, ...]
    rows: Rows
    picked: Tensor | None = None
    number: int | None = None


class Observer(Protocol):
    """Reader of the factors of gradients."""

    def see(self, grad: Tensor, *maps: SeenMap) -> None:
        """Read the factors of the gradients of maps whose results were added up.

        Args:
            grad: (num_rows, out_channels) gradient of the result, final, of all ranks.
            maps: The maps.
        """
