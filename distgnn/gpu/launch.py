"""How kernels are started: sizes of their tiles, and checks of what they are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor

# Values of a tile, and its columns at most: four warps hold eight values a thread.
_TILE_VALUES = 1024
_TILE_COLUMNS = 128
# Of a warp that walks the edges of a row: bytes that it waits for at a time, and edges at most.
# Fewer leave memory idle; more take registers, and with them warps that run side by side.
_LANE_BYTES = 2048
_LANE_EDGES = 16
# Where heads are not cut: values of an edge, and edges, at most.
_HEAD_VALUES = 512
_HEAD_EDGES = 8


@triton.jit
def stored(values, DTYPE: tl.constexpr):
    """Values as they are stored; bfloat16 is rounded to the nearest, ties to even.

    In whole numbers, because Triton's interpreter would cut the digits off.
    """
    if tl.bfloat16 == DTYPE and values.dtype == tl.float32:
        bits = values.to(tl.uint32, bitcast=True)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        nearest = tl.where(values == values, nearest, 0x7FC0)
        return nearest.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:  # noqa: RET505 - Triton compiles one of the two
        return values.to(DTYPE)


@triton.jit
def segment_of_program(begin_ptr, end_ptr, target_ptr):
    """Where the edges of a program begin and end, and the row that their result belongs to."""
    segment = tl.program_id(0)
    return (
        tl.load(begin_ptr + segment),
        tl.load(end_ptr + segment),
        tl.load(target_ptr + segment),
    )


class Tile(NamedTuple):
    """The work of one program.

    Attributes:
        rows: Rows, or edges, side by side; a power of two.
        columns: Columns; a power of two.
        grid: Programs by rows and by columns.
    """

    rows: int
    columns: int
    grid: tuple[int, int]


def tile(num_rows: int, width: int) -> Tile:
    """Cut rows and columns into tiles.

    Args:
        num_rows: At least 1.
        width: At least 1.

    Returns:
        The tile; wide rows are cut.
    """
    columns = min(triton.next_power_of_2(width), _TILE_COLUMNS)
    rows = min(_TILE_VALUES // columns, triton.next_power_of_2(num_rows))
    return Tile(rows, columns, (triton.cdiv(num_rows, rows), triton.cdiv(width, columns)))


class WarpShape(NamedTuple):
    """Work of a program of one warp at a time: edges of one row, side by side.

    Attributes:
        edges: A power of two.
        columns: A power of two.
        programs: Programs that share the columns of a row.
    """

    edges: int
    columns: int
    programs: int


def lanes(width: int, item_bytes: int) -> WarpShape:
    """Cut the rows of sources into columns, and say how many are read side by side.

    Args:
        width: At least 1.
        item_bytes: Bytes of a value.
    """
    columns = min(triton.next_power_of_2(width), _TILE_COLUMNS)
    edges = max(4, min(_LANE_EDGES, _LANE_BYTES // (columns * item_bytes)))
    return WarpShape(edges, columns, triton.cdiv(width, columns))


class HeadLanes(NamedTuple):
    """Work of a program at a time: edges of one row, side by side, with all their heads.

    Attributes:
        edges: A power of two.
        heads: A power of two.
        columns: Columns of a head; a power of two.
        programs: Programs that share the heads of a row.
        warps: Warps of a program.
    """

    edges: int
    heads: int
    columns: int
    programs: int
    warps: int


def head_lanes(num_heads: int, head_width: int, values: int) -> HeadLanes:
    """Cut rows by heads, none of which is cut, and say how many rows are read side by side.

    Args:
        num_heads: At least 1.
        head_width: Columns of a head.
        values: Number of values that a warp should wait for at a time.
    """
    columns = triton.next_power_of_2(max(head_width, 1))
    heads = min(triton.next_power_of_2(num_heads), max(1, _HEAD_VALUES // columns))
    edges = max(1, min(_HEAD_EDGES, values // (heads * columns)))
    warps = max(1, min(8, heads * columns // 1024))
    return HeadLanes(edges, heads, columns, triton.cdiv(num_heads, heads), warps)


def tile_of_heads(num_rows: int, num_heads: int, head_width: int) -> Tile:
    """Cut rows by heads, none of which is cut.

    Args:
        num_rows: At least 1.
        num_heads: At least 1.
        head_width: Columns of a head.

    Returns:
        The tile; its grid is by rows and heads.
    """
    columns = triton.next_power_of_2(max(head_width, 1))
    rows = max(1, min(_TILE_VALUES // columns, triton.next_power_of_2(num_rows)))
    return Tile(rows, columns, (triton.cdiv(num_rows, rows), num_heads))


def summed(dtype: torch.dtype) -> torch.dtype:
    """Return the type that values of a type are added in.

    Args:
        dtype: Type of stored values.
    """
    return torch.float64 if dtype == torch.float64 else torch.float32


def accumulator(dtype: torch.dtype) -> tl.dtype:
    """Return the same as Triton names it."""
    return tl.float64 if dtype == torch.float64 else tl.float32


def expect(name: str, tensor: Tensor, *shape: int) -> None:
    """Check what a kernel would otherwise read or write past.

    Args:
        name: Name of the argument, for messages.
        tensor: The argument.
        shape: It must have.

    Raises:
        ValueError: If it has another one.
    """
    if tensor.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")


def head_width(name: str, tensor: Tensor, num_heads: int) -> int:
    """Return the columns of a head.

    Args:
        name: Name of the argument, for messages.
        tensor: (any, num_heads * width).
        num_heads: Heads side by side.

    Returns:
        The width.

    Raises:
        ValueError: If the heads do not share the columns equally.
    """
    columns = tensor.shape[1]
    if num_heads == 0 or columns % num_heads:
        raise ValueError(
            f"{name} must have {num_heads} heads of equal width, got {columns} columns"
        )
    return columns // num_heads
