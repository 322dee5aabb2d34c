"""Heartbeats: every rank knows within seconds which other rank died, and says so."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distgnn.comm import process
from distgnn.comm.daemon import DaemonThread
from distgnn.comm.errors import EXIT_RETRY, PeerError
from distgnn.comm.process import end_process, print_last
from distgnn.datasets import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from distgnn.comm.direct import DirectBeats
    from distgnn.comm.store import Store

GRACE_S = 7.0
"""Longest wait for the main thread of a rank to hear why the job ends; the rank ends without it."""
_DIAGNOSIS_S = 5.0
_HEAD_START_S = 1.0
# Wait for the words of a rank that failed, which it publishes before it ends.
_NEWS_S = 1.0
# A rank whose heartbeats reach the store and not this rank, so many and for so long, is cut off.
_CUT_BEATS = 6
_CUT_S = 6.0


@dataclass
class Peer:
    """Knowledge of this rank about a rank, itself included.

    Attributes:
        rank: Its number.
        host: Its host.
        process: Its process.
        endpoints: Addresses of its transport, as "[address]:port".
        beat: Its newest heartbeat: epoch, phase, checkpoint, is_closing.
        seen_s: Time of arrival of that heartbeat, on this rank's clock.
    """

    rank: int
    host: str
    process: process.ProcessId
    endpoints: frozenset[str] = frozenset()
    beat: dict[str, object] = field(default_factory=dict)
    seen_s: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        """Name the rank for a message."""
        return f"rank {self.rank} ({self.host}, pid {self.process.pid})"

    @property
    def is_closing(self) -> bool:
        """Whether the rank has finished its work."""
        return bool(self.beat.get("is_closing"))

    def is_dead(self, machine: str) -> bool:
        """Whether the rank is on this machine and its process has ended."""
        return self.process.machine == machine and not process.is_alive(self.process)


@dataclass
class _Link:
    """Direct heartbeats of one rank.

    Attributes:
        num_heard: Number of them.
        num_missed: Heartbeats that came through the store since the last direct one.
        heard_s: Time of the last direct one.
    """

    num_heard: int = 0
    num_missed: int = 0
    heard_s: float = field(default_factory=time.monotonic)


class Watchdog:
    """Sends this rank's heartbeat, reads those of the others, and judges.

    One thread talks to the store of rank 0: it sends the heartbeat, and reads those of all ranks
    and the verdict of the first rank that found one. A second thread judges. It never touches the
    network, so that it still judges when the network is gone.

    The first verdict wins, on all ranks: it is written to the store by compare-and-set, and every
    rank adopts what the store holds. So all ranks that reach it end with the same sentence.
    """

    def __init__(
        self,
        store: Store,
        peers: list[Peer],
        *,
        rank: int,
        stale_s: float,
        unblock: Callable[[], None],
        direct: DirectBeats | None = None,
    ) -> None:
        """Start watching.

        Args:
            store: A client of the store for this object alone.
            peers: All ranks, in order.
            rank: This rank.
            stale_s: Time without a heartbeat after which a rank counts as dead.
            unblock: Makes a verb that waits in another thread raise.
            direct: Heartbeats to the ranks of other machines; None where there are none.
        """
        self._store = store
        self._peers = peers
        self._me = peers[rank]
        self._stale_s = stale_s
        self._unblock = unblock
        self._direct = direct
        self._links: dict[int, _Link] = {}
        self._tick_s = min(max(1.0, len(peers) / 100), stale_s / 4)
        self._machine = process.machine()
        self._note: tuple[int, str] | None = None
        self._checkpoint: int | None = None
        self._is_closing = False
        self._has_cause = False
        self._has_said = False
        self._has_answers = False
        self._is_ending = False
        self._lock = threading.Lock()
        self._verdict: str | None = None
        self._verdict_s = math.inf  # until the other threads can hear it
        self._is_delivered = False
        self._is_published = threading.Event()
        self._has_lost_store = False
        self._contact_s = time.monotonic()
        self._num_talks = 0
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._threads = [
            DaemonThread(target, name=f"distgnn-{target.__name__}")
            for target in (self._talk, self._judge)
        ]

    def start(self) -> None:
        """Send the first heartbeat; call before the ranks meet for the last time."""
        self._store.leave_will({_gone(self._me.rank): "1"})
        self._send_beat()

    def run(self) -> None:
        """Start the threads; every rank has sent its first heartbeat."""
        for thread in self._threads:
            thread.start()

    def note(self, epoch: int, phase: str) -> None:
        """Keep what this rank is doing for the next heartbeat."""
        self._note = (epoch, phase)

    def set_checkpoint(self, epoch: int) -> None:
        """Keep the last checkpointed epoch for the next heartbeat."""
        self._checkpoint = epoch

    def set_closing(self) -> None:
        """Say that this rank's work is done, so that its end is no failure."""
        self._is_closing = True
        self._wake.set()

    def check(self) -> None:
        """Raise the verdict if there is one."""
        if self._verdict is not None:
            raise self._deliver(self._verdict)

    @property
    def is_over(self) -> bool:
        """Whether a failure was found or told already."""
        return self._verdict is not None

    @property
    def _is_cut_off(self) -> bool:
        """Whether this rank hears nobody and nobody hears it."""
        return self._has_lost_store or time.monotonic() - self._contact_s > self._stale_s / 2

    @property
    def local_peers(self) -> list[Peer]:
        """The other ranks of this machine."""
        near = (peer for peer in self._peers if peer.process.machine == self._machine)
        return [peer for peer in near if peer is not self._me]

    @property
    def has_dead_neighbour(self) -> bool:
        """Whether the process of a rank of this machine has ended before its work was done."""
        return bool(self._dead())

    def ended(self, store: Store) -> list[int]:
        """Return the other ranks that have ended, whatever they said before.

        Args:
            store: A client of the store.
        """
        others = [peer for peer in self._peers if peer is not self._me]
        have_gone = store.present([_gone(peer.rank) for peer in others])
        return [
            peer.rank
            for peer, has_gone in zip(others, have_gone, strict=True)
            if has_gone or peer.is_dead(self._machine)
        ]

    def diagnose(self, error: Exception, lost: Sequence[int] = ()) -> PeerError:
        """Find out which rank made a verb fail.

        Args:
            error: Error of the transport.
            lost: Ranks that it knows to be gone.

        Returns:
            The error to raise: the cause another rank published, or the name of the dead rank.
        """
        begin_s = time.monotonic()
        talks = self._num_talks
        # The evidence, from the best to the worst: a cause that the failed rank published itself; a
        # process of this machine that has ended; ranks that the transport knows to be gone; a lost
        # store, which means rank 0; and last a rank that is silent for longer than usual.
        while self._verdict is None and time.monotonic() < begin_s + _DIAGNOSIS_S:
            self._wake.set()
            waited_s = time.monotonic() - begin_s
            # A rank that failed publishes its cause and then ends: look for that first.
            has_news = self._num_talks >= talks + 2 or self._has_lost_store or waited_s > _NEWS_S
            dead = self._dead() or [self._peers[rank] for rank in lost] or self._named_in(error)
            if dead and has_news:
                self._declare(self._describe(dead, "died"))
            elif self._has_lost_store and waited_s > 0.5:
                self._declare(self._describe([self._peers[0]], "closed the store of the job"))
            elif waited_s > _DIAGNOSIS_S - 1:
                silent = self._silent(4 * self._tick_s)
                if silent:
                    self._declare(self._describe(silent, "stopped answering"))
            time.sleep(0.01)
        if self._verdict is None:
            reason = str(error).strip().split("\n")[0]
            self._declare(
                f"{self._me}: communication failed in {self._place(self._me)} and no rank "
                f"is known to be dead: {reason}; {self._remedy()}"
            )
        assert self._verdict is not None
        return self._deliver(self._verdict)

    def publish(self, error: BaseException) -> None:
        """Tell the other ranks why this one ends, which it has said.

        Args:
            error: The cause.
        """
        is_cause = not isinstance(error, PeerError)
        self._is_delivered = True
        self._has_cause |= is_cause
        self._has_said = True
        self._wake.set()
        if is_cause:
            text = str(error) if isinstance(error, InputError) else _named(error)
            where = f"rank {self._me.rank} ({self._me.host})"
            self._declare(f"{where}: {text} ({self._place(self._me)}); {self._remedy()}")
        else:
            self._declare(str(error))
        self._linger(is_cause=is_cause)

    def stop(self) -> None:
        """Stop watching; after a failure this rank says no more."""
        self._has_said |= self.is_over
        self._stop.set()
        self._wake.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=2 * self._tick_s)
        if self._direct is not None:
            self._direct.close()

    # Ending

    def _linger(self, *, is_cause: bool) -> None:
        """Wait before this process ends until the others have said why they end.

        Args:
            is_cause: Whether this rank failed by itself.
        """
        # The store ends with rank 0, and a launcher ends the others once one rank has ended. A rank
        # hears of the failure in one thread and says it in another, which may be busy.
        deadline_s = time.monotonic() + self._stale_s
        while time.monotonic() < deadline_s and not self._is_cut_off and self._is_unsaid():
            time.sleep(0.05)
        if is_cause or self._is_cut_off:
            time.sleep(0.2)  # a program that catches its error says it only after this
            return
        # The rank with the cause ends first, so that the launcher takes its exit status.
        time.sleep(_HEAD_START_S)
        deadline_s = time.monotonic() + GRACE_S / 2
        while time.monotonic() < deadline_s and self._is_cause_here():
            time.sleep(0.05)

    def _is_unsaid(self) -> bool:
        """Whether a rank that can still say why it ends has not done so yet."""
        return not self._has_answers and bool(self._unsaid())

    def _unsaid(self) -> list[Peer]:
        """Return the ranks that have not said why they end, and are not known to be lost."""
        silent = self._silent(self._stale_s)
        return [
            peer
            for peer in self._peers
            if not peer.beat.get("has_said")
            and peer not in silent
            and not peer.is_dead(self._machine)
        ]

    def _is_cause_here(self) -> bool:
        """Whether the rank that failed by itself is on this machine and has not ended yet."""
        return any(
            peer.beat.get("has_cause")
            and peer.process.machine == self._machine
            and not peer.is_dead(self._machine)
            for peer in self._peers
        )

    def _end_after_grace(self, now_s: float) -> None:
        """End the process if its other threads do not come back to hear the verdict."""
        with self._lock:
            if self._is_delivered or now_s - self._verdict_s < GRACE_S:
                return
            self._is_delivered = self._is_ending = True
        print_last(str(self._verdict))
        self._has_said = True
        self._wake.set()
        self._linger(is_cause=False)
        end_process(EXIT_RETRY)

    def _deliver(self, sentence: str) -> PeerError:
        """Return the error to raise; does not return if the thread that judges says it."""
        with self._lock:
            self._is_delivered = True
            is_ending = self._is_ending
        if is_ending:
            threading.Event().wait()
        return PeerError(sentence)

    # Judging

    def _judge(self) -> None:
        """Judge twice in each tick, whatever the thread that talks is stuck in."""
        period_s = self._tick_s / 2
        last_s = time.monotonic()
        suspects: dict[int, int] = {}
        while not self._stop.wait(period_s):
            now_s = time.monotonic()
            if now_s - last_s > 3 * period_s + 1:
                # This process was itself stopped or starved: it may not blame the others. All
                # clocks of silence start again.
                self._contact_s = now_s
                for peer in self._peers:
                    peer.seen_s = now_s
            last_s = now_s
            if self._verdict is not None:
                self._end_after_grace(now_s)
                continue
            self._judge_once(now_s, suspects)
            if self.is_over:
                last_s = time.monotonic()  # it waited, and was not stopped

    def _judge_once(self, now_s: float, suspects: dict[int, int]) -> None:
        """Declare the ranks that are surely lost, if there are any.

        Args:
            now_s: Time on this rank's clock.
            suspects: Number of talks at which each dead process was first seen; extended here.
        """
        dead = self._dead()
        for peer in dead:
            suspects.setdefault(peer.rank, self._num_talks)
        # A process that is gone may have ended in order, or with a cause of its own. Two more
        # rounds of heartbeats bring its last words, so wait for those, unless there is no store.
        sure = [
            peer
            for peer in dead
            if self._num_talks >= suspects[peer.rank] + 2 or self._has_lost_store
        ]
        if sure:
            self._declare(self._describe(sure, "died"), is_unblocking=True)
        # No answer of the store: rank 0 or this host's network is lost. Nothing can be said of the
        # other ranks, whose heartbeats come through the store.
        elif now_s - self._contact_s > self._stale_s:
            what = f"did not answer for {self._stale_s:g} s or this host lost its network"
            self._declare(self._describe([self._peers[0]], what), is_unblocking=True)
        # Only a rank that hears the store itself may call another one silent.
        elif now_s - self._contact_s < 2 * self._tick_s and self._silent(self._stale_s):
            what = f"sent no heartbeat for {self._stale_s:g} s"
            text = self._describe(self._silent(self._stale_s), what)
            self._declare(text, is_unblocking=True)
        elif cut := self._cut_off():
            what = f"does not reach rank {self._me.rank} ({self._me.host}): the link is cut"
            self._declare(self._describe(cut, what), is_unblocking=True)

    def _dead(self) -> list[Peer]:
        """Return the ranks of this machine whose processes ended before their work was done."""
        others = (peer for peer in self._peers if peer is not self._me)
        return [peer for peer in others if not peer.is_closing and peer.is_dead(self._machine)]

    def _named_in(self, error: Exception) -> list[Peer]:
        """Return the rank of another machine that closed the connection of an error.

        gloo writes the address of the peer into its error. Ranks of this machine are left out,
        as their processes can be looked at, which is better evidence.
        """
        found = set(re.findall(r"\[[^\]]+\]:\d+", str(error))) if "peer" in str(error) else set()
        return [
            peer
            for peer in self._peers
            if peer.process.machine != self._machine
            and not peer.is_closing
            and not found.isdisjoint(peer.endpoints)
        ]

    def _silent(self, limit_s: float) -> list[Peer]:
        """Return the ranks without a new heartbeat for this long."""
        oldest_s = time.monotonic() - limit_s
        others = (peer for peer in self._peers if peer is not self._me)
        return [peer for peer in others if not peer.is_closing and peer.seen_s < oldest_s]

    def _cut_off(self) -> list[Peer]:
        """Return ranks whose heartbeats come through the store, and directly no more.

        A rank sends both at once. So heartbeats are counted: a rank that is starved sends neither,
        and this rank reads what has come before it judges.
        """
        oldest_s = time.monotonic() - _CUT_S
        return [
            peer
            for peer in self._peers
            if (link := self._links.get(peer.rank)) is not None
            and not peer.is_closing
            and link.num_missed >= _CUT_BEATS
            and link.heard_s < oldest_s
        ]

    def _count_direct(self, peer: Peer, *, has_beat: bool) -> None:
        """Compare the heartbeats of a rank in the store with those that came directly."""
        assert self._direct is not None
        num_heard = self._direct.num_heard.get(peer.rank, 0)
        if not num_heard:
            return
        link = self._links.setdefault(peer.rank, _Link())
        if link.num_heard != num_heard:
            self._links[peer.rank] = _Link(num_heard)
        elif has_beat:
            link.num_missed += 1

    def _declare(self, sentence: str, *, is_unblocking: bool = False) -> None:
        """Make a sentence the verdict, unless there is one, and have it published.

        Args:
            sentence: Names the cause.
            is_unblocking: Whether to make verbs raise that wait in other threads.
        """
        with self._lock:
            if self._verdict is not None:
                return
            self._verdict = sentence
        self._wake.set()
        # Publish before this rank's verbs end: the errors that this makes on its peers would else
        # look like their own findings, and they would blame this rank. The thread that publishes
        # may be late. A verb that has failed by itself has nothing left to hide.
        deadline_s = time.monotonic() + (self._stale_s if is_unblocking else _NEWS_S)
        while time.monotonic() < deadline_s and not self._is_cut_off:
            if self._is_published.wait(timeout=0.05):
                break
        self._verdict_s = time.monotonic()
        if is_unblocking:
            self._unblock()

    # Talking

    def _talk(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait(self._tick_s)
            self._wake.clear()
            is_last = self._stop.is_set()
            if is_last and not self.is_over:
                return
            try:
                self._talk_once()
            except RuntimeError:  # the server is gone; _judge() and diagnose() decide
                self._has_lost_store = True
                return

    def _talk_once(self) -> None:
        if self._peers[0].is_dead(self._machine):  # torch prints a stack trace when it finds out
            raise RuntimeError("the process of rank 0, which serves the store, has ended")
        self._send_beat()
        if self._direct is not None:
            self._direct.beat()
        rows = self._store.multi_get([f"beat/{peer.rank}" for peer in self._peers])
        now_s = time.monotonic()
        for peer, row in zip(self._peers, rows, strict=True):
            beat = json.loads(row)
            has_beat = beat != peer.beat
            if has_beat:
                peer.beat, peer.seen_s = beat, now_s
            if self._direct is not None:
                self._count_direct(peer, has_beat=has_beat)
        if self._verdict is not None and not self._is_published.is_set():
            self._store.compare_set("failure", "", json.dumps(self._verdict))
        if not self._is_published.is_set() and self._store.check(["failure"]):
            self._adopt(str(json.loads(self._store.get("failure"))))
        if self._has_said:
            # Those that have ended, on whatever machine: the server has seen it.
            self._has_answers = self._store.check([_gone(peer.rank) for peer in self._unsaid()])
        self._contact_s = time.monotonic()
        self._num_talks += 1

    def _adopt(self, sentence: str) -> None:
        """Take the published cause, which may be older and better than this rank's own."""
        with self._lock:
            is_new = self._verdict is None
            self._verdict_s = min(self._verdict_s, time.monotonic())
            self._verdict = sentence
        self._is_published.set()
        self._wake.set()  # so that the rank that waits for it hears soon
        if is_new:
            self._unblock()

    def _send_beat(self) -> None:
        beat = {
            "at": time.monotonic(),
            "epoch": self._note and self._note[0],
            "phase": self._note and self._note[1],
            "checkpoint": self._checkpoint,
            "is_closing": self._is_closing,
            "has_cause": self._has_cause,
            "has_said": self._has_said,
        }
        self._store.set(f"beat/{self._me.rank}", json.dumps(beat))

    # Sentences

    def _describe(self, peers: list[Peer], what: str) -> str:
        names = " and ".join(f"{peer} {what}, last seen in {self._place(peer)}" for peer in peers)
        here = f"rank {self._me.rank} was in {self._place(self._me)}"
        return f"{names}, when {here}; {self._remedy()}"

    def _place(self, peer: Peer) -> str:
        epoch, phase = peer.beat.get("epoch"), peer.beat.get("phase")
        if peer is self._me and self._note is not None:
            epoch, phase = self._note
        return "start-up" if epoch is None else f"epoch {epoch}, {phase}"

    def _remedy(self) -> str:
        known = (self._checkpoint, *(peer.beat.get("checkpoint") for peer in self._peers))
        epochs = [epoch for epoch in known if isinstance(epoch, int)]
        if not epochs:
            return "there is no checkpoint yet; start the job again"
        return f"the last checkpoint is of epoch {max(epochs)}; start the job again with --resume"


def _gone(rank: int) -> str:
    """Return the key that says that a rank has ended, in order or not."""
    return f"gone/{rank}"


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
