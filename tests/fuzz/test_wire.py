"""Bytes that no rank of ours sends, to every open port of a job, from strangers and from ranks."""

from __future__ import annotations

import json
import secrets
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from fuzz.mutate import mutated
from fuzz.oracle import add_note, draws, in_time

from distgnn.comm import network
from distgnn.comm.direct import DirectBeats
from distgnn.comm.store import connect_store, serve_store
from distgnn.comm.store_server import NONCE_BYTES, PROOF_BYTES, pack, proof

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from distgnn.comm.store import ServedStore

pytestmark = pytest.mark.slow

SECRET = b"secret of the job"
REQUESTS = (
    ["set", "key", "value"],
    ["add", "count", 1],
    ["check", ["key", "count"]],
    ["multi_get", ["key", "count"]],
    ["compare_set", "other", "", "value"],
    ["will", "left", "gone"],
    ["will"],
    ["delete_key", "none"],
)
ODD = (
    None,
    True,
    -1,
    1 << 70,
    1.5,
    float("inf"),
    float("nan"),
    "",
    "\ud800",
    [],
    {},
    [[]],
    {"a": 1},
)


@pytest.fixture
def served() -> Iterator[ServedStore]:
    store = serve_store(socket.create_server(("127.0.0.1", 0)), "127.0.0.1", 5, SECRET)
    yield store
    store.close()


def port_of(served: ServedStore) -> int:
    return int(served.server._listener.getsockname()[1])


def odd_frame(draw: random.Random) -> bytes:
    """A frame that is wrong in its bytes, its length, its values or its depth."""
    request = list(draw.choice(REQUESTS))
    kind = draw.randrange(5)
    if kind == 0:
        return mutated(pack(request), draw)
    if kind == 1:
        request[draw.randrange(len(request))] = draw.choice(ODD)
        return pack(request)
    if kind == 2:
        return pack(draw.choice(ODD))
    if kind == 3:
        text = b"[" * draw.choice((10, 1000, 100_000))
        return len(text).to_bytes(4, "big") + text
    return draw.choice((0, 1, 1 << 25, (1 << 32) - 1)).to_bytes(4, "big") + draw.randbytes(20)


def test_the_store_outlives_whatever_it_is_sent(served: ServedStore) -> None:
    served.set("kept", "value")
    for seed, draw in draws("store", 400):
        with in_time(), socket.create_connection(("127.0.0.1", port_of(served)), 5) as guest:
            theirs, ours = guest.recv(NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
            shown = ours + proof(SECRET, b"client", theirs, ours)
            with suppress(OSError):
                if draw.random() < 0.3:
                    guest.sendall(mutated(shown, draw))
                else:
                    guest.sendall(shown)
                    for _ in range(draw.randrange(1, 4)):
                        guest.sendall(odd_frame(draw))
                if draw.random() < 0.5:
                    guest.settimeout(0.05)
                    guest.recv(1 << 16)
        assert served.server._thread.is_alive(), f"DISTGNN_FUZZ_SEED={seed}"
        assert served.multi_get(["kept"]) == [b"value"], f"DISTGNN_FUZZ_SEED={seed}"


def answer(listener: socket.socket, draw: random.Random) -> None:
    """Serve one client as a store that is none would."""
    with suppress(OSError, ValueError):
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(5)
            nonce = secrets.token_bytes(NONCE_BYTES)
            connection.sendall(mutated(nonce, draw) if draw.random() < 0.2 else nonce)
            shown = b""
            while len(shown) < NONCE_BYTES + PROOF_BYTES:
                shown += connection.recv(NONCE_BYTES + PROOF_BYTES) or b"\0" * 99
            own = proof(SECRET, b"server", nonce, shown[:NONCE_BYTES])
            connection.sendall(mutated(own, draw) if draw.random() < 0.2 else own)
            for _ in range(2):
                connection.recv(1 << 16)
                good = pack([draw.choice((1, "value", None, ["value"], draw.choice(ODD)))])
                connection.sendall(draw.choice((good, mutated(good, draw), odd_frame(draw))))


def test_a_client_says_that_its_store_is_lost_whatever_it_answers() -> None:
    for seed, draw in draws("client", 300):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = threading.Thread(target=answer, args=(listener, draw))
            server.start()
            try:
                with in_time(), suppress(RuntimeError):
                    store = connect_store("127.0.0.1", listener.getsockname()[1], 0.2, SECRET)
                    try:
                        store.set("key", "value")
                        store.get("key")
                        store.add("count", 1)
                    finally:
                        store.close()
            except BaseException as error:
                add_note(error, f"DISTGNN_FUZZ_SEED={seed}")
                raise
            server.join()


def test_direct_heartbeats_outlive_whatever_comes(served: ServedStore) -> None:
    del served
    loopback = network.loopback_interface()
    for seed, draw in draws("direct", 300):
        beats = DirectBeats(0, SECRET, loopback)
        if not beats.endpoint:
            pytest.skip("needs an address of the loopback interface")
        beats.connect({1: [], 2: []})
        address, port = str(beats.endpoint[0]), int(beats.endpoint[1])
        with in_time(), socket.create_connection((address, port), 5) as guest:
            beats.beat()
            theirs, ours = guest.recv(NONCE_BYTES), secrets.token_bytes(NONCE_BYTES)
            who = draw.choice((0, 1, 2, 3, (1 << 32) - 1)).to_bytes(4, "big")
            shown = who + ours + proof(SECRET, b"rank" + who, theirs, ours)
            sent = draw.choice((shown, mutated(shown, draw), draw.randbytes(draw.randrange(200))))
            with suppress(OSError):
                guest.sendall(sent)
                beats.beat()
                guest.sendall(b"." * draw.randrange(9))
            beats.beat()
        beats.beat()
        is_rank = sent.startswith(shown) and who in (b"\0\0\0\1", b"\0\0\0\2")
        assert set(beats.num_heard) <= ({who[-1]} if is_rank else set()), f"seed {seed}"
        beats.close()


def test_frames_hold_what_was_packed() -> None:
    for _, draw in draws("frames", 500):
        value = draw.choice([*REQUESTS, *ODD[:5]])
        frame = pack(value)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        assert json.loads(frame[4:]) == value
