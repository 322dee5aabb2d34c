"""How edges get their parts: the flags of methods and of a user's own parts, checked and run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.cli.flags import number, path, switch
from distgnn.cli.output import note
from distgnn.datasets.errors import InputError
from distgnn.machine.limits import available_memory
from distgnn.partition import METHODS
from distgnn.partition.methods.given import KINDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.datasets.graph import Graph
    from distgnn.partition.assignment import Assignment

DEFAULT_METHOD = "metis"
AUTO = "auto"


def add_method_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "--method",
        metavar="NAME",
        type=_method,
        help=f"one of {', '.join(METHODS)}, or {AUTO}: the best one that fits into memory "
        f"(default: {DEFAULT_METHOD})",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the method, such as vertex_balance=1.1; may be repeated",
    )
    parser.add_argument(
        "--assignment",
        type=path,
        metavar="FILE",
        help="your own parts instead of a method: an .npy file with one for each edge (roots are "
        "then chosen) or for each vertex's root (edges are then placed)",
    )
    parser.add_argument(
        "--assignment-of",
        choices=KINDS,
        help="what FILE has parts of, if its length does not tell",
    )
    parser.add_argument(
        "--refine",
        type=switch,
        metavar="on|off",
        help="move edges afterwards where fewer rows travel (default: on for metis "
        "and hierarchical)",
    )
    parser.add_argument(
        "--imbalance",
        type=balance,
        metavar="X",
        help="largest part's edges over the mean, at least 1 (default: of the method; metis: 1.05)",
    )


def _method(text: str) -> str:
    if text not in (*METHODS, AUTO):
        allowed = ", ".join((*METHODS, AUTO))
        raise argparse.ArgumentTypeError(f"must be one of {allowed}, got '{text}'")
    return text


def balance(text: str) -> float:
    """Convert the text of a flag that takes a largest part over the mean.

    Args:
        text: As given on the command line.

    Returns:
        At least 1.
    """
    value = number(text)
    if value < 1.0:
        raise argparse.ArgumentTypeError(
            f"must be at least 1, which is perfect balance, got '{text}'"
        )
    return value


def given_parts(arguments: argparse.Namespace) -> NDArray[Any] | None:
    """Check, before the graph is loaded, what excludes each other; read the user's parts.

    Args:
        arguments: With the flags of `add_method_arguments`.

    Returns:
        The user's parts, or None where a method is to run.

    Raises:
        InputError: If flags exclude each other, or the user's parts cannot be read.
    """
    from distgnn.partition.methods import given, options

    if arguments.assignment is None:
        if arguments.assignment_of is not None:
            raise InputError(
                "--assignment-of needs --assignment FILE; leave it out or name the file"
            )
        method = arguments.method or DEFAULT_METHOD
        if method == AUTO:
            _check_auto(arguments)
            return None
        values = options.parse(method, arguments.option)
        options.check_imbalance(
            method, arguments.imbalance, list(values), refine=bool(arguments.refine)
        )
        return None
    for flag, value in (("--method", arguments.method), ("--option", arguments.option)):
        if value:
            raise InputError(
                f"{flag} and --assignment exclude each other: a method or your own parts; leave "
                "one of them out"
            )
    if arguments.imbalance is not None and not arguments.refine:
        raise InputError(
            "--imbalance takes no effect on your own parts unless they are refined; leave it out "
            "or add --refine on"
        )
    return given.read_parts(arguments.assignment)


def _check_auto(arguments: argparse.Namespace) -> None:
    if arguments.option:
        raise InputError(
            f"--method {AUTO} takes no --option, because methods differ in theirs; name a method"
        )


def run_method(
    arguments: argparse.Namespace, graph: Graph, parts: NDArray[Any] | None
) -> tuple[Assignment, str, dict[str, Any]]:
    """Run the method, or complete the user's parts.

    Args:
        arguments: With the flags of `add_method_arguments`, --parts and --seed.
        graph: The graph.
        parts: What `given_parts` returned.

    Returns:
        The assignment, and what the manifest says of it: the method and its options.

    Raises:
        InputError: If the method cannot be used so, or the parts are of another graph.
    """
    from distgnn.partition import assign
    from distgnn.partition.compilation import noting_compilation
    from distgnn.partition.methods import auto, options

    recorded = {"refine": arguments.refine, "imbalance": arguments.imbalance}
    if parts is not None:
        with noting_compilation(note):
            assignment, values = _completed(arguments, graph, parts)
        return assignment, "assignment", recorded | values
    method, reason = arguments.method or DEFAULT_METHOD, {}
    if method == AUTO:
        refine = bool(arguments.refine)
        sizes = graph.num_vertices, graph.num_edges
        choice = auto.choose(*sizes, available_memory(), refine=refine)
        method, reason = choice.method, {"chosen": choice.reason}
        note(f"method {method}: {choice.reason}")
    values = options.parse(method, arguments.option)
    with noting_compilation(note):
        assignment = assign(
            method, graph, arguments.parts, seed=arguments.seed, progress=note, **recorded, **values
        )
    return assignment, method, recorded | values | reason


def _completed(
    arguments: argparse.Namespace, graph: Graph, parts: NDArray[Any]
) -> tuple[Assignment, dict[str, Any]]:
    """Complete the user's parts, and refine them if asked to."""
    from distgnn.partition.methods import given
    from distgnn.partition.refine.refinement import refine_after

    kind = arguments.assignment_of or given.kind_of(parts, graph)
    assignment = given.assignment_of(parts, kind, graph, arguments.parts)
    if arguments.refine:
        cap = arguments.imbalance
        assignment = refine_after(graph, assignment, edge_balance=cap, progress=note)
    values = {"assignment": str(Path(arguments.assignment).resolve()), "assignment_of": kind}
    return assignment, values
