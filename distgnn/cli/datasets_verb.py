"""`distgnn datasets`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from distgnn.cli.flags import path, scale, whole
from distgnn.cli.output import add_json_flag, note, print_json, print_lines, table
from distgnn.cli.prepare import FLAGS, add_prepare_arguments, run_prepare
from distgnn.datasets import describe, names
from distgnn.datasets.errors import InputError
from distgnn.datasets.make_twin import FEATURES, ORDERS, make
from distgnn.datasets.ogb import CATALOGUE
from distgnn.datasets.streamed import TWINS

if TYPE_CHECKING:
    from typing import Any

HELP = "list the data sets that have a name; prepare one of OGB; write the twin of a large one"
_MAKE_ONLY = ("out", "scale", "features", "order", "threads", "seed")
_EXAMPLES = {
    "make": f"make {next(iter(TWINS))} --out DIR",
    "prepare": f"prepare {next(iter(CATALOGUE))} --root DIR",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="show one only; 'prepare NAME' downloads a data set of OGB and makes arrays of it; "
        "'make TWIN --out DIR' writes a synthetic graph of the size, degrees and communities of a "
        "published one, slice by slice",
    )
    parser.add_argument(
        "what",
        nargs="?",
        metavar="NAME|TWIN",
        help=f"of prepare: {', '.join(CATALOGUE)}; of make: {', '.join(TWINS)}",
    )
    add_prepare_arguments(parser)
    make_group = parser.add_argument_group("make")
    make_group.add_argument("--out", type=path, metavar="DIR", help="folder of arrays to write")
    make_group.add_argument(
        "--scale", type=scale, metavar="A/B", help="vertices over the original's (default: 1)"
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
    """List names with their sizes, prepare one, or write a twin."""
    action, run_action = arguments.name, _ACTIONS.get(arguments.name)
    for owner, flags in (("make", _MAKE_ONLY), ("prepare", FLAGS)):
        for flag in flags:
            if action != owner and getattr(arguments, flag) is not None:
                raise InputError(
                    f"--{flag} belongs to distgnn datasets {owner}; write distgnn datasets "
                    f"{_EXAMPLES[owner]}"
                )
    if run_action is not None:
        return run_action(arguments)
    if arguments.what is not None:
        raise InputError(f"one name at a time is shown, got '{arguments.what}' too; leave it out")
    chosen = [*names(), *CATALOGUE] if arguments.name is None else [arguments.name]
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
    if any(name in CATALOGUE for name in found):
        lines.append("ogbn-*: after distgnn datasets prepare NAME, from the Open Graph Benchmark")
    for name, about in found.items():
        if "bring" in about:
            path = about["path"]
            lines.append(
                f"{name} is not there; {about['bring']}" if path is None else f"{name} is {path}"
            )
        if about["options"]:
            options = ",".join(f"{key}={value}" for key, value in about["options"].items())
            lines.append(f"{name} takes options: {name},{options}")
    return lines


def _more_lines() -> list[str]:
    """List the other names: twins, and graphs that the user has to bring."""
    from distgnn.datasets.layouts import NAMED
    from distgnn.datasets.named_twins import TWIN_NAMES

    return [
        f"twins of {', '.join(TWIN_NAMES)}: synthetic:reddit, or smaller, synthetic:reddit@1/16",
        f"to bring, below --root DIR or DISTGNN_DATASETS: {', '.join(NAMED)}",
    ]


def _make(arguments: argparse.Namespace) -> int:
    for word, value in (("TWIN", arguments.what), ("--out DIR", arguments.out)):
        if value is None:
            raise InputError(
                f"distgnn datasets make needs {word}; write distgnn datasets {_EXAMPLES['make']}"
            )
    flags = {flag: getattr(arguments, flag) for flag in _MAKE_ONLY if flag != "out"}
    given = {flag: value for flag, value in flags.items() if value is not None}
    graph = make(arguments.what, arguments.out, progress=note, **given)
    about = {"num_vertices": graph.num_vertices, "num_edges": graph.num_edges}
    if arguments.json:
        print_json({"name": arguments.what, "out": arguments.out, **about})
    else:
        counts = f"{graph.num_vertices} vertices, {graph.num_edges} edges"
        print_lines([f"wrote {arguments.out}: {arguments.what}, {counts}"])
    return 0


_ACTIONS = {"make": _make, "prepare": run_prepare}
