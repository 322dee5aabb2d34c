"""`distgnn partition`."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.api.source import load_graph
from distgnn.cli.flags import MAX_SEED, path, whole
from distgnn.cli.inspect_text import quality_lines
from distgnn.cli.inspect_verb import manifest_json
from distgnn.cli.method import add_method_arguments, given_parts, run_method
from distgnn.cli.on_disk import (
    add_disk_arguments,
    is_finishing,
    partition_on_disk,
    stays_on_disk,
)
from distgnn.cli.output import add_json_flag, note, print_json, print_lines
from distgnn.cli.source import add_source_arguments, source_options
from distgnn.datasets.errors import InputError
from distgnn.machine.limits import available_memory
from distgnn.partition.orders import DEFAULT_ORDER, ORDERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.partition.directory.manifest import Manifest

HELP = "cut a graph into parts, one per rank"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_source_arguments(parser, or_parts=False)
    parser.add_argument(
        "--parts", type=whole(1), required=True, metavar="P", help="number of parts"
    )
    parser.add_argument(
        "--out", type=path, required=True, metavar="DIR", help="partition directory to write"
    )
    add_method_arguments(parser)
    add_order_argument(parser)
    parser.add_argument(
        "--seed",
        type=whole(0, MAX_SEED),
        default=0,
        metavar="S",
        help="of the method, the order, --split and --edge-split (default: %(default)s)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an existing partition directory"
    )
    add_disk_arguments(parser)
    add_json_flag(parser)


def add_order_argument(parser: argparse.ArgumentParser) -> None:
    """Add how vertices lie inside a part."""
    parser.add_argument(
        "--order",
        default=DEFAULT_ORDER,
        metavar="NAME",
        type=_order,
        help="of the vertices inside a part, which decides how often a row that one of them reads "
        f"is still in cache; one of {', '.join(ORDERS)} (default: %(default)s)",
    )


def _order(text: str) -> str:
    if text not in ORDERS:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(ORDERS)}, got '{text}'")
    return text


def run(arguments: argparse.Namespace) -> int:
    """Partition, and report."""
    from distgnn.comm.launch import detect

    if detect().size > 1:
        raise InputError(
            f"distgnn partition runs in one process, but {detect().size} were started; "
            "run it without mpirun"
        )
    parts = given_parts(arguments)
    is_on_disk = stays_on_disk(arguments)
    if not (is_on_disk and is_finishing(arguments)):
        check_out(arguments.out, is_overwriting=arguments.overwrite)
    start = time.perf_counter()
    manifest = partition_on_disk(arguments) if is_on_disk else _in_memory(arguments, parts)
    seconds = time.perf_counter() - start
    if arguments.json:
        print_json({**manifest_json(manifest), "directory": arguments.out, "total_s": seconds})
    else:
        print_lines([*quality_lines(manifest), f"wrote {arguments.out} in {seconds:.1f} s"])
    return 0


def _in_memory(arguments: argparse.Namespace, parts: NDArray[Any] | None) -> Manifest:
    """Load, assign, build and write."""
    from distgnn.partition import orders, quality
    from distgnn.partition.directory import store
    from distgnn.partition.threads import available_threads

    start = time.perf_counter()
    graph = load_graph(source_options(arguments).located(note).to_json(), note)
    if arguments.parts > graph.num_vertices:
        raise InputError(
            f"--parts {arguments.parts} asks for more parts than graph '{graph.name}' has "
            f"vertices; use at most {graph.num_vertices}"
        )
    of_edges = f", {graph.num_edge_features} features of edges" if graph.num_edge_features else ""
    note(
        f"{graph.name}: {graph.num_vertices} vertices, {graph.num_edges} edges, "
        f"{graph.num_features} features{of_edges} ({time.perf_counter() - start:.1f} s)"
    )
    assignment, method, options = run_method(arguments, graph, parts)
    note(f"assigned by {method} ({time.perf_counter() - start:.1f} s so far)")
    threads = available_threads()
    order = orders.arrange(
        arguments.order, graph, assignment, seed=arguments.seed, progress=note, threads=threads
    )
    note(f"vertices in {arguments.order} order ({time.perf_counter() - start:.1f} s so far)")
    measured = quality.measure(graph, assignment)
    return store.write(
        arguments.out,
        graph,
        assignment,
        method=method,
        options={**_source_options(arguments), **options},
        seed=arguments.seed,
        quality=measured,
        order=order,
        order_name=arguments.order,
        overwrite=arguments.overwrite,
        progress=note,
        threads=threads,
        # The rest is for those that begin meanwhile, and for pages of the files.
        memory_bytes=available_memory() // 2,
    )


def _source_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was done to the edges and masks of the source, for the record."""
    names = ("undirected", "inverse_relations", "one_hot", "split", "edge_split")
    return {name: getattr(arguments, name) for name in names}


def check_out(out: str, *, is_overwriting: bool) -> None:
    """Check before the work that the directory may be written, and that nothing else gets lost.

    Args:
        out: Where a partition is to go.
        is_overwriting: Whether one that is there may be replaced.

    Raises:
        InputError: If not.
    """
    from distgnn.partition.directory import store

    if not is_overwriting and store.is_partition_directory(out):
        raise InputError(
            f"'{out}' already holds a partition; replace it with --overwrite or choose another "
            "--out"
        )
    store.check_target(out, overwrite=is_overwriting)
    _try_to_write(Path(out).absolute())
    others = store.foreign_names(out) if store.is_partition_directory(out) else []
    if others:
        raise InputError(
            f"--overwrite would remove '{others[0]}' in '{out}', which is not of the partition; "
            "move it away or choose another --out"
        )


def _try_to_write(target: Path) -> None:
    """Make and remove a folder where the partition will go; permissions alone tell too little."""
    beside = next(path for path in target.parents if path.exists())
    try:
        Path(tempfile.mkdtemp(prefix=".distgnn-", dir=beside)).rmdir()
    except OSError as error:
        raise InputError(
            f"cannot write '{target}': {error.strerror}; choose another --out"
        ) from error
