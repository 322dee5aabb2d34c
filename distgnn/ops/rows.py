"""Input rows of any kind: the contract that tensors, sparse rows and rows in host memory share.

A `torch.Tensor` has every member of `Rows` by itself, so dense rows need no wrapper. `SparseRows`
and `HostRows` have the same members. Where the kind matters all the same, `is_tensor` asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeGuard, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch import Tensor


class Rows(Protocol):
    """Rows that a layer reads: (num_rows, width)."""

    @property
    def shape(self) -> Any:
        """(num_rows, width)."""

    @property
    def dtype(self) -> torch.dtype:
        """Type of a stored value."""

    @property
    def device(self) -> torch.device:
        """Device that computes with the rows."""

    @property
    def is_sparse(self) -> bool:
        """Whether only some entries are stored; such rows have no aggregate."""

    def __getitem__(self, rows: Any, /) -> Any:
        """Copy some rows, of the same kind, by their (num_picked,) int64 numbers."""

    def matmul(self, weight: Any, /) -> Tensor:
        """Multiply by a dense (width, out_width) matrix, differentiable in that matrix."""

    def to_dense(self) -> Tensor:
        """Return the rows as a tensor on the device; a tensor returns itself."""

    def to(self, device: Any, /) -> Any:
        """Return the rows in the memory of a device, as a tensor unless they are sparse."""

    def detach(self) -> Any:
        """Return the same rows without their history."""


AnyRows = TypeVar("AnyRows", bound=Rows)

Seen: TypeAlias = "Callable[[Rows, Tensor], None]"
"""Function of the rows that a map multiplied and of its result's gradient, for `backward`."""


def is_tensor(rows: Rows) -> TypeGuard[Tensor]:
    """Return whether rows are a tensor, the only kind that a layer can make and aggregate."""
    return isinstance(rows, torch.Tensor)
