"""`distgnn datasets prepare`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.cli.flags import path
from distgnn.cli.output import note, print_json, print_lines
from distgnn.datasets.errors import InputError
from distgnn.datasets.layouts import NAMED, describe_named
from distgnn.datasets.ogb import CATALOGUE, prepare

if TYPE_CHECKING:
    import argparse

FLAGS = ("root", "archive", "url")
"""Flags of this action alone."""


def add_prepare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags.

    Args:
        parser: Parser of the verb.
    """
    group = parser.add_argument_group("prepare")
    group.add_argument(
        "--root",
        type=path,
        metavar="DIR",
        help="where data sets lie (default: $DISTGNN_DATASETS or ./dataset)",
    )
    group.add_argument(
        "--archive",
        type=path,
        metavar="FILE",
        help="the zip file of OGB, or the folder that it was unpacked to; nothing is downloaded",
    )
    group.add_argument("--url", metavar="URL", help="of the zip file (default: OGB's own)")


def run_prepare(arguments: argparse.Namespace) -> int:
    """Download, unpack and convert.

    Args:
        arguments: Arguments of the verb, with a name of OGB.

    Returns:
        The exit status.

    Raises:
        InputError: If there is no name, or the data set cannot be prepared.
    """
    if arguments.what is None:
        raise InputError(
            "distgnn datasets prepare needs NAME; write distgnn datasets prepare "
            f"{next(iter(CATALOGUE))} --root DIR"
        )
    if arguments.what in NAMED:
        about = describe_named(arguments.what, arguments.root)
        where = about["bring"] if about["path"] is None else f"it is {about['path']}"
        raise InputError(
            f"{arguments.what!r} is read as it is published, without being prepared; {where}"
        )
    made = prepare(
        arguments.what,
        root=arguments.root,
        archive=arguments.archive,
        url=arguments.url,
        progress=note,
    )
    if arguments.json:
        print_json(made)
    else:
        counts = f"{made['num_vertices']} vertices, {made['num_edges']} edges"
        print_lines([f"{made['name']} is in {made['directory']}: {counts}"])
    return 0
