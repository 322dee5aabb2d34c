"""Results made of a tensor, kept for as long as the tensor lives and does not change."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from torch import Tensor

# Values in each dimension that are compared to notice what torch's version counter does not.
_NUM_SAMPLED = 16
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Kept:
    """Results that were made of a tensor.

    Args:
        tensor: A tensor with a version counter.
        died: Called with the weak reference when the tensor has died.

    Attributes:
        made: Results, by what made them.
        num_calls: For the user of the table to count with.
    """

    def __init__(self, tensor: Tensor, died: Callable[[weakref.ref[Tensor]], None]) -> None:
        self.tensor = weakref.ref(tensor, died)
        self.made: dict[Hashable, Any] = {}
        self.num_calls = 0
        self._state = _state(tensor)
        self._sample = _sample(tensor)

    def is_of(self, tensor: Tensor) -> bool:
        """Whether this is the tensor, and torch's counter knows of no change."""
        return self.tensor() is tensor and self._state == _state(tensor)

    def is_unchanged(self, tensor: Tensor) -> bool:
        """Whether a sample of the values is what it was.

        Writing through `.data` or numpy does not raise the counter.
        """
        return torch.equal(self._sample, _sample(tensor))


class KeptTable:
    """Table that finds what was made of a tensor by the tensor itself, and keeps none alive.

    Args:
        size: How many tensors to remember; None for all that live.
    """

    def __init__(self, size: int | None = None) -> None:
        self._entries: OrderedDict[int, Kept] = OrderedDict()
        self._size = size

    def __len__(self) -> int:
        """Return how many of the tensors live."""
        return len(self._entries)

    def of(self, tensor: Tensor) -> Kept:
        """Return the entry of a tensor; an empty one if there is none, or the tensor changed."""
        entry = self.find(tensor)
        if entry is None or not entry.is_unchanged(tensor):
            entry = Kept(tensor, self._forgetting(id(tensor)))
            self._entries[id(tensor)] = entry
            self._entries.move_to_end(id(tensor))
            if self._size is not None and len(self._entries) > self._size:
                self._entries.popitem(last=False)
        return entry

    def find(self, tensor: Tensor) -> Kept | None:
        """Return the entry of a tensor, or None; without a look at its values."""
        entry = self._entries.get(id(tensor))
        return entry if entry is not None and entry.is_of(tensor) else None

    def _forgetting(self, number: int) -> Callable[[weakref.ref[Tensor]], None]:
        # Without a reference to the table or the entry: a circle would keep both for a while.
        table = weakref.ref(self)

        def forget(dead: weakref.ref[Tensor]) -> None:
            alive = table()
            if alive is None:
                return
            entry = alive._entries.get(number)
            # Another tensor may have got the number since.
            if entry is not None and entry.tensor is dead:
                del alive._entries[number]

        return forget


def _state(tensor: Tensor) -> tuple[Any, ...]:
    return tensor._version, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _sample(tensor: Tensor) -> Tensor:
    """Return some values as bits, so that a NaN equals itself."""
    values = tensor.detach()
    for dim, size in enumerate(values.shape):
        step = max(1, size // _NUM_SAMPLED)
        values = values[(slice(None),) * dim + (slice(None, None, step),)]
    return values.clone(memory_format=torch.contiguous_format).view(_BITS[values.element_size()])
