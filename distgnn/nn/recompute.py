"""Ways not to keep the inner values of a layer: backward recomputes them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from distgnn.graph.local_graph import LocalGraph
    from distgnn.ops.rows import Rows


def again_in_backward(layer: Callable[[Rows], Tensor], graph: LocalGraph, rows: Rows) -> Tensor:
    """Apply a layer now, and once more in backward instead of keeping what it saves.

    Its dropout draws the same masks both times, so results have the same bits.

    Args:
        layer: Function of the rows; a second run must not change its state.
        graph: A whole graph or a part.
        rows: (num_sources, in_channels) input, which is kept.

    Returns:
        (num_rows, out_channels).

    References:
        Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
    """
    begin = graph.mask_seeds.num_drawn

    def run(again: Rows) -> Tensor:
        seeds = graph.mask_seeds
        drawn, seeds.num_drawn, seeds.draws_again = seeds.num_drawn, begin, True
        try:
            return layer(again)
        finally:
            # In backward the layer is left by an exception once it has saved what is asked for.
            seeds.num_drawn, seeds.draws_again = max(drawn, seeds.num_drawn), False

    result: Tensor = checkpoint(run, rows, use_reentrant=False, preserve_rng_state=False)
    return result


@contextmanager
def made_again(*promised: tuple[Tensor, Callable[[], Tensor]]) -> Iterator[None]:
    """Keep none of these rows in this block: backward recomputes them where it first reads them.

    Args:
        promised: Rows that operations of this block save, each with a function that recomputes
            them with the same bits. They are freed when the last of these operations has read them.
    """
    promises = [_Promise(rows, make) for rows, make in promised]

    def keep(saved: Tensor) -> Tensor | _Promise:
        for promise in promises:
            if promise.is_of(saved):
                promise.num_readers += 1
                return promise
        return saved

    def read(kept: Tensor | _Promise) -> Tensor:
        return kept.read() if isinstance(kept, _Promise) else kept

    with saved_tensors_hooks(keep, read):
        yield


class _Promise:
    """Rows that are recomputed at the first read and freed after the last."""

    def __init__(self, rows: Tensor, make: Callable[[], Tensor]) -> None:
        self._address, self._shape, self._dtype = rows.data_ptr(), rows.shape, rows.dtype
        self._make = make
        self._made: Tensor | None = None
        self.num_readers = 0

    def is_of(self, saved: Tensor) -> bool:
        is_there = saved.data_ptr() == self._address
        return is_there and saved.shape == self._shape and saved.dtype == self._dtype

    def read(self) -> Tensor:
        self.num_readers -= 1
        with torch.no_grad():
            rows = self._make() if self._made is None else self._made
        self._made = rows if self.num_readers > 0 else None
        return rows
