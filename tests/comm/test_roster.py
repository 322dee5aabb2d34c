"""Ranks that die before the ranks have met."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import TCPStore

from distgnn.comm import early, network, process, rendezvous
from distgnn.comm.errors import PeerError
from distgnn.comm.launch import Launch
from distgnn.comm.rendezvous import common_interface, meet_remotely
from distgnn.comm.roster import Roster
from distgnn.comm.store import Meeting, connect_store, serve_store
from distgnn.datasets import InputError

HOST = re.escape(socket.gethostname())
ENDED = process.ProcessId(process.machine(), 1 << 22, 1)


class Job:
    """A store, and clients of it."""

    def __init__(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.server = serve_store(listener, "127.0.0.1", 60, b"secret")

    def client(self):
        return connect_store("127.0.0.1", self.port, 60, b"secret")

    def roll(self, rank, size, stale_s=25.0, store=None):
        store = store or (self.server if rank == 0 else self.client())
        return Roster(Launch("torchrun", rank, size, rank, size), store, stale_s=stale_s)

    def came(self, rank, who, host="host7"):
        """Leave the sign of a rank that came."""
        row = [host, who.machine, who.pid, who.start, 1]
        if not self.server.check([f"roll/{rank}"]):
            self.server.add("roll-count", 1)
            self.server.add("same-count", 1)
        self.server.set(f"roll/{rank}", json.dumps(row))


@pytest.fixture
def job():
    return Job()


@pytest.fixture(autouse=True)
def _lives(monkeypatch):
    """Fail a test, and do not end all others, where a rank would end its process."""
    ended = []
    monkeypatch.setattr("distgnn.comm.roster.end_process", ended.append)
    yield
    assert not ended


def together(size, action):
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(action, range(size)))


def test_ranks_that_come_hear_each_other(job):
    def on_rank(rank):
        roll = job.roll(rank, 3)
        time.sleep(0.1 * rank)
        roll.call(60)
        roll.check()
        meeting = Meeting(roll._store, "127.0.0.1", job.port, "", b"secret")
        return roll.gather("word", "abc"[rank], "speak", 60), common_interface(meeting, roll, 60)

    assert together(3, on_rank) == [(["a", "b", "c"], network.loopback_interface())] * 3


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ({"verb": "train", "--lr": "0.1"}, r"--lr 0\.1 instead of 0\.01"),
        ({"verb": "evaluate"}, "verb evaluate instead of train, --lr nothing instead of 0.01"),
        ({"verb": "train", "--lr": "0.01", "--x": "y" * 99}, "--x y{60}... instead of nothing"),
        (
            {"verb": "train", "--lr": "0.01", **{str(i): "1" for i in range(9)}},
            "0 1 instead of nothing, .*, 4 more settings",
        ),
    ],
)
def test_a_rank_that_was_started_otherwise_is_refused_on_all(job, own, sentence):
    first = {"verb": "train", "--lr": "0.01"}

    def on_rank(rank):
        message = (
            rf"^rank 2 \({HOST}, pid \d+\) was started otherwise than rank 0: {sentence}; start"
        )
        with pytest.raises(InputError, match=message):
            job.roll(rank, 3).call(3600, own if rank == 2 else first)

    together(3, on_rank)


def test_a_rank_that_was_stopped_on_its_way_is_told_no_longer_than_a_silent_one(job, monkeypatch):
    """It came before torch was loaded, was stopped then, and will never know why the job ends."""
    monkeypatch.setattr(early, "_TELL_S", 1e6)
    first, other = job.roll(0, 2, stale_s=0.3), job.roll(1, 2)
    first.come()
    other.come()
    with pytest.raises(PeerError, match=r"rank 1 of 2 did not come within 0\.1 s"):
        first.call(0.1)
    place = Meeting(job.server, "127.0.0.1", job.port, "", b"secret")
    monkeypatch.setattr(early._START, "found", (place, first))
    early._linger()
    monkeypatch.setattr(early._START, "found", None)


def test_a_second_rank_of_one_number_is_refused(job):
    job.server.compare_set("claim/1", "", "host7 a machine 17")
    other = job.roll(1, 2)
    sentence = r"came to a job that has this rank already \(host7, pid 17\); two jobs use one"
    with pytest.raises(InputError, match=sentence):
        other.come()
    # The job that is there goes on, however the other rank ends.
    assert other.is_stranger
    other._first.close()
    assert job.server.add("looked", 1) == 1
    assert not job.server.check(["roll-failure"])


def test_a_rank_of_this_machine_that_came_and_died_is_named_at_once(job):
    job.came(1, ENDED)
    sentence = rf"rank 1 \(host7, pid {ENDED.pid}\) died before the ranks had met; see its output"
    roll = job.roll(0, 3)
    roll._tick_s = 0.5
    with pytest.raises(PeerError, match=sentence):
        roll.call(60)
    # Whoever comes later hears of it, whatever it sees itself.
    job.came(1, process.this_process())
    with pytest.raises(PeerError, match=sentence):
        job.roll(2, 3).call(60)


def test_a_rank_that_dies_after_all_have_come_is_named(job):
    job.came(1, ENDED)
    roll = job.roll(0, 2)
    roll.call(60)
    with pytest.raises(PeerError, match=r"rank 1 .* died before the ranks had met"):
        roll.check()
    with pytest.raises(PeerError, match=r"rank 1 .* died before the ranks had met"):
        roll.gather("word", "a", "speak", 60)


def test_a_rank_of_another_machine_is_given_up_when_it_is_silent(job, monkeypatch):
    job.came(1, process.ProcessId("elsewhere", 1 << 22, 1))
    sentence = rf"rank 1 \(host7, pid {1 << 22}\) gave no sign of life for 0\.4 s before the ranks"
    roll = job.roll(0, 3, stale_s=0.4)
    # It would end a rank that is itself late, as on a busy machine.
    monkeypatch.setattr(roll, "_guard", lambda is_over, timeout_s: None)
    with pytest.raises(PeerError, match=sentence):
        roll.call(60)


def test_a_rank_that_waits_gives_signs_of_life(job):
    rolls = [job.roll(rank, 3, stale_s=60) for rank in range(2)]

    def have_heard():
        return all(
            rank in roll._peers and roll._peers[rank].beat["number"] > 2
            for roll in rolls
            for rank in range(2)
        )

    with ThreadPoolExecutor(2) as pool:
        for roll in rolls:
            roll._tick_s = 0.02
        calls = [pool.submit(roll.call, 60) for roll in rolls]
        while not have_heard() and not any(call.done() for call in calls):
            time.sleep(0.01)
        job.came(2, process.this_process())
        for call in calls:
            call.result(60)


def test_ranks_that_never_come_and_those_that_do_not_speak_are_told_apart(job):
    job.came(1, process.this_process())
    for rank in (4, 5):
        job.came(rank, process.ProcessId("elsewhere", 1 << 22, 1))
    sentence = (
        rf"^ranks 2-3, 6 of 7 did not come within 0\.2 s; rank 0 on {HOST}, ranks 1, 4-5 on host7 "
        "came; see the output of those that did not, or wait longer with --start-timeout$"
    )
    with pytest.raises(PeerError, match=sentence):
        job.roll(0, 7).call(0.2)
    other = Job()
    other.came(1, process.this_process())
    roll = other.roll(0, 2)
    roll.call(60)
    with pytest.raises(
        PeerError, match=r"waited 0\.2 s for rank 1 \(host7, pid \d+\) of 2 ranks to"
    ):
        roll.gather("word", "a", "speak", 0.2)


def test_hosts_of_those_that_came_are_counted_where_there_are_many(job):
    for rank in range(1, 12):
        job.came(rank, process.ProcessId("elsewhere", 1 << 22, 1), f"host{rank}")
    came = r"rank 7 on host7, those on 4 more hosts came; see"
    with pytest.raises(PeerError, match=rf"^rank 12 of 13 did not come within 0\.2 s; .*{came}"):
        job.roll(0, 13).call(0.2)


def test_a_rank_that_dies_before_it_is_ready_is_named(job):
    """Wherever it is: the server sees the end of its connection."""
    early = job.roll(1, 2, store=job.client())
    early.come()
    early._first.close()
    with pytest.raises(PeerError, match=rf"rank 1 \({HOST}, pid \d+\) died before the ranks had"):
        job.roll(0, 2).call(60)


def test_a_rank_that_has_met_may_end(job):
    early = job.roll(1, 2, store=job.client())
    early.come()
    early.settle()
    early._first.close()
    time.sleep(0.2)
    assert not job.server.check(["roll-failure"])


def test_a_rank_that_loads_torch_ends_when_another_fails(job, monkeypatch, capfd):
    ended = []
    monkeypatch.setattr("distgnn.comm.roster.end_process", ended.append)
    # Rank 0 says it after a while, and rank 1 leaves that to it however late it is.
    waiting = [job.roll(rank, 3, stale_s=0.4 + 60 * rank, store=job.client()) for rank in (0, 1)]
    waiting[1]._tick_s = 0.1
    for roll in waiting:
        roll.come()
        roll.listen()
    sentence = "rank 2 (host7): no interface"
    assert job.roll(2, 3).tell(InputError(sentence), 5) == ""  # rank 0 says it
    deadline_s = time.monotonic() + 60
    while len(ended) < 2 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert ended == [2, 2]
    assert capfd.readouterr().err == f"distgnn: {sentence}\n"
    # Rank 0 waits for those that have not heard, and the first sentence counts.
    begin_s = time.monotonic()
    other = Job()
    assert other.roll(0, 2).tell(InputError("first"), 0.3) == "first"
    assert time.monotonic() - begin_s >= 0.3
    assert other.roll(1, 2).tell(InputError("second"), 5) == "first"


@pytest.mark.parametrize(("flaw", "said"), [("no lr", ""), ("no run", "rank 1 (b): no lr")])
def test_a_rank_that_tells_a_flaw_before_rank_0_leaves_it_to_rank_0(job, flaw, said):
    mine, zeros = job.roll(1, 2, store=job.client()), job.roll(0, 2)
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(mine.tell, InputError("rank 1 (b): no lr"), 20)
        while not job.server.check(["roll-failure"]):
            time.sleep(0.01)
        assert zeros.tell(InputError(f"rank 0 (a): {flaw}"), 20) == "rank 1 (b): no lr"
        assert told.result() == said


@pytest.mark.parametrize("finds_own", [True, False])
def test_a_flaw_that_rank_0_finds_late_is_told_once(job, finds_own, monkeypatch):
    """Rank 0 has heard the flaw of another rank long before it finds the same, or none."""
    monkeypatch.setattr("distgnn.comm.roster.end_process", pytest.fail)
    zeros, mine = (job.roll(rank, 2, stale_s=60, store=job.client()) for rank in (0, 1))
    zeros._tick_s = 0.05
    zeros.listen()
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(mine.tell, InputError("rank 1 (b): no lr"), 60)
        while not zeros._verdict:
            time.sleep(0.01)
        time.sleep(5 * zeros._tick_s)  # it would have ended
        assert not told.done()
        assert not job.server.check(["told/1"])
        if not finds_own:
            with pytest.raises(InputError, match=r"rank 1 \(b\): no lr"):
                zeros.call(60)
            assert not told.done()  # rank 0 has yet to say it
        own = "rank 0 (a): no lr" if finds_own else zeros.cause
        assert zeros.tell(InputError(own), 60) == "rank 1 (b): no lr"
        assert told.result() == ""


def test_a_flaw_that_rank_0_told_before_it_ended_is_not_told_again(monkeypatch):
    job = Job()
    # It ends with the sentence of rank 0, here or in `tell`, whichever comes first.
    monkeypatch.setattr("distgnn.comm.roster.end_process", lambda status: None)
    mine, sentence = job.roll(1, 2, store=job.client()), "rank 0 (a): no lr"
    mine._tick_s = 0.05
    mine.listen()
    # Rank 0 waits for no more than that all have heard.
    assert job.roll(0, 2).tell(InputError(sentence), 60) == sentence
    del job.server
    assert mine.tell(InputError("rank 1 (b): no lr"), 60) == sentence


def test_a_rank_that_only_hears_a_flaw_lets_rank_0_speak_first(job, monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr("distgnn.comm.roster.end_process", lambda status: ended.set())
    zeros, other = job.roll(0, 3), job.roll(2, 3, stale_s=60)
    other._tick_s = 0.05
    other.listen()
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(job.roll(1, 3).tell, InputError("rank 1 (b): no lr"), 60)
        while not other._verdict:
            time.sleep(0.01)
        assert not ended.wait(10 * other._tick_s)
        zeros.tell(InputError("rank 0 (a): no lr"), 0.1)
        assert told.result() == ""
    assert ended.wait(60)


def test_no_rank_ends_before_rank_0_has_said_who_was_started_otherwise(job, monkeypatch):
    """A launcher ends rank 0 with the first rank that ends."""
    monkeypatch.setattr("distgnn.comm.roster.time.sleep", pytest.fail)  # rank 0 speaks at once
    rolls = [job.roll(rank, 2, store=job.client()) for rank in (0, 1)]
    rolls[0]._publish(InputError("rank 1 (b) was started otherwise"))
    monkeypatch.undo()
    monkeypatch.setattr("distgnn.comm.roster.end_process", pytest.fail)

    def call(rank):
        with pytest.raises(InputError, match=r"^rank 1 \(b\) was started otherwise$"):
            rolls[rank].call(60, {"verb": "train"})

    together(2, call)
    own = InputError(rolls[1].cause)
    assert str(own) == rolls[0].cause
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(rolls[1].tell, own, 60)
        with pytest.raises(TimeoutError):
            told.result(0.2)
        rolls[0].tell(own, 60)  # after it has said it
        assert told.result() == ""


@pytest.mark.parametrize("is_flaw", [True, False])
def test_rank_0_ends_only_once_all_that_came_know_why(job, is_flaw):
    zeros, dead, late = (job.roll(rank, 4, store=job.client()) for rank in (0, 1, 2))
    for roll in (dead, late):
        roll.come()
    error = (InputError if is_flaw else PeerError)("rank 0 (a): no lr")
    with ThreadPoolExecutor(1) as pool:
        if is_flaw:
            job.server.set("told/3", "1")  # it is waited for, wherever it is
            over = pool.submit(zeros.tell, error, 60)
        else:
            zeros._publish(error)
            over = pool.submit(zeros.linger, 60)
        while not job.server.check(["flaw-of-rank-0"]):
            time.sleep(0.01)
        dead._first.close()
        with pytest.raises(TimeoutError):
            over.result(0.2)
        with pytest.raises(type(error), match="no lr"):
            late.call(60)
        if is_flaw:
            assert late.tell(error, 60) == ""
        over.result(60)


def test_a_flaw_that_nobody_has_said_is_said_by_whoever_heard_it(monkeypatch, capfd):
    monkeypatch.setattr("distgnn.comm.roster.end_process", lambda status: None)
    job = Job()
    heard = job.roll(1, 3, store=job.client())
    heard._tick_s = 0.05
    job.server.set("roll-failure", json.dumps(["rank 2 (c): no lr", True]))
    heard.listen()
    while not heard._verdict:
        time.sleep(0.01)
    (thread,) = (found for found in threading.enumerate() if found.name == "distgnn-start")
    del job.server
    thread.join(60)
    assert capfd.readouterr().err == "distgnn: rank 2 (c): no lr\n"


def test_one_thread_of_a_rank_says_why_it_ends(job, monkeypatch, capfd):
    monkeypatch.setattr("distgnn.comm.roster.end_process", pytest.fail)
    roll = job.roll(0, 2)
    roll._tick_s = 0.05
    job.server.set("roll-failure", json.dumps(["rank 1 (b) died", False]))
    # Its main thread is about to say it, in the moment in which the other one looks.
    roll._speaking.acquire()
    monkeypatch.setattr(roll._is_opening, "wait", lambda timeout: False)
    roll._listen()
    assert capfd.readouterr().err == ""


def test_a_rank_0_that_ends_is_named(job):
    roll = job.roll(1, 2)
    del job.server  # which ends with it
    with pytest.raises(PeerError, match=rf"rank 0 ended before .*, as rank 1 \({HOST}\) found"):
        roll.call(60)


def connected(job, roll, action):
    """Come, and do something while the ranks connect."""
    with roll.watching(lambda: job.client()):
        action()


def fail():
    raise PeerError("no connection")


@pytest.fixture
def _may_end(monkeypatch):
    """A rank may end its process where its main thread is late, as on a busy machine."""
    monkeypatch.setattr("distgnn.comm.roster.end_process", lambda status: None)


@pytest.mark.usefixtures("_may_end")
@pytest.mark.parametrize("verb", ["set", "multi_get"])
def test_a_rank_0_that_ends_while_ranks_answer_is_named(verb, job, monkeypatch):
    def is_lost(*_):
        raise RuntimeError("connection reset by peer")

    rolls = [job.roll(rank, 2) for rank in range(2)]
    together(2, lambda rank: rolls[rank].call(60))
    monkeypatch.setattr(rolls[1]._store, verb, is_lost, raising=False)

    def answer(rank):
        # Rank 0 waits for an answer that may not come.
        try:
            rolls[rank].gather("host", "here", "say where they are", 60 if rank else 0.5)
        except PeerError as error:
            return str(error)
        return ""

    _, said = together(2, answer)
    assert said.startswith("rank 0 ended before the ranks had met, as rank 1 (")


def test_torchruns_agent_that_ends_is_named():
    with (
        pytest.raises(
            PeerError, match=r"rank 3 \(.*\) lost torchrun's agent at node1 port 29400; s"
        ),
        rendezvous._reaching_agents(Launch("torchrun", 3, 8, 3, 4), "node1", 29400),
    ):
        raise RuntimeError("connection reset by peer")


def test_a_rank_of_another_machine_that_is_lost_while_ranks_connect_is_named(job):
    job.came(1, process.ProcessId("elsewhere", 1 << 22, 1))
    roll = job.roll(0, 2, stale_s=0.4)
    roll.call(60)
    with pytest.raises(PeerError, match=r"rank 1 \(host7, .*\) gave no sign of life for 0\.4 s"):
        connected(job, roll, fail)


@pytest.mark.usefixtures("_may_end")
def test_a_rank_that_judges_late_names_the_lost_one_all_the_same(job, monkeypatch):
    """On a busy machine its thread is not scheduled for longer than the silence lasts."""
    job.came(1, process.ProcessId("elsewhere", 1 << 22, 1))
    roll = job.roll(0, 2, stale_s=0.4)
    roll.call(60)
    judge = roll._check_beats
    monkeypatch.setattr(roll, "_guard", lambda is_over, timeout_s: None)
    monkeypatch.setattr(roll, "_check_beats", lambda: [time.sleep(1.0), judge()])
    with pytest.raises(PeerError, match=r"rank 1 \(host7, .*\) gave no sign of life for 0\.4 s"):
        connected(job, roll, fail)


def test_ranks_that_live_are_not_waited_for_and_not_blamed(job):
    def on_rank(rank):
        roll = job.roll(rank, 3, stale_s=3600)
        roll._tick_s = 0.02
        roll.call(60)
        if rank == 2:
            connected(job, roll, lambda: None)
            return
        with pytest.raises(PeerError, match=r"^no connection$"):
            connected(job, roll, fail)

    together(3, on_rank)


def test_nothing_calls_the_store_once_the_ranks_are_connected(job):
    class Slow:
        """A client whose writes take long; the interpreter aborts if it ends meanwhile."""

        def __init__(self):
            self.client, self.num_written = job.client(), 0

        def set(self, key, value):
            time.sleep(0.3)
            self.client.set(key, value)
            self.num_written += 1

        def __getattr__(self, name):
            return getattr(self.client, name)

    slow = Slow()

    def on_rank(rank):
        roll = job.roll(rank, 2)
        roll.call(60)
        roll._tick_s = 30.0  # longer than the ranks connect
        with roll.watching(lambda: slow if rank else job.client()):
            pass
        return slow.num_written

    assert together(2, on_rank)[1] == 1  # that it has connected


def test_a_rank_whose_connections_hang_ends_when_another_is_lost(job, monkeypatch, capfd):
    ended = threading.Event()
    monkeypatch.setattr("distgnn.comm.roster.end_process", lambda status: ended.set())
    job.came(1, ENDED)
    roll = job.roll(0, 2)
    roll._tick_s = 0.1
    roll.call(60)
    connected(job, roll, lambda: ended.wait(60))
    assert ended.is_set()
    assert re.search(r"^distgnn: rank 1 \(host7, .*\) died before .*\n$", capfd.readouterr().err)


@pytest.mark.usefixtures("_may_end")
def test_a_rank_0_that_ends_while_ranks_connect_is_named(job):
    job.came(0, process.this_process())
    roll = job.roll(1, 2)
    roll._tick_s = 0.1
    roll.call(60)

    def lose():
        del job.server
        fail()

    sentence = rf"rank 0 ended before the ranks had met, as rank 1 \({HOST}\) found when"
    with pytest.raises(PeerError, match=sentence):
        connected(job, roll, lose)


def test_a_rank_0_that_has_ended_when_ranks_begin_to_connect_is_named(job):
    def connect():
        raise RuntimeError("connection refused")

    with (
        pytest.raises(PeerError, match=r"rank 0 ended before the ranks had met, as rank 1 "),
        job.roll(1, 2).watching(connect),
    ):
        pass


def test_a_look_is_one_request_however_many_ranks_there_are(job):
    for rank in (1, 700, 999):
        job.came(rank, process.this_process())
    roll = job.roll(0, 1000)
    asked, ask = [], job.server._ask
    job.server._ask = lambda *request: (asked.append(request[0]), ask(*request))[1]
    roll._look()
    assert asked == ["multi_get"]
    assert sorted(roll._peers) == [1, 700, 999]
    # All of them ask rank 0 no more often than it can answer.
    assert roll._poll_s == 0.1


def test_a_rank_that_waits_in_a_library_hears_why_another_one_failed(job, monkeypatch, capfd):
    ended = []
    monkeypatch.setattr("distgnn.comm.roster.end_process", ended.append)
    first, other = job.roll(0, 2), job.roll(1, 2)
    first._tick_s = 0.05
    with first.hearing():
        other.come()
        time.sleep(0.2)
        assert not ended
        other._first.close()  # as where it is killed
        while not ended:
            time.sleep(0.01)
    assert ended == [75]
    said = capfd.readouterr().err
    assert re.fullmatch(
        r"distgnn: rank 1 \(.*, pid \d+\) died before the ranks had met; .*\n", said
    )


def test_an_attempt_finds_nothing_of_the_one_before_in_the_store_of_the_agent(monkeypatch):
    """Which serves all attempts."""
    monkeypatch.setenv("DISTGNN_SECRET", "of the test")
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    number = listener.detach()
    agent = TCPStore("127.0.0.1", port, None, True, wait_for_workers=False, master_listen_fd=number)

    def meet(rank, attempt, timeout_s=60, number=0):
        environ = {
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": str(attempt),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "DISTGNN_SECRET": "of the test",
        }
        launch = Launch("torchrun", rank, 2, 0, 1)
        return meet_remotely(launch, environ, interface="lo", timeout_s=timeout_s, number=number)

    kept = []

    def on_rank(rank):
        meeting = meet(rank, 0)
        kept.append(meeting)  # or the store would end with rank 0
        Roster(Launch("torchrun", rank, 2, 0, 1), meeting.store, stale_s=25.0).call(60)
        return meeting.client(60).check(["roll/0", "roll/1"])

    assert together(2, on_rank) == [True, True]
    with pytest.raises(PeerError, match=r"rank 1 \(.*\) waited 4 s for rank 0 to say where"):
        meet(1, 1, timeout_s=4)  # in which it connects, too
    with pytest.raises(PeerError, match=r"rank 1 \(.*\) waited 4 s for rank 0 to say where"):
        meet(1, 0, timeout_s=4, number=1)
    again = meet(0, 1)
    assert not again.client(60).check(["roll/1"])
    del agent


_SERVER = """
import socket, sys
from distgnn.comm.store import serve_store
listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
store = serve_store(listener, "127.0.0.1", 60, b"secret")
print(port, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("has_come", "limit"), [(True, "0.8"), (False, "2")])
def test_a_rank_whose_calls_of_the_store_never_return_ends(capfd, monkeypatch, has_come, limit):
    """The host of rank 0 is lost, or the network; before it came, it may load for long."""
    ended = []
    command = [sys.executable, "-c", _SERVER]
    with subprocess.Popen(command, stdin=-1, stdout=subprocess.PIPE) as server:
        store = connect_store("127.0.0.1", int(server.stdout.readline()), 60, b"secret")

        def end(status):
            ended.append(status)
            server.kill()  # instead of this process, and so that the call returns
            server.send_signal(signal.SIGCONT)

        monkeypatch.setattr("distgnn.comm.roster.end_process", end)
        if has_come:
            # Without a number, so that rank 0 itself is not found silent.
            store.set("roll/0", json.dumps(["elsewhere", "another machine", 1, 1.0, None]))
        job = Roster(Launch("torchrun", 1, 2, 0, 1), store, stale_s=0.8)
        hear, heard = job._hear, []

        def stop_and_hear():
            # Whether rank 0 has come is known after the first time.
            heard.append(1)
            if len(heard) > has_come:
                server.send_signal(signal.SIGSTOP)
            hear()

        monkeypatch.setattr(job, "_hear", stop_and_hear)
        with pytest.raises(PeerError, match="rank 0 ended before the ranks had met"):
            job.call(60 if has_come else 2)
    assert ended[0] == 75
    sentence = (
        rf"rank 0 did not answer rank 1 \({HOST}\) for {limit} s before the ranks had met, or"
    )
    assert re.search(sentence, capfd.readouterr().err)


def test_a_question_to_a_rank_0_that_is_stopped_ends_the_process(job, monkeypatch, capfd):
    """Rank 0 has come, so that the silence of the first call counts as well."""
    ended = threading.Event()
    monkeypatch.setattr("distgnn.comm.roster.end_process", lambda status: ended.set())
    roll = job.roll(1, 2, stale_s=0.2, store=job.client())
    job.came(0, process.this_process())
    roll._look()
    keep = roll._store.set
    monkeypatch.setattr(roll._store, "set", lambda key, value: [ended.wait(60), keep(key, value)])
    job.server.set("word/0", "a")
    job.server.add("word-count", 1)
    roll.gather("word", "b", "speak", 60)
    sentence = rf"^distgnn: rank 0 did not answer rank 1 \({HOST}\) for 0\.2 s before the ranks had"
    assert re.search(sentence, capfd.readouterr().err)


class Starved(threading.Event):
    """Waits for longer than it was told to, as in a process that was stopped."""

    def __init__(self):
        super().__init__()
        self.num_waits = 0

    def wait(self, timeout=None):
        time.sleep(0.15)
        self.num_waits += 1
        return self.num_waits > 3


def test_a_rank_that_was_itself_stopped_does_not_end(job, monkeypatch):
    ended = []
    monkeypatch.setattr("distgnn.comm.roster.end_process", ended.append)
    job.roll(1, 2, stale_s=0.2)._guard(Starved(), 0.2)
    assert not ended


class Busy:
    """A store that takes long to answer, as one that many ranks ask."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    def check(self, keys):
        time.sleep(0.1)
        return self._store.check(keys)


def test_a_rank_that_hears_much_from_a_slow_store_does_not_end(job, monkeypatch):
    """Looking for all ranks takes longer than silence may last, and each answer does not."""
    ended = []
    monkeypatch.setattr("distgnn.comm.roster.end_process", ended.append)
    with pytest.raises(PeerError, match=r"ranks 1-29 of 30 did not come"):
        job.roll(0, 30, stale_s=2.0, store=Busy(job.server)).call(0.2)
    assert not ended


class Asked:
    """A store that counts how many keys it is asked about."""

    def __init__(self, store):
        self._store = store
        self.num_keys = 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    def check(self, keys):
        self.num_keys += len(keys)
        return self._store.check(keys)


def test_a_rank_that_waits_does_not_ask_for_the_key_of_each_rank_every_time(job):
    store = Asked(job.server)
    roll = job.roll(0, 100, store=store)
    roll._tick_s = 60.0
    with pytest.raises(PeerError, match=r"ranks 1-99 of 100 did not come"):
        roll.call(0.5)
    # Once to see who has come, and once to name who is missing.
    assert store.num_keys < 300
