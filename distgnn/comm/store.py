"""The key-value store that the ranks of a job share; rank 0 serves it."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from torch._C._distributed_c10d import PrefixStore as PrefixStore
    from torch._C._distributed_c10d import Store as Store
    from torch._C._distributed_c10d import TCPStore as TCPStore
else:
    from torch.distributed import PrefixStore, TCPStore

_LAST_WAIT_S = 5.0


@dataclass
class Meeting:
    """The store the ranks of a job share.

    Attributes:
        store: This rank's client of it; rank 0 also serves it.
        address: Address of rank 0 that this rank uses.
        port: Port of the store.
        interface: Network interface that leads to rank 0.
        file: File in which rank 0 of a local job published the port; None elsewhere.
        prefix: Prefix of the keys of this attempt, in a store that outlives it; empty elsewhere.
    """

    store: Store
    address: str
    port: int
    interface: str
    file: Path | None = field(default=None)
    prefix: str = ""

    def client(self, timeout_s: float) -> Store:
        """Return another client, for another thread.

        Args:
            timeout_s: Longest wait of its calls.
        """
        return within(connect_store(self.address, self.port, timeout_s), self.prefix)

    def remove_file(self) -> None:
        """Remove the published port; every rank has connected."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)
            self.file = None


def listen(address: str, port: int, size: int) -> socket.socket:
    """Return a listening socket.

    Args:
        address: The address to listen on; empty for all.
        port: The port; 0 for any.
        size: Number of ranks that will connect.
    """
    backlog = max(128, size)
    if address:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=backlog)
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True
        )
    return socket.create_server(("", port), backlog=backlog)


def serve_store(listener: socket.socket, address: str, timeout_s: float) -> TCPStore:
    """Serve a store on a listening socket, so that it is reachable through that address only.

    Args:
        listener: Bound and listening; the store takes it over.
        address: Address through which this process reaches it.
        timeout_s: Longest wait of the calls of this client.
    """
    port = listener.getsockname()[1]
    return TCPStore(
        address,
        port,
        None,
        True,
        timedelta(seconds=timeout_s),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def connect_store(address: str, port: int, timeout_s: float) -> TCPStore:
    """Return a client of the store at rank 0.

    Args:
        address: Address of rank 0.
        port: Port of the store.
        timeout_s: Longest wait for the connection and of its calls.
    """
    return TCPStore(
        address, port, None, False, timedelta(seconds=timeout_s), wait_for_workers=False
    )


def within(store: Store, prefix: str) -> Store:
    """Return the keys of a store that begin with a prefix, without it.

    Args:
        store: Any store.
        prefix: Empty for the store itself.
    """
    return PrefixStore(prefix, store) if prefix else store


def leave_store(store: Store, rank: int, size: int) -> None:
    """Say that this rank needs the store no more; rank 0, which serves it, waits for all others.

    Args:
        store: Store of the job.
        rank: This rank.
        size: Number of ranks.
    """
    if rank != 0:
        # Rank 0 may have been ended meanwhile, and then nobody waits for this.
        with suppress(RuntimeError):
            store.add("gone", 1)
        return
    deadline_s = time.monotonic() + _LAST_WAIT_S
    while store.add("gone", 0) < size - 1 and time.monotonic() < deadline_s:
        time.sleep(0.005)
