"""Constant rows in host memory, which a device reads slice by slice while it multiplies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch.autograd.function import once_differentiable

from distgnn import kernels
from distgnn.kernels.dense import Factor, GradientFactor, multiply, multiply_transposed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

SLICE_BYTES = 1 << 25
"""Bytes of a slice at most, unless a single row is longer: a millisecond of a link to the host. The
allocator of pinned memory takes powers of two."""
COLUMNS = 16
"""Columns that are on the device at once while something is made of all rows."""
_NUM_BUFFERS = 2


class Copies(Protocol):
    """Copies into numbered buffers, each of which is read before the next copy into it."""

    def copy(self, target: Tensor, rows: Tensor, number: int) -> None:
        """Copy rows, once buffer `number` was read."""

    def begin(self, number: int) -> None:
        """Let what is computed from now on begin when the copy into a buffer has ended."""

    def end(self, number: int) -> None:
        """Say that all that reads a buffer has been told."""


class BlockingCopies:
    """Copies one after the other with all else: of devices that do what they are told in order."""

    def copy(self, target: Tensor, rows: Tensor, number: int) -> None:
        """See `Copies`."""
        del number
        target.copy_(rows)

    def begin(self, number: int) -> None:
        """See `Copies`."""

    def end(self, number: int) -> None:
        """See `Copies`."""


class Beside:
    """Copies on a stream of a CUDA device beside the one that computes.

    Each side waits for the other by events: a copy for the last product that reads its buffer, a
    product for its copy. A stream waits for the last time that an event was recorded before, and
    for nothing where there was none. So only the order counts in which the host calls these
    functions, which is that of `Lane.carry`.

    Args:
        device: The device.
        buffers: On it; for as long as this lives.
    """

    def __init__(self, device: torch.device, buffers: Sequence[Tensor]) -> None:
        self._device = device
        self._buffers = buffers
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._arrived: list[Any] = [torch.cuda.Event() for _ in buffers]  # type: ignore[no-untyped-call]
        self._read: list[Any] = [torch.cuda.Event() for _ in buffers]  # type: ignore[no-untyped-call]
        # What had their memory before may still be read.
        self._stream.wait_stream(torch.cuda.current_stream(device))
        for buffer in buffers:
            buffer.record_stream(self._stream)

    def copy(self, target: Tensor, rows: Tensor, number: int) -> None:
        """See `Copies`."""
        self._stream.wait_event(self._read[number])
        with torch.cuda.stream(self._stream):
            target.copy_(rows, non_blocking=True)
        self._arrived[number].record(self._stream)

    def begin(self, number: int) -> None:
        """See `Copies`."""
        # Asked each time: that of backward may be another.
        current = torch.cuda.current_stream(self._device)
        current.wait_event(self._arrived[number])
        self._buffers[number].record_stream(current)

    def end(self, number: int) -> None:
        """See `Copies`."""
        self._read[number].record(torch.cuda.current_stream(self._device))


class Lane:
    """Two buffers on a device that slices of rows go through in turn.

    The copy of a slice runs beside what is computed of the one before.

    Args:
        device: Where they are read.
        num_bytes: Bytes of the longest slice.

    Attributes:
        device: The device.
        num_bytes: Bytes of both buffers.
    """

    def __init__(self, device: torch.device, num_bytes: int) -> None:
        self.device = device
        self.num_bytes = _NUM_BUFFERS * num_bytes
        self._buffers = [
            torch.empty(num_bytes, dtype=torch.uint8, device=device) for _ in range(_NUM_BUFFERS)
        ]
        self._copies: Copies = BlockingCopies()
        if device.type == "cuda":
            self._copies = Beside(device, self._buffers)
        self._is_busy = False

    def carry(self, slices: Sequence[Tensor]) -> Iterator[Tensor]:
        """Bring slices to the device, in order.

        Args:
            slices: (num_rows, width) each, in host memory.

        Yields:
            Each on the device, until the next is asked for; what reads it has been told by then, on
            the current stream.
        """
        assert not self._is_busy, "slices of one pass at a time have the buffers"
        self._is_busy = True
        try:
            arriving = self._copied(slices[0], 0) if slices else None
            for number in range(len(slices)):
                arrived = arriving
                if number + 1 < len(slices):
                    arriving = self._copied(slices[number + 1], number + 1)
                self._copies.begin(number % _NUM_BUFFERS)
                try:
                    assert arrived is not None, "there is a slice"
                    yield arrived
                finally:
                    self._copies.end(number % _NUM_BUFFERS)
        finally:
            self._is_busy = False

    def _copied(self, rows: Tensor, number: int) -> Tensor:
        number %= _NUM_BUFFERS
        buffer = self._buffers[number][: rows.numel() * rows.element_size()]
        target = buffer.view(rows.dtype).view(rows.shape)
        self._copies.copy(target, rows, number)
        return target


class Mask(NamedTuple):
    """Mask of dropout; see `distgnn.kernels.dropout`.

    Attributes:
        row_key: (num_rows,) int64, on the device.
        seed: Differs from call to call and from epoch to epoch.
        probability: In [0, 1).
    """

    row_key: Tensor
    seed: int
    probability: float


@dataclass(frozen=True, eq=False)
class HostRows:
    """Constant rows in host memory that a device computes with; never a result of a layer.

    They are multiplied slice by slice, and so is the gradient of the weights made, whose shares are
    added in order: results have the same bits in every run. The slices are pinned where the device
    is a CUDA device. Their own gradient is never asked for.

    Attributes:
        slices: (slice_rows, width) each, the last one perhaps with fewer rows.
        shape: (num_rows, width).
        dtype: Float32, or bfloat16 for weights in float32.
        slice_rows: Rows of a slice.
        lane: On the device; shared with rows that are made of these.
        mask: Drops entries on the way; None for none.
        why: They are not on the device, for the log.
    """

    slices: tuple[Tensor, ...]
    shape: tuple[int, int]
    dtype: torch.dtype
    slice_rows: int
    lane: Lane
    mask: Mask | None = None
    why: str = ""

    @classmethod
    def of(cls, rows: Tensor, device: torch.device, *, why: str = "") -> HostRows:
        """Copy rows.

        Args:
            rows: (num_rows, width), in host memory.
            device: Device that will read them.
            why: Reason why they are not on the device, for the log.

        Raises:
            RuntimeError: If so much host memory cannot be pinned.
        """
        num_rows, width = rows.shape
        row_bytes = width * rows.element_size()
        slice_rows = max(SLICE_BYTES // max(row_bytes, 1), 1)
        lane = Lane(device, min(slice_rows, max(num_rows, 1)) * row_bytes)
        slices = _slices(num_rows, width, rows.dtype, slice_rows=slice_rows, device=device)
        made = cls(slices, (num_rows, width), rows.dtype, slice_rows, lane, why=why)
        for start, target in made._numbered():
            target.copy_(rows[start : start + len(target)])
        return made

    @property
    def device(self) -> torch.device:
        """Where they are computed with."""
        return self.lane.device

    @property
    def is_sparse(self) -> bool:
        """Whether only some entries are stored."""
        return False

    def detach(self) -> HostRows:
        """Return the rows themselves: constants have no history."""
        return self

    @property
    def num_bytes(self) -> int:
        """Bytes that they take in host memory."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def _numbered(self) -> Iterator[tuple[int, Tensor]]:
        """The slices, each with the number of its first row."""
        for number, rows in enumerate(self.slices):
            yield number * self.slice_rows, rows

    def on_device(self) -> Iterator[tuple[int, Tensor]]:
        """Bring the rows to the device.

        Yields:
            The number of the first row of a slice, and the slice, until the next.
        """
        for number, rows in enumerate(self.lane.carry(self.slices)):
            start = number * self.slice_rows
            if self.mask is not None:
                key, seed, probability = self.mask
                part = key[start : start + len(rows)]
                kernels.dropout(rows, part, rows, seed=seed, probability=probability)
            yield start, rows

    def matmul(self, weight: Tensor) -> Tensor:
        """Multiply by a dense matrix, differentiable in that matrix.

        Args:
            weight: (width, out_width), float32 or float64, contiguous or the transpose of such.

        Returns:
            (num_rows, out_width), of the type of the weight.
        """
        product: Tensor = _StreamedMatmul.apply(weight, self)  # type: ignore[no-untyped-call]
        return product

    def dropout(self, row_key: Tensor, *, seed: int, probability: float) -> HostRows:
        """Drop entries as `distgnn.ops.dropout` would, whenever they arrive on the device."""
        assert self.mask is None, "entries are dropped once"
        return replace(self, mask=Mask(row_key, seed, probability))

    def __getitem__(self, rows: Tensor) -> HostRows:
        """Copy some of the rows; for set-up.

        Args:
            rows: (num_selected,) int64.
        """
        wanted = rows.cpu()
        made = self._like(len(wanted))
        for start, target in made._numbered():
            numbers = wanted[start : start + len(target)]
            for place in torch.unique(numbers // self.slice_rows).tolist():
                is_here = numbers // self.slice_rows == place
                target[is_here] = self.slices[place][numbers[is_here] - place * self.slice_rows]
        return made

    def by_columns(self, function: Callable[[Tensor], Tensor]) -> HostRows:
        """Make other rows of these, some columns at a time: for set-up.

        Args:
            function: From (num_rows, num_columns) on the device to as many columns, each of them
                made of that column alone. Called equally often on all ranks.

        Returns:
            (num_made, width), of the type of these rows.
        """
        made = None
        num_rows, width = self.shape
        for first in range(0, width, COLUMNS):
            columns = slice(first, min(first + COLUMNS, width))
            size = (num_rows, columns.stop - first)
            block = torch.empty(size, dtype=self.dtype, device=self.device)
            for start, rows in self._numbered():
                block[start : start + len(rows)].copy_(rows[:, columns])
            result = function(block).to(self.dtype)
            made = made or self._like(len(result))
            for start, target in made._numbered():
                target[:, columns].copy_(result[start : start + len(target)])
        return made or self

    def to_dense(self) -> Tensor:
        """Return (num_rows, width) rows on the device, all of them."""
        dense = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for start, rows in self.on_device():
            dense[start : start + len(rows)] = rows
        return dense

    def to(self, device: torch.device) -> Tensor:
        """Return (num_rows, width) rows in the memory of a device, all of them."""
        return self.to_host().to(device)

    def to_host(self) -> Tensor:
        """Return a copy of all rows as one piece in host memory."""
        return torch.cat([*self.slices, torch.empty((0, self.shape[1]), dtype=self.dtype)])

    def _like(self, num_rows: int) -> HostRows:
        """Return rows without values, in the same way."""
        width, rows = self.shape[1], self.slice_rows
        slices = _slices(num_rows, width, self.dtype, slice_rows=rows, device=self.device)
        return replace(self, slices=slices, shape=(num_rows, width))


def _slices(
    num_rows: int, width: int, dtype: torch.dtype, *, slice_rows: int, device: torch.device
) -> tuple[Tensor, ...]:
    """Allocate slices that a device can copy while it computes."""
    is_pinned = device.type == "cuda"
    counts = [min(slice_rows, num_rows - start) for start in range(0, num_rows, slice_rows)]
    return tuple(torch.empty((count, width), dtype=dtype, pin_memory=is_pinned) for count in counts)


class _StreamedMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: HostRows) -> Tensor:
        ctx.rows, ctx.dtype = rows, weight.dtype
        out = weight.new_empty((rows.shape[0], weight.shape[1]))
        for start, part in rows.on_device():
            multiply([Factor(part, weight)], out[start : start + len(part)])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        rows: HostRows = ctx.rows
        grad = grads[0].contiguous()
        total = grad.new_zeros((grad.shape[1], rows.shape[1]), dtype=ctx.dtype)
        share = torch.empty_like(total)
        for start, part in rows.on_device():
            multiply_transposed([GradientFactor(part, share)], grad[start : start + len(part)])
            total += share
        return total.t(), None
