"""`distgnn datasets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.cli.output import add_json_flag, print_json, print_lines, table
from distgnn.datasets import describe, names

if TYPE_CHECKING:
    import argparse

HELP = "list the data sets that need no file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show one only")
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """List names with their sizes."""
    chosen = names() if arguments.name is None else [arguments.name]
    found = {name: describe(name) for name in chosen}
    if arguments.json:
        print_json(found)
        return 0
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
    print_lines(lines)
    return 0
