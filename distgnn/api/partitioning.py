"""Partitioning: from a graph to a partition directory."""

from __future__ import annotations

import math
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.api.columns import LABEL_TASKS
from distgnn.api.methods import chosen_method, given_parts, run_method, takes_narrow
from distgnn.api.on_disk import is_finishing, partition_on_disk, stays_on_disk
from distgnn.api.partition import Partition
from distgnn.api.partition_options import ON, PartitionOptions
from distgnn.api.set_aside import disk_of, is_mapped, with_features_aside
from distgnn.api.settings import Keywords, checked
from distgnn.api.source import SWITCHES, load_graph, options_of
from distgnn.api.use import check_no_session, write_note
from distgnn.datasets.errors import InputError
from distgnn.datasets.limits import available_memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from distgnn.api.source import SourceOptions
    from distgnn.datasets.graph import Graph
    from distgnn.partition.directory.manifest import Manifest
    from distgnn.partition.methods.auto import MethodChoice


def partition_graph(
    source: Any,
    parts: int,
    out: str | os.PathLike[str],
    *,
    method: str | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    overwrite: bool = False,
    quiet: bool = True,
    **settings: Any,
) -> Partition:
    """Cut a graph into parts, one per rank.

    Args:
        source: Name of a data set or a file; or a graph in memory: a `Graph`, or one of PyG, DGL,
            scipy or networkx.
        parts: Number of parts.
        out: Partition directory to write.
        method: Name of the method, or auto for the best one that fits into memory; None for metis.
        options: Options of the method by name, such as {"vertex_balance": 1.1}.
        seed: Seed of the method, the order and the splits.
        overwrite: Whether to replace an existing partition directory.
        quiet: Whether to show no notes.
        settings: The other flags of `distgnn partition` with underscores for dashes, such as
            undirected, split, refine, imbalance, order, out_of_core.

    Returns:
        The partition.

    Raises:
        InputError: If a setting is unknown or not allowed, the graph cannot be read, or the
            directory cannot be written.
    """
    words = Keywords("partition_graph", {**settings, "seed": seed})
    given = words.fields_of(
        PartitionOptions, but=("source", "parts", "out", "say", "method", "option", "overwrite")
    )
    asked = PartitionOptions(
        options_of(words, source),
        checked("parts", parts, "int"),
        os.fspath(out),
        write_note if not quiet else _ignore,
        method=method,
        option=tuple(f"{name}={value}" for name, value in (options or {}).items()),
        overwrite=overwrite,
        **given,
    )
    words.refuse_others(("parts", "out", "method", "options", "overwrite", "quiet"))
    task = words.take("task", LABEL_TASKS[0])
    if task not in LABEL_TASKS:
        raise InputError(f"--task must be {' or '.join(LABEL_TASKS)} here, got '{task}'")
    check_no_session("partition_graph")
    make_partition(asked)
    return Partition(out)


def _ignore(line: str) -> None:
    """Show nothing."""


def make_partition(asked: PartitionOptions, *, is_shared: bool = False) -> Manifest | None:
    """Partition a graph, in memory or out of core.

    Args:
        asked: Partition that is asked for.
        is_shared: Whether all ranks of a job call this, so that they may share the work.

    Returns:
        The manifest as written; None on other ranks than the first.

    Raises:
        InputError: If options exclude each other, several ranks were started, the graph cannot be
            read, or the directory cannot be written.
    """
    from distgnn.comm import early
    from distgnn.comm.launch import detect
    from distgnn.partition import METHODS
    from distgnn.partition.orders import ORDERS

    launch = detect()
    if launch.size > 1 and not (is_shared and asked.out_of_core == ON):
        raise InputError(
            f"distgnn partition runs in one process, but {launch.size} were started; run it "
            "without mpirun, or with --out-of-core on, which shares the work among ranks"
        )
    for name, value, allowed in (
        ("--method", asked.method, (*METHODS, "auto", None)),
        ("--order", asked.order, tuple(ORDERS)),
        ("--out-of-core", asked.out_of_core, ("auto", "on", "off")),
    ):
        if value not in allowed:
            shown = ", ".join(str(one) for one in allowed if one)
            raise InputError(f"{name} must be one of {shown}, got '{value}'")
    if asked.parts < 1:
        raise InputError(f"--parts must be at least 1, got {asked.parts}")
    parts = given_parts(asked)
    is_on_disk = asked.source.graph is None and stays_on_disk(asked)
    if not (is_on_disk and is_finishing(asked)):
        check_out(asked.out, is_overwriting=asked.overwrite)
    if launch.size > 1:
        # Ranks meet in the work folder alone: from now on the first says what is wrong.
        early.end()
    return partition_on_disk(asked, launch) if is_on_disk else _in_memory(asked, parts)


def _check_pairs(num_parts: int) -> None:
    """Refuse numbers of parts of which the pairs alone do not fit into memory."""
    from distgnn.partition.quality import PAIR_BYTES

    needed, free = PAIR_BYTES * num_parts**2, available_memory()
    if needed > free:
        raise InputError(
            f"--parts {num_parts} takes about {needed / 2**30:.1f} GiB for counts of rows between "
            f"each two parts, but {free / 2**30:.1f} GiB are free; use at most "
            f"{math.isqrt(free // PAIR_BYTES)}"
        )


def _in_memory(asked: PartitionOptions, parts: NDArray[Any] | None) -> Manifest:
    """Load, and cut what was loaded."""
    start, source = time.perf_counter(), asked.source.located(asked.say)
    graph = load_graph(source.to_json(), asked.say, source.graph)
    if source.graph is None:
        graph = with_features_aside(graph, disk_of(asked.out))
    _check_and_tell(asked, graph, start)
    chosen = chosen_method(asked, graph) if parts is None else parts
    # A caller holds on to its graph, and the system drops mapped ends while memory is short.
    if source.graph is None and takes_narrow(chosen) and not is_mapped(graph.src):
        graph = graph.narrowed()
    return _cut(asked, graph, chosen, source, start)


def _check_and_tell(asked: PartitionOptions, graph: Graph, start: float) -> None:
    """Check the number of parts, and tell the size of the graph."""
    if asked.parts > graph.num_vertices:
        raise InputError(
            f"--parts {asked.parts} asks for more parts than graph '{graph.name}' has "
            f"vertices; use at most {graph.num_vertices}"
        )
    _check_pairs(asked.parts)
    of_edges = f", {graph.num_edge_features} features of edges" if graph.num_edge_features else ""
    asked.say(
        f"{graph.name}: {graph.num_vertices} vertices, {graph.num_edges} edges, "
        f"{graph.num_features} features{of_edges} ({time.perf_counter() - start:.1f} s)"
    )


def _cut(
    asked: PartitionOptions,
    graph: Graph,
    chosen: MethodChoice | NDArray[Any],
    source: SourceOptions,
    start: float,
) -> Manifest:
    """Assign, build and write."""
    from distgnn.partition import orders, quality
    from distgnn.partition.directory import store
    from distgnn.partition.threads import available_threads

    assignment, method, options = run_method(asked, graph, chosen)
    asked.say(f"assigned by {method} ({time.perf_counter() - start:.1f} s so far)")
    threads = available_threads()
    order = orders.arrange(
        asked.order, graph, assignment, seed=asked.seed, progress=asked.say, threads=threads
    )
    asked.say(f"vertices in {asked.order} order ({time.perf_counter() - start:.1f} s so far)")
    measured = quality.measure(graph, assignment)
    return store.write(
        asked.out,
        graph,
        assignment,
        method=method,
        options={**_source_record(source), **options},
        seed=asked.seed,
        quality=measured,
        order=order,
        order_name=asked.order,
        overwrite=asked.overwrite,
        progress=asked.say,
        threads=threads,
        # The rest is for those that begin meanwhile, and for pages of the files.
        memory_bytes=available_memory() // 2,
    )


def _source_record(source: SourceOptions) -> dict[str, Any]:
    """Return what was done to the edges and masks of the source, for the manifest."""
    names = (*SWITCHES, "split", "edge_split")
    return {name: getattr(source, name) for name in names}


def check_out(out: str, *, is_overwriting: bool) -> None:
    """Check before the work that the directory may be written, and that nothing else gets lost.

    Args:
        out: Partition directory to write.
        is_overwriting: Whether a partition there may be replaced.

    Raises:
        InputError: If not.
    """
    from distgnn.partition.directory import store

    if not is_overwriting and store.is_partition_directory(out):
        raise InputError(
            f"'{out}' already holds a partition; replace it with --overwrite or choose another "
            "--out"
        )
    others = store.foreign_names(out) if store.is_partition_directory(out) else []
    if others:
        raise InputError(
            f"--overwrite would remove '{others[0]}' in '{out}', which is not of the partition; "
            "move it away or choose another --out"
        )
    store.check_target(out, overwrite=is_overwriting)
    _try_to_write(Path(out).absolute())


def _try_to_write(target: Path) -> None:
    """Make and remove a folder where the partition will go; permissions alone tell too little."""
    beside = next(path for path in target.parents if path.exists())
    try:
        Path(tempfile.mkdtemp(prefix=".distgnn-", dir=beside)).rmdir()
    except OSError as error:
        raise InputError(
            f"cannot write '{target}': {error.strerror}; choose another --out"
        ) from error
