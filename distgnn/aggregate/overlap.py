"""The one schedule of every aggregation across a cut: compute while rows are on the wire.

`overlap` runs it; an operation is a `Steps` object that says what happens at each of its points.
`RowSteps` moves rows and sums as most operations do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.edges.blocks import Direction, Half
    from distgnn.exchange.base import Arrival, Exchange

BlockName = Literal["leaf_from_root", "root_from_root", "leaf_from_leaf", "root_from_leaf"]


class Steps(Protocol):
    """One operation: what it does at each point of the schedule. It keeps its rows itself.

    Attributes:
        waits_for_rows: Whether edges out of leaves need rows that travel. If not, the operation
            walks all edges into leaves at `leaf_from_root`.
    """

    waits_for_rows: bool

    def send(self) -> None:
        """Begin to send the roots' rows to the leaves that read them."""

    def walk(self, name: BlockName) -> None:
        """Aggregate over the edges of one block, into leaves' partials or roots' totals.

        Args:
            name: Block of the direction, as target_from_source.
        """

    def reduce(self) -> None:
        """Begin to send the leaves' partials, which are complete, to their roots."""

    def receive(self) -> None:
        """Wait for the rows that roots of other ranks sent to this rank's leaves."""

    def finish(self) -> None:
        """Wait for the partials that leaves of other ranks sent, and add them to the totals."""


def overlap(direction: Direction, exchange: Exchange, steps: Steps) -> None:
    """Run one direction of an aggregation, forward or backward, and hide the wire behind its edges.

    ::

        compute   leaf<-root         root<-root               leaf<-leaf   root<-leaf
        begin   send           reduce                                (or reduce)
        wait                                      receive                            finish
        wire    rows =================================|
                               partials ==============================================|

    Why this order hides the wire. Edges between roots, nearly all edges in a good partition, need
    nothing from other ranks. So all that others need from this rank leaves before they are walked,
    and all that this rank needs from others is waited for after. Edges into leaves are walked
    first: they are few, and the roots of other ranks cannot finish without their partials. The
    edges out of leaves come after the first wait, because they read what it brings. Their walk
    still hides the partials, for which `finish` waits last.

    What may not be reordered, and what breaks then:

    * `reduce` comes after the last walk into leaves. Edges from leaf to leaf wait for rows. Where a
      part has some, its partials leave after them; before, the total would lack these edges, and
      the transport would read memory that the walk still writes.
    * Walks out of roots come before walks out of leaves. The first walk into a buffer writes it and
      the second adds to it (`accumulate`). The other order would overwrite sums.
    * Within a total, the own edges come first, then the received partials in the order of their
      ranks. Floating-point addition is not associative. If the order depended on what arrives
      first, a run would not repeat its own bits. A resumed run would differ from one without a
      break.
    * All ranks begin their messages in the same order: `send`, then `reduce`. Channels are numbered
      in the order of these calls, and a message finds its receiver by that number alone. Two parts
      may differ in where they call `reduce`, since no message begins between the two places. If one
      did, rows of one rank would be added as partials of another, or a rank would wait for ever.
      Under a delay (cd-R) the number also names the rows that a channel remembers between epochs.
    * Each walk is timed here, and a step does not time or wait within a walk: phases never nest.

    Backward is the same call with the transposed direction, in which leaves that read became
    leaves that write: the two halves of an exchange are each other's adjoint.

    Args:
        direction: Blocks and routes of one direction of the pass.
        exchange: Decides when rows travel, and keeps the time.
        steps: The operation.
    """
    timed = exchange.clock.timed
    needs_leaves = steps.waits_for_rows and direction.leaf_from_leaf.num_edges > 0
    steps.send()
    with timed("aggregate"):
        steps.walk("leaf_from_root")
    if not needs_leaves:
        steps.reduce()
    with timed("aggregate"):
        steps.walk("root_from_root")
    steps.receive()
    if needs_leaves:
        with timed("aggregate"):
            steps.walk("leaf_from_leaf")
        steps.reduce()
    with timed("aggregate"):
        steps.walk("root_from_leaf")
    steps.finish()


def send_to_leaves(
    half: Half, exchange: Exchange, rows: Tensor, *, exact_columns: int = 0
) -> Arrival:
    """Begin to send root rows to the leaves that read them.

    Args:
        half: Which roots go to whom.
        exchange: Decides when the rows travel.
        rows: (num_roots, width).
        exact_columns: Number of trailing columns that no code may round.

    Returns:
        The arrival of (num_leaves, width): this part's leaves, by owner.
    """
    channel = exchange.new_channel()
    return exchange.begin(half.route, rows, channel, half.root_rows, exact_columns=exact_columns)


def reduce_to_roots(
    half: Half, exchange: Exchange, partial: Tensor, *, exact_columns: int = 0
) -> Arrival:
    """Begin to send the leaves' partials to their roots: the adjoint of `send_to_leaves`.

    Args:
        half: Which leaves go to whom.
        exchange: Decides when the rows travel.
        partial: (num_leaves, width).
        exact_columns: Number of trailing columns that no code may round.

    Returns:
        The arrival of (num_out, width): add row k to root `half.root_rows[k]`.
    """
    route, channel = half.route.reversed(), exchange.new_channel()
    return exchange.begin(route, partial, channel, exact_columns=exact_columns)


class RowSteps(ABC):
    """Steps that send rows, and add partials: all that a sum leaves to say is what edges do.

    Args:
        direction: Blocks and routes of one direction of the pass.
        exchange: Decides when rows travel.
        rows: (num_sources, width) read by edges out of roots, and sent to the leaves.
        total: (num_roots, out_width). Written.
        partial: (num_writing_leaves, out_width). Written.

    Attributes:
        leaf_rows: (num_reading_leaves, width) read by edges out of leaves; set by `receive`.
    """

    waits_for_rows = True
    leaf_rows: Tensor

    def __init__(
        self, direction: Direction, exchange: Exchange, rows: Tensor, total: Tensor, partial: Tensor
    ) -> None:
        self.direction = direction
        self.exchange = exchange
        self.rows = rows
        self.total = total
        self.partial = partial

    @abstractmethod
    def add(self, name: BlockName, rows: Tensor, out: Tensor) -> None:
        """Aggregate over the edges of one block.

        Args:
            name: Block of the direction. Blocks out of roots come first at their `out`.
            rows: (num_columns, width). Rows that the edges start from.
            out: (num_rows, out_width). Written by blocks out of roots, added to by the others.
        """

    def send(self) -> None:
        """See `Steps`."""
        self._arriving = send_to_leaves(self.direction.send, self.exchange, self.rows)

    def walk(self, name: BlockName) -> None:
        """See `Steps`."""
        rows = self.rows if name.endswith("root") else self.leaf_rows
        self.add(name, rows, self.total if name.startswith("root") else self.partial)

    def reduce(self) -> None:
        """See `Steps`."""
        self._returning = reduce_to_roots(self.direction.reduce, self.exchange, self.partial)

    def receive(self) -> None:
        """See `Steps`."""
        self.leaf_rows = self._arriving.wait()

    def finish(self) -> None:
        """See `Steps`."""
        self._returning.add_to(self.total, self.direction.reduce.root_rows)
