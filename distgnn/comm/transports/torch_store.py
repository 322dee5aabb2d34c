"""The store of a job as torch.distributed wants one, for gloo's connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from torch._C._distributed_c10d import Store as Base

    from distgnn.comm.store import Store
else:
    from torch.distributed import Store as Base


class TorchStore(Base):
    """Passes the calls of torch on to a client of our store.

    Args:
        store: Client of the store.
        prefix: Prefix of all keys.
    """

    def __init__(self, store: Store, prefix: str) -> None:
        super().__init__()
        self._store = store
        self._prefix = prefix

    def set(self, key: str, value: str | bytes) -> None:
        """Give a key a value."""
        self._store.set(self._prefix + key, value)

    def get(self, key: str) -> bytes:
        """Return the value of a key, and wait for it if need be."""
        return self._store.get(self._prefix + key)

    def add(self, key: str, number: int) -> int:
        """Add to a counter, and return it."""
        return self._store.add(self._prefix + key, number)

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys have values."""
        return self._store.check([self._prefix + key for key in keys])

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys have values."""
        del timeout  # that of the client is meant for the same calls
        self._store.multi_get([self._prefix + key for key in keys])

    def delete_key(self, key: str) -> bool:
        """Remove a key; return whether there was one."""
        return self._store.delete_key(self._prefix + key)
