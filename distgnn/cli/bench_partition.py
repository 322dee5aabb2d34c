"""`distgnn bench partition` and `distgnn bench directories`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distgnn.bench import directories, partition, peers
from distgnn.cli.output import note, table
from distgnn.datasets import load
from distgnn.datasets.errors import InputError
from distgnn.partition import METHODS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from distgnn.datasets.graph import Graph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark alone."""
    group = parser.add_argument_group("partition, directories")
    group.add_argument(
        "--methods",
        metavar="A,B,...",
        help=f"as ne or, refined afterwards, ne{partition.REFINED}; default: {','.join(METHODS)}",
    )
    group.add_argument("--parts", metavar="P1,P2,...", help="default: 4,16,64")


def results(
    arguments: argparse.Namespace, methods: Sequence[str], parts: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Measure each method on each graph.

    Args:
        arguments: Arguments of the verb.
        methods: Names of methods.
        parts: Numbers of parts.

    Yields:
        One result per graph, number of parts and method.

    Raises:
        InputError: If a method is unknown, or a graph cannot be loaded.
    """
    for method in methods:
        if method.removesuffix(partition.REFINED) not in METHODS:
            raise InputError(
                f"--methods must be of {', '.join(METHODS)}, each with or without "
                f"{partition.REFINED}, got '{method}'"
            )
    plan = partition.PartitionPlan(methods=methods, parts=parts, seed=arguments.seed)
    for graph in _graphs(arguments):
        for result in partition.measure(graph, plan, progress=note):
            note(" ".join(partition.row(result)))
            yield result


def results_of_directories(
    arguments: argparse.Namespace, methods: Sequence[str], parts: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Measure whole programs on each graph.

    Args:
        arguments: Arguments of the verb.
        methods: Names from METHODS or `directories.PEERS`.
        parts: Numbers of parts.

    Yields:
        One result per graph, number of parts and method.

    Raises:
        InputError: If a method is unknown, DGL is not installed, or a graph cannot be loaded.
    """
    for method in methods:
        if method not in (*METHODS, *directories.PEERS):
            raise InputError(
                f"--methods must be of {', '.join((*METHODS, *directories.PEERS))}, got '{method}'"
            )
        if method in directories.PEERS and "dgl" not in peers.installed():
            raise InputError(
                f"method '{method}' needs the package dgl, which is not installed; leave it out of "
                "--methods"
            )
    plan = partition.PartitionPlan(methods=methods, parts=parts, seed=arguments.seed)
    for graph in _graphs(arguments):
        for result in directories.measure(graph, plan, progress=note):
            note(" ".join(directories.row(result)))
            yield result


def lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """Show results to people; the balances of edges, roots and clones are largest over mean."""
    return table(partition.HEADER, [partition.row(result) for result in found])


def lines_of_directories(found: Sequence[dict[str, Any]]) -> list[str]:
    """Show results of whole programs to people."""
    return table(directories.HEADER, [directories.row(result) for result in found])


def _graphs(arguments: argparse.Namespace) -> Iterator[Graph]:
    for source in arguments.files:
        yield load(source)
    default = () if arguments.files else ("reddit", "products")
    names = arguments.shapes.split(",") if arguments.shapes else default
    orders = arguments.orders.split(",") if arguments.orders else ("random",)
    for name in names:
        for order in orders:
            yield partition.twin(name, scale=arguments.scale, order=order, seed=arguments.seed)
