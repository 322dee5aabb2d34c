"""Ranks as processes that talk through MPI, whichever implementation it is."""

from __future__ import annotations

import atexit
import itertools
import os
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch

from distgnn.comm.daemon import DaemonThread
from distgnn.comm.errors import EXIT_RETRY, PeerError
from distgnn.comm.failure import fail
from distgnn.comm.group import ReduceOp, Work, check_size, check_tensor, combine
from distgnn.comm.launch import detect
from distgnn.comm.mpi_library import finalize_mpi
from distgnn.comm.process import end_process, is_stopped
from distgnn.comm.transports.watched import MESSAGE_TIMEOUT_S, WatchedGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType, TracebackType

    from torch import Tensor

    from distgnn.comm.launch import Launch
    from distgnn.comm.store import Meeting
    from distgnn.comm.watchdog import Peer

# Counts are 32-bit integers in many an MPI, and some fail before 2^31.
MAX_MESSAGE_BYTES = 1 << 30
# Up to here all rows at once cost less than a message more.
_SMALL_BYTES = 1 << 14
_LEAVE_S = 10.0
# A rank that is found stopped so often, within that time, is not waited for any longer.
_STOPPED_S, _NUM_LOOKS = 10.0, 10
_POKE_S = 2e-4
_IDLE_S = 2e-3


class MpiGroup(WatchedGroup):
    """A group over MPI, with a watchdog that names the rank that fails.

    Messages go straight from and to the memory of the tensors, as bytes. Everything is posted
    without blocking and tested for, so that a rank that waits for a dead one hears of it.
    """

    backend = "mpi"

    def __init__(
        self,
        launch: Launch,
        meeting: Meeting,
        mpi: ModuleType,
        *,
        timeout_s: float = 300,
        stale_s: float = 30,
        message_timeout_s: float = MESSAGE_TIMEOUT_S,
    ) -> None:
        """Join the other ranks.

        Args:
            launch: Place of this rank in the job.
            meeting: The store of the job.
            mpi: mpi4py.MPI, initialised and with as many ranks as the launcher started.
            timeout_s: Longest wait for the other ranks to join.
            stale_s: Time without a heartbeat after which a rank counts as dead.
            message_timeout_s: Longest wait for a message of a rank whose heart beats.

        Raises:
            PeerError: If another rank ends before it has joined.
        """
        super().__init__(
            launch,
            meeting,
            interface="",
            timeout_s=timeout_s,
            message_timeout_s=message_timeout_s,
        )
        assert mpi.COMM_WORLD.rank == launch.rank, "MPI numbers the ranks as the launcher does"
        self._mpi: Any = mpi
        # Apart, so that no message of one kind matches a receive of another.
        self._messages, self._collectives, unused = (mpi.COMM_WORLD.Dup() for _ in range(3))
        self._communicators = [self._messages, self._collectives, unused]
        is_concurrent = mpi.Query_thread() == mpi.THREAD_MULTIPLE
        self._progress = MpiProgress(unused.Iprobe if is_concurrent else None)
        self._watch(meeting, stale_s=stale_s, endpoints=[])
        self._hook = sys.excepthook
        sys.excepthook = self._abort
        atexit.register(self._end)

    def isend(self, tensor: Tensor, peer: int, tag: int) -> Work:
        """Start sending a tensor; see Group."""
        self._check_message(tensor, peer, tag)
        self._check_alive()
        return self._send(self._messages, tensor, peer, tag)

    def irecv(self, tensor: Tensor, peer: int, tag: int) -> Work:
        """Start receiving into a tensor; see Group."""
        self._check_message(tensor, peer, tag)
        self._check_alive()
        return self._receive(self._messages, tensor, peer, tag)

    def all_reduce(self, tensor: Tensor, op: ReduceOp = "sum") -> None:
        """Reduce element by element over all ranks, in place and in rank order; see Group.

        MPI leaves the order of its sums to the implementation. Here every rank gets one slice
        of all ranks, adds it up in rank order, and sends the sums to all. Each rank sends
        2 (P - 1) / P of the tensor, as in a ring.
        """
        check_tensor(tensor, is_reduced=True)
        flat = tensor.detach().view(-1)
        if tensor.numel() * tensor.element_size() <= _SMALL_BYTES:
            flat.copy_(combine(self.all_gather(flat), op))
            return
        bounds = [rank * len(flat) // self.size for rank in range(self.size + 1)]
        slices = [flat[begin:end] for begin, end in itertools.pairwise(bounds)]
        mine = slices[self.rank]
        rows = [torch.empty_like(mine) for _ in range(self.size)]
        rows[self.rank] = mine
        self._swap(rows, slices)
        mine.copy_(combine(rows, op))
        self._swap(slices, [mine] * self.size)

    def broadcast(self, tensor: Tensor, root: int = 0) -> None:
        """Overwrite the tensor with that of one rank; see Group."""
        check_tensor(tensor)
        assert 0 <= root < self.size, f"no rank {root}"
        self._check_alive()
        with self._diagnosed():
            requests = [
                self._collectives.Ibcast([piece, self._mpi.BYTE], root)
                for piece in self._pieces(tensor)
            ]
        self.finish(requests, f"the broadcast of rank {root}")

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks; see Group."""
        check_tensor(tensor)
        own = tensor.detach()
        rows = [torch.empty_like(own) for _ in range(self.size)]
        rows[self.rank].copy_(own)
        self._swap(rows, [own] * self.size)
        return rows

    def barrier(self) -> None:
        """Return when every rank has called it."""
        self._check_alive()
        with self._diagnosed():
            request = self._collectives.Ibarrier()
        self.finish([request], "all ranks in a barrier")

    def finish(self, requests: list[Any], what: str) -> list[Any]:
        """Wait for requests that were posted.

        Args:
            requests: All that one message or collective needs.
            what: Name of the wait, for errors.

        Returns:
            Their statuses.

        Raises:
            PeerError: If a rank failed.
            RuntimeError: If a message is longer than its receive.
        """
        statuses = [self._mpi.Status() for _ in requests]
        self._progress.is_waited_for = True
        try:
            self._wait_until(lambda: self._mpi.Request.Testall(requests, statuses), what)
        except RuntimeError as error:
            if self._is_truncated(statuses):
                raise RuntimeError(
                    f"rank {self.rank} got more bytes than it expected when it waited for {what}; "
                    "both must agree"
                ) from error
            raise self._diagnose(error) from error
        finally:
            self._progress.is_waited_for = False
        return statuses

    @contextmanager
    def _diagnosed(self) -> Iterator[None]:
        """Say which rank is gone if MPI takes no message because of it."""
        try:
            yield
        except self._mpi.Exception as error:
            raise self._diagnose(error) from error

    def _lost(self) -> list[int]:
        """Return the ranks that MPI knows to be gone, if the library survives that."""
        world = self._mpi.COMM_WORLD
        try:
            failed, everybody = world.Get_failed(), world.Get_group()
        except (AttributeError, NotImplementedError, self._mpi.Exception):
            return []  # mpi4py before 4.1, or a library that cannot tell
        return list(failed.Translate_ranks(None, everybody))

    def _is_truncated(self, statuses: list[Any]) -> bool:
        codes = [self._mpi.Get_error_class(status.Get_error()) for status in statuses]
        return self._mpi.ERR_TRUNCATE in codes

    def _swap(self, received: list[Tensor], sent: list[Tensor]) -> None:
        """Send one tensor to each rank and receive one from each; this rank's own stay."""
        self._check_alive()
        others = [(self.rank + step) % self.size for step in range(1, self.size)]
        works = [self._receive(self._collectives, received[peer], peer, 0) for peer in others]
        works += [self._send(self._collectives, sent[peer], peer, 0) for peer in others]
        for work in works:
            work.wait()

    def _send(self, communicator: Any, tensor: Tensor, peer: int, tag: int) -> MpiWork:
        with self._diagnosed():
            requests = [
                communicator.Isend([piece, self._mpi.BYTE], peer, tag)
                for piece in self._pieces(tensor)
            ]
        return MpiWork(self, requests, tensor, f"rank {peer} to receive tag {tag}")

    def _receive(self, communicator: Any, tensor: Tensor, peer: int, tag: int) -> MpiWork:
        with self._diagnosed():
            requests = [
                communicator.Irecv([piece, self._mpi.BYTE], peer, tag)
                for piece in self._pieces(tensor)
            ]
        return MpiWork(self, requests, tensor, f"rank {peer} to send tag {tag}", source=peer)

    def _pieces(self, tensor: Tensor) -> list[Any]:
        """The memory of a tensor, in pieces that fit into a message; none if it is empty."""
        address, num_bytes = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        return [
            self._mpi.memory.fromaddress(address + start, min(MAX_MESSAGE_BYTES, num_bytes - start))
            for start in range(0, num_bytes, MAX_MESSAGE_BYTES)
        ]

    def close(self) -> None:
        """Leave the group once every rank is done with it; see WatchedGroup.

        With -disable-auto-cleanup and several hosts, MPICH's Hydra sends SIGUSR1 to all ranks
        when the first one has ended, even in order. The signal would end them, and the job with
        status 10. From here on there is nothing left that the signal could ask for.
        """
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        super().close()

    def _unblock(self) -> None:
        """A verb that waits looks at the watchdog by itself."""

    def _leave(self) -> None:
        self._progress.stop()
        if sys.excepthook == self._abort:
            sys.excepthook = self._hook
        assert self._watchdog is not None
        if not self._watchdog.is_over:
            for communicator in self._communicators:
                communicator.Free()

    def _abort(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """End the job after an exception; the interpreter's exit would wait for the peers."""
        self._hook(kind, error, trace)
        fail(self, error, exit_code=EXIT_RETRY if isinstance(error, PeerError) else 1)

    def _end(self) -> None:
        """Leave at the interpreter's exit, or end the job if the peers do not: MPI would wait."""
        if threading.current_thread() is threading.main_thread():
            # What was asked for is done. Python would hear of an interrupt when MPI_Finalize is
            # over, and print it.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._patience_s = _LEAVE_S
        try:
            self.close()
        except PeerError as error:
            sys.stderr.write(f"{error}\n")
        assert self._watchdog is not None
        if self._watchdog.is_over:
            end_process(EXIT_RETRY)
        # The interpreter does it after all callbacks, and this process may end before.
        sys.stdout.flush()
        with _waiting_for_stopped(self._watchdog.local_peers):
            finalize_mpi(self._mpi, self.rank)


@contextmanager
def _waiting_for_stopped(local_peers: list[Peer]) -> Iterator[None]:
    """End this process if MPI_Finalize, which waits for all ranks, waits for a stopped one.

    A rank that runs may have work of its own before it ends, for as long as it likes. One that is
    stopped is ended, too. Only ranks of this machine are watched: one that is stopped on another
    machine is waited for where no rank beside it runs.

    Args:
        local_peers: The other ranks of this machine.
    """
    is_over = threading.Event()

    def look() -> None:
        num_looks: Counter[int] = Counter()
        while not is_over.wait(_STOPPED_S / _NUM_LOOKS):
            for peer in local_peers:
                # Where all ranks were stopped and continue, the others do so within a look.
                num_looks[peer.rank] += 1
                if not is_stopped(peer.process):
                    num_looks[peer.rank] = 0
                if num_looks[peer.rank] == _NUM_LOOKS:
                    sys.stderr.write(
                        f"distgnn: {peer} was stopped as it ended, and MPI_Finalize waits for it; "
                        "results that were reported are complete, and --resume shows them again\n"
                    )
                    sys.stderr.flush()
                    # Hydra leaves it where it leaves survivors the time to speak. Open MPI's
                    # launcher ends it, and waited for ever where two ranks ended at once.
                    if detect().kind != "openmpi":
                        with suppress(OSError):
                            os.kill(peer.process.pid, signal.SIGKILL)
                    # Not MPI_Abort: it may wait for the call that waits.
                    os._exit(EXIT_RETRY)

    thread = DaemonThread(look, name="distgnn-finalize")
    try:
        thread.start()
    except (RuntimeError, MemoryError):  # what was reported is complete
        yield
        return
    try:
        yield
    finally:
        is_over.set()
        thread.join()


class MpiWork:
    """A message under way; keeps its tensor alive until it has been handed over."""

    def __init__(
        self,
        group: MpiGroup,
        requests: list[Any],
        tensor: Tensor,
        what: str,
        *,
        source: int | None = None,
    ) -> None:
        """Count the message as under way.

        Args:
            group: Group of this rank.
            requests: One for each piece; none if the tensor is empty.
            tensor: Content of the message, or place for it.
            what: Name of the wait, for errors.
            source: The rank that sends; None if this one does.
        """
        self._group = group
        self._requests = requests
        self._tensor = tensor
        self._what = what
        self._source = source
        group._progress.num_under_way += bool(requests)

    def wait(self) -> None:
        """Return when the message has been handed over.

        Raises:
            PeerError: If it cannot be.
            RuntimeError: If it is not as long as the tensor.
        """
        if not self._requests:
            return
        requests, self._requests = self._requests, []
        group = self._group
        statuses = group.finish(requests, self._what)
        group._progress.num_under_way -= 1
        if self._source is None:
            return
        received = sum(status.Get_count(group._mpi.BYTE) for status in statuses)
        check_size(group, self._source, self._what, self._tensor, received)


class MpiProgress:
    """Lets MPI move messages while this rank computes.

    Most implementations work on a message during calls of theirs only. So a thread calls one that
    does nothing else, now and then, while messages are under way and no verb waits for them.

    Attributes:
        num_under_way: Messages that were posted and not waited for.
        is_waited_for: Whether a verb is calling MPI already.
    """

    def __init__(self, poke: Callable[[], object] | None) -> None:
        """Start the thread.

        Args:
            poke: Calls MPI; None if only one thread may, and then nothing happens.
        """
        self.num_under_way = 0
        self.is_waited_for = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if poke is not None:
            self._thread = DaemonThread(self._run, (poke,), "distgnn-progress")
            self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, poke: Callable[[], object]) -> None:
        while not self._stop.is_set():
            is_needed = self.num_under_way > 0 and not self.is_waited_for
            if is_needed:
                try:
                    poke()
                except RuntimeError:  # a rank is gone, as whoever waits for a message will hear
                    return
            time.sleep(_POKE_S if is_needed else _IDLE_S)
