"""`distgnn train`."""

from __future__ import annotations

from argparse import BooleanOptionalAction
from typing import TYPE_CHECKING

from distgnn.api.recipes import names
from distgnn.api.settings import ALL, config_of
from distgnn.cli.delays import add_delay_arguments
from distgnn.cli.flags import MAX_SEED, number, path, switch, whole
from distgnn.cli.job import add_device_argument, add_machine_arguments
from distgnn.cli.model import add_model_arguments
from distgnn.cli.output import add_json_flag, print_json, print_lines
from distgnn.cli.plans import add_plan_arguments
from distgnn.cli.results import result_lines
from distgnn.cli.series import add_series_arguments, series_lines, split_index
from distgnn.cli.source import add_source_arguments
from distgnn.cli.trace import add_trace_arguments

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from distgnn.training.config.settings import TrainConfig

HELP = "train a model, on one process or under mpirun on one rank per part"
EPILOG = (
    "P ranks: mpirun -n P distgnn train DIR --run RUN, srun -n P distgnn ..., or "
    "torchrun --nproc-per-node P --no-python -- distgnn ..."
)
# Arguments of the command line that are no settings of `distgnn.train`.
_OWN = ("verb", "run", "source", "run_dir", "recipe", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_source_arguments(parser, or_parts=True)
    parser.add_argument(
        "--run", type=path, required=True, metavar="RUN", dest="run_dir", help="results go here"
    )
    add_recipe_argument(parser)
    add_recipe_flags(parser)
    _add_machine_arguments(parser.add_argument_group("machine and files"))


def add_recipe_argument(parser: argparse.ArgumentParser) -> None:
    """Add --recipe.

    Args:
        parser: Parser of `distgnn train`.
    """
    parser.add_argument(
        "--recipe",
        metavar="NAME|FILE",
        help="take flags from a recipe; those of the command line win (--no-residual unsets a "
        f"switch). One of {', '.join(names())}, or a .json file",
    )


def add_recipe_flags(parser: argparse.ArgumentParser) -> None:
    """Add what a recipe may set: flags of the model and of its training."""
    add_model_arguments(parser.add_argument_group("model"))
    training = parser.add_argument_group("training")
    _add_training_arguments(training)
    add_epoch_arguments(training, split=split_index)
    training.add_argument(
        "--overlap",
        type=switch,
        default=True,
        metavar="on|off",
        help="off: cd-0 waits for rows as soon as it has sent its own, to measure what is hidden "
        "(same results; default: on)",
    )
    add_series_arguments(training)


def _add_training_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--epochs", type=whole(1), default=200, metavar="E", help="default: %(default)s")
    add(
        "--decoder",
        default="dot",
        help="of link, from the rows of both ends to a score: dot, or mlp of their product "
        "(default: %(default)s)",
    )
    add(
        "--metric",
        default="auto",
        help="accuracy, micro-f1, roc-auc, average-precision, mse, mae or r2; of link mrr or "
        "hits@10, @20, @50 or @100; chooses the best epoch (default: the data set's, else the "
        "task's)",
    )
    add("--optimizer", default="adam", help="adam, adamw or sgd (default: %(default)s)")
    add("--lr", type=number, default=0.01, metavar="R", help="default: %(default)s")
    add("--weight-decay", type=number, default=5e-4, metavar="W", help="default: %(default)s")
    add(
        "--decay-of", default="all", help="weights that decay: all, or first layer's (default: all)"
    )
    add(
        "--feature-norm",
        default="none",
        metavar="none|row|standard",
        help="of vertices; features of edges are read as they are (default: %(default)s)",
    )
    add("--seed", type=whole(0, MAX_SEED), default=0, metavar="S", help="default: %(default)s")
    add("--eval-every", type=whole(1), default=1, metavar="N", help="epochs (default: %(default)s)")
    add(
        "--patience",
        type=whole(0),
        default=0,
        metavar="N",
        help="stop after N epochs without a better validation metric (default: never)",
    )
    add(
        "--reweight-loss",
        action=BooleanOptionalAction,
        default=False,
        help="0c: weigh vertices by local/global in-degree",
    )


def add_epoch_arguments(
    group: argparse._ArgumentGroup, *, split: Callable[[str], object] | None = None
) -> None:
    """Add what decides, beside the model, what an epoch computes and sends.

    Args:
        group: Of the verb.
        split: Type of --split-index where the verb takes more than a number.
    """
    add = group.add_argument
    add(
        "--task",
        default="auto",
        help="what the labels are for: single-label, multi-label or regression; or link (default: "
        "link where the graph holds links out, else as the labels are stored)",
    )
    add(
        "--features-dtype",
        default="fp32",
        metavar="fp32|bf16",
        help="how dense features are stored; bf16 takes half the memory (default: %(default)s)",
    )
    add(
        "--labels-as-input",
        type=number,
        default=0.0,
        metavar="F",
        help="in each epoch a share F of the training vertices, drawn anew, give their labels as "
        "columns of the input, and the loss is that of the others; in evaluation and prediction "
        "all give theirs, so that the metric of training vertices says little (default: none)",
    )
    add(
        "--split-index",
        type=split or whole(0),
        default=0,
        metavar="K",
        help=f"row of the masks{', or all: one run each' if split else ''} (default: %(default)s)",
    )
    add_delay_arguments(group)
    add(
        "--static-input",
        type=switch,
        default=True,
        metavar="on|off",
        help="aggregate input that is not dropped out once, not in every epoch (default: on)",
    )
    add(
        "--receptive-field",
        type=switch,
        default=True,
        metavar="on|off",
        help="run layers on the rows that the loss reads, not on all (default: on)",
    )
    add(
        "--recompute",
        action=BooleanOptionalAction,
        default=False,
        help="save memory: backward computes hidden layers again (same results)",
    )


def _add_machine_arguments(group: argparse._ArgumentGroup) -> None:
    add_machine_arguments(group)
    add = group.add_argument
    add_device_argument(group)
    add(
        "--features-on",
        default="auto",
        metavar="auto|device|host",
        help="where dense features are with --device cuda; host: in pinned host memory, streamed "
        "whenever they are multiplied (default: auto, on the device if all fits there)",
    )
    add(
        "--replay",
        type=switch,
        default=True,
        metavar="on|off",
        help="one rank on a CUDA device: replay steps and evaluations as CUDA graphs where telling "
        "the device what to do takes most of their time (default: on)",
    )
    add_plan_arguments(group)
    add(
        "--checkpoint-every",
        type=whole(0),
        default=10,
        metavar="N",
        help="epochs; 0: none before the end (default: %(default)s)",
    )
    add_trace_arguments(group)
    again = group.add_mutually_exclusive_group()
    again.add_argument(
        "--resume", action="store_true", help="go on from the run's newest checkpoint, if any"
    )
    again.add_argument("--overwrite", action="store_true", help="replace an earlier run")
    add("--force", action="store_true", help="train even if too little memory is free")
    add(
        "--estimate",
        action="store_true",
        help="before the first epoch, try for some seconds how long one will take (distgnn plan "
        "predicts it for other machines)",
    )
    add("--quiet", action="store_true", help="show no progress")
    add_json_flag(group)  # type: ignore[arg-type]


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
    """Train, and report."""
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
