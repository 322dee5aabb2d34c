"""The ranks that have come to the store, watched until all have met."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import defaultdict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from distgnn.comm import process
from distgnn.comm.daemon import DaemonThread
from distgnn.comm.errors import EXIT_RETRY, PeerError
from distgnn.comm.identity import difference
from distgnn.comm.process import end_process, print_last
from distgnn.comm.watchdog import Peer
from distgnn.datasets import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from distgnn.comm.launch import Launch
    from distgnn.comm.store import Store

_POLL_S = 0.02
# Ranks whose looks within a second the store of rank 0 answers with ease, one each.
_LOOKS_PER_S = 10_000
# Silence after which a host has vanished, before its ranks send heartbeats.
_VANISHED_S = 9.0
_FAILURE = "roll-failure"
# Rank 0 has said a flaw: the first that was told, or another one.
_FLAW_OF_ZERO, _SAME, _ANOTHER = "flaw-of-rank-0", "same", "another"
_IDENTITY = "identity"
_EXIT_BAD_INPUT = 2
_MOST_HOSTS = 8
_REMEDY = "see its output, and start the job again"
# Signs of life that prove a rank alive: the last ones of a dead rank may still be news here.
_NEW_BEATS = 3


class Roster:
    """Waits for what all ranks will write to the store, for as long as those that came are there.

    From the first heartbeat on, this is the watchdog's.

    Args:
        launch: Place of this rank in the job.
        store: Store of the job.
        stale_s: Time without a sign of life after which a rank counts as dead.
    """

    def __init__(self, launch: Launch, store: Store, *, stale_s: float) -> None:
        self._launch = launch
        self._store = store
        self._stale_s = stale_s
        self._tick_s = min(max(1.0, launch.size / 100), stale_s / 4)
        self._poll_s = max(_POLL_S, launch.size / _LOOKS_PER_S)
        self._host = socket.gethostname()
        self._me = process.this_process()
        self._num_beats = 0
        self._peers: dict[int, Peer] = {}
        self._contact_s = time.monotonic()
        self._verdict = ""
        self._judged_s = 0.0
        self._first = store
        self._is_opening = threading.Event()
        self._identity: dict[str, str] = {}
        self._is_compared = False
        self._heard = ""  # what another rank found
        self._said = ""  # what rank 0 answered
        #: Why the ranks did not meet, once this one knows.
        self.cause = ""
        #: Whether the store is that of a job that has this rank already, and not to be disturbed.
        self.is_stranger = False
        # Whoever has it says why this process ends: its main thread, or the one that listens.
        self._speaking = threading.Lock()

    def come(self) -> None:
        """Have the others hear of the death of this rank, before all have met.

        Raises:
            InputError: If another process has come as this rank.
            PeerError: If rank 0 is gone.
        """
        who = Peer(self._launch.rank, self._host, self._me)
        row = json.dumps([f"{who} died before the ranks had met; {_REMEDY}", False])
        with self._reaching():
            # Before the will: the death of a rank of another job means nothing here.
            self._claim()
            # Nothing else tells of a rank that is silent because it loads its libraries.
            self._first.leave_will({_FAILURE: row, _told(who.rank): "1"}, _VANISHED_S)
            self._first.set(f"come/{who.rank}", "1")

    def give_up(self, error: InputError) -> None:
        """Let the death of this rank mean nothing: all ranks have come, and know why they end.

        Args:
            error: The cause, the same on all ranks.
        """
        self.cause = str(error)
        # Rank 0 need not wait for one that is gone.
        with suppress(RuntimeError):
            self._first.leave_will({_told(self._launch.rank): "1"})

    def settle(self) -> None:
        """Leave the death of this rank to the watchdog from now on."""
        self._mark()
        with suppress(RuntimeError):
            self._first.take_will_back()

    def listen(self) -> None:
        """End this process if another rank fails before this one is ready to `call`."""
        DaemonThread(self._listen, name="distgnn-start").start()

    def _listen(self) -> None:
        sentence, status = "", EXIT_RETRY
        while not sentence and not self._is_opening.wait(self._tick_s):
            sentence, status = self._news()
        if not sentence:
            return
        self._verdict = sentence
        is_zero, is_said = self._launch.rank == 0, False
        if status == _EXIT_BAD_INPUT:
            # Rank 0 may be about to find the same flaw, and says it for all. A launcher ends it
            # with the first rank that ends.
            limit_s = self._stale_s if is_zero else self._answer_s
            is_said = bool(self._await_answer(limit_s, self._is_opening))
        # Whoever is ready hears it too, and ends in order.
        if self._is_opening.wait(2 * self._tick_s) or not self._speaking.acquire(blocking=False):
            return
        try:
            if not is_said:
                print_last(sentence)
            if is_zero and status == _EXIT_BAD_INPUT:
                self._answer(is_same=True)
            self.linger(for_all=status == _EXIT_BAD_INPUT)
            end_process(status)
        finally:
            self._speaking.release()

    def _news(self) -> tuple[str, int]:
        """Return why the job ends, with the status to end with; an empty text if it goes on."""
        try:
            self._hear()
        except InputError as error:
            return str(error), _EXIT_BAD_INPUT
        except PeerError as error:
            return str(error), EXIT_RETRY
        except RuntimeError:
            return self._lost_store(), EXIT_RETRY
        return "", EXIT_RETRY

    def take_over(self) -> None:
        """Have this thread say why the process ends, and no longer the one that listens.

        Does not return if that one is about to end the process.
        """
        if not self._is_opening.is_set():
            self._is_opening.set()
            self._speaking.acquire()

    def tell(self, error: InputError, timeout_s: float) -> str:
        """Tell the others why this rank ends before all have met.

        Rank 0 has said it, and waits until all others know: its store ends with it. The others
        wait until rank 0 has said a flaw, as a launcher ends it with the first rank that ends.

        Args:
            error: The cause, which names the rank.
            timeout_s: Longest wait of rank 0.

        Returns:
            The sentence that counts: the first of all ranks. Empty if this rank was the first,
            and rank 0 has said the same.
        """
        self.take_over()
        row = json.dumps([str(error), True])
        try:
            first = str(json.loads(self._first.compare_set(_FAILURE, "", row))[0])
        except RuntimeError:
            if not self._heard:
                raise
            first = self._heard  # and rank 0 has ended since
        is_same = is_same_flaw(first, str(error))
        if self._launch.rank == 0:
            self._answer(is_same=is_same)
            self.linger(timeout_s, for_all=True)
        elif is_same:
            answer = self._await_answer(max(timeout_s, self._answer_s))
            if first == str(error) and answer == _SAME:
                first = ""
        self._mark()
        return first

    def linger(self, timeout_s: float | None = None, *, for_all: bool = False) -> None:
        """Wait on rank 0 until the others know why the job ends.

        Args:
            timeout_s: Longest wait; None is the time after which a silent rank counts as dead.
            for_all: Whether to wait for ranks that have not come or are silent, too.
        """
        if self._launch.rank != 0:
            return
        self._answer(is_same=False)
        deadline_s = time.monotonic() + (self._stale_s if timeout_s is None else timeout_s)
        with suppress(RuntimeError):
            silent = {peer.rank for peer in self._silent()}
            waiting = [
                _told(rank)
                for rank in range(1, self._launch.size)
                if for_all or (rank not in silent and self._first.check([f"come/{rank}"]))
            ]
            while not self._first.check(waiting):
                if time.monotonic() > deadline_s:
                    break
                time.sleep(_POLL_S)

    def _mark(self) -> None:
        """Count this rank among those that rank 0 need not wait for."""
        with suppress(RuntimeError):
            self._first.set(_told(self._launch.rank), "1")

    @property
    def _answer_s(self) -> float:
        """Longest time in which a rank 0 that lives has said a flaw."""
        return 2 * self._stale_s

    def _answer(self, *, is_same: bool) -> None:
        """Say on rank 0 which flaw it has printed, unless it has done so."""
        with suppress(RuntimeError):
            self._first.compare_set(_FLAW_OF_ZERO, "", _SAME if is_same else _ANOTHER)

    def _await_answer(self, timeout_s: float, is_over: threading.Event | None = None) -> str:
        """Wait until rank 0 has said a flaw; return which one, or nothing if time is up."""
        deadline_s = time.monotonic() + timeout_s
        with suppress(RuntimeError):  # rank 0 has ended
            while not self._said and not self._first.check([_FLAW_OF_ZERO]):
                if time.monotonic() > deadline_s:
                    return ""
                if is_over is None:
                    time.sleep(_POLL_S)
                elif is_over.wait(self._tick_s):
                    return ""
            self._said = self._said or self._first.get(_FLAW_OF_ZERO).decode()
            self._mark()
        return self._said

    def call(self, timeout_s: float, identity: Mapping[str, str] | None = None) -> None:
        """Come, and wait until all ranks have.

        Args:
            timeout_s: Longest wait for those that have not come: nobody knows whether they will.
            identity: Values by name that this rank was started with, and all must share.

        Raises:
            InputError: If a rank was started otherwise than rank 0, or two have one number.
            PeerError: If the ranks do not come, or one that came is gone.
        """
        self.take_over()
        self._identity = dict(identity or {})
        with self._guarding(timeout_s):
            self._call(timeout_s)

    def _call(self, timeout_s: float) -> None:
        with self._reaching():
            if self._launch.rank == 0:
                self._store.set(_IDENTITY, json.dumps(self._identity))
            self._beat()

        def judge() -> None:
            self._compare()
            self._check_beats()

        self._wait("roll", timeout_s, judge=judge, late=lambda: self._absent(timeout_s))
        self._wait("same", timeout_s, judge=self.check, late=lambda: "", before=self._compare)
        try:
            self._look()
        except RuntimeError as error:
            raise PeerError(self._lost_store()) from error

    @property
    def _named(self) -> str:
        return f"rank {self._launch.rank} ({self._host}, pid {self._me.pid})"

    def _claim(self) -> None:
        """Refuse to take the place of another process."""
        me = f"{self._host} {self._me.machine} {self._me.pid}"
        other = self._store.compare_set(f"claim/{self._launch.rank}", "", me).decode()
        if other != me:
            self.is_stranger = True
            host, *_, pid = other.split(" ")
            raise InputError(
                f"{self._named} came to a job that has this rank already ({host}, pid {pid}); two "
                "jobs use one MASTER_PORT, so choose another for one of them"
            )

    def _compare(self) -> None:
        """Refuse to go on if this rank was started otherwise than rank 0, and tell all."""
        if self._is_compared or not self._store.check([_IDENTITY]):
            return
        self._is_compared = True
        found = difference(json.loads(self._store.get(_IDENTITY)), self._identity)
        if found:
            raise InputError(
                f"{self._named} was started otherwise than rank 0: {found}; start all ranks of a "
                "job with the same command, and give each job a MASTER_PORT of its own"
            )

    def gather(self, name: str, text: str, what: str, timeout_s: float) -> list[str]:
        """Exchange a text with all ranks, which have all come.

        Args:
            name: Name of the question; different in each call.
            text: Answer of this rank.
            what: The answering in words, for the error: ranks were expected to do this.
            timeout_s: Longest wait.

        Returns:
            Answers of all ranks, in rank order.

        Raises:
            PeerError: If time is up, or a rank of this machine is gone.
        """
        keys = [f"{name}/{rank}" for rank in range(self._launch.size)]

        def silent() -> str:
            missing = [rank for rank, has in enumerate(self._store.present(keys)) if not has]
            named = ", ".join(str(self._peers.get(rank, f"rank {rank}")) for rank in missing)
            if not missing:
                return ""
            return (
                f"rank {self._launch.rank} ({self._host}) waited {timeout_s:g} s for {named} of "
                f"{self._launch.size} ranks to {what}; see their output"
            )

        with self._guarding(timeout_s):
            with self._reaching():
                self._store.set(f"{name}/{self._launch.rank}", text)
            self._wait(name, timeout_s, judge=self.check, late=silent)
            with self._reaching():
                return [row.decode() for row in self._store.multi_get(keys)]

    def _wait(
        self,
        name: str,
        timeout_s: float,
        *,
        judge: Callable[[], None],
        late: Callable[[], str],
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """This rank has written `name/rank`: count it, and wait until all have.

        Args:
            name: Name of the keys.
            timeout_s: Longest wait.
            judge: Raises if a rank that came is gone.
            late: Names the ranks that are late, in a sentence; empty if all have just written.
            before: Done before this rank is counted.
        """
        size, count = self._launch.size, f"{name}-count"
        begin_s = look_s = self._contact_s = time.monotonic()
        try:
            before()
            self._store.add(count, 1)
            # One look-up, however many ranks there are: each of them asks often.
            while self._store.add(count, 0) < size:
                now_s = self._contact_s = time.monotonic()
                if now_s >= look_s:
                    look_s = now_s + self._tick_s
                    self._hear()
                    judge()
                if now_s > begin_s + timeout_s and (sentence := late()):
                    raise PeerError(sentence)
                time.sleep(self._poll_s)
            self._hear()
        except (InputError, PeerError) as error:
            self._publish(error)
            raise
        except RuntimeError as error:
            raise PeerError(self._lost_store()) from error

    @contextmanager
    def _guarding(self, timeout_s: float) -> Iterator[None]:
        """End the process if a call of the store in the block does not return."""
        self._contact_s = time.monotonic()
        is_over = threading.Event()
        thread = DaemonThread(self._guard, (is_over, timeout_s))
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Say who is lost where the store does not answer in the block."""
        try:
            yield
        except RuntimeError as error:
            raise PeerError(self._lost_store()) from error

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """End this process if another rank fails while this one waits in a library for all.

        No sign of life is asked for: a library that is loaded may keep the interpreter's lock.
        """
        is_over = threading.Event()
        thread = DaemonThread(self._end_with_others, (is_over,), name="distgnn-start")
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            # A rank 0 that is stopped does not answer; whoever asks it next says so.
            thread.join(2 * self._tick_s)

    def _end_with_others(self, is_over: threading.Event) -> None:
        sentence, status = "", EXIT_RETRY
        while not sentence and not is_over.wait(self._tick_s):
            sentence, status = self._news()
        # Whoever is in no library hears it too, and ends in order.
        if sentence and not is_over.wait(2 * self._tick_s):
            print_last(sentence)
            self.linger()
            end_process(status)

    @contextmanager
    def watching(self, connect: Callable[[], Store]) -> Iterator[None]:
        """Watch the ranks while they connect; transports name none that is lost meanwhile.

        Args:
            connect: Opens a client of the store: verbs that connect keep theirs busy.

        Raises:
            PeerError: If the block raises one, or another RuntimeError because a rank is gone;
                names the rank that is.
        """
        with self._reaching():
            self._store = connect()
        for peer in self._peers.values():
            peer.seen_s = time.monotonic()
        is_over = threading.Event()
        attendant = DaemonThread(self._attend, (is_over,))
        with self._guarding(self._stale_s):
            attendant.start()
            try:
                yield
            except RuntimeError as error:
                if sentence := self._await_verdict(attendant):
                    raise PeerError(sentence) from error
                raise
            finally:
                is_over.set()
                # An interpreter that ends while a thread is in a call of the store aborts.
                attendant.join(2 * self._tick_s)

    def _await_verdict(self, attendant: threading.Thread) -> str:
        """Return the sentence about a lost rank; nothing once all ranks have proved to be alive.

        Only signs of life that are given from now on count. A transport's connection fails at once
        when its peer dies, long before the silence of that peer is noticed. On a busy machine the
        attendant judges late: time is up once it has judged after the end of that time.
        """
        wanted = {rank: _number(peer) + _NEW_BEATS for rank, peer in self._peers.items()}
        deadline_s = time.monotonic() + self._stale_s + 2 * self._tick_s
        while not self._verdict and attendant.is_alive() and self._judged_s < deadline_s:
            if all(_number(peer) >= wanted[rank] for rank, peer in list(self._peers.items())):
                break
            time.sleep(_POLL_S)
        return self._verdict

    def _attend(self, is_over: threading.Event) -> None:
        """Give signs of life and look for those of the others, until this rank has connected."""
        try:
            while not is_over.wait(self._tick_s):
                begin_s = time.monotonic()
                self._hear()
                self._check_beats()
                self._contact_s = time.monotonic()
                self._judged_s = begin_s
            self._beat(has_met=True)
            return
        except (InputError, PeerError) as error:
            self._verdict = str(error)
            self._publish(error)
            self._contact_s = time.monotonic()
        except RuntimeError:
            self._verdict = self._lost_store()
        # The call that connects may not come back for long.
        if not is_over.wait(2 * self._tick_s):
            print_last(self._verdict)
            self.linger()
            end_process(EXIT_RETRY)

    def _lost_store(self) -> str:
        self.cause = (
            f"rank 0 ended before the ranks had met, as rank {self._launch.rank} "
            f"({self._host}) found when it called its store; {_REMEDY}"
        )
        return self.cause

    def _guard(self, is_over: threading.Event, timeout_s: float) -> None:
        """End the process if the store is silent: its calls return when TCP gives up, if ever.

        Args:
            is_over: Set once nobody calls the store any more.
            timeout_s: Longest silence before rank 0 has come. It loads its libraries then, from a
                slow disk or on a busy machine for minutes, and holds the lock of the interpreter
                that its store needs. If it dies instead, its connection ends.
        """
        period_s = self._tick_s / 2
        contact_s, num_silent = self._contact_s, 0
        # Looks are counted, not seconds: a process that was stopped or starved looked at nothing.
        while not is_over.wait(period_s):
            num_silent = num_silent + 1 if contact_s == self._contact_s else 0
            contact_s = self._contact_s
            limit_s = self._stale_s if 0 in self._peers else max(timeout_s, self._stale_s)
            if num_silent * period_s > limit_s:
                sentence = (
                    f"rank 0 did not answer rank {self._launch.rank} ({self._host}) for "
                    f"{limit_s:g} s before the ranks had met, or this host lost its "
                    f"network; {_REMEDY}"
                )
                print_last(sentence)
                end_process(EXIT_RETRY)

    def _absent(self, timeout_s: float) -> str:
        """Name the ranks that have not come, and the hosts of those that have."""
        self._look()
        missing = [rank for rank in range(self._launch.size) if rank not in self._peers]
        came: defaultdict[str, list[int]] = defaultdict(list)
        for rank in sorted(self._peers):
            came[self._peers[rank].host].append(rank)
        places = [f"{_named(ranks)} on {host}" for host, ranks in came.items()]
        if len(places) > _MOST_HOSTS:
            others = len(places) - _MOST_HOSTS
            places[_MOST_HOSTS:] = [f"those on {others} more hosts"]
        if not missing:
            return ""
        return (
            f"{_named(missing)} of {self._launch.size} did not come within {timeout_s:g} s; "
            f"{', '.join(places)} came; see the output of those that did not, or wait longer with "
            "--start-timeout"
        )

    def check(self) -> None:
        """Look whether a rank of this machine that came is gone.

        Raises:
            PeerError: If so.
        """
        for peer in self._peers.values():
            if peer.rank != self._launch.rank and peer.is_dead(self._me.machine):
                raise PeerError(f"{peer} died before the ranks had met; {_REMEDY}")

    def _beat(self, *, has_met: bool = False) -> None:
        self._num_beats += 1
        me, number = self._me, None if has_met else self._num_beats
        row = [self._host, me.machine, me.pid, me.start, number]
        self._store.set(f"roll/{self._launch.rank}", json.dumps(row))

    def _look(self) -> None:
        """Look who has come, and who has given a new sign of life."""
        rows = self._store.values_of([f"roll/{rank}" for rank in range(self._launch.size)])
        self._contact_s = time.monotonic()
        for rank, row in enumerate(rows):
            if row is None:
                continue
            host, machine, pid, start, num_beats = json.loads(row)
            known = self._peers.get(rank)
            if known is None or known.beat["number"] != num_beats:
                identity = process.ProcessId(machine, pid, start)
                self._peers[rank] = Peer(rank, host, identity, beat={"number": num_beats})

    def _check_beats(self) -> None:
        """Give a sign of life, and look for those of the others that wait."""
        self._beat()
        self._look()
        self.check()
        for peer in self._silent():
            raise PeerError(
                f"{peer} gave no sign of life for {self._stale_s:g} s before the ranks had met; "
                f"{_REMEDY}"
            )

    def _silent(self) -> list[Peer]:
        """Return the ranks that came and have given no sign of life for long."""
        oldest_s = time.monotonic() - self._stale_s
        return [
            peer
            for peer in self._peers.values()
            if peer.seen_s < oldest_s and _number(peer) < float("inf")
        ]

    def _hear(self) -> None:
        """Raise what another rank found; it has ended, or will."""
        if self._store.check([_FAILURE]):
            sentence, is_input_error = json.loads(self._store.get(_FAILURE))
            self._heard = sentence
            if not is_input_error:  # which rank 0 says first
                self._mark()
            raise (InputError if is_input_error else PeerError)(sentence)

    def _publish(self, error: InputError | PeerError) -> None:
        """Tell the others the cause. Rank 0 does not wait for them: it has to say it first."""
        self.cause = str(error)
        row = json.dumps([str(error), isinstance(error, InputError)])
        with suppress(RuntimeError):
            self._store.compare_set(_FAILURE, "", row)


def _told(rank: int) -> str:
    """Return the key that says that a rank knows why the job ends, or needs not to."""
    return f"told/{rank}"


def is_same_flaw(one: str, other: str) -> bool:
    """Return whether sentences, each after the name of a rank, say the same."""
    first, second = (said.partition("): ")[2] or said for said in (one, other))
    return first == second


def _number(peer: Peer) -> float:
    """Return the number of signs of life of a rank; infinite once it has connected."""
    number = peer.beat["number"]
    return number if isinstance(number, int) else float("inf")


def _named(ranks: list[int]) -> str:
    """Name ranks in order, those that follow each other by the first and the last: ranks 0-2, 5."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][-1] == rank - 1:
            runs[-1][1:] = [rank]
        else:
            runs.append([rank])
    numbers = ", ".join("-".join(map(str, run)) for run in runs)
    return f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"
