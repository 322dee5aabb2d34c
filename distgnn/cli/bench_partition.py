"""`distgnn bench partition` and `distgnn bench directories`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distgnn.bench import directories, partition
from distgnn.cli.output import note, table
from distgnn.datasets import load
from distgnn.partition import METHODS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from distgnn.datasets.graph import Graph

_BENCHES: dict[str, Any] = {"partition": partition, "directories": directories}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark alone."""
    group = parser.add_argument_group("partition, directories")
    group.add_argument(
        "--methods",
        metavar="A,B,...",
        help=f"as ne or, refined afterwards, ne{partition.REFINED}; default: {','.join(METHODS)}; "
        "directories: metis,dgl-metis,dgl-libra",
    )
    group.add_argument("--parts", metavar="P1,P2,...", help="default: 4,16,64; directories: 16")


def results(
    arguments: argparse.Namespace, methods: Sequence[str], parts: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Measure each method, or each whole program, on each graph.

    Args:
        arguments: Arguments of the verb.
        methods: Names of methods.
        parts: Numbers of parts.

    Yields:
        One result per graph, number of parts and method.

    Raises:
        InputError: If a method is unknown or not installed, or a graph cannot be loaded.
    """
    bench = _BENCHES[arguments.what]
    bench.check_methods(methods, tuple(METHODS))
    race = partition.PartitionRace(methods=methods, parts=parts, seed=arguments.seed)
    for graph in _graphs(arguments):
        for result in bench.measure(graph, race, progress=note):
            note(" ".join(bench.row(result)))
            yield result


def lines(what: str, found: Sequence[dict[str, Any]]) -> list[str]:
    """Show results to people; balances are largest over mean.

    Args:
        what: Name of the benchmark.
        found: Results of it.
    """
    bench = _BENCHES[what]
    return table(bench.HEADER, [bench.row(result) for result in found])


def _graphs(arguments: argparse.Namespace) -> Iterator[Graph]:
    for source in arguments.files:
        yield load(source)
    default = () if arguments.files else ("reddit", "products")
    names = arguments.shapes.split(",") if arguments.shapes else default
    orders = arguments.orders.split(",") if arguments.orders else ("random",)
    for name in names:
        for order in orders:
            yield partition.twin(name, scale=arguments.scale, order=order, seed=arguments.seed)
