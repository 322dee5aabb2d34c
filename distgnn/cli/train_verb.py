"""`distgnn train`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.api.settings import ALL, config_of
from distgnn.cli.flags import path, whole
from distgnn.cli.job import add_device_argument, add_machine_arguments
from distgnn.cli.output import add_json_flag, print_json, print_lines
from distgnn.cli.restarts import add_restart_arguments
from distgnn.cli.results import result_lines
from distgnn.cli.series import add_series_arguments, series_lines, split_index
from distgnn.cli.source import add_source_arguments
from distgnn.cli.strategy_text import strategy_lines
from distgnn.cli.trace import add_trace_arguments
from distgnn.cli.walk_orders import add_walk_arguments
from distgnn.datasets.errors import InputError
from distgnn.settings.fields import add_flags, common_flags, group_of
from distgnn.settings.model import ModelSettings
from distgnn.training.config.channels import ChannelSettings
from distgnn.training.config.data import DataSettings
from distgnn.training.config.delays import DelaySettings
from distgnn.training.config.loop import LoopSettings, MachineSettings, SavingSettings
from distgnn.training.config.optimization import OptimizationSettings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from distgnn.training.config.settings import TrainConfig

HELP = "train a model, on one process or under mpirun on one rank per part"
USAGE = "%(prog)s SOURCE --run RUN [options]"
EXAMPLES = """\
  distgnn train cora --run run --model gcn --hidden 16
  distgnn train edges.csv --vertices vertices.csv --split 0.6/0.2/0.2 --run run
  mpirun -n 4 distgnn train parts --run run      parts: from distgnn partition --parts 4"""
EPILOG = (
    "P ranks: mpirun -n P distgnn train DIR --run RUN, srun -n P distgnn ..., or "
    "torchrun --nproc-per-node P --no-python -- distgnn ..."
)
TRAINING = (
    LoopSettings,
    DataSettings,
    OptimizationSettings,
    ChannelSettings,
    DelaySettings,
    SavingSettings,
)
"""Owners of the flags of training, in the order of the help."""
COMMON = (
    *("-h", "--help-all", "--vertices", "--undirected", "--split", "--run", "--recipe"),
    *("--device", "--threads", "--resume", "--overwrite", "--json"),
    *common_flags(ModelSettings, *TRAINING, MachineSettings),
)
"""Options of the short help: the fields say it of theirs."""
# Arguments of the command line that are no settings of `distgnn.train`.
_OWN = (
    *("verb", "run", "source", "run_dir", "recipe", "json", "print_strategy"),
    *("restarts", "mpirun", "hosts"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_source_arguments(parser, or_parts=True)
    parser.add_argument("--run", type=path, metavar="RUN", dest="run_dir", help="results go here")
    parser.add_argument(
        "--print-strategy",
        action="store_true",
        help="show what --halo and --preset stand for, with the bytes of a row, and of an epoch "
        "where SOURCE is a partition directory; then end",
    )
    add_recipe_argument(parser)
    add_recipe_flags(parser)
    _add_machine_arguments(parser.add_argument_group(group_of(MachineSettings)))


def add_recipe_argument(parser: argparse.ArgumentParser) -> None:
    """Add --recipe.

    Args:
        parser: Parser of `distgnn train`.
    """
    parser.add_argument(
        "--recipe",
        metavar="NAME|FILE",
        help="take flags from a recipe; those of the command line win (--no-residual unsets a "
        "switch). A name, such as cora-gcn (a name that is none prints all), or a .json file",
    )


def add_recipe_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that a recipe may set: those of the model and of its training."""
    add_flags(parser.add_argument_group(group_of(ModelSettings)), ModelSettings)
    either = "row of the masks, or all: one run each (default: %(default)s)"
    changed = {"split_index": {"type": split_index, "help": either}}
    for owner in TRAINING:
        group = parser.add_argument_group(group_of(owner))
        add_flags(group, owner, changed=changed)
        if owner is LoopSettings:
            add_series_arguments(group)


def add_epoch_flags(
    parser: argparse.ArgumentParser, *, layers: Callable[[str], object] | None = None
) -> None:
    """Add the flags that decide what an epoch computes and sends, for verbs that predict one.

    Args:
        parser: Parser of the verb.
        layers: Converter of --layers where the verb takes more than a number.
    """
    changed = {"layers": {"type": layers}} if layers else {}
    add_flags(parser.add_argument_group("model, as for train"), ModelSettings, changed=changed)
    add_flags(parser.add_argument_group("epoch, as for train"), *TRAINING, is_predicting=True)


def _add_machine_arguments(group: argparse._ArgumentGroup) -> None:
    add_machine_arguments(group)
    add = group.add_argument
    add_device_argument(group)
    add_flags(group, MachineSettings)
    add_walk_arguments(group)
    add_trace_arguments(group)
    again = group.add_mutually_exclusive_group()
    again.add_argument(
        "--resume", action="store_true", help="continue from the run's newest checkpoint, if any"
    )
    again.add_argument("--overwrite", action="store_true", help="replace an earlier run")
    add(
        "--pause-after",
        type=whole(1),
        metavar="N",
        help="write a checkpoint after epoch N of --epochs, and end; --resume continues, with the "
        "learning rates of the whole run",
    )
    add(
        "--cuts",
        type=path,
        metavar="DIR,DIR",
        help="0c: other partition directories of the graph; every --cut-every epochs training "
        "turns to the next one, so that parts see other neighbours (Grappa)",
    )
    add(
        "--merge-parts",
        action="store_true",
        help="where fewer ranks were started than SOURCE has parts, merge these in a directory "
        "beside it, DIR.merged-P, that all ranks must see",
    )
    add_restart_arguments(group)
    add("--force", action="store_true", help="train even if too little memory is free")
    add(
        "--estimate",
        action="store_true",
        help="before the first epoch, try for some seconds how long one will take (distgnn plan "
        "predicts it for other machines)",
    )
    add("--quiet", action="store_true", help="show no progress")
    add_json_flag(group)  # type: ignore[arg-type]


def _print_strategy(arguments: argparse.Namespace) -> int:
    from distgnn.api.strategy import spell_out
    from distgnn.comm.launch import detect

    if detect().rank > 0:
        return 0
    values = spell_out(config_from(arguments), arguments.source)
    if arguments.json:
        print_json(values)
    else:
        print_lines(strategy_lines(values))
    return 0


def config_from(arguments: argparse.Namespace) -> TrainConfig:
    """Build the configuration of a run from parsed arguments.

    Args:
        arguments: Arguments of `distgnn train`, or of a verb that takes some of its flags; those
            that it does not take are as by default.

    Returns:
        The checked configuration.

    Raises:
        InputError: If a value is not allowed.
    """
    return config_of(vars(arguments))


def run(arguments: argparse.Namespace) -> int:
    """Train, and report; or show the strategy."""
    if arguments.print_strategy:
        return _print_strategy(arguments)
    if arguments.run_dir is None:
        raise InputError("the following arguments are required: --run; see distgnn train --help")
    from distgnn.api.verbs import train
    from distgnn.comm.launch import detect

    settings = {name: value for name, value in vars(arguments).items() if name not in _OWN}
    # The recipe's flags are among the words already.
    found = train(arguments.source, out=arguments.run_dir, **settings)
    if detect().rank > 0:
        return 0
    if arguments.json:
        print_json(found.summary)
    elif arguments.seeds is not None or arguments.split_index == ALL:
        print_lines(series_lines(found.summary, found.path))
    else:
        print_lines(result_lines(found.summary, found.path))
    return 0
