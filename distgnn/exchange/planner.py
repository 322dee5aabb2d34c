"""Who decides whether the sums over a block follow a plan, and where the plan comes from."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from distgnn.plan import PLAN_VERSION, Plan

if TYPE_CHECKING:
    from distgnn.exchange.blocks import Csr

# Below this, the rows of a block and all that they read lie in cache whatever the order.
_MIN_PLANNED_EDGES = 200_000


class Way(NamedTuple):
    """How a plan walks a block; None leaves it to what the block has. See `distgnn.plan.Plan`.

    Attributes:
        clusters: Whether rows are walked cluster by cluster.
        blocks: Whether rows are cut by blocks of sources.
    """

    clusters: bool | None = None
    blocks: bool | None = None


def content_key(block: Csr, way: Way) -> str:
    """Name a plan by all that it depends on: the edges of the block, the way, and how we plan.

    Args:
        block: Any block.
        way: How the plan is to walk it.

    Returns:
        32 hexadecimal digits.
    """
    digest = hashlib.sha256(f"{PLAN_VERSION} {tuple(way)} {block.num_columns} ".encode())
    digest.update(block.indptr.numpy().data)
    digest.update(block.indices.numpy().data)
    if block.column_id is not None:
        digest.update(block.column_id.numpy().data)
    return digest.hexdigest()[:32]


Decide = Callable[["Csr"], Way | None]


def by_size(block: Csr) -> Way | None:
    """Plan the blocks that are large enough to gain."""
    return Way() if block.num_edges >= _MIN_PLANNED_EDGES else None


@dataclass
class PlanCounts:
    """What a rank's plans cost.

    Attributes:
        num_read: Plans that were read from disk.
        num_made: Plans that were made.
        seconds: What both took, and writing and telling blocks apart.
    """

    num_read: int = 0
    num_made: int = 0
    seconds: float = 0.0

    @property
    def num_plans(self) -> int:
        """Plans there are."""
        return self.num_read + self.num_made

    def describe(self) -> str:
        """Return one line for people."""
        return f"plans: {self.num_read} read, {self.num_made} made in {self.seconds:.2f} s"


class PlanSource:
    """Makes plans, and keeps none.

    Attributes:
        counts: Of the plans that were asked for.
    """

    def __init__(self) -> None:
        self.counts = PlanCounts()

    def get(self, key: str, block: Csr, way: Way) -> Plan:
        """Return the plan of a block.

        Args:
            key: From `content_key`.
            block: Any block.
            way: How the plan is to walk it.
        """
        del key
        self.counts.num_made += 1
        return Plan(
            block.indptr,
            block.indices,
            num_sources=block.num_columns,
            clusters=way.clusters,
            blocks=way.blocks,
            source_id=block.column_id,
        )


class Planner:
    """Gives each block its plan, or none; the results of sums do not depend on it.

    Args:
        source: Where plans come from; None to make them.
        decide: Which way a block is walked; None for none.

    Attributes:
        counts: Of the plans of this planner's blocks.
    """

    def __init__(self, source: PlanSource | None = None, decide: Decide = by_size) -> None:
        self._source = source or PlanSource()
        self._decide = decide
        self._plans: dict[str, Plan] = {}

    @property
    def counts(self) -> PlanCounts:
        """What the plans cost so far."""
        return self._source.counts

    def plan(self, block: Csr) -> Plan | None:
        """Return the plan of a block, or None where sums had better walk it as it is.

        Blocks with the same edges share one plan: so do the two directions of an undirected graph.

        Args:
            block: Any block.
        """
        way = self._decide(block)
        if way is None:
            return None
        start = time.perf_counter()
        key = content_key(block, way)
        if key not in self._plans:
            self._plans[key] = self._source.get(key, block, way)
        self.counts.seconds += time.perf_counter() - start
        return self._plans[key]
