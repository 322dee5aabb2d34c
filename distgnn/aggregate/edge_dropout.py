"""Dropout of the weights of edges, with masks that no partition changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from distgnn import kernels
from distgnn.kernels.attention import EdgeMask

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.edges.blocks import Blocks
    from distgnn.kernels.csr import Csr

# Odd, so that the keys of two edges with different ends hardly ever meet.
_SOURCE_STEP = -7046029254386353131


class EdgeKeys:
    """A number for each edge that only its ends decide, whatever part it lies on.

    Args:
        blocks: Blocks of one layer, with self-loops.
        source_id: (num_root_sources,), (num_reading_leaves,) int64. Global ids of both.
        target_id: (num_rows,), (num_writing_leaves,) int64. Likewise.
    """

    def __init__(
        self,
        blocks: Blocks,
        source_id: tuple[Tensor, Tensor],
        target_id: tuple[Tensor, Tensor],
    ) -> None:
        self._blocks = blocks
        self._source_id = dict(zip(("root", "leaf"), source_id, strict=True))
        self._target_id = dict(zip(("root", "leaf"), target_id, strict=True))
        self._found: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        """(num_edges,) int64. Keys of the edges of a block, computed at the first call."""
        if name not in self._found:
            block: Csr = getattr(self._blocks.forward, name)
            target, _, source = name.partition("_from_")
            keys = self._source_id[source][block.indices].mul_(_SOURCE_STEP)
            self._found[name] = keys.add_(self._target_id[target][block.row_of_edge])
        return self._found[name]


class EdgeDropout(NamedTuple):
    """Dropout of attention weights, with masks that no partition changes.

    Edges with the same ends share their masks.

    Attributes:
        probability: In (0, 1).
        seed: Differs from call to call and from epoch to epoch.
        keys: Keys of the edges.
    """

    probability: float
    seed: int
    keys: EdgeKeys

    def mask(self, name: str) -> EdgeMask:
        """Return that of the edges of a block."""
        return EdgeMask(self.keys[name], self.seed, self.probability)

    def apply(self, name: str, values: Tensor) -> Tensor:
        """Return the (num_edges, heads) values of a block with some 0 and the others scaled."""
        out, mask = torch.empty_like(values), self.mask(name)
        kernels.dropout(values, mask.key, out, seed=mask.seed, probability=mask.probability)
        return out
