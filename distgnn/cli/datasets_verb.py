"""`distgnn datasets`."""

from __future__ import annotations

import argparse
from fractions import Fraction
from typing import TYPE_CHECKING

from distgnn.cli.flags import path, whole
from distgnn.cli.output import add_json_flag, note, print_json, print_lines, table
from distgnn.datasets import describe, names
from distgnn.datasets.errors import InputError
from distgnn.datasets.make_twin import FEATURES, ORDERS, make
from distgnn.datasets.streamed import TWINS

if TYPE_CHECKING:
    from typing import Any

HELP = "list the data sets that need no file; write the twin of a large one"
_MAKE_ONLY = ("out", "scale", "features", "order", "threads", "seed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="show one only; 'make TWIN --out DIR' writes a synthetic graph of the size, degrees "
        "and communities of a published one, slice by slice",
    )
    parser.add_argument("twin", nargs="?", metavar="TWIN", help=f"of make: {', '.join(TWINS)}")
    make_group = parser.add_argument_group("make")
    make_group.add_argument("--out", type=path, metavar="DIR", help="folder of arrays to write")
    make_group.add_argument(
        "--scale", type=_fraction, metavar="A/B", help="vertices over the original's (default: 1)"
    )
    make_group.add_argument(
        "--features", metavar="KIND", help=f"{' or '.join(FEATURES)} (default: {FEATURES[0]})"
    )
    make_group.add_argument(
        "--order", metavar="ORDER", help=f"of edges: {', '.join(ORDERS)} (default: {ORDERS[0]})"
    )
    make_group.add_argument("--threads", type=whole(1), help="default: all cores")
    make_group.add_argument("--seed", type=whole(0), help="default: 0")
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """List names with their sizes, or write a twin."""
    if arguments.name == "make":
        return _make(arguments)
    for flag in _MAKE_ONLY:
        if getattr(arguments, flag) is not None:
            raise InputError(
                f"--{flag} belongs to distgnn datasets make; write distgnn datasets make "
                f"{next(iter(TWINS))} --out DIR"
            )
    if arguments.twin is not None:
        raise InputError(f"one name at a time is shown, got '{arguments.twin}' too; leave it out")
    chosen = names() if arguments.name is None else [arguments.name]
    found = {name: describe(name) for name in chosen}
    if arguments.json:
        print_json(found)
    else:
        print_lines([*_lines(found), *(_more_lines() if arguments.name is None else ())])
    return 0


def _lines(found: dict[str, dict[str, Any]]) -> list[str]:
    columns = ("num_vertices", "num_edges", "num_features", "num_classes", "licence")
    rows = [
        (name, *("-" if about[column] is None else about[column] for column in columns))
        for name, about in found.items()
    ]
    lines = table(("name", *(column.removeprefix("num_") for column in columns)), rows)
    for name, about in found.items():
        if about["options"]:
            options = ",".join(f"{key}={value}" for key, value in about["options"].items())
            lines.append(f"{name} takes options: {name},{options}")
    return lines


def _more_lines() -> list[str]:
    """What else has a name: twins, and graphs to bring."""
    from distgnn.datasets.layouts import NAMED
    from distgnn.datasets.named_twins import TWIN_NAMES

    return [
        f"twins of {', '.join(TWIN_NAMES)}: synthetic:reddit, or smaller, synthetic:reddit@1/16",
        f"to bring, below --root DIR or DISTGNN_DATASETS: {', '.join(NAMED)}",
    ]


def _make(arguments: argparse.Namespace) -> int:
    for word, value in (("TWIN", arguments.twin), ("--out DIR", arguments.out)):
        if value is None:
            raise InputError(
                f"distgnn datasets make needs {word}; write distgnn datasets make "
                f"{next(iter(TWINS))} --out DIR"
            )
    flags = {flag: getattr(arguments, flag) for flag in _MAKE_ONLY if flag != "out"}
    given = {flag: value for flag, value in flags.items() if value is not None}
    graph = make(arguments.twin, arguments.out, progress=note, **given)
    about = {"num_vertices": graph.num_vertices, "num_edges": graph.num_edges}
    if arguments.json:
        print_json({"name": arguments.twin, "out": arguments.out, **about})
    else:
        counts = f"{graph.num_vertices} vertices, {graph.num_edges} edges"
        print_lines([f"wrote {arguments.out}: {arguments.twin}, {counts}"])
    return 0


def _fraction(text: str) -> float:
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise argparse.ArgumentTypeError(
            f"must be a number or a fraction such as 1/64, got '{text}'"
        ) from error
