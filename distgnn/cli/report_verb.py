"""`distgnn report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.cli.flags import path
from distgnn.cli.output import add_json_flag, print_json, print_lines
from distgnn.cli.train_verb import add_epoch_flags, config_from

if TYPE_CHECKING:
    import argparse

HELP = (
    "write a page about a partition, a study, a run or several side by side: one HTML file that "
    "needs nothing else"
)
EPILOG = "The flags of the model are for partitions, as inspect takes them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "subjects",
        metavar="RUN_OR_DIR",
        type=path,
        nargs="+",
        help="directory of a run, of a series, of a partition or of a study; or several runs",
    )
    parser.add_argument(
        "--out", type=path, required=True, metavar="FILE.html", help="page to write"
    )
    add_epoch_flags(parser)
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read the directory, write the page."""
    from distgnn.api.reports import write_page

    out, subjects = Path(arguments.out), arguments.subjects
    kind, size = write_page(subjects, out, config_from(arguments))
    if arguments.json:
        print_json({"out": str(out), "kind": kind, "bytes": size})
    else:
        print_lines([f"wrote {out}: a page about {kind} {', '.join(subjects)}"])
    return 0
