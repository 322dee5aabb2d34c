"""The server of the key-value store: a thread of rank 0, which answers who knows the secret.

It does without torch's TCPStore, which listens to everybody and asks for no proof. A connection
begins with a challenge in both directions: HMAC of RFC 2104 with SHA-256 over two nonces. Each
side shows that it knows the secret of the job, and the secret itself never travels.

A request or an answer is its length in four bytes and a list in JSON. Values are bytes, written as
text of Latin-1.
"""

from __future__ import annotations

import hmac
import json
import secrets
import selectors
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from distgnn.comm.daemon import DaemonThread

NONCE_BYTES = 32
PROOF_BYTES = 32
_LENGTH = struct.Struct("!I")
_MAX_FRAME_BYTES = 1 << 26
_PROOF_S = 10.0
_LOOK_S = 1.0
# Silence after which a host that is looked after is asked for a sign of life.
_QUIET_S = 3
_READ_BYTES = 1 << 16
# Errors of a request that none of our clients sends: other values, or brackets a mile deep.
_ODD = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)


def proof(secret: bytes, who: bytes, server: bytes, client: bytes) -> bytes:
    """Return the proof that one side of a connection knows the secret.

    Args:
        secret: Secret of the job.
        who: b"server" or b"client", so that no side can send the proof of the other one back.
        server: Nonce of the server.
        client: Nonce of the client.
    """
    return hmac.new(secret, who + server + client, "sha256").digest()


def pack(content: object) -> bytes:
    """Return a frame: its length and the content in JSON."""
    text = json.dumps(content).encode()
    return _LENGTH.pack(len(text)) + text


def frame_bytes(head: bytes) -> int:
    """Return the length of a frame.

    Args:
        head: Its first four bytes.

    Raises:
        ValueError: If it is longer than any that we send.
    """
    (length,) = _LENGTH.unpack(head)
    if length > _MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes; the longest allowed has {_MAX_FRAME_BYTES}")
    return cast("int", length)


@dataclass
class _Guest:
    """A connection.

    Attributes:
        connection: Its socket.
        nonce: Challenge that it was sent.
        is_proved: Whether it has shown that it knows the secret.
        since_s: Time of its coming.
        received: Bytes that are no whole request yet.
        unsent: Bytes of answers that did not go out yet.
        will: Values of keys to write if the connection ends before it is taken back.
    """

    connection: socket.socket
    nonce: bytes
    is_proved: bool = False
    since_s: float = field(default_factory=time.monotonic)
    received: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)
    will: dict[str, str] = field(default_factory=dict)


def look_after(connection: socket.socket, within_s: float) -> None:
    """Let the system end a connection whose other host has vanished for so long.

    A process that dies ends its connections; a host that loses its power or its link does not.

    Args:
        connection: Its socket.
        within_s: Seconds of silence; 0 leaves it alone.
    """
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(within_s > 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _QUIET_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _QUIET_S)
        # Also where an answer is under way, for which no sign of life is asked.
        most_ms = round(1000 * within_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, most_ms)


class StoreServer:
    """A store of keys and bytes, served by a thread.

    Args:
        listener: Bound and listening; the server takes it over.
        secret: Secret of the job.
    """

    def __init__(self, listener: socket.socket, secret: bytes) -> None:
        self._listener = listener
        self._secret = secret
        self._values: dict[str, str] = {}
        self._guests: dict[int, _Guest] = {}
        self._selector = selectors.DefaultSelector()
        self._bell, self._ringer = socket.socketpair()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, None)
        self._selector.register(self._bell, selectors.EVENT_READ, None)
        self._is_over = False
        self._thread = DaemonThread(self._serve, name="distgnn-store")
        self._thread.start()

    def close(self) -> None:
        """End all connections and the thread."""
        if self._is_over:
            return
        self._is_over = True
        with suppress(OSError):
            self._ringer.send(b"x")
        if self._thread is not threading.current_thread():
            self._thread.join(5)

    def _serve(self) -> None:
        while not self._is_over:
            for key, events in self._selector.select(_LOOK_S):
                if key.fileobj is self._listener:
                    self._welcome()
                elif isinstance(key.data, _Guest):
                    self._attend(key.data, events)
            self._dismiss_strangers()
        for guest in list(self._guests.values()):
            self._dismiss(guest)
        for end in (self._listener, self._bell, self._ringer):
            end.close()
        self._selector.close()

    def _welcome(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it went away meanwhile, or there are no more files
            time.sleep(0.01)
            return
        connection.setblocking(False)
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        guest = _Guest(connection, secrets.token_bytes(NONCE_BYTES))
        self._guests[connection.fileno()] = guest
        self._selector.register(connection, selectors.EVENT_READ, guest)
        guest.unsent += guest.nonce
        try:
            self._send(guest)
        except OSError:  # it is gone already, as when somebody looks for open ports
            self._dismiss(guest)

    def _dismiss_strangers(self) -> None:
        """Close connections without proof after a while, so that they cannot use up all files."""
        oldest_s = time.monotonic() - _PROOF_S
        for guest in list(self._guests.values()):
            if not guest.is_proved and guest.since_s < oldest_s:
                self._dismiss(guest)

    def _dismiss(self, guest: _Guest) -> None:
        if self._guests.pop(guest.connection.fileno(), None) is not None:
            self._selector.unregister(guest.connection)
            guest.connection.close()
            for key, value in guest.will.items():
                self._values.setdefault(key, value)

    def _attend(self, guest: _Guest, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._send(guest)
            if events & selectors.EVENT_READ:
                data = guest.connection.recv(_READ_BYTES)
                if not data:
                    raise ConnectionError
                guest.received += data
                self._read(guest)
        except BlockingIOError:
            return
        except (OSError, *_ODD):  # gone, or no rank of ours
            self._dismiss(guest)

    def _read(self, guest: _Guest) -> None:
        """Answer all requests that have come whole."""
        if not guest.is_proved:
            if len(guest.received) < NONCE_BYTES + PROOF_BYTES:
                return
            theirs = bytes(guest.received[:NONCE_BYTES])
            shown = bytes(guest.received[NONCE_BYTES : NONCE_BYTES + PROOF_BYTES])
            if not hmac.compare_digest(shown, proof(self._secret, b"client", guest.nonce, theirs)):
                raise ValueError("a wrong proof")
            del guest.received[: NONCE_BYTES + PROOF_BYTES]
            guest.is_proved = True
            guest.unsent += proof(self._secret, b"server", guest.nonce, theirs)
        while len(guest.received) >= _LENGTH.size:
            end = _LENGTH.size + frame_bytes(bytes(guest.received[: _LENGTH.size]))
            if len(guest.received) < end:
                break
            request = json.loads(bytes(guest.received[_LENGTH.size : end]))
            del guest.received[:end]
            guest.unsent += pack([self._answer(guest, *request)])
        self._send(guest)

    def _send(self, guest: _Guest) -> None:
        with suppress(BlockingIOError):
            while guest.unsent:
                del guest.unsent[: guest.connection.send(guest.unsent)]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if guest.unsent else 0)
        self._selector.modify(guest.connection, events, guest)

    def _answer(self, guest: _Guest, verb: str, *words: Any) -> object:
        """Do what a request says; see the client's functions of these names."""
        values = self._values
        if verb == "set":
            values[str(words[0])] = str(words[1])
            return None
        if verb == "add":
            total = int(values.get(words[0], "0")) + int(words[1])
            values[str(words[0])] = str(total)
            return total
        if verb == "check":
            return all(key in values for key in words[0])
        if verb == "multi_get":
            return [values.get(key) for key in words[0]]
        if verb == "compare_set":
            key, expected, desired = words
            if values.get(key, "") == expected:
                values[str(key)] = str(desired)
            return values.get(key, expected)
        if verb == "will":
            will = dict(words[0]) if words else {}
            guest.will = {str(key): str(value) for key, value in will.items()}
            # The number is a client's of ours, who has proved itself.
            look_after(guest.connection, float(words[1]) if len(words) > 1 else 0.0)
            return None
        if verb == "delete_key":
            return values.pop(words[0], None) is not None
        raise ValueError(f"no verb {verb!r}")
