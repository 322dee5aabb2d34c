"""Rows that an aggregation moves between ranks, described without moving them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from distgnn.exchange.codec import Bits, CodecSpec
    from distgnn.exchange.route import Route

ITEM_BYTES = 4
"""Bytes of a float32."""
ID_BYTES = 8
"""Bytes of a vertex id."""
MEAN_BITS: Bits = 8
"""Least bits of a value of the means that attention sends to roots; see `aggregate.attention`."""

Role = Literal["read", "write"]


class Leg(NamedTuple):
    """One half of an exchange, once: a row for each leaf that plays a role.

    Attributes:
        role: Which leaves take part: those that read or those that write.
        is_to_root: Whether rows travel from the leaves to their roots; else the other way.
        columns: Columns of a row, the exact ones among them.
        item_bytes: Bytes of a value.
        exact_columns: Number of trailing columns that no code may round.
        least_bits: Bits of a value that a code has at least.
    """

    role: Role
    is_to_root: bool
    columns: int
    item_bytes: int = ITEM_BYTES
    exact_columns: int = 0
    least_bits: Bits = 1

    def is_exact(self, codec: CodecSpec) -> bool:
        """Whether rows travel as they are.

        Args:
            codec: Code that rows are written in.
        """
        codec = codec.at_least(self.least_bits)
        return codec.is_exact(self.columns, self.item_bytes, self.exact_columns)

    def row_bytes(self, codec: CodecSpec) -> int:
        """Return the bytes of a row.

        Args:
            codec: Code that rows are written in.
        """
        codec = codec.at_least(self.least_bits)
        return codec.row_bytes(self.columns, self.item_bytes, self.exact_columns)

    def reversed(self) -> Leg:
        """Return its adjoint: the same rows, travelling back."""
        return self._replace(is_to_root=not self.is_to_root)

    def sent_rows(self, route: Route) -> int:
        """Return how many rows a rank sends.

        Args:
            route: Route of the leaves that play the role, from roots to leaves.
        """
        return route.num_in if self.is_to_root else route.num_out


@dataclass(frozen=True)
class LayerTraffic:
    """Traffic of a layer in one training pass; evaluation moves what forward does.

    Attributes:
        width: Columns of the rows that it aggregates in every epoch; 0 for none.
        forward: Legs of the forward pass.
        backward: Legs of the backward pass.
        recomputed: Legs of the forward pass that the backward pass runs once more.
    """

    width: int = 0
    forward: tuple[Leg, ...] = ()
    backward: tuple[Leg, ...] = ()
    recomputed: tuple[Leg, ...] = ()

    @property
    def legs(self) -> tuple[Leg, ...]:
        """Those of both passes."""
        return self.forward + self.recomputed + self.backward

    @property
    def passes(self) -> tuple[tuple[tuple[Leg, ...], bool], ...]:
        """Legs of each direction of the pass, and whether it is the backward one."""
        return (self.forward + self.recomputed, False), (self.backward, True)

    def without_gradient(self) -> LayerTraffic:
        """Return that of a layer whose input has no gradient and was aggregated as it is."""
        return replace(self, backward=())

    def without_row_gradient(self) -> LayerTraffic:
        """Return that of a layer whose weights need the gradient of its sums, and nobody more."""
        return replace(self, backward=tuple(leg for leg in self.backward if leg.role == "write"))

    def repeated(self, number: int) -> LayerTraffic:
        """Return that of a layer that does the same so many times."""
        return replace(self, forward=self.forward * number, backward=self.backward * number)

    def silent(self) -> LayerTraffic:
        """Return that of a layer whose rows stay where they are (0c)."""
        return LayerTraffic(self.width)

    def again(self) -> LayerTraffic:
        """Return that of a layer that backward computes once more."""
        return replace(self, recomputed=self.forward)


NO_TRAFFIC = LayerTraffic()


def sum_traffic(
    width: int, item_bytes: int = ITEM_BYTES, gradient_bytes: int = ITEM_BYTES
) -> LayerTraffic:
    """Describe a sum or mean; see `SumAcrossCut`.

    Args:
        width: Width of the rows.
        item_bytes: Bytes of a value of the rows.
        gradient_bytes: Bytes of a value of their gradient.
    """
    forward, backward = (
        (Leg("read", is_back, width, size), Leg("write", not is_back, width, size))
        for is_back, size in ((False, item_bytes), (True, gradient_bytes))
    )
    return LayerTraffic(width, forward, backward)


def maximum_traffic(width: int) -> LayerTraffic:
    """Describe a maximum, which travels with its winner's id; see `MaxAcrossCut`.

    Args:
        width: Width of the rows.
    """
    read, write = Leg("read", False, width), Leg("write", True, width)
    ids = Leg("write", True, width, ID_BYTES)
    return LayerTraffic(width, (read, write, ids), (write.reversed(), read.reversed()))


def attention_traffic(
    heads: int,
    width: int,
    *,
    is_additive: bool = False,
    row_bytes: int = ITEM_BYTES,
    gradient_bytes: int = ITEM_BYTES,
) -> LayerTraffic:
    """Describe an attention; see `AttendAcrossCut`.

    Forward moves scores of targets, rows with the scores of sources, and partials with their maxima
    and sums. Backward moves gradients with what they are made of, and the gradients of rows and
    scores.

    Args:
        heads: How many there are.
        width: Width of each head.
        is_additive: Whether scores are made of the rows themselves: those of targets travel in
            place of their scores, and sources have none.
        row_bytes: Bytes of a value of the rows.
        gradient_bytes: Bytes of a value of the gradients of the result.
    """
    columns = heads * width
    source_scores, target_scores = (0, columns) if is_additive else (heads, heads)
    exact_scores = 0 if is_additive else target_scores
    scores = Leg("write", False, target_scores, exact_columns=exact_scores)
    means = Leg("write", True, columns + heads, exact_columns=heads, least_bits=MEAN_BITS)
    sent = _together("read", (columns, row_bytes), source_scores)
    returned = Leg("read", True, columns + source_scores, exact_columns=source_scores)
    gradients = _together("write", (columns, gradient_bytes), 2 * heads)
    forward, backward = (scores, *sent, means), (scores.reversed(), returned, *gradients)
    return LayerTraffic(columns, forward, backward)


def _together(role: Role, rows: tuple[int, int], exact_columns: int) -> list[Leg]:
    """Describe tables that are sent to the leaves, in one message for each type.

    Args:
        role: Role of the leaves.
        rows: Columns of the rows, and bytes of a value.
        exact_columns: Columns of float32 tables beside them, which no code may round.
    """
    columns, item_bytes = rows
    if item_bytes == ITEM_BYTES:
        return [Leg(role, False, columns + exact_columns, exact_columns=exact_columns)]
    beside = Leg(role, False, exact_columns, exact_columns=exact_columns)
    return [Leg(role, False, columns, item_bytes), beside]
