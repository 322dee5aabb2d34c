"""`distgnn inspect`."""

from __future__ import annotations

import argparse

from distgnn.api.directories import inspect
from distgnn.cli.flags import path, whole
from distgnn.cli.inspect_text import forecast_lines, quality_lines
from distgnn.cli.output import add_json_flag, print_json, print_lines
from distgnn.cli.train_verb import add_epoch_flags
from distgnn.datasets.errors import InputError
from distgnn.partition.directory.store import read_manifest

HELP = "show what a partition costs, and predict what training on it sends"
EPILOG = (
    "The model's flags are those of train, with the same defaults: bytes per epoch are what train "
    "will count, exactly. --widths asks for plain sums over all edges instead."
)

# Arguments of the command line that are no settings of `distgnn.inspect`.
_OWN = ("verb", "run", "directory", "verify", "bound", "widths", "bandwidth", "latency", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("directory", metavar="DIR", type=path, help="partition directory")
    parser.add_argument(
        "--verify", action="store_true", help="read every part and check every file's checksum"
    )
    parser.add_argument(
        "--bound",
        action="store_true",
        help="read every edge, and find the fewest rows that travel for these roots while each "
        "edge lives at one of its ends",
    )
    add_epoch_flags(parser, layers=_layers)
    group = parser.add_argument_group("what else to predict")
    group.add_argument(
        "--widths",
        type=_widths,
        metavar="W1,W2,...",
        help="instead of a model: widths of the rows that layers sum over all edges "
        "(--layers W1,W2,... is the same)",
    )
    for flag in ("--bandwidth", "--latency"):
        group.add_argument(flag, help=argparse.SUPPRESS)
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read the manifest, and the parts where the model does not read all rows, and report."""
    widths = _explicit_widths(arguments)
    if arguments.bandwidth is not None or arguments.latency is not None:
        raise InputError(
            "inspect counts bytes and memory, and predicts no time; distgnn plan "
            f"{arguments.directory} --bandwidth 100Gb/s predicts that of an epoch"
        )
    given = {} if widths else vars(arguments)
    settings = {name: value for name, value in given.items() if name not in _OWN}
    values = inspect(
        arguments.directory,
        widths=widths or None,
        verify=arguments.verify,
        bound=arguments.bound,
        **settings,
    )
    if arguments.json:
        print_json(values)
        return 0
    manifest = read_manifest(arguments.directory)
    quality = quality_lines(manifest, values["row_reuse"], values.get("least_halo_rows"))
    print_lines([*quality, "", *forecast_lines(values)])
    return 0


def _layers(text: str) -> int | list[int]:
    """Convert the text of a number of layers, as for train, or of a list of widths."""
    return _widths(text) if "," in text else whole(1)(text)


def _widths(text: str) -> list[int]:
    try:
        return [int(width) for width in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be widths such as 16,7, got '{text}'") from error


def _explicit_widths(arguments: argparse.Namespace) -> list[int] | None:
    """Return the widths that were asked for instead of a model, by either flag."""
    by_layers = arguments.layers if isinstance(arguments.layers, list) else None
    if by_layers and arguments.widths:
        raise InputError("--widths and widths of --layers are the same; leave one of them out")
    widths: list[int] | None = arguments.widths or by_layers
    if widths:
        _check_no_model(arguments, is_by_layers=by_layers is not None)
    return widths


def _check_no_model(arguments: argparse.Namespace, *, is_by_layers: bool) -> None:
    """Refuse flags of a run beside widths, which say all that is predicted."""
    parser = argparse.ArgumentParser()
    add_epoch_flags(parser, layers=_layers)
    defaults = vars(parser.parse_args([]))
    if is_by_layers:
        del defaults["layers"]
    for name, value in defaults.items():
        if getattr(arguments, name) != value:
            raise InputError(
                f"--{name.replace('_', '-')} has no effect on sums of given widths; leave it or "
                "the widths out"
            )
