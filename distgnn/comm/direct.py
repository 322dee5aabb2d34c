"""Heartbeats between ranks of different machines, over connections of their own.

The heartbeats of the store go through rank 0, and say nothing of the link between two other hosts.
These go over that link. Nothing here is a failure by itself: a pair that never connects, as behind
a firewall, is not watched.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distgnn.comm import network
from distgnn.comm.store_server import NONCE_BYTES, PROOF_BYTES, proof

if TYPE_CHECKING:
    from collections.abc import Mapping

_RANK = struct.Struct("!I")
_ANSWER_BYTES = _RANK.size + NONCE_BYTES + PROOF_BYTES
_READ_BYTES = 1 << 12
_MOST_STRANGERS = 64
_POLL_S = 0.002


@dataclass
class _Line:
    """A connection to one other rank.

    Attributes:
        connection: Its socket.
        rank: Rank at the other end; -1 until it has proved who it is.
        nonce: Challenge that this rank sent; empty where the other one sends it.
        received: Bytes of the proofs so far.
        is_open: Whether both may send heartbeats.
    """

    connection: socket.socket
    rank: int = -1
    nonce: bytes = b""
    received: bytearray = field(default_factory=bytearray)
    is_open: bool = False


class DirectBeats:
    """The heartbeats of one rank to those of other machines.

    Args:
        rank: This rank.
        secret: Secret of the job.
        interface: Network interface that leads to the others; nothing is done where it is unknown.
    """

    def __init__(self, rank: int, secret: bytes, interface: str) -> None:
        self._rank = rank
        self._secret = secret
        self._lines: list[_Line] = []
        self._others: frozenset[int] = frozenset()
        self._awaited: set[int] = set()
        self.num_heard: dict[int, int] = {}
        self._listener: socket.socket | None = None
        own = [address for name, address in network.addresses() if name == interface]
        if own:
            family = socket.AF_INET6 if ":" in own[0] else socket.AF_INET
            with suppress(OSError):
                self._listener = socket.create_server((own[0], 0), family=family, backlog=1024)
                self._listener.setblocking(False)

    @property
    def endpoint(self) -> list[str | int]:
        """Address and port to connect to; empty if there is none."""
        return [] if self._listener is None else list(self._listener.getsockname()[:2])

    def connect(self, endpoints: Mapping[int, list[str | int]]) -> None:
        """Begin to connect; the higher rank of a pair calls the lower one.

        Args:
            endpoints: Those of the ranks on other machines.
        """
        self._others = frozenset(endpoints)
        if self._listener is None:
            return
        if not endpoints:
            self.close()
            return
        self._awaited = {rank for rank, endpoint in endpoints.items() if endpoint}
        for rank, endpoint in endpoints.items():
            if rank > self._rank or not endpoint:
                continue
            address, port = str(endpoint[0]), int(endpoint[1])
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            connection = socket.socket(family, socket.SOCK_STREAM)
            connection.setblocking(False)
            connection.connect_ex((address, port))
            self._lines.append(_Line(connection, rank))

    def settle(self, limit_s: float) -> None:
        """Wait until this rank has heard all ranks that it will; call after `connect`.

        A link that is cut later is then known to have worked, however early that is.

        Args:
            limit_s: Longest wait. Those that answer later are heard from then on.
        """
        deadline_s = time.monotonic() + limit_s
        while not self._awaited <= self.num_heard.keys() and time.monotonic() < deadline_s:
            self._tend(is_beating=False)
            time.sleep(_POLL_S)

    def beat(self) -> None:
        """Send a heartbeat to each rank that is connected, and count those that have come."""
        self._tend(is_beating=True)

    def _tend(self, *, is_beating: bool) -> None:
        self._accept()
        for line in list(self._lines):
            try:
                self._read(line)
                if line.is_open and is_beating:
                    line.connection.send(b".")
            except BlockingIOError:
                continue
            except OSError:
                # Gone, or no rank of ours: the watchdog finds out who ended, and why. Such a link
                # is not cut, as its end is known.
                with suppress(ValueError):  # closed by another thread meanwhile
                    self._lines.remove(line)
                line.connection.close()
                self._awaited.discard(line.rank)
                self.num_heard.pop(line.rank, None)

    def close(self) -> None:
        """End all connections."""
        for line in self._lines:
            line.connection.close()
        self._lines.clear()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _accept(self) -> None:
        with suppress(OSError):
            while self._listener is not None:
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                strangers = [line for line in self._lines if line.rank < 0]
                if len(strangers) >= _MOST_STRANGERS + len(self._others):
                    connection.close()
                    continue
                line = _Line(connection, nonce=secrets.token_bytes(NONCE_BYTES))
                connection.send(line.nonce)
                self._lines.append(line)

    def _read(self, line: _Line) -> None:
        """Read what has come; the first bytes are proofs, and all later ones heartbeats."""
        with suppress(BlockingIOError):
            while data := line.connection.recv(_READ_BYTES):
                if line.is_open:
                    self.num_heard[line.rank] = self.num_heard.get(line.rank, 0) + len(data)
                else:
                    line.received += data
                    self._prove(line)
            raise ConnectionResetError

    def _prove(self, line: _Line) -> None:
        if not line.nonce and len(line.received) >= NONCE_BYTES:
            theirs, ours = bytes(line.received[:NONCE_BYTES]), secrets.token_bytes(NONCE_BYTES)
            who = _RANK.pack(self._rank)
            line.connection.send(who + ours + proof(self._secret, b"rank" + who, theirs, ours))
            line.is_open = True
        elif line.nonce and len(line.received) >= _ANSWER_BYTES:
            who = bytes(line.received[: _RANK.size])
            ours = bytes(line.received[_RANK.size : _RANK.size + NONCE_BYTES])
            shown = bytes(line.received[_RANK.size + NONCE_BYTES : _ANSWER_BYTES])
            expected = proof(self._secret, b"rank" + who, line.nonce, ours)
            (rank,) = _RANK.unpack(who)
            if not hmac.compare_digest(shown, expected) or rank not in self._others:
                raise ConnectionRefusedError
            line.rank, line.is_open = rank, True
            # The other one learns by this that it was understood.
            self.num_heard[rank] = 1
            line.connection.send(b".")
