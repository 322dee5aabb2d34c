"""Cost of messages, measured with gloo over this machine's loopback interface."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch._C._distributed_c10d import AllreduceOptions, HashStore, ProcessGroupGloo

from distgnn.comm.transports.watched import first_line
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
# An end is a ProcessGroupGloo, whose stubs leave out what it does.

_HOST = "127.0.0.1"
_TIMEOUT = timedelta(seconds=60)
_TAG = 1
# Short messages, and long ones beside which the cost of a message does not count.
_SHORT_BYTES, _NUM_SHORT = 1 << 10, 32
_LONG_BYTES, _NUM_LONG = 1 << 20, 8
_NUM_PINGS = 50
_ROUNDS = 4


class MessageCost(NamedTuple):
    """Time that messages take of a rank's processor.

    Attributes:
        message_s: Seconds to send a message, and the same to receive one.
        byte_s: Seconds to send a byte, and the same to receive one.
    """

    message_s: float
    byte_s: float


class Loopback(NamedTuple):
    """Costs that were measured.

    Attributes:
        toll: Cost of messages.
        latency_s: Half of a round trip of a short message, waking up included.
        step_s: Seconds of a step of a ring that sums, without the latency of its message.
    """

    toll: MessageCost
    latency_s: float
    step_s: float


def try_loopback() -> Loopback:
    """Send messages between two threads of this process, in some tenths of a second.

    The kernel's TCP, gloo and the thread that gloo works with are those of ranks on machines of
    their own. The network is not.

    Returns:
        The times of the tries that other work on the machine disturbed least.

    Raises:
        InputError: If this machine has no loopback interface.
    """
    store = HashStore()

    def open_end(rank: int) -> Any:
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = [ProcessGroupGloo.create_device(hostname=_HOST)]
        options._timeout = _TIMEOUT
        return ProcessGroupGloo(store, rank, 2, options)

    try:
        ends = _on_both(open_end)
    except RuntimeError as error:
        raise InputError(
            f"gloo cannot send to {_HOST} of this machine ({first_line(error)}); set up its "
            "loopback interface, or plan on another machine"
        ) from error
    short_s = _processor_seconds(ends, _SHORT_BYTES, _NUM_SHORT)
    long_s = _processor_seconds(ends, _LONG_BYTES, _NUM_LONG)
    byte_s = max(long_s - short_s, 0.0) / (_LONG_BYTES - _SHORT_BYTES)
    # Half of what a message takes of both ends.
    toll = MessageCost(max(short_s - byte_s * _SHORT_BYTES, 0.0) / 2, byte_s / 2)
    latency_s = _round_trip_seconds(ends) / 2
    # A ring of two takes two steps.
    return Loopback(toll, latency_s, max(_reduction_seconds(ends) / 2 - latency_s, 0.0))


def _on_both(action: Callable[[int], T]) -> list[T]:
    """Run an action for both ranks at once."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(action, range(2)))


def _processor_seconds(ends: list[Any], num_bytes: int, number: int) -> float:
    """Processor time of a message, at both ends together."""
    tables = [torch.zeros(2 * number, num_bytes, dtype=torch.uint8) for _ in ends]

    def exchange(rank: int) -> None:
        into, out = tables[rank][:number], tables[rank][number:]
        works = [ends[rank].recv([row], 1 - rank, _TAG) for row in into]
        works += [ends[rank].send([row], 1 - rank, _TAG) for row in out]
        for work in works:
            work.wait()

    found = []
    for _ in range(_ROUNDS):
        start = time.process_time()
        _on_both(exchange)
        found.append(time.process_time() - start)
    return min(found[1:]) / (2 * number)


def _round_trip_seconds(ends: list[Any]) -> float:
    """Time of a word to the other end and back."""
    found: list[float] = []

    def bounce(rank: int) -> None:
        word, end, peer = torch.zeros(1, dtype=torch.int64), ends[rank], 1 - rank
        for _ in range(_NUM_PINGS):
            start = time.perf_counter()
            if rank == 0:
                end.send([word], peer, _TAG).wait()
            end.recv([word], peer, _TAG).wait()
            if rank == 1:
                end.send([word], peer, _TAG).wait()
            else:
                found.append(time.perf_counter() - start)

    _on_both(bounce)
    return statistics.quantiles(found, n=10)[0]


def _reduction_seconds(ends: list[Any]) -> float:
    """Time of a sum of a word over both ends, as long as the slower takes."""

    def add(rank: int) -> list[float]:
        word, found = torch.zeros(1), []
        for _ in range(_NUM_PINGS):
            start = time.perf_counter()
            ends[rank].allreduce([word], AllreduceOptions()).wait()
            found.append(time.perf_counter() - start)
        return found

    slower: list[float] = [max(pair) for pair in zip(*_on_both(add), strict=True)]
    return statistics.quantiles(slower, n=10)[0]
