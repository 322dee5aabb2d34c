"""The common ground of groups of processes: a store, a watchdog, an orderly end."""

from __future__ import annotations

import atexit
import json
import os
import time
from abc import abstractmethod
from typing import TYPE_CHECKING

from distgnn.comm import process
from distgnn.comm.direct import DirectBeats
from distgnn.comm.errors import PeerError
from distgnn.comm.group import Group
from distgnn.comm.store import leave_store
from distgnn.comm.watchdog import Peer, Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.comm.launch import Launch
    from distgnn.comm.store import Meeting

# A dead rank is the watchdog's to name, within seconds. This bounds only the wait for a rank that
# lives and cannot be reached by one other, or never sends; a rank may well work alone for minutes,
# as rank 0 does when it writes the predictions of all.
MESSAGE_TIMEOUT_S = 6 * 3600.0
_SPIN_S = 0.02
_NAP_S = 1e-4
_LOOK_S = 0.02
_CLOSING_S = 1.0
# Where a firewall lets the ranks meet, but not call each other, all of it is waited for.
_SETTLE_S = 3.0


class WatchedGroup(Group):
    """A group of processes with a watchdog that names the rank that fails.

    A transport calls `_watch` once its verbs work, and `_check_alive` before each of them. It
    gives its errors to `_diagnose` and raises what that returns.
    """

    def __init__(
        self,
        launch: Launch,
        meeting: Meeting,
        *,
        interface: str,
        timeout_s: float,
        message_timeout_s: float,
    ) -> None:
        """Describe the group; nothing is watched yet.

        Args:
            launch: Place of this rank in the job.
            meeting: Store of the job.
            interface: Network interface of the transport; empty where there is none.
            timeout_s: Longest wait for the connections.
            message_timeout_s: Longest wait for a message of a rank whose heart beats.
        """
        super().__init__(launch, interface=interface)
        self._store = meeting.store
        self._store_port = meeting.port
        self._timeout_s = timeout_s
        self._patience_s = message_timeout_s
        self._is_closed = False
        self._watchdog: Watchdog | None = None

    @abstractmethod
    def _unblock(self) -> None:
        """Make a verb that waits in another thread raise; called by the watchdog."""

    @abstractmethod
    def _leave(self) -> None:
        """Free the transport; the watchdog has stopped."""

    def note(self, epoch: int, phase: str) -> None:
        """Say what this rank is doing; see Group."""
        if self._watchdog is not None:
            self._watchdog.note(epoch, phase)

    def set_checkpoint(self, epoch: int) -> None:
        """Say which epoch was checkpointed last; see Group."""
        if self._watchdog is not None:
            self._watchdog.set_checkpoint(epoch)

    def publish_failure(self, error: BaseException) -> None:
        """Tell the other ranks why this one ends; see Group."""
        if self._watchdog is not None and not self._is_closed:
            self._watchdog.publish(error)

    def close(self) -> None:
        """Leave the group once every rank is done with it.

        Raises:
            PeerError: If a rank died before it was done.
        """
        if self._is_closed:
            return
        assert self._watchdog is not None
        if not self._watchdog.is_over:
            try:
                self._wait_for_all()
            except RuntimeError as error:
                # Still open: the others are to hear of it, and another call frees all.
                raise self._diagnose(error) from error
        self._is_closed = True
        self._watchdog.stop()
        atexit.unregister(self._watchdog.stop)
        is_well = not self._watchdog.is_over
        if is_well:
            leave_store(self._store, self.rank, self.size)
        self._leave()
        if is_well:
            # The next meeting of this program may be at the same port.
            self._store.close()

    def _wait_for_all(self) -> None:
        """A barrier through the store: no rank closes its sockets before all have said so."""
        assert self._watchdog is not None
        self._watchdog.set_closing()
        self._store.add("closing", 1)
        begin_s = look_s = time.monotonic()
        while self._store.add("closing", 0) < self.size:
            self._watchdog.check()
            now_s = time.monotonic()
            if now_s > look_s + _CLOSING_S:
                look_s = now_s
                # One may say that it is closing and end before it is counted. Whoever is counted
                # ends only once all are.
                ended = self._watchdog.ended(self._store)
                if ended and self._store.add("closing", 0) < self.size:
                    raise self._watchdog.diagnose(RuntimeError("a rank ended too early"), ended)
            if now_s > begin_s + self._patience_s:
                raise RuntimeError(f"not all ranks closed within {self._patience_s:g} s")
            time.sleep(0.005)

    def _watch(self, meeting: Meeting, *, stale_s: float, endpoints: list[str]) -> None:
        """Start the watchdog; collective.

        Args:
            meeting: Store of the job.
            stale_s: Time without a heartbeat after which a rank counts as dead.
            endpoints: Own addresses, as the transport writes them in its errors.
        """
        me = process.this_process()
        direct = None
        if self.local_size < self.size:
            direct = DirectBeats(self.rank, meeting.secret, meeting.interface)
        called = [] if direct is None else direct.endpoint
        row = json.dumps([self.host, me.machine, me.pid, me.start, endpoints, called])
        rows = [json.loads(text) for text in self.all_gather_bytes(row.encode())]
        peers = [
            Peer(rank, host, process.ProcessId(machine, pid, start), frozenset(endpoints))
            for rank, (host, machine, pid, start, endpoints, _) in enumerate(rows)
        ]
        if direct is not None:
            far = {rank: row[-1] for rank, row in enumerate(rows) if row[1] != me.machine}
            direct.connect(far)
            direct.settle(min(_SETTLE_S, self._timeout_s))
        watchdog = Watchdog(
            meeting.client(self._timeout_s),
            peers,
            rank=self.rank,
            stale_s=stale_s,
            unblock=self._unblock,
            direct=direct,
        )
        watchdog.start()
        self.barrier()
        # An interpreter that ends while a thread is in a call of the store aborts.
        atexit.register(watchdog.stop)
        watchdog.run()
        self._watchdog = watchdog

    def _wait_until(self, is_done: Callable[[], bool], what: str) -> None:
        """Look at a condition until it holds, at the failures of others, and at the clock.

        Args:
            is_done: Looked at often; it may move messages along.
            what: Name of the wait, for errors.

        Raises:
            PeerError: If a rank has failed.
            RuntimeError: If one seems to have, or time is up; see `_diagnose`.
        """
        if is_done():
            return
        patience_s = self._timeout_s if self._watchdog is None else self._patience_s
        begin_s = look_s = time.monotonic()
        while not is_done():
            self._check_alive()
            now_s = time.monotonic()
            if now_s > look_s + _LOOK_S:
                look_s = now_s
                # A launcher ends all ranks soon after one has died: say which before it does.
                if self._watchdog is not None and self._watchdog.has_dead_neighbour:
                    raise RuntimeError("a rank of this host has ended")
                if now_s > begin_s + patience_s:
                    raise RuntimeError(f"waited {patience_s:g} s for {what}")
            if now_s < begin_s + _SPIN_S:
                os.sched_yield()
            else:
                time.sleep(_NAP_S)

    def _check_alive(self) -> None:
        if self._watchdog is not None:
            self._watchdog.check()

    def _diagnose(self, error: RuntimeError) -> PeerError:
        if isinstance(error, PeerError):
            return error
        if self._watchdog is None:
            return PeerError(
                f"rank {self.rank} ({self.host}) lost the other ranks in start-up "
                f"({first_line(error)}); see their output"
            )
        return self._watchdog.diagnose(error, self._lost())

    def _lost(self) -> list[int]:
        """Ranks that the transport knows to be gone, beyond what its errors say."""
        return []


def first_line(error: Exception) -> str:
    """Return the first line of what an error says.

    Args:
        error: Any.
    """
    return str(error).strip().split("\n")[0]
