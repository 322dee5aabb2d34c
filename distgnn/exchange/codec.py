"""Codecs: how rows are written for the wire, and how many bytes a row takes there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

Bits = Literal[32, 16, 8, 4, 2, 1]

_HEADER_BYTES = 4
_EXACT_COLUMN_BYTES = 4
_BITS_OF_ROUNDING = (8, 4, 2)
# Types whose rows are coded: 4 bytes a value are float32, 2 are bfloat16. Ids have 8.
_CODED_ITEM_BYTES = (4, 2)


@dataclass(frozen=True)
class Adaptation:
    """How the bits of a code follow the rows that are sent.

    Every so many epochs the ranges of rows are measured. Bits are then given to groups of rows, so
    that a budget of bytes or errors is kept and the other of the two is small.

    Attributes:
        choices: Bits that a group may have, ascending.
        every: Epochs between two measurements.
        error: Largest root of the squared error by the squared rows that is allowed. None where the
            budget is of bytes: those that the bits of the code take.
        by: Groups. With layer, the rows of all ranks in one message of the model are one. With row,
            the rows to a peer are sorted by range and cut into groups. Each peer then has a budget
            of its own, so that no pair of ranks takes longer than the others.

    References:
        Wan et al., "Adaptive Message Quantization and Parallelization for Distributed Full-graph
        GNN Training", MLSys 2023 (AdaQP).
        Markov et al., "CGX: Adaptive System Support for Communication-Efficient Deep Learning",
        Middleware 2022.
    """

    choices: tuple[Bits, ...] = (2, 4, 8)
    every: int = 50
    error: float | None = None
    by: Literal["row", "layer"] = "row"


@dataclass(frozen=True)
class CodecSpec:
    """A code for rows; every row of a message takes the same number of bytes, unless bits adapt.

    With 8, 4 and 2 bits a value becomes the number of one of 2^bits equal steps from the row's
    minimum to its maximum. With 1 bit it becomes one of two means: those of the row's values below
    and above the row's mean. Codes of 16 bits are bfloat16, and 32 bits are the rows themselves.

    Attributes:
        bits: Bits of a value.
        is_random: Whether a value between two steps is rounded to either at random, so that its
            expectation is the value; else to the nearest. Always False where there are no steps.
        least_columns: Least number of columns to code; narrower rows travel as they are.
        adaptation: How bits follow the rows; None where all rows have `bits`. Else these are the
            bits of a first epoch, and no epoch sends more bytes than with them.

    References:
        Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding",
        NeurIPS 2017.
        Markov et al., "CGX: Adaptive System Support for Communication-Efficient Deep Learning",
        Middleware 2022.
    """

    bits: Bits = 32
    is_random: bool = True
    least_columns: int = 16
    adaptation: Adaptation | None = None

    def __post_init__(self) -> None:
        # Codecs that do the same compare equal and have one text.
        object.__setattr__(self, "is_random", self.is_random and self.bits in _BITS_OF_ROUNDING)

    @property
    def text(self) -> str:
        """Name of the codec on the command line, such as exact, bf16, int8, int4(round=near)."""
        if self.bits == 32:
            return "exact"
        if self.bits == 16:
            return "bf16"
        if self.adaptation is not None:
            return self._adaptive_text(self.adaptation)
        is_default = self.is_random or self.bits not in _BITS_OF_ROUNDING
        return f"int{self.bits}" if is_default else f"int{self.bits}(round=near)"

    def _adaptive_text(self, how: Adaptation) -> str:
        budget = f"bits={self.bits}" if how.error is None else f"error={how.error:g}"
        by = "" if how.by == "row" else f",by={how.by}"
        near = "" if self.is_random else ",round=near"
        return f"adapt({'|'.join(map(str, how.choices))},every={how.every},{budget}{by}{near})"

    @property
    def plain(self) -> CodecSpec:
        """The same code with the same bits in every row."""
        return replace(self, adaptation=None)

    def at_least(self, bits: Bits) -> CodecSpec:
        """Return this code, or one of so many bits in every row where it may have fewer."""
        least = self.bits if self.adaptation is None else self.adaptation.choices[0]
        if least >= bits:
            return self
        return replace(self.plain, bits=max(self.bits, bits))

    def is_exact(self, columns: int, item_bytes: int, exact_columns: int = 0) -> bool:
        """Whether rows travel as they are.

        Args:
            columns: Columns of a row, the exact ones among them.
            item_bytes: Bytes of a value. Rows of ids and of float64 have 8, and are never coded.
            exact_columns: Number of trailing columns that may not be rounded.
        """
        return (
            item_bytes not in _CODED_ITEM_BYTES
            or self.bits >= 8 * item_bytes
            or columns - exact_columns < self.least_columns
        )

    def row_bytes(self, columns: int, item_bytes: int, exact_columns: int = 0) -> int:
        """Return the bytes of a row on the wire; at most so many where bits adapt.

        A coded row is a header of 4 bytes, which bfloat16 does without, the codes, and 4 bytes for
        each exact column. Where each row has its bits, a byte at times tells them.

        Args:
            columns: Columns of a row, the exact ones among them.
            item_bytes: Bytes of a value.
            exact_columns: Number of trailing columns that may not be rounded.
        """
        if self.is_exact(columns, item_bytes, exact_columns):
            return columns * item_bytes
        header = 0 if self.bits == 16 else _HEADER_BYTES
        codes = -(-(columns - exact_columns) * self.bits // 8)
        told = self.adaptation is not None and self.adaptation.by == "row"
        return header + codes + _EXACT_COLUMN_BYTES * exact_columns + told


EXACT = CodecSpec()
"""Rows as they are."""
_Codes = TypeVar("_Codes")


def codes_at(epoch: int, first: _Codes, later: Sequence[tuple[int, _Codes]]) -> _Codes:
    """Return the codes of an epoch, of some that follow each other.

    Args:
        epoch: From 0.
        first: Those from epoch 0 on.
        later: Epochs from which others hold, ascending, and these.
    """
    return next((codes for since, codes in reversed(later) if since <= epoch), first)


@dataclass(frozen=True)
class HaloCodecs:
    """Codecs of the rows of split vertices, by the direction of the pass.

    Attributes:
        forward: Codec of features and partial sums.
        backward: Codec of gradients.
        later: Codecs that take over in an epoch, by ascending epoch, from 1.
    """

    forward: CodecSpec = EXACT
    backward: CodecSpec = EXACT
    later: tuple[tuple[int, HaloCodecs], ...] = ()

    def at(self, epoch: int) -> HaloCodecs:
        """Return the codecs of an epoch.

        Args:
            epoch: From 0.
        """
        return codes_at(epoch, self, self.later)

    def of(self, *, is_backward: bool) -> CodecSpec:
        """Return the codec of one direction."""
        return self.backward if is_backward else self.forward

    @property
    def is_adaptive(self) -> bool:
        """Whether bits follow the rows."""
        either = (self.forward, self.backward)
        return any(codec.adaptation is not None for codec in either)

    @property
    def is_random(self) -> bool:
        """Whether the same rows may be sent as other bytes in another message."""
        later = any(codecs.is_random for _, codecs in self.later)
        return self.forward.is_random or self.backward.is_random or later


EXACT_CODECS = HaloCodecs()
"""Rows as they are, in both directions."""
