"""Codecs: how rows are written for the wire, and how many bytes a row takes there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Bits = Literal[32, 16, 8, 4, 2, 1]

_HEADER_BYTES = 4
_EXACT_COLUMN_BYTES = 4
_BITS_OF_ROUNDING = (8, 4, 2)
# Types whose rows are coded: 4 bytes a value are float32, 2 are bfloat16. Ids have 8.
_CODED_ITEM_BYTES = (4, 2)


@dataclass(frozen=True)
class CodecSpec:
    """A code for rows; every row of a message takes the same number of bytes.

    With 8, 4 and 2 bits a value becomes the number of one of 2^bits equal steps from the row's
    minimum to its maximum. With 1 bit it becomes one of two means: those of the row's values below
    and above the row's mean. Codes of 16 bits are bfloat16, and 32 bits are the rows themselves.

    Attributes:
        bits: Bits of a value.
        is_random: Whether a value between two steps is rounded to either at random, so that its
            expectation is the value; else to the nearest. Always False where there are no steps.
        least_columns: Least number of columns to code; narrower rows travel as they are.

    References:
        Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding",
        NeurIPS 2017.
        Markov et al., "CGX: Adaptive System Support for Communication-Efficient Deep Learning",
        Middleware 2022.
    """

    bits: Bits = 32
    is_random: bool = True
    least_columns: int = 16

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
        is_default = self.is_random or self.bits not in _BITS_OF_ROUNDING
        return f"int{self.bits}" if is_default else f"int{self.bits}(round=near)"

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
        """Return the bytes of a row on the wire.

        A coded row is a header of 4 bytes, which bfloat16 does without, the codes, and 4 bytes for
        each exact column.

        Args:
            columns: Columns of a row, the exact ones among them.
            item_bytes: Bytes of a value.
            exact_columns: Number of trailing columns that may not be rounded.
        """
        if self.is_exact(columns, item_bytes, exact_columns):
            return columns * item_bytes
        header = 0 if self.bits == 16 else _HEADER_BYTES
        codes = -(-(columns - exact_columns) * self.bits // 8)
        return header + codes + _EXACT_COLUMN_BYTES * exact_columns


EXACT = CodecSpec()
"""Rows as they are."""


@dataclass(frozen=True)
class HaloCodecs:
    """Codecs of the rows of split vertices, by the direction of the pass.

    Attributes:
        forward: Codec of features and partial sums.
        backward: Codec of gradients.
    """

    forward: CodecSpec = EXACT
    backward: CodecSpec = EXACT

    def of(self, *, is_backward: bool) -> CodecSpec:
        """Return the codec of one direction."""
        return self.backward if is_backward else self.forward

    @property
    def is_random(self) -> bool:
        """Whether the same rows may be sent as other bytes in another message."""
        return self.forward.is_random or self.backward.is_random


EXACT_CODECS = HaloCodecs()
"""Rows as they are, in both directions."""
