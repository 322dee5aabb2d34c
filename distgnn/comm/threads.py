"""Ranks as threads of one process, for tests: fast, strict, and never hanging."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import torch

from distgnn.comm.errors import PeerError
from distgnn.comm.group import Group, ReduceOp, Work, check_tensor, combine
from distgnn.comm.launch import Launch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

T = TypeVar("T")

_HEAD_START_S = 0.5


class _AbortedError(PeerError):
    """Another rank failed first; its error is the one to show."""


@dataclass(eq=False)
class _Message:
    """One end of a message: the sent tensor or the place for it."""

    tensor: Tensor
    content: Tensor | None = None
    is_matched: bool = False


@dataclass(eq=False)
class _Slot:
    """The contributions to one collective."""

    verb: str
    rows: dict[int, Tensor] = field(default_factory=dict)
    num_readers: int = 0


class _World:
    """State that the ranks share, under one lock."""

    def __init__(self, size: int, timeout_s: float) -> None:
        self.size = size
        self.timeout_s = timeout_s
        self.changed = threading.Condition()
        self.sends: defaultdict[tuple[int, int, int], deque[_Message]] = defaultdict(deque)
        self.receives: defaultdict[tuple[int, int, int], deque[_Message]] = defaultdict(deque)
        self.slots: dict[int, _Slot] = {}
        self.waiting: dict[int, tuple[Callable[[], bool], str]] = {}
        self.num_finished = 0
        self.first_error: BaseException | None = None

    def match(self, key: tuple[int, int, int]) -> None:
        """Pair the oldest send of a (source, destination, tag) with the oldest receive."""
        sends, receives = self.sends[key], self.receives[key]
        while sends and receives:
            sent, received = sends.popleft(), receives.popleft()
            self.check_pair(sent.tensor, received.tensor, key)
            received.content = sent.content
            sent.is_matched = received.is_matched = True
        self.changed.notify_all()

    def check_pair(self, sent: Tensor, received: Tensor, key: tuple[int, int, int]) -> None:
        """Refuse what gloo accepts silently: messages of another size or type."""
        if sent.numel() != received.numel() or sent.dtype != received.dtype:
            source, destination, tag = key
            error = RuntimeError(
                f"rank {source} sent {sent.numel()} x {sent.dtype} with tag {tag}, but rank "
                f"{destination} expected {received.numel()} x {received.dtype}; both must agree"
            )
            self.abort(error)
            raise error

    def abort(self, error: BaseException) -> None:
        """End all waits; the first error counts."""
        with self.changed:
            if self.first_error is None:
                self.first_error = error
            self.changed.notify_all()

    def wait(self, rank: int, is_ready: Callable[[], bool], what: str) -> None:
        """Wait under the lock until a rank's condition holds, the job fails or time is up."""
        deadline_s = time.monotonic() + self.timeout_s
        self.waiting[rank] = (is_ready, what)
        try:
            while not is_ready():
                self.raise_if_aborted()
                self.check_deadlock()
                if not self.changed.wait(max(0.0, deadline_s - time.monotonic())):
                    error = RuntimeError(f"rank {rank} waited {self.timeout_s:g} s for {what}")
                    self.abort(error)
                    raise error
        finally:
            del self.waiting[rank]

    def raise_if_aborted(self) -> None:
        """Stop a rank when another one has failed."""
        if self.first_error is not None:
            raise _AbortedError(f"another rank failed: {self.first_error}")

    def check_deadlock(self) -> None:
        """Fail at once when every rank waits and none of them can continue."""
        is_stuck = len(self.waiting) + self.num_finished == self.size
        if is_stuck and not any(is_ready() for is_ready, _ in self.waiting.values()):
            waits = "; ".join(
                f"rank {rank} waits for {what}" for rank, (_, what) in sorted(self.waiting.items())
            )
            error = RuntimeError(f"no rank can go on: {waits}")
            self.abort(error)
            raise error


class ThreadGroup(Group):
    """A rank in a thread.

    It is stricter than the real transports. These are errors at once: a message of another size
    than expected, a sent tensor that changes before wait(), different collectives on different
    ranks, and a deadlock. A received tensor is filled in wait(), not before.
    """

    backend = "threads"

    def __init__(self, world: _World, rank: int) -> None:
        """Make the group of one rank; see run_ranks."""
        super().__init__(Launch("single", rank, world.size, rank, world.size))
        self._world = world
        self._num_collectives = 0

    def isend(self, tensor: Tensor, peer: int, tag: int) -> Work:
        """Start sending a tensor; see Group."""
        self._check_message(tensor, peer, tag)
        message = _Message(tensor.detach(), content=tensor.detach().clone())
        key = (self.rank, peer, tag)
        with self._world.changed:
            self._world.raise_if_aborted()
            self._world.sends[key].append(message)
            self._world.match(key)
        return _SendWork(self, message, f"rank {peer} to receive tag {tag}")

    def irecv(self, tensor: Tensor, peer: int, tag: int) -> Work:
        """Start receiving into a tensor; see Group."""
        self._check_message(tensor, peer, tag)
        message = _Message(tensor.detach())
        key = (peer, self.rank, tag)
        with self._world.changed:
            self._world.raise_if_aborted()
            self._world.receives[key].append(message)
            self._world.match(key)
        return _ReceiveWork(self, message, f"rank {peer} to send tag {tag}")

    def all_reduce(self, tensor: Tensor, op: ReduceOp = "sum") -> None:
        """Reduce element by element over all ranks, in rank order; see Group."""
        check_tensor(tensor, is_reduced=True)
        tensor.detach().copy_(combine(self._collect(f"all_reduce {op}", tensor), op))

    def broadcast(self, tensor: Tensor, root: int = 0) -> None:
        """Overwrite the tensor with that of one rank; see Group."""
        check_tensor(tensor)
        assert 0 <= root < self.size, f"no rank {root}"
        tensor.detach().copy_(self._collect(f"broadcast from {root}", tensor)[root])

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks; see Group."""
        check_tensor(tensor)
        return [row.clone() for row in self._collect("all_gather", tensor)]

    def barrier(self) -> None:
        """Return when every rank has called it."""
        self._collect("barrier", torch.empty(0))

    def close(self) -> None:
        """Return when every rank has called it."""
        self._collect("close", torch.empty(0))

    def wait(self, message: _Message, what: str) -> None:
        """Wait until both ends of a message are there."""
        with self._world.changed:
            self._world.wait(self.rank, lambda: message.is_matched, what)

    def _collect(self, verb: str, tensor: Tensor) -> list[Tensor]:
        """Give one tensor and return those of all ranks, the same objects on every rank."""
        number = self._num_collectives
        self._num_collectives += 1
        verb = f"{verb} of {tuple(tensor.shape)} {tensor.dtype}"
        world = self._world
        with world.changed:
            world.raise_if_aborted()
            slot = world.slots.setdefault(number, _Slot(verb))
            if slot.verb != verb:
                first = min(slot.rows)
                error = RuntimeError(
                    f"collective {number} is {slot.verb} on rank {first}, but {verb} on rank "
                    f"{self.rank}; all ranks must call the same"
                )
                world.abort(error)
                raise error
            slot.rows[self.rank] = tensor.detach().clone()
            world.changed.notify_all()
            world.wait(self.rank, lambda: len(slot.rows) == world.size, f"all ranks in {verb}")
            slot.num_readers += 1
            if slot.num_readers == world.size:
                del world.slots[number]
        return [slot.rows[rank] for rank in range(world.size)]


@dataclass(eq=False)
class _SendWork:
    group: ThreadGroup
    message: _Message
    what: str

    def wait(self) -> None:
        self.group.wait(self.message, self.what)
        before, now = self.message.content, self.message.tensor
        assert before is not None
        is_same = torch.equal(before.flatten().view(torch.uint8), now.flatten().view(torch.uint8))
        assert is_same, "a sent tensor changed before wait()"


@dataclass(eq=False)
class _ReceiveWork:
    group: ThreadGroup
    message: _Message
    what: str

    def wait(self) -> None:
        self.group.wait(self.message, self.what)
        assert self.message.content is not None
        self.message.tensor.copy_(self.message.content.view_as(self.message.tensor))


def run_ranks(size: int, fn: Callable[[Group], T], *, timeout_s: float = 240) -> list[T]:
    """Run a function on every rank of a group of threads.

    Args:
        size: Number of ranks.
        fn: Work of each rank.
        timeout_s: Longest wait of a rank, and of the whole call.

    Returns:
        Results of fn, in rank order.

    Raises:
        RuntimeError: If time is up, all ranks wait for each other, or their calls do not fit.
        Exception: The first error a rank raised; it ends the waits of all other ranks.
    """
    world = _World(size, timeout_s)
    results: dict[int, T] = {}

    def run(rank: int) -> None:
        try:
            results[rank] = fn(ThreadGroup(world, rank))
        except BaseException as error:  # noqa: BLE001  (raised again by the calling thread)
            world.abort(error)
        finally:
            with world.changed:
                world.num_finished += 1
                world.changed.notify_all()

    threads = [
        threading.Thread(target=run, args=(rank,), daemon=True, name=f"rank-{rank}")
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    # A rank whose own wait is too long says more, so let it speak first.
    deadline_s = time.monotonic() + timeout_s + _HEAD_START_S
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    running = [str(rank) for rank, thread in enumerate(threads) if thread.is_alive()]
    if running and world.first_error is None:
        world.abort(RuntimeError(f"ranks {', '.join(running)} still ran after {timeout_s:g} s"))
    if world.first_error is not None:
        raise world.first_error
    return [results[rank] for rank in range(size)]
