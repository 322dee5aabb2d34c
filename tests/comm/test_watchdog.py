from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch.distributed as dist

from distgnn.comm import process
from distgnn.comm.errors import PeerError
from distgnn.comm.store import connect_store, serve_store
from distgnn.comm.watchdog import Peer, Watchdog
from distgnn.datasets import InputError


class LostStore(dist.HashStore):
    """A store whose server hangs, or ends, while the ranks live."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ended = False
        self.has_answer = threading.Event()
        self.has_answer.set()
        self.is_asked = threading.Event()

    def leave_will(self, values: dict[str, str]) -> None:
        """Nothing ends the connection of a rank of these tests."""

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self.is_asked.set()
        self.has_answer.wait(60)
        if self.is_ended:
            raise RuntimeError("Connection reset by peer")
        return super().multi_get(keys)


class Job:
    """The watchdogs of several ranks in this process, with a process of its own for each rank."""

    def __init__(self, size: int, stale_s: float) -> None:
        self.store = LostStore()
        self.processes = [
            subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
            for _ in range(size)
        ]
        self.unblocked: list[int] = []
        self.dogs = [self.watch(rank, stale_s) for rank in range(size)]
        for dog in self.dogs:
            dog.start()

    def watch(self, rank: int, stale_s: float) -> Watchdog:
        peers = [
            Peer(
                other,
                "host",
                process.process_id(started.pid),
                frozenset({f"[10.0.0.{other}]:{1000 + other}"}),
            )
            for other, started in enumerate(self.processes)
        ]
        return Watchdog(
            self.store,  # type: ignore[arg-type]
            peers,
            rank=rank,
            stale_s=stale_s,
            unblock=lambda: self.unblocked.append(rank),
        )

    def run(self, *ranks: int) -> None:
        for rank in ranks:
            self.dogs[rank].run()

    def verdict(self, rank: int, timeout_s: float = 60) -> str:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                self.dogs[rank].check()
            except PeerError as error:
                return str(error)
            time.sleep(0.01)
        raise AssertionError(f"rank {rank} noticed nothing")


def end(job: Job) -> None:
    for dog in job.dogs:
        dog.stop()
    for started in job.processes:
        started.kill()
        started.communicate()


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job(3, stale_s=60.0)
    yield made
    end(made)


@pytest.fixture
def hasty_job() -> Iterator[Job]:
    made = Job(3, stale_s=1.0)
    yield made
    end(made)


def wait_until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_silent_rank_is_named_with_what_it_did_last() -> None:
    # So long that the ranks that live are not taken for silent on a busy machine.
    job = Job(3, stale_s=30.0)
    job.dogs[1].note(12, "halo exchange")
    job.dogs[1].set_checkpoint(10)
    job.dogs[1].start()  # its last heartbeat
    job.dogs[0].note(13, "update")
    job.run(0, 2)
    pid = job.processes[1].pid
    expected = (
        f"rank 1 (host, pid {pid}) sent no heartbeat for 30 s, last seen in epoch 12, halo exchange"
    )
    for rank in (0, 2):
        dog = job.dogs[rank]
        wait_until(lambda dog=dog: dog._num_talks > 0)  # type: ignore[misc]
    while not all(job.dogs[rank].is_over for rank in (0, 2)):
        # Again and again: a judge that was not scheduled for seconds starts all clocks anew.
        for rank in (0, 2):
            job.dogs[rank]._peers[1].seen_s = time.monotonic() - 30
        time.sleep(0.01)
    for rank in (0, 2):
        sentence = job.verdict(rank)
        assert sentence.startswith(expected)
        assert sentence.endswith("of epoch 10; start the job again with --resume")
    wait_until(lambda: sorted(job.unblocked) == [0, 2])
    end(job)


def publishing(dog: Watchdog, error: Exception) -> threading.Thread:
    """A rank that has said why it ends."""
    last = threading.Thread(target=dog.publish, args=(error,), daemon=True)
    last.start()
    return last


@pytest.fixture
def slow_pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """Two ranks that have all the time to say why they end."""
    monkeypatch.setattr("distgnn.comm.watchdog._HEAD_START_S", 0.0)
    monkeypatch.setattr("distgnn.comm.watchdog.GRACE_S", 600.0)
    job = Job(2, stale_s=60.0)
    for dog in job.dogs:
        dog._tick_s = 0.1
    job.run(0, 1)
    yield job
    end(job)


def test_a_rank_that_hears_of_a_failure_ends_after_the_one_that_failed(slow_pair: Job) -> None:
    first = publishing(slow_pair.dogs[1], ValueError("boom"))
    last = publishing(slow_pair.dogs[0], PeerError(slow_pair.verdict(0)))
    first.join(timeout=30)
    assert not first.is_alive()
    last.join(timeout=1)
    assert last.is_alive()
    slow_pair.processes[1].kill()
    last.join(timeout=30)
    assert not last.is_alive()


def test_a_rank_with_the_cause_ends_once_the_others_have_said_it(slow_pair: Job) -> None:
    """The main thread of a rank may be busy long after the thread that talks has heard."""
    first = publishing(slow_pair.dogs[1], ValueError("boom"))
    sentence = slow_pair.verdict(0)
    num_talks = slow_pair.dogs[1]._num_talks
    wait_until(lambda: slow_pair.dogs[1]._num_talks > num_talks + 2)  # it sees all that was sent
    first.join(timeout=1)
    assert first.is_alive()
    publishing(slow_pair.dogs[0], PeerError(sentence))
    first.join(timeout=30)
    assert not first.is_alive()


def test_a_rank_that_ends_without_a_word_is_not_waited_for(slow_pair: Job) -> None:
    first = publishing(slow_pair.dogs[1], ValueError("boom"))
    slow_pair.verdict(0)
    slow_pair.dogs[0].stop()  # as an interpreter does that ends
    first.join(timeout=30)
    assert not first.is_alive()


def test_a_rank_that_ended_on_another_machine_is_not_waited_for(slow_pair: Job) -> None:
    slow_pair.dogs[1]._peers[0].process = process.ProcessId("elsewhere", 7, 1)
    first = publishing(slow_pair.dogs[1], ValueError("boom"))
    slow_pair.store.set("gone/0", "1")
    first.join(timeout=30)
    assert not first.is_alive()


def test_the_store_is_told_when_the_connection_of_a_rank_ends() -> None:
    server = serve_store(socket.create_server(("127.0.0.1", 0)), "127.0.0.1", 60, b"s")
    port = server._connection.getpeername()[1]
    client = connect_store("127.0.0.1", port, 60, b"s")
    peers = [Peer(rank, "host", process.this_process()) for rank in range(2)]
    Watchdog(client, peers, rank=1, stale_s=60.0, unblock=int).start()
    assert not server.check(["gone/1"])
    client.close()
    wait_until(lambda: server.check(["gone/1"]))
    server.close()


def test_a_rank_whose_main_thread_does_not_come_says_the_verdict_once(
    slow_pair: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    ended = threading.Event()
    monkeypatch.setattr("distgnn.comm.watchdog.print_last", said.append)
    monkeypatch.setattr("distgnn.comm.watchdog.end_process", lambda status: ended.set())
    first = publishing(slow_pair.dogs[1], ValueError("boom"))
    dog = slow_pair.dogs[0]
    wait_until(lambda: dog.is_over)
    dog._verdict_s -= 600.0
    wait_until(lambda: bool(said))
    # The main thread comes now, after all, and does not get as far as to say it again.
    late = threading.Thread(target=slow_pair.verdict, args=(0,), daemon=True)
    late.start()
    first.join(timeout=30)
    assert not first.is_alive()
    assert not ended.is_set()  # before the rank with the cause
    slow_pair.processes[1].kill()
    assert ended.wait(30)
    assert late.is_alive()
    (sentence,) = said
    assert sentence.startswith("rank 1 (host): ValueError: boom (start-up); there is no checkpoint")


def test_a_rank_that_lost_its_network_does_not_wait_until_the_others_have_heard(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distgnn.comm.watchdog._HEAD_START_S", 600.0)
    dog = job.dogs[2]
    dog._stale_s = 600.0
    dog._contact_s -= 600.0
    last = publishing(dog, PeerError("lost"))
    last.join(timeout=30)
    assert not last.is_alive()


def test_no_verb_ends_before_the_others_can_know_why() -> None:
    """They would see its end and blame this rank; its thread that publishes may be late."""
    job = Job(2, stale_s=600.0)
    dog, store = job.dogs[0], job.store
    dog._tick_s = 0.1
    job.run(0)
    store.has_answer.clear()
    store.is_asked.clear()
    wait_until(store.is_asked.is_set)
    words, options = ("rank 1 died",), {"is_unblocking": True}
    judge = threading.Thread(target=dog._declare, args=words, kwargs=options, daemon=True)
    judge.start()
    judge.join(timeout=1.5)
    assert not job.unblocked
    store.has_answer.set()
    judge.join(timeout=30)
    assert store.check(["failure"])
    assert job.unblocked == [0]
    end(job)


def test_a_dead_process_is_named_before_its_heartbeat_is_missed() -> None:
    slow = Job(2, stale_s=30.0)
    slow.run(0, 1)
    slow.processes[1].kill()
    sentence = str(slow.dogs[0].diagnose(RuntimeError("Connection reset by peer")))
    assert f"rank 1 (host, pid {slow.processes[1].pid}) died, last seen in start-up" in sentence
    assert sentence.endswith("there is no checkpoint yet; start the job again")
    end(slow)


def test_the_judge_finds_a_dead_process_without_a_failed_message(job: Job) -> None:
    job.run(0, 1)
    job.dogs[2].run()
    job.processes[2].kill()
    assert "rank 2 (host, pid" in job.verdict(0)


def test_the_cause_a_rank_publishes_is_what_the_others_say(job: Job) -> None:
    job.run(0, 1, 2)
    job.dogs[2].note(4, "aggregate")
    publishing(job.dogs[2], ZeroDivisionError("no rows"))
    expected = "rank 2 (host): ZeroDivisionError: no rows (epoch 4, aggregate); there is no check"
    assert job.verdict(0).startswith(expected)
    assert str(job.dogs[1].diagnose(RuntimeError("reset"))).startswith(expected)
    publishing(job.dogs[0], InputError("later"))
    assert job.verdict(1).startswith(expected)


def test_an_input_error_is_published_as_its_sentence(job: Job) -> None:
    job.run(0, 1, 2)
    publishing(job.dogs[0], InputError("seed must be positive"))
    assert job.verdict(1).startswith("rank 0 (host): seed must be positive (start-up); there")


def test_a_rank_that_is_done_may_end(job: Job) -> None:
    job.run(0, 1, 2)
    job.dogs[2].set_closing()
    wait_until(lambda: job.dogs[0]._peers[2].is_closing)
    job.dogs[2].stop()
    job.processes[2].kill()
    time.sleep(3)
    job.dogs[0].check()


def test_a_failure_without_a_dead_rank_says_so(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distgnn.comm.watchdog._DIAGNOSIS_S", 0.2)
    job.run(0, 1, 2)
    sentence = str(job.dogs[0].diagnose(RuntimeError("Timed out waiting 300000ms\nmore")))
    assert "communication failed in start-up and no rank is known to be dead: Timed out" in sentence
    assert "more" not in sentence


def test_a_lost_network_is_not_blamed_on_the_silent_ranks(hasty_job: Job) -> None:
    hasty_job.run(0, 1, 2)
    hasty_job.store.has_answer.clear()
    sentence = hasty_job.verdict(2)
    hasty_job.store.has_answer.set()
    assert "rank 0 (host, pid " in sentence
    assert "did not answer for 1 s or this host lost its network, last seen in start" in sentence


def test_a_store_that_ended_while_rank_0_lives_is_told(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distgnn.comm.watchdog._DIAGNOSIS_S", 60.0)
    job.store.is_ended = True
    job.run(1)
    sentence = str(job.dogs[1].diagnose(RuntimeError("reset")))
    assert "rank 0 (host, pid " in sentence
    assert "closed the store of the job, last seen in start-up" in sentence


def test_a_rank_of_another_machine_is_known_by_the_connection_it_closed(job: Job) -> None:
    far = process.ProcessId("elsewhere", 7, 1)
    dog = job.dogs[0]
    dog._peers[2] = Peer(2, "far", far, frozenset({"[10.0.0.9]:77"}))
    dog.run()
    job.dogs[1].run()
    error = RuntimeError("Read error [10.0.0.9]:77: Connection reset by peer")
    assert str(dog.diagnose(error)).startswith("rank 2 (far, pid 7) died, last seen in start-up")


def test_a_rank_that_stops_answering_after_a_failed_message_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("distgnn.comm.watchdog._DIAGNOSIS_S", 2.5)
    job = Job(2, stale_s=1.2)
    dog = job.dogs[0]
    dog._threads[1] = threading.Thread(target=int)  # no judge: only the failed message tells
    dog._talk_once()  # however late the thread begins
    dog.run()
    assert "stopped answering, last seen in start-up" in str(dog.diagnose(RuntimeError("reset")))
    end(job)


def test_silence_counts_only_while_the_store_answers(hasty_job: Job) -> None:
    dog = hasty_job.dogs[0]
    now_s = time.monotonic()
    for peer in dog._peers:
        peer.seen_s = now_s - 1.1
    dog._contact_s = now_s - 0.9  # nothing heard from the store either, but not for long enough
    dog._judge_once(now_s, {})
    dog.check()
    dog._contact_s = now_s
    dog._has_lost_store = True  # nobody publishes without the threads
    dog._judge_once(now_s, {})
    with pytest.raises(PeerError, match=r"rank 1 .* sent no heartbeat for 1 s, .* and rank 2 "):
        dog.check()
