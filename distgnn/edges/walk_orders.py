"""Who decides in which order sums walk a block, and where the order comes from."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from distgnn.kernels.walk_order import WALK_ORDER_VERSION, WalkOrder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distgnn.kernels.csr import Csr

# Below this, an aggregation takes less than a millisecond.
_MIN_ORDERED_EDGES = 200_000
# Of levels 2 and 3. What systems report is often that of a whole socket, or of another machine.
_CACHE_BYTES = (1 << 20, 32 << 20)
# That pay for cutting a row, where its sources come from the level-3 cache or from beyond.
_EDGES_PER_PIECE = (64, 8)
# As in csrc/walk_order.cpp.
_BLOCK_SOURCES = 4096


class Way(NamedTuple):
    """How a kernel walks a block; None leaves it to what the block has. See `WalkOrder`.

    Attributes:
        clusters: Whether rows are walked cluster by cluster.
        blocks: Whether rows are cut by blocks of sources.
    """

    clusters: bool | None = None
    blocks: bool | None = None


def content_key(block: Csr, way: Way) -> str:
    """Name a walk order by all that it depends on: its block's edges, the way and the version.

    Args:
        block: Any block.
        way: How the walk order is to walk it.

    Returns:
        32 hexadecimal digits.
    """
    about = f"{WALK_ORDER_VERSION} {tuple(way)} {block.fingerprint}"
    return hashlib.sha256(about.encode()).hexdigest()[:32]


def make_walk_order(block: Csr, way: Way) -> WalkOrder:
    """Make the walk order of a block.

    Args:
        block: Any block.
        way: How the walk order is to walk it.
    """
    return WalkOrder(
        block.indptr,
        block.indices,
        num_sources=block.num_columns,
        clusters=way.clusters,
        blocks=way.blocks,
        source_id=block.column_id,
    )


class Chooser:
    """Chooses how sums walk a block by what is known of it without a trial.

    A walk order saves source rows from being read from beyond the caches. There is nothing to save
    where all of them lie in a level-2 cache, and making the walk order of a small block is not
    worth the while. Clusters are left to the walk order, which looks for them. Cutting rows reads
    and writes the sums of a row once per block of sources. Many edges have to share that; fewer are
    enough if rows that are not cut would come from memory.

    Measured on one Zen 5 core, widths 16 to 256, as time without cuts over time with cuts:

    * 2.6 million edges, 182 per piece: 1.0 to 1.15.
    * 5.7 million edges, 97 per piece: 1.0 to 1.3.
    * 0.4 million edges, 15 per piece: 0.74 to 0.97.

    Args:
        widths: Widths of the rows that are summed, in the order in which they matter.

    Attributes:
        records: Results of trials about blocks, JSON values.
    """

    def __init__(self, widths: Sequence[int] = (128,)) -> None:
        self.widths = tuple(widths)
        self.records: list[dict[str, Any]] = []

    def choose(self, block: Csr) -> Way | None:
        """Return how sums are to walk a block; None for as it is.

        Args:
            block: Any block.
        """
        source_bytes = block.num_columns * max(self.widths) * 4
        if block.num_edges < _MIN_ORDERED_EDGES or source_bytes <= _CACHE_BYTES[0]:
            return None
        wanted = _EDGES_PER_PIECE[source_bytes > _CACHE_BYTES[1]]
        return Way(blocks=edges_per_piece(block) >= wanted)


class AsItIs(Chooser):
    """Leaves every block as it is, for sums so few that walk orders take longer than they save."""

    def choose(self, block: Csr) -> Way | None:
        """Return None."""
        del block
        return None


def edges_per_piece(block: Csr) -> float:
    """Return how many edges a row has in each block of sources that a walk order may cut it by.

    Args:
        block: With rows.
    """
    num_pieces = -(-block.num_columns // _BLOCK_SOURCES)
    return block.num_edges / (block.num_rows * num_pieces)


@dataclass
class WalkOrderCounts:
    """Costs of a rank's walk orders.

    Attributes:
        num_read: Walk orders that were read from disk.
        num_made: Walk orders that were made.
        seconds: Time of both, of writing, and of telling blocks apart.
    """

    num_read: int = 0
    num_made: int = 0
    seconds: float = 0.0

    @property
    def num_walk_orders(self) -> int:
        """Walk orders there are."""
        return self.num_read + self.num_made

    def describe(self) -> str:
        """Return one line for people."""
        return f"walk orders: {self.num_read} read, {self.num_made} made in {self.seconds:.2f} s"


class WalkOrderSource:
    """Makes walk orders, and keeps none.

    Attributes:
        counts: Costs of the walk orders that were asked for.
    """

    def __init__(self) -> None:
        self.counts = WalkOrderCounts()
        self._offered: dict[str, WalkOrder] = {}

    def offer(self, key: str, walk: WalkOrder) -> None:
        """Hand in a walk order that was made elsewhere, so that `get` need not make it.

        Args:
            key: From `content_key`.
            walk: Walk order of that key.
        """
        self._offered[key] = walk

    def get(self, key: str, block: Csr, way: Way) -> WalkOrder | None:
        """Return the walk order of a block, or None where there is none that is worth its while.

        Args:
            key: From `content_key`.
            block: Any block.
            way: How the walk order is to walk it.
        """
        self.counts.num_made += 1
        return self._offered.pop(key, None) or make_walk_order(block, way)


class NoWalkOrders(WalkOrderSource):
    """For sums so few that making a walk order would take longer than it saves."""

    def get(self, key: str, block: Csr, way: Way) -> WalkOrder | None:
        """Return no walk order."""
        del key, block, way
        return None


class WalkOrders:
    """Gives each block its walk order, or none; the results of sums do not depend on it.

    Args:
        source: Where walk orders come from; None to make them.
        chooser: Which way a block is walked; None for a choice by its size.
    """

    def __init__(
        self, source: WalkOrderSource | None = None, chooser: Chooser | None = None
    ) -> None:
        self._source = source or WalkOrderSource()
        self._chooser = chooser or Chooser()
        self._walks: dict[str, WalkOrder | None] = {}

    @property
    def counts(self) -> WalkOrderCounts:
        """Costs of the walk orders so far."""
        return self._source.counts

    @property
    def records(self) -> list[dict[str, Any]]:
        """Results of trials about blocks."""
        return self._chooser.records

    def order(self, block: Csr) -> WalkOrder | None:
        """Return the walk order of a block, or None where sums had better walk it as it is.

        Blocks with the same edges share one walk order: so do the two directions of an undirected
        graph.

        Args:
            block: Any block.
        """
        start = time.perf_counter()
        way = self._chooser.choose(block)
        if way is None:
            return None
        key = content_key(block, way)
        if key not in self._walks:
            self._walks[key] = self._source.get(key, block, way)
        self.counts.seconds += time.perf_counter() - start
        return self._walks[key]
