"""Heartbeats between ranks that do not go through rank 0."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from distgnn.comm import network, process, watchdog
from distgnn.comm.direct import DirectBeats
from distgnn.comm.errors import PeerError
from distgnn.comm.store import serve_store
from distgnn.comm.watchdog import Peer, Watchdog


def joined(*, secrets=(b"s", b"s", b"s")):
    beats = [
        DirectBeats(r, secret, network.loopback_interface()) for r, secret in enumerate(secrets)
    ]
    for rank, one in enumerate(beats):
        one.connect({other: beats[other].endpoint for other in range(len(beats)) if other != rank})
    return beats


def turn(beats, times=8):
    for _ in range(times):
        for one in beats:
            one.beat()
        time.sleep(0.01)


def turn_until(beats, is_so):
    deadline_s = time.monotonic() + 60
    while not is_so() and time.monotonic() < deadline_s:
        turn(beats, 1)


def test_each_rank_hears_the_others():
    beats = joined()
    turn_until(beats, lambda: all(len(one.num_heard) == 2 for one in beats))
    for rank, one in enumerate(beats):
        before = dict(one.num_heard)
        assert sorted(before) == [other for other in range(3) if other != rank]

        def is_newer(one=one, before=before):
            return all(one.num_heard[other] > number for other, number in before.items())

        turn_until(beats, is_newer)
        assert is_newer()
    for one in beats:
        one.close()
    turn(beats)  # which does nothing any more


def test_who_does_not_know_the_secret_is_not_heard():
    beats = joined(secrets=(b"s", b"s", b"other"))
    with socket.create_connection(tuple(beats[0].endpoint)) as stranger:
        stranger.sendall(bytes(1000))
        turn_until(beats, lambda: beats[0].num_heard and beats[1].num_heard)
        turn(beats)
    assert (list(beats[0].num_heard), list(beats[1].num_heard)) == ([1], [0])
    for one in beats:
        one.close()


def test_links_are_known_before_the_first_heartbeat():
    beats = joined()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda one: one.settle(60), beats))
    # Those who were called know it by the proof, those who called by an answer.
    assert [sorted(one.num_heard) for one in beats] == [[1, 2], [0, 2], [0, 1]]
    for one in beats:
        one.close()


def test_who_does_not_answer_is_not_waited_for_without_end():
    beats = joined(secrets=(b"s", b"s", b"other"))
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda one: one.settle(0.5), beats))
    assert 2 not in beats[0].num_heard
    for one in beats:
        one.close()


def test_ranks_of_one_machine_need_none():
    one = DirectBeats(0, b"s", network.loopback_interface())
    assert one.endpoint
    one.connect({})
    assert one.endpoint == []
    assert DirectBeats(0, b"s", "no interface").endpoint == []


class Cut:
    """A link that drops all that either sends."""

    def __init__(self, connection):
        self.close = connection.close

    def send(self, data):
        return len(data)

    def recv(self, size):
        raise BlockingIOError(size)


@pytest.fixture
def dogs(monkeypatch):
    """Watchdogs of three ranks on machines of their own."""
    monkeypatch.setattr(watchdog, "_CUT_S", 1.0)
    store = serve_store(socket.create_server(("127.0.0.1", 0)), "127.0.0.1", 10, b"s")
    beats, found = joined(), []
    for rank in range(3):
        peers = [
            Peer(other, f"host{other}", process.ProcessId(f"machine {other}", 7, 7))
            for other in range(3)
        ]
        dog = Watchdog(
            *(store, peers), rank=rank, stale_s=0.8, unblock=lambda: None, direct=beats[rank]
        )
        dog._stale_s = 20.0  # with short ticks
        found.append(dog)
    for dog in found:
        dog.start()
    for dog in found:
        dog.run()
    yield found
    for dog in found:
        dog.stop()
    store.close()


def heard(dogs):
    deadline_s = time.monotonic() + 60
    while any(len(dog._links) < 2 for dog in dogs) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    time.sleep(0.5)


def test_a_cut_between_two_hosts_is_named_though_both_reach_rank_0(dogs):
    heard(dogs)
    for one, other in ((1, 2), (2, 1)):
        for line in dogs[one]._direct._lines:
            if line.rank == other:
                line.connection = Cut(line.connection)
    deadline_s = time.monotonic() + 60
    while not all(dog.is_over for dog in dogs) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    for dog in dogs:
        with pytest.raises(PeerError, match=r"rank (1|2) \(.*\) does not reach rank (2|1) \(host"):
            dog.check()


def test_links_that_hold_are_not_blamed_nor_those_of_a_starved_rank(dogs):
    heard(dogs)
    dogs[1]._send_beat = lambda: time.sleep(3)  # neither to the store nor directly
    time.sleep(4)
    assert not any(dog.is_over for dog in dogs)
    assert json.loads(dogs[0]._store.get("beat/0"))["epoch"] is None
