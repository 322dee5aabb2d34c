"""The key-value store that the ranks of a job share; rank 0 serves it."""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distgnn.comm.store_server import (
    NONCE_BYTES,
    PROOF_BYTES,
    StoreServer,
    frame_bytes,
    look_after,
    pack,
    proof,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_LAST_WAIT_S = 5.0
_POLL_S = 0.005
# Seconds of silence after which the system asks whether the other end is there.
_KEEP_S = 60


class SecretError(RuntimeError):
    """Somebody else than a rank of this job listens, or the secret there is another one."""


class Store:
    """A client of the store; its calls may come from several threads.

    Args:
        address: Address of rank 0.
        port: Port of the store.
        timeout_s: Longest wait for the connection and of each call.
        secret: Secret of the job.

    Raises:
        RuntimeError: If nobody answers in time.
        SecretError: If the other side does not know the secret, or refuses ours.
    """

    def __init__(self, address: str, port: int, timeout_s: float, secret: bytes) -> None:
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._where = f"{address} port {port}"
        try:
            self._connection = socket.create_connection((address, port), timeout=timeout_s)
        except OSError as error:
            raise RuntimeError(f"no store answers at {self._where}: {error}") from error
        try:
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._keep_open()
            self._connection.settimeout(timeout_s)
            self._prove(secret)
        except TimeoutError as error:
            # A rank 0 that loads its libraries may hold the lock that its server needs.
            self._connection.close()
            raise RuntimeError(
                f"what listens at {self._where} gave no proof for {timeout_s:g} s"
            ) from error
        except (OSError, RuntimeError) as error:
            self._connection.close()
            if isinstance(error, RuntimeError):
                raise
            raise SecretError(f"what listens at {self._where} took no proof: {error}") from error

    def _keep_open(self) -> None:
        # Ranks write into it as they meet and as they part; a network may forget a connection that
        # is silent for hours in between.
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEP_S)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEP_S)

    def _prove(self, secret: bytes) -> None:
        theirs, ours = self._receive(NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
        self._connection.sendall(ours + proof(secret, b"client", theirs, ours))
        shown = self._receive(PROOF_BYTES)
        if not secrets.compare_digest(shown, proof(secret, b"server", theirs, ours)):
            raise SecretError(f"what listens at {self._where} does not know the secret of this job")

    def _receive(self, length: int) -> bytes:
        received = bytearray()
        while len(received) < length:
            data = self._connection.recv(length - len(received))
            if not data:
                raise ConnectionResetError("the connection was closed")
            received += data
        return bytes(received)

    def _ask(self, *request: object) -> Any:
        with self._lock:
            try:
                self._connection.sendall(pack(request))
                (answer,) = json.loads(self._receive(frame_bytes(self._receive(4))))
            except (OSError, ValueError, TypeError, RecursionError) as error:
                # Half an answer may be on its way: nothing that comes later could be trusted.
                self._connection.close()
                raise RuntimeError(f"the store at {self._where} is lost: {error}") from error
        return answer

    def _odd(self, answer: object) -> RuntimeError:
        """Return the error of an answer that no store of ours gives."""
        self._connection.close()
        return RuntimeError(f"the store at {self._where} is lost: it answers {str(answer)[:50]!r}")

    def set(self, key: str, value: str | bytes) -> None:
        """Give a key a value."""
        self._ask("set", key, _text(value))

    def get(self, key: str) -> bytes:
        """Return the value of a key, and wait for it if need be.

        Raises:
            RuntimeError: If it does not come in time.
        """
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Return the values of keys, and wait for them if need be.

        Raises:
            RuntimeError: If they do not come in time.
        """
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            found = self.values_of(keys)
            known = [value for value in found if value is not None]
            if len(known) == len(found):
                return known
            if time.monotonic() > deadline_s:
                missing = [key for key, value in zip(keys, found, strict=True) if value is None]
                raise RuntimeError(f"the store has no {missing[0]} after {self._timeout_s:g} s")
            time.sleep(_POLL_S)

    def add(self, key: str, number: int) -> int:
        """Add to a counter, which begins at 0, and return it."""
        found = self._ask("add", key, number)
        if not isinstance(found, int):
            raise self._odd(found)
        return found

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys have values."""
        return bool(self._ask("check", list(keys)))

    def present(self, keys: Sequence[str]) -> list[bool]:
        """Return which keys have values, by one request."""
        return [value is not None for value in self.values_of(keys)]

    def values_of(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys, None where there is none yet, by one request."""
        found = self._ask("multi_get", list(keys))
        if not isinstance(found, list) or len(found) != len(keys):
            raise self._odd(found)
        try:
            return [None if value is None else value.encode("latin-1") for value in found]
        except (AttributeError, UnicodeEncodeError):
            raise self._odd(found) from None

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Give a key a value if it has the expected one; "" stands for none.

        Returns:
            The value of the key afterwards.
        """
        found = self._ask("compare_set", key, _text(expected), _text(desired))
        return str(found).encode("latin-1")

    def leave_will(self, values: Mapping[str, str], within_s: float = 0.0) -> None:
        """Have keys set, unless they have values, once this connection ends.

        Args:
            values: Values by key.
            within_s: Silence after which the connection ends, at either end, at least 3 s: the
                other host has vanished. 0 leaves that to TCP, which waits for long.
        """
        self._ask("will", {key: _text(value) for key, value in values.items()}, within_s)
        self._bear_silence(within_s)

    def take_will_back(self) -> None:
        """Let the end of this connection mean nothing, and the silence of a host, too."""
        self._ask("will")
        self._bear_silence(0)

    def _bear_silence(self, within_s: float) -> None:
        look_after(self._connection, within_s)
        if not within_s:
            with suppress(OSError):
                self._keep_open()

    def limit(self, timeout_s: float) -> None:
        """Wait for no answer for longer than this from now on.

        Args:
            timeout_s: Longest wait of a call.
        """
        with suppress(OSError):  # it is closed, and says so when it is used
            self._connection.settimeout(timeout_s)

    def delete_key(self, key: str) -> bool:
        """Remove a key; return whether there was one."""
        return bool(self._ask("delete_key", key))

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def __del__(self) -> None:
        if hasattr(self, "_connection"):
            self._connection.close()


class ServedStore(Store):
    """The client of the rank that serves the store; the server ends with it.

    Args:
        listener: Bound and listening; the server takes it over.
        address: Address through which this process reaches it.
        timeout_s: Longest wait of the calls of this client.
        secret: Secret of the job.
    """

    def __init__(
        self, listener: socket.socket, address: str, timeout_s: float, secret: bytes
    ) -> None:
        port = listener.getsockname()[1]
        self.server = StoreServer(listener, secret)
        super().__init__(address, port, timeout_s, secret)

    def close(self) -> None:
        """End the connection and the server."""
        super().close()
        self.server.close()

    def __del__(self) -> None:
        super().__del__()
        if hasattr(self, "server"):
            self.server.close()


def _text(value: str | bytes) -> str:
    """Return the bytes of a value, those of a text in UTF-8, as the text that travels."""
    data = value.encode(errors="backslashreplace") if isinstance(value, str) else bytes(value)
    return data.decode("latin-1")


@dataclass
class Meeting:
    """The store the ranks of a job share.

    Attributes:
        store: This rank's client of it; rank 0 also serves it.
        address: Address of rank 0 that this rank uses.
        port: Port of the store.
        interface: Network interface that leads to rank 0.
        secret: Secret of the job, which each connection proves.
        file: File in which rank 0 of a local job published the port; None elsewhere.
    """

    store: Store
    address: str
    port: int
    interface: str
    secret: bytes
    file: Path | None = field(default=None)

    def client(self, timeout_s: float) -> Store:
        """Return another client, for another thread.

        Args:
            timeout_s: Longest wait of its calls.
        """
        return connect_store(self.address, self.port, timeout_s, self.secret)

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


def serve_store(
    listener: socket.socket, address: str, timeout_s: float, secret: bytes
) -> ServedStore:
    """Serve a store on a listening socket, so that it is reachable through that address only.

    Args:
        listener: Bound and listening; the store takes it over.
        address: Address through which this process reaches it.
        timeout_s: Longest wait of the calls of this client.
        secret: Secret of the job.
    """
    return ServedStore(listener, address, timeout_s, secret)


def connect_store(address: str, port: int, timeout_s: float, secret: bytes) -> Store:
    """Return a client of the store at rank 0.

    Args:
        address: Address of rank 0.
        port: Port of the store.
        timeout_s: Longest wait for the connection and of its calls.
        secret: Secret of the job.

    Raises:
        RuntimeError: If nobody answers in time.
        SecretError: If the other side does not know the secret, or refuses ours.
    """
    return Store(address, port, timeout_s, secret)


def leave_store(store: Store, rank: int, size: int) -> None:
    """Say that this rank needs the store no more; rank 0, which serves it, waits for all others.

    Args:
        store: Store of the job.
        rank: This rank.
        size: Number of ranks.
    """
    # A rank 0 that was stopped as it ended answers nobody, and no watchdog looks any more.
    store.limit(_LAST_WAIT_S)
    # Rank 0 may have been ended meanwhile, and then nobody waits for this.
    with suppress(RuntimeError):
        if rank != 0:
            store.add("gone", 1)
            return
        deadline_s = time.monotonic() + _LAST_WAIT_S
        while store.add("gone", 0) < size - 1 and time.monotonic() < deadline_s:
            time.sleep(0.005)
