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
    from distgnn.partition.methods.auto import MethodChoice


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


def chosen_method(asked: PartitionOptions, graph: Graph) -> MethodChoice:
    """Return the method that is asked for, or choose one by the memory that is free and say why.

    Args:
        asked: Partition that is asked for.
        graph: The graph.

    Returns:
        The method with its options; the reason is empty if it was asked for.
    """
    from distgnn.partition.methods import options
    from distgnn.partition.methods.auto import MethodChoice
    from distgnn.partition.methods.kaminpar_library import is_installed

    if asked.method == AUTO:
        return _choice(asked, graph, has_kaminpar=is_installed())
    method = asked.method or DEFAULT_METHOD
    return MethodChoice(method, "", options.parse(method, list(asked.option)))


def takes_narrow(chosen: MethodChoice | NDArray[Any]) -> bool:
    """Return whether a graph with ends of 32 bits may be cut so; the user's parts may not."""
    from distgnn.partition import TAKE_NARROW
    from distgnn.partition.methods.auto import MethodChoice

    return isinstance(chosen, MethodChoice) and chosen.method in TAKE_NARROW


def run_method(
    asked: PartitionOptions, graph: Graph, chosen: MethodChoice | NDArray[Any]
) -> tuple[Assignment, str, dict[str, Any]]:
    """Run the method, or complete the user's parts.

    Args:
        asked: Partition that is asked for.
        graph: The graph.
        chosen: Method from `chosen_method`, or parts from `given_parts`.

    Returns:
        The assignment, and its description for the manifest: the method and its options.

    Raises:
        InputError: If the method cannot be used so, or the parts are of another graph.
    """
    from distgnn.partition.compilation import noting_compilation
    from distgnn.partition.methods.auto import MethodChoice
    from distgnn.partition.methods.library_process import LibraryFailedError

    if not isinstance(chosen, MethodChoice):
        with noting_compilation(asked.say):
            assignment, values = _completed(asked, graph, chosen)
        given = {"refine": asked.refine, "imbalance": asked.imbalance}
        return assignment, "assignment", given | values
    try:
        return _assigned(asked, graph, chosen)
    except LibraryFailedError as error:
        if asked.method != AUTO:
            raise
        asked.say(f"no roots by KaMinPar: {error}")
    other = _choice(asked, graph, has_kaminpar=False, takes_little=chosen.takes_little)
    return _assigned(asked, graph, other)


def _choice(
    asked: PartitionOptions,
    graph: Graph,
    *,
    has_kaminpar: bool,
    takes_little: bool | None = None,
) -> MethodChoice:
    """Choose a method by the memory that is free, and say why."""
    from distgnn.partition.methods import auto, options

    def asks_graph() -> bool:
        return auto.takes_little(graph) if takes_little is None else takes_little

    choice = auto.choose(
        graph.num_vertices,
        graph.num_edges,
        available_memory(),
        refine=bool(asked.refine),
        has_kaminpar=has_kaminpar,
        is_fast=asked.quality == options.FAST,
        takes_little=asks_graph,
        is_narrow=graph.is_narrow,
    )
    asked.say(f"method {choice.method}: {choice.reason}")
    return choice


def _assigned(
    asked: PartitionOptions,
    graph: Graph,
    chosen: MethodChoice,
) -> tuple[Assignment, str, dict[str, Any]]:
    """Run a method with its options, and describe it."""
    from distgnn.partition import assign
    from distgnn.partition.compilation import noting_compilation
    from distgnn.partition.methods import options

    method, values = chosen.method, chosen.options
    recorded: dict[str, Any] = {"refine": asked.refine, "imbalance": asked.imbalance}
    if asked.quality and "quality" in options.defaults(method):
        values = values | {"quality": asked.quality}
    elif asked.quality:
        asked.say(f"--quality {asked.quality} has no effect on method {method}, which was chosen")
    with noting_compilation(asked.say):
        assignment = assign(
            method, graph, asked.parts, seed=asked.seed, progress=asked.say, **recorded, **values
        )
    reason = {"chosen": chosen.reason} if chosen.reason else {}
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
