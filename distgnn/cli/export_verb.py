"""`distgnn export`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.cli.flags import path
from distgnn.cli.output import add_json_flag, print_json, print_lines

if TYPE_CHECKING:
    import argparse

HELP = "write the weights of a trained run for a program without distgnn"
EPILOG = (
    "FILE is read by torch.load as a dict of tensors. torch: names of the run's own model; pyg: "
    "names of the PyG model that run.to_pyg() builds; dgl: layers.N.NAME with the names of DGL."
)
LIBRARIES = ("torch", "pyg", "dgl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("run_dir", metavar="RUN", type=path, help="directory of a training run")
    parser.add_argument(
        "--to",
        choices=LIBRARIES,
        required=True,
        metavar="torch|pyg|dgl",
        help="library to write for",
    )
    parser.add_argument("--out", type=path, required=True, metavar="FILE.pt", help="file to write")
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read the weights and write them under the names of the library."""
    from distgnn.api.export import export_weights

    names = export_weights(arguments.run_dir, arguments.to, arguments.out)
    if arguments.json:
        print_json({"file": arguments.out, "to": arguments.to, "names": names})
    else:
        print_lines([f"wrote {len(names)} tensors to {arguments.out}", *names])
    return 0
