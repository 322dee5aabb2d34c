"""Gradients as rows of equal width, which the codes of rows take."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from distgnn.exchange.codec import CodecSpec
    from distgnn.ops.buffers import Buffers

WIDTH = 512
"""Values of a row: each has a minimum and a unit of its own."""
LEAST_VALUES = 1024
"""Values of the smallest tensor that is coded. Smaller ones, and vectors, are summed exactly."""


class Layout(NamedTuple):
    """Tensors that are summed, divided into those that are coded and the others.

    Attributes:
        shapes: Shape of each tensor.
        is_coded: Whether each of them is coded.
    """

    shapes: tuple[tuple[int, ...], ...]
    is_coded: tuple[bool, ...]

    @classmethod
    def of(cls, shapes: Sequence[tuple[int, ...]], codec: CodecSpec, item_bytes: int = 4) -> Layout:
        """Divide tensors.

        Args:
            shapes: Shape of each tensor.
            codec: The code.
            item_bytes: Bytes of a value.
        """
        is_exact = item_bytes != 4 or codec.is_exact(WIDTH, item_bytes)
        coded = (
            not is_exact and len(shape) > 1 and prod(shape) >= LEAST_VALUES for shape in shapes
        )
        return cls(tuple(shapes), tuple(coded))

    @property
    def num_exact(self) -> int:
        """Values of the tensors that are summed exactly."""
        return sum(prod(shape) for shape in self._shapes_of(is_coded=False))

    @property
    def num_rows(self) -> int:
        """Rows of the tensors that are coded; each begins a row."""
        return sum(_num_rows(shape) for shape in self._shapes_of(is_coded=True))

    def _shapes_of(self, *, is_coded: bool) -> list[tuple[int, ...]]:
        pairs = zip(self.shapes, self.is_coded, strict=True)
        return [shape for shape, coded in pairs if coded == is_coded]

    def rows(self, tensors: Sequence[Tensor], buffers: Buffers) -> Tensor:
        """Write the tensors that are coded into rows.

        Args:
            tensors: Tensors of the shapes.
            buffers: Memory for the rows.

        Returns:
            (num_rows, WIDTH) of their type. What is left of a tensor's last row repeats its last
            value, so that it changes neither minimum nor unit.
        """
        rows = buffers.empty(self.num_rows, WIDTH, tensors[0].dtype)
        flat, start = rows.view(-1), 0
        for tensor, shape, coded in zip(tensors, self.shapes, self.is_coded, strict=True):
            if coded:
                stop = start + tensor.numel()
                flat[start:stop] = tensor.reshape(-1)
                start += _num_rows(shape) * WIDTH
                flat[stop:start] = flat[stop - 1]
        return rows

    def split(self, exact: Tensor, rows: Tensor) -> list[Tensor]:
        """Return the tensors again, as views.

        Args:
            exact: (num_exact,) values of those that are not coded.
            rows: (num_rows, WIDTH) values of the others.
        """
        flat, tensors, at, row = rows.view(-1), [], 0, 0
        for shape, coded in zip(self.shapes, self.is_coded, strict=True):
            count = prod(shape)
            if coded:
                tensors.append(flat[row * WIDTH : row * WIDTH + count].view(shape))
                row += _num_rows(shape)
            else:
                tensors.append(exact[at : at + count].view(shape))
                at += count
        return tensors


def _num_rows(shape: tuple[int, ...]) -> int:
    return -(-prod(shape) // WIDTH)
