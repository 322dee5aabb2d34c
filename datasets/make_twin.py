"""Write a twin of a published graph as an array folder, slice by slice."""

from __future__ import annotations

import os
import shutil
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from distgnn.datasets import streamed
from distgnn.datasets.buckets import Buckets
from distgnn.datasets.disk import check_room
from distgnn.datasets.errors import InputError
from distgnn.datasets.flat_array import FlatWriter
from distgnn.datasets.streamed import BLOCK, TWINS, Sketch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Pair = tuple[NDArray[np.int64], NDArray[np.int64]]

ORDERS = ("shuffled", "sorted", "reversed")
FEATURES = ("none", "random")
# Edges that are sorted at once: 64 MiB of keys.
_BUCKET_EDGES = 1 << 23
_MOST_BUCKETS = 512
_REPORT_EDGES = 1 << 26
# The smallest share of a mask is 0.1 %: all of so many vertices miss it once in e**10 graphs.
_SOUND_VERTICES = 10_000
_MASKS = ("train_mask", "val_mask", "test_mask")
Result = TypeVar("Result")


def make(
    name: str,
    folder: str | Path,
    *,
    scale: float = 1.0,
    seed: int = 0,
    features: str = "none",
    order: str = "shuffled",
    threads: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Sketch:
    """Write a twin as an array folder, which appears under its name when it is complete.

    The files depend on the name, the scale, the seed and the order alone.

    Args:
        name: A key of `TWINS`.
        folder: The folder to write.
        scale: Vertices over those of the original, in (0, 1].
        seed: At least 0.
        features: "random" or "none".
        order: Order of the edges: "shuffled" as they are drawn, "sorted" by source and destination,
            or "reversed", from the last of those to the first.
        threads: At least 1; None takes all cores.
        progress: Called with one line of text now and then.

    Returns:
        The sketch that was drawn from, with the numbers of vertices and edges.

    Raises:
        InputError: If an argument is not allowed, a mask would be empty, the folder exists, or the
            disk lacks room.
    """
    folder = Path(folder)
    for word, value, allowed in (
        ("a twin", name, tuple(TWINS)),
        ("order", order, ORDERS),
        ("features", features, FEATURES),
    ):
        if value not in allowed:
            raise InputError(f"{word} must be one of {', '.join(allowed)}, got {value!r}")
    if not 0 < scale <= 1:
        raise InputError(f"the scale must be above 0 and at most 1, got {scale:g}")
    graph = streamed.sketch(TWINS[name], scale, seed)
    check_masks(graph, scale)
    has_features = features == "random"
    if folder.exists():
        raise InputError(f"'{folder}' exists; choose another folder or remove it")
    is_sorted = order != "shuffled"
    check_room(folder, _num_bytes(graph, has_features=has_features, is_sorted=is_sorted))
    threads = threads or len(os.sched_getaffinity(0))
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    temporary.mkdir()
    try:
        with ThreadPoolExecutor(threads) as pool:
            _write_edges(graph, temporary, order, (pool, threads), progress)
            _write_vertices(graph, temporary, (pool, threads), has_features=has_features)
        np.save(temporary / "num_vertices.npy", np.asarray(graph.num_vertices))
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return graph


def check_masks(graph: Sketch, scale: float) -> None:
    """Refuse a graph so small that no vertex is drawn for a mask: nothing reads it.

    Args:
        graph: Sketch to draw from.
        scale: Scale of it, for the message.

    Raises:
        InputError: If a mask would be empty.
    """
    if graph.num_vertices > BLOCK:
        return
    sound = _SOUND_VERTICES / graph.twin.num_vertices
    for name, mask in zip(_MASKS, streamed.vertices(graph, 0)[1], strict=True):
        if not mask.any():
            raise InputError(
                f"the scale {scale:g} gives {graph.num_vertices} vertices, none of them in the "
                f"{name}; use a larger scale, such as {sound:.0e}"
            )


def _num_bytes(graph: Sketch, *, has_features: bool, is_sorted: bool) -> int:
    """Room on disk, that for sorting included."""
    edge_bytes = 2 * _id_type(graph).itemsize + (8 if is_sorted else 0)
    vertex_bytes = 5 + (4 * graph.twin.num_features if has_features else 0)
    return graph.num_edges * edge_bytes + graph.num_vertices * vertex_bytes


def _id_type(graph: Sketch) -> np.dtype[Any]:
    return np.dtype(np.int32 if graph.num_vertices <= np.iinfo(np.int32).max else np.int64)


def _write_edges(
    graph: Sketch,
    folder: Path,
    order: str,
    crew: tuple[ThreadPoolExecutor, int],
    progress: Callable[[str], None] | None,
) -> None:
    slices: Iterator[Pair] = _in_order(
        partial(streamed.edges, graph), -(-graph.num_edges // BLOCK), crew
    )
    if order != "shuffled":
        slices = _sorted_pairs(slices, graph, folder, is_reversed=order == "reversed")
    kind = _id_type(graph)
    num_done = 0
    with ExitStack() as stack:
        writers = [
            stack.enter_context(FlatWriter(folder / f"{end}.npy", kind)) for end in ("src", "dst")
        ]
        for src, dst in slices:
            writers[0].append(src)
            writers[1].append(dst)
            num_done += src.size
            if progress is not None and num_done % _REPORT_EDGES < src.size:
                progress(f"{num_done} of {graph.num_edges} edges")


def _sorted_pairs(
    slices: Iterator[Pair], graph: Sketch, folder: Path, *, is_reversed: bool
) -> Iterator[Pair]:
    """Sort edges by source, then destination; yield them in slices."""
    num_buckets = min(-(-graph.num_edges // _BUCKET_EDGES), _MOST_BUCKETS)
    with Buckets(folder, num_buckets, np.dtype(np.int64)) as buckets:
        for src, dst in slices:
            buckets.throw(src * graph.num_vertices + dst, src * num_buckets // graph.num_vertices)
        numbers = range(num_buckets)
        for number in reversed(numbers) if is_reversed else numbers:
            key = buckets.take(number)
            key.sort()
            src, dst = np.divmod(key[::-1] if is_reversed else key, graph.num_vertices)
            yield src, dst


def _write_vertices(
    graph: Sketch, folder: Path, crew: tuple[ThreadPoolExecutor, int], *, has_features: bool
) -> None:
    num_blocks = -(-graph.num_vertices // BLOCK)
    kinds = ("labels", np.dtype(np.int16)), *((name, np.dtype(np.bool_)) for name in _MASKS)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(FlatWriter(folder / f"{name}.npy", kind)) for name, kind in kinds
        ]
        for labels, masks in _in_order(partial(streamed.vertices, graph), num_blocks, crew):
            for writer, values in zip(writers, (labels, *masks), strict=True):
                writer.append(values)
    if has_features:
        columns = graph.twin.num_features
        kind = np.dtype(np.float32)
        with FlatWriter(folder / "features.npy", kind, num_columns=columns) as writer:
            for rows in _in_order(partial(streamed.features, graph), num_blocks, crew):
                writer.append(rows)


def _in_order(
    function: Callable[[int], Result], count: int, crew: tuple[ThreadPoolExecutor, int]
) -> Iterator[Result]:
    """Call a function of 0 .. count - 1 on all threads, a few calls ahead of what is taken."""
    pool, threads = crew
    numbers = iter(range(count))
    waiting = deque(pool.submit(function, k) for k in islice(numbers, 2 * threads))
    while waiting:
        result = waiting.popleft().result()
        waiting.extend(pool.submit(function, k) for k in islice(numbers, 1))
        yield result
