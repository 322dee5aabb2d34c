"""Parts on several threads, in their order: what comes of them does not depend on how many."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")
Result = TypeVar("Result")

# Each holds a part of its own; disks and memory seldom serve more.
MOST_THREADS = 4
# From so many items on several threads pay.
MANY_ITEMS = 1 << 20


def available_threads() -> int:
    """Count the cores that this process may use, up to MOST_THREADS."""
    return min(len(os.sched_getaffinity(0)), MOST_THREADS)


def threads_for(num_items: int) -> int:
    """Count the threads that pay for items of which each takes nanoseconds.

    Args:
        num_items: How many there are.

    Returns:
        At least 1.
    """
    return available_threads() if num_items >= MANY_ITEMS else 1


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


def over_rows(
    work: Callable[..., Result], indptr: NDArray[np.int64], *given: object
) -> list[Result]:
    """Call work(first, last, ...) for ranges of rows with about as many entries each.

    Every call writes what is of its own rows, so that no result depends on how many there are.

    Args:
        work: Called on several threads where there are many entries.
        indptr: (num_rows + 1,) int64. Where the entries of each row begin.
        given: Its other arguments.

    Returns:
        Result of each call.
    """
    threads = threads_for(int(indptr[-1]))
    return over_bounds(work, even_bounds(indptr, 0, indptr.size - 1, threads), *given)


def over_items(work: Callable[..., Result], num_items: int, *given: object) -> list[Result]:
    """Call work(first, last, ...) for ranges of about as many items each.

    Args:
        work: Called on several threads where there are many items.
        num_items: How many there are.
        given: Its other arguments.

    Returns:
        Result of each call.
    """
    return over_bounds(work, item_bounds(num_items, threads_for(num_items)), *given)


def over_bounds(
    work: Callable[..., Result], bounds: list[int], *given: object, own: Iterable[Any] | None = None
) -> list[Result]:
    """Call work(first, last, ...) for each range on a thread of its own.

    Args:
        work: Function to call.
        bounds: Where each range begins, and where the last one ends.
        given: Its other arguments.
        own: One more argument of each call, before these; None without.

    Returns:
        Result of each call.
    """
    ranges: Iterable[tuple[Any, ...]] = pairwise(bounds)
    if own is not None:
        ranges = [(*each, mine) for each, mine in zip(ranges, own, strict=True)]
    with in_order(lambda each: work(*each, *given), ranges, len(bounds) - 1) as returned:
        return list(returned)


def item_bounds(num_items: int, threads: int) -> list[int]:
    """Cut items into ranges of about as many each.

    Args:
        num_items: How many there are.
        threads: Ranges to make.

    Returns:
        Where each of the ranges begins, and where the last one ends.
    """
    bounds: list[int] = (num_items * np.arange(threads + 1) // threads).tolist()
    return bounds


def places_of(
    counts: list[NDArray[np.int64]],
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """Find where things go that are sorted by counting, range after range.

    Args:
        counts: (num_groups,) int64 of each range. Its things in each group; become its places.

    Returns:
        start: (num_groups + 1,) int64. Where each group begins.
        places: (num_groups,) int64 of each range. Where its first thing of each group goes: behind
            those of the ranges before it.
    """
    start = np.zeros(counts[0].size + 1, np.int64)
    for count in counts:
        start[1:] += count
    np.cumsum(start, out=start)
    # In the arrays that there are: of as many vertices as edges, others would double the memory.
    places = start[:-1].copy()
    for count in counts:
        places += count
        np.subtract(places, count, out=count)
    return start, counts


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
