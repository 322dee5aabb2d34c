"""How edges get their parts: methods and a user's own parts, checked and run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.api.partition_options import AUTO, DEFAULT_METHOD
from distgnn.datasets.errors import InputError
from distgnn.datasets.limits import available_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.api.partition_options import PartitionOptions
    from distgnn.datasets.graph import Graph
    from distgnn.partition.assignment import Assignment


def given_parts(asked: PartitionOptions) -> NDArray[Any] | None:
    """Check, before the graph is loaded, what excludes each other; read the user's parts.

    Args:
        asked: Partition that is asked for.

    Returns:
        The user's parts, or None where a method is to run.

    Raises:
        InputError: If flags exclude each other, or the user's parts cannot be read.
    """
    from distgnn.partition.methods import given, options

    if asked.assignment is None:
        if asked.assignment_of is not None:
            raise InputError(
                "--assignment-of needs --assignment FILE; leave it out or name the file"
            )
        method = asked.method or DEFAULT_METHOD
        if method == AUTO:
            _check_auto(asked)
            options.check_quality(DEFAULT_METHOD, asked.quality, [])
            return None
        values = options.parse(method, list(asked.option))
        options.check_quality(method, asked.quality, list(values))
        options.check_imbalance(method, asked.imbalance, list(values), refine=bool(asked.refine))
        return None
    for flag, value in (
        ("--method", asked.method),
        ("--option", asked.option),
        ("--quality", asked.quality),
    ):
        if value:
            raise InputError(
                f"{flag} and --assignment exclude each other: a method or your own parts; leave "
                "one of them out"
            )
    if asked.imbalance is not None and not asked.refine:
        raise InputError(
            "--imbalance takes no effect on your own parts unless they are refined; leave it out "
            "or add --refine on"
        )
    return given.read_parts(asked.assignment)


def _check_auto(asked: PartitionOptions) -> None:
    if asked.option:
        raise InputError(
            f"--method {AUTO} takes no --option, because methods differ in theirs; name a method"
        )


def run_method(
    asked: PartitionOptions, graph: Graph, parts: NDArray[Any] | None
) -> tuple[Assignment, str, dict[str, Any]]:
    """Run the method, or complete the user's parts.

    Args:
        asked: Partition that is asked for.
        graph: The graph.
        parts: Parts from `given_parts`.

    Returns:
        The assignment, and its description for the manifest: the method and its options.

    Raises:
        InputError: If the method cannot be used so, or the parts are of another graph.
    """
    from distgnn.partition import assign
    from distgnn.partition.compilation import noting_compilation
    from distgnn.partition.methods import auto, options
    from distgnn.partition.methods.kaminpar_library import is_installed

    recorded: dict[str, Any] = {"refine": asked.refine, "imbalance": asked.imbalance}
    if parts is not None:
        with noting_compilation(asked.say):
            assignment, values = _completed(asked, graph, parts)
        return assignment, "assignment", recorded | values
    method, reason = asked.method or DEFAULT_METHOD, {}
    chosen: dict[str, Any] = {}
    if method == AUTO:
        refine = bool(asked.refine)
        sizes = graph.num_vertices, graph.num_edges
        choice = auto.choose(
            *sizes,
            available_memory(),
            refine=refine,
            has_kaminpar=is_installed(),
            is_fast=asked.quality == options.FAST,
        )
        method, reason, chosen = choice.method, {"chosen": choice.reason}, choice.options
        asked.say(f"method {method}: {choice.reason}")
    if asked.quality and "quality" in options.defaults(method):
        chosen = chosen | {"quality": asked.quality}
    elif asked.quality:
        asked.say(f"--quality {asked.quality} has no effect on method {method}, which was chosen")
    values = options.parse(method, list(asked.option)) | chosen
    with noting_compilation(asked.say):
        assignment = assign(
            method, graph, asked.parts, seed=asked.seed, progress=asked.say, **recorded, **values
        )
    return assignment, method, recorded | values | reason


def _completed(
    asked: PartitionOptions, graph: Graph, parts: NDArray[Any]
) -> tuple[Assignment, dict[str, Any]]:
    """Complete the user's parts, and refine them if asked to."""
    from distgnn.partition.methods import given
    from distgnn.partition.refine.refinement import refine_after

    assert asked.assignment is not None, "the parts were read from a file"
    kind = asked.assignment_of or given.kind_of(parts, graph)
    assignment = given.assignment_of(parts, kind, graph, asked.parts)
    if asked.refine:
        cap = asked.imbalance
        assignment = refine_after(graph, assignment, edge_balance=cap, progress=asked.say)
    values = {"assignment": str(Path(asked.assignment).resolve()), "assignment_of": kind}
    return assignment, values
