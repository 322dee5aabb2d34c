"""Rows of one message, written in a code and read at the other end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from distgnn.kernels.codec import decode_rows, encode_rows

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.exchange.codec import CodecSpec
    from distgnn.ops.buffers import Buffers

_CODED = (torch.float32, torch.bfloat16)
# Rows of a message that are decoded by their sender, to see what the code makes of them.
_NUM_SAMPLED = 32
# Headers, bfloat16 codes and exact columns of such bytes are NaN.
_NAN_BYTE = 0xFF
LARGEST = 2.0**96
"""Largest magnitude of a value that has a code."""


class SquaredError(NamedTuple):
    """Error of a code on some rows.

    Attributes:
        of_code: () float32. Squared difference of values and decoded values, summed.
        of_zeros: () float32. Squared values, summed: the error of sending nothing.
    """

    of_code: Tensor
    of_zeros: Tensor

    @property
    def relative(self) -> float:
        """Root of the quotient of both; 0 for rows of zeros, and for rows that have no code."""
        of_code, of_zeros = float(self.of_code), float(self.of_zeros)
        return math.sqrt(of_code / of_zeros) if of_code < math.inf and of_zeros > 0 else 0.0


class Coder:
    """Packs the rows of one message, and unpacks those of others.

    Args:
        spec: The code.
        like: (any, width), float32 or bfloat16. Rows of the message's width and type.
        exact_columns: Number of trailing columns that may not be rounded.
        buffers: Memory for codes and rows.
    """

    def __init__(self, spec: CodecSpec, like: Tensor, exact_columns: int, buffers: Buffers) -> None:
        self._width = like.shape[1]
        self._dtype = like.dtype
        self._row_bytes = spec.row_bytes(self._width, like.element_size(), exact_columns)
        self._is_random = spec.is_random
        self._bits = spec.bits
        self._exact_columns = exact_columns
        self._buffers = buffers

    def pack(
        self,
        rows: Tensor,
        picked: Tensor | None,
        count: int,
        seed: int,
        *,
        out: Tensor | None = None,
    ) -> Tensor:
        """Write rows in the code.

        Args:
            rows: (num_rows, width) table.
            picked: (count,) int32. Row of the table for each row of the message; None for all.
            count: Number of rows of the message.
            seed: Seed of the random rounding, in [0, 2**64); not used without.
            out: (count, row_bytes) uint8 to write into; None for memory of the exchange.

        Returns:
            (count, row_bytes) uint8. If a row is not finite, or beyond all codes, all rows of the
            message arrive as NaN.
        """
        return self._write(rows, picked, count, seed, self.landing(count) if out is None else out)

    def _encode(
        self, rows: Tensor, picked: Tensor | None, count: int, seed: int | None, out: Tensor
    ) -> None:
        encode_rows(
            rows,
            picked,
            count,
            bits=self._bits,
            exact_columns=self._exact_columns,
            seed=seed,
            out=out,
        )

    def _write(
        self, rows: Tensor, picked: Tensor | None, count: int, seed: int, packed: Tensor
    ) -> Tensor:
        if not count:
            return packed
        try:
            self._encode(rows, picked, count, seed if self._is_random else None, packed)
        except ValueError:
            sent = rows[:count] if picked is None else rows[picked.long()]
            if self._has_codes(sent):
                raise
            # The run has diverged. An error here would be that of one rank, and the others would
            # wait for its rows; with NaN the loss tells all ranks alike, as without a code.
            packed.fill_(_NAN_BYTE)
        return packed

    def _has_codes(self, rows: Tensor) -> bool:
        """Whether all values of rows can be coded."""
        coded = rows[:, : self._width - self._exact_columns]
        return bool((coded.abs() <= LARGEST).all())

    def leaving(self, packed: Tensor, start: int, stop: int) -> Tensor:
        """Return the bytes of some rows of a message that leaves."""
        return packed[start:stop]

    def arriving(self, packed: Tensor, start: int, stop: int) -> Tensor:
        """Return the bytes of some rows of a message that arrives."""
        return packed[start:stop]

    def num_bits(self, count: int) -> tuple[int, int]:
        """Return the bits of all codes of a message that leaves, and the number of its values."""
        values = count * (self._width - self._exact_columns)
        return self._bits * values, values

    def landing(self, count: int) -> Tensor:
        """Return memory for the codes of some rows: (count, row_bytes) uint8."""
        return self._buffers.empty(count, self._row_bytes, torch.uint8)

    def unpack(self, packed: Tensor) -> Tensor:
        """Read rows.

        Args:
            packed: (count, row_bytes) uint8, from `pack` on this rank or another.

        Returns:
            (count, width), of the type of the rows that were packed.
        """
        rows = self._buffers.empty(len(packed), self._width, self._dtype)
        if len(packed):
            decode_rows(
                packed, self._width, bits=self._bits, exact_columns=self._exact_columns, out=rows
            )
        return rows

    def adds_to(self, total: Tensor) -> bool:
        """Whether `add_to` adds what adding the rows of `unpack` would, bit by bit."""
        return total.dtype == self._dtype == torch.float32

    def add_to(self, total: Tensor, packed: Tensor, places: Tensor) -> None:
        """Read rows, and add them where they belong.

        Args:
            total: (num_rows, width) float32. Row places[k] is added row k, in the order of k.
            packed: (count, row_bytes) uint8, from `pack`.
            places: (count,) int32. May repeat.
        """
        if len(packed):
            decode_rows(
                packed,
                self._width,
                bits=self._bits,
                exact_columns=self._exact_columns,
                out=total,
                places=places,
                add=True,
            )

    def blend(self, packed: Tensor, into: Tensor, places: Tensor, weight: float) -> None:
        """Read rows to where they belong.

        Args:
            packed: (count, row_bytes) uint8, from `pack`.
            into: (num_rows, width), of the type of the rows. Changed.
            places: (count,) int32. Row of `into` for each row that is read.
            weight: Share of the way from the old value to the new one.
        """
        decode_rows(
            packed,
            self._width,
            bits=self._bits,
            exact_columns=self._exact_columns,
            out=into,
            places=places,
            weight=weight,
        )

    @property
    def row_bytes(self) -> int:
        """Bytes of a row on the wire."""
        return self._row_bytes

    def error(self, rows: Tensor, picked: Tensor | None, packed: Tensor) -> SquaredError:
        """Compare a sample of the rows of a message with what the others read.

        Args:
            rows: Table that was packed.
            picked: Rows of the table that were packed; None for all.
            packed: (count, row_bytes) uint8, from `pack`; at least one row.
        """
        places = self._sampled(len(packed))
        return self._compare(rows, picked, places, self.unpack(packed[places].contiguous()))

    def _sampled(self, count: int) -> slice:
        """Return the rows of a message that are looked at."""
        return slice(None, None, -(-count // _NUM_SAMPLED))

    def _compare(
        self, rows: Tensor, picked: Tensor | None, places: slice, read: Tensor
    ) -> SquaredError:
        sampled = rows[places] if picked is None else rows[picked[places].long()]
        columns = slice(self._width - self._exact_columns)
        true, found = sampled[:, columns].float(), read[:, columns].float()
        return SquaredError((found - true).square_().sum(), true.square().sum())


def coder_of(spec: CodecSpec, rows: Tensor, exact_columns: int, buffers: Buffers) -> Coder | None:
    """Return what packs and unpacks a message.

    Args:
        spec: The code.
        rows: (any, width). The message's rows, or the table that they are picked from.
        exact_columns: Number of trailing columns that may not be rounded.
        buffers: Memory for codes and rows.

    Returns:
        None where rows travel as they are: the codec is exact, or they are narrow, or no floats.
    """
    width, item_bytes = rows.shape[1], rows.element_size()
    if rows.dtype not in _CODED or spec.is_exact(width, item_bytes, exact_columns):
        return None
    return Coder(spec, rows, exact_columns, buffers)
