"""Memory for activations and gradients that is used again in every epoch."""

from __future__ import annotations

import math
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np
import torch

from distgnn.kernels.devices import PROCESSOR

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

# Below this the allocator has memory at hand; above it maps fresh pages, each of which costs a
# page fault at first touch: a third of an epoch before buffers were kept.
_MIN_BYTES = 1 << 18
_ALIGNMENT = 64
# A buffer that was not asked for during so many epochs is given back; two because an evaluation
# between two epochs counts as one.
_MAX_IDLE_EPOCHS = 2
_SHAPED = {torch.float32: np.float32, torch.float64: np.float64, torch.int32: np.int32}


class _Block:
    """A piece of memory, and when it was last handed out."""

    def __init__(self, capacity: int, epoch: int) -> None:
        self.memory: NDArray[np.uint8] = np.empty(capacity + _ALIGNMENT, dtype=np.uint8)
        self.used_at = epoch
        self._idle_count = sys.getrefcount(self.memory)

    def is_free(self) -> bool:
        """Whether no tensor lies here: a tensor holds a reference until its storage dies."""
        return sys.getrefcount(self.memory) == self._idle_count


class Buffers:
    """Memory for uninitialized tensors; that of a dead one serves the next of about its size.

    Sizes are rounded up to powers of two, so that tensors with some more or fewer rows share
    memory. What is rounded up is never touched and takes no room in memory. If no block of a
    size is free, one of twice the size serves. Before one is added, smaller free ones are given
    back, so that hardly more is ever held than was needed at once. On other devices than the
    processor torch keeps memory itself, and nothing is kept here.

    Args:
        device: Where the tensors are.
    """

    def __init__(self, device: torch.device = PROCESSOR) -> None:
        self.device = device
        self._blocks: dict[int, list[_Block]] = {}
        self._epoch = 0
        self._lock = threading.Lock()

    def empty(self, num_rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """Return an uninitialised (num_rows, width) tensor.

        Args:
            num_rows: Rows.
            width: Columns.
            dtype: Type of the values.

        Returns:
            A contiguous tensor on the device.
        """
        num_bytes = num_rows * width * dtype.itemsize
        if num_bytes < _MIN_BYTES or self.device.type != "cpu":
            return torch.empty((num_rows, width), dtype=dtype, device=self.device)
        memory = self._take(1 << math.ceil(math.log2(num_bytes)))
        start = -memory.ctypes.data % _ALIGNMENT
        taken = memory[start : start + num_bytes]
        if dtype in _SHAPED:
            # Shaped before it is a tensor: what a user's model gets may be written to in place,
            # which autograd forbids for a view that an operation made.
            return torch.from_numpy(taken.view(_SHAPED[dtype]).reshape(num_rows, width))
        # numpy has no such type; a tensor that takes another shape in place is no view either.
        return torch.frombuffer(taken, dtype=dtype).resize_(num_rows, width)

    def _take(self, capacity: int) -> NDArray[np.uint8]:
        # A block is free until somebody refers to its memory, as what is returned does. Another
        # thread that looked before would be given the same one.
        with self._lock:
            for size in (capacity, 2 * capacity):
                for block in self._blocks.get(size, ()):
                    if block.is_free():
                        block.used_at = self._epoch
                        return block.memory
            for size in [size for size in self._blocks if size < capacity]:
                self._blocks[size] = [block for block in self._blocks[size] if not block.is_free()]
            added = _Block(capacity, self._epoch)
            self._blocks.setdefault(capacity, []).append(added)
            return added.memory

    def owns(self, tensor: Tensor) -> bool:
        """Whether a tensor was handed out here: nobody outside the model holds it."""
        if tensor.device.type != "cpu":
            return False
        address = tensor.data_ptr()
        with self._lock:
            return any(
                0 <= address - block.memory.ctypes.data < block.memory.nbytes
                for blocks in self._blocks.values()
                for block in blocks
            )

    def end_epoch(self) -> None:
        """Give back what has been idle for a while."""
        with self._lock:
            self._epoch += 1
            for capacity, blocks in self._blocks.items():
                self._blocks[capacity] = [
                    block
                    for block in blocks
                    if self._epoch - block.used_at <= _MAX_IDLE_EPOCHS or not block.is_free()
                ]

    @property
    def num_bytes(self) -> int:
        """Reserved bytes, at most half of them untouched."""
        with self._lock:
            return sum(block.memory.nbytes for blocks in self._blocks.values() for block in blocks)
