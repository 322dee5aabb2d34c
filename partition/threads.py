"""Parts on several threads, in their order: what comes of them does not depend on how many."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")
Result = TypeVar("Result")

# Each holds a part of its own; disks and memory seldom serve more.
MOST_THREADS = 4


def available_threads() -> int:
    """Count the cores that this process may use, up to MOST_THREADS."""
    return min(len(os.sched_getaffinity(0)), MOST_THREADS)


def affordable_threads(threads: int, bytes_of_each: int, memory_bytes: int | None) -> int:
    """Limit threads so that what they work on fits into memory together.

    Args:
        threads: Largest number of threads.
        bytes_of_each: Bytes that one takes.
        memory_bytes: Bytes that all may take together; None for any amount.

    Returns:
        At least 1.
    """
    if memory_bytes is None:
        return threads
    return max(1, min(threads, memory_bytes // max(bytes_of_each, 1)))


def even_bounds(indptr: NDArray[np.int64], first: int, last: int, threads: int) -> list[int]:
    """Cut a range of rows into one for each thread, with about as many entries each.

    Args:
        indptr: (num_rows + 1,) int64. Where the entries of each row begin.
        first: First row of the range.
        last: Row behind it.
        threads: At least 1.

    Returns:
        Where each of the ranges begins, and where the last one ends.
    """
    begin, end = int(indptr[first]), int(indptr[last])
    shares = begin + (end - begin) * np.arange(1, threads) // threads
    inner = np.searchsorted(indptr[first : last + 1], shares) + first
    return [first, *inner.tolist(), last]


@contextmanager
def in_order(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[Iterator[Result]]:
    """Work on several items at a time, and give what comes of them in the order of the items.

    Args:
        work: Called with one item, on any thread.
        items: Items to work on; taken as threads get free.
        threads: At least 1, which is the caller's own.

    Yields:
        The results. What `work` raises is raised there; no thread outlives the context.
    """
    if threads == 1:
        yield map(work, items)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        yield _results(pool, work, items, threads)
    finally:
        pool.shutdown(cancel_futures=True)


def _results(
    pool: ThreadPoolExecutor, work: Callable[[Item], Result], items: Iterable[Item], most: int
) -> Iterator[Result]:
    """Keep at most so many items in hand."""
    in_hand: deque[Future[Result]] = deque()
    for item in items:
        if len(in_hand) == most:
            yield in_hand.popleft().result()
        in_hand.append(pool.submit(work, item))
    while in_hand:
        yield in_hand.popleft().result()
