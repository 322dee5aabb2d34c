"""Layers whose inner values are not kept: backward computes them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.graph import LocalGraph
    from distgnn.ops import Rows

_T = TypeVar("_T")


def again_in_backward(
    layer: Callable[[Rows, _T], Tensor], graph: LocalGraph, rows: Rows, argument: _T
) -> Tensor:
    """Apply a layer, and once more in backward instead of keeping what it saves.

    Both times its dropout draws the same masks, so that results have the same bits.

    Args:
        layer: Has no state that a second run would change.
        graph: What it runs on.
        rows: (num_sources, in_width), kept.
        argument: Second one of the layer.

    Returns:
        (num_rows, out_width).

    References:
        Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
    """
    begin = graph.draws.num_drawn

    def run(again: Rows) -> Tensor:
        drawn, graph.draws.num_drawn = graph.draws.num_drawn, begin
        try:
            return layer(again, argument)
        finally:
            # In backward the layer is left by an exception, once it has saved what is asked for.
            graph.draws.num_drawn = max(drawn, graph.draws.num_drawn)

    result: Tensor = checkpoint(run, rows, use_reentrant=False, preserve_rng_state=False)
    return result
