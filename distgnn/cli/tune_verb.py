"""`distgnn tune`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distgnn.cli.flags import path, whole
from distgnn.cli.job import add_device_argument, add_machine_arguments
from distgnn.cli.output import add_json_flag, pairs, print_json, print_lines, table
from distgnn.cli.source import add_source_arguments
from distgnn.cli.train_verb import TRAINING, add_recipe_argument
from distgnn.cli.walk_orders import add_walk_cache_argument
from distgnn.settings.fields import add_flags
from distgnn.settings.model import ModelSettings
from distgnn.training.config.loop import MachineSettings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from pathlib import Path

HELP = "search for the settings that train best"
EPILOG = (
    "P ranks: mpirun -n P distgnn tune DIR --run STUDY ..., whose trials take turns on all ranks; "
    "or distgnn tune DIR --run STUDY --jobs K --ranks P ..., which trains K trials at once"
)
# The search stands before the settings of training, whose names it uses.
_OWN = ("verb", "run", "source", "run_dir", "recipe", "json")
_MOST_TRIALS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_source_arguments(parser, or_parts=True)
    parser.add_argument(
        "--run", type=path, required=True, metavar="STUDY", dest="run_dir", help="results go here"
    )
    _add_search_arguments(parser.add_argument_group("search"))
    add_recipe_argument(parser)
    add_flags(parser.add_argument_group("model, as for train"), ModelSettings)
    add_flags(parser.add_argument_group("training, as for train"), *TRAINING)
    group = parser.add_argument_group("machine and files")
    add_machine_arguments(group)
    add_device_argument(group)
    add_flags(group, MachineSettings)
    add_walk_cache_argument(group, "keep the walk orders of kernels in DIR for the next trial")
    again = group.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="continue a study that was stopped")
    again.add_argument("--overwrite", action="store_true", help="replace an earlier study")
    group.add_argument(
        "--force", action="store_true", help="train even if too little memory is free"
    )
    group.add_argument("--quiet", action="store_true", help="show no progress")
    add_json_flag(group)  # type: ignore[arg-type]


def _add_search_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--search",
        action="append",
        required=True,
        metavar="NAME=VALUES",
        help="a flag of train and its values: lr=log(1e-4,1e-1), dropout=uniform(0,0.6), "
        "layers=int(2,4), model=choice(gcn,gat); may be repeated",
    )
    add(
        "--scheduler",
        default="asha",
        metavar="NAME",
        help="asha: halving that promotes early where a process would wait; halving: compare all; "
        "hyperband: several halvings; asha-stop: only stop; median: stop below the median; pbt: "
        "copy the best over the worst; none (default: %(default)s)",
    )
    add(
        "--sampler",
        default="random",
        metavar="NAME",
        help="random, grid, or tpe of Optuna (default: %(default)s)",
    )
    add(
        "--trials",
        type=whole(1),
        metavar="N",
        help="not with hyperband (default: all of a grid, or else 16)",
    )
    add(
        "--factor",
        type=whole(2),
        default=4,
        metavar="F",
        help="ratio of the epochs of two comparisons, and of the trials that continue (default: "
        "%(default)s)",
    )
    add(
        "--grace",
        type=whole(1),
        metavar="E",
        help="epochs before the first comparison (default: as many as train an eighth of all "
        "epochs by halving; of hyperband epochs / F^2 rounded up, of median and pbt a tenth)",
    )
    add(
        "--objective",
        default="val_metric",
        metavar="NAME",
        help="val_metric; or, with --goal and --scheduler none, epochs_to_goal, time_to_goal_s or "
        "sent_to_goal_bytes (default: %(default)s)",
    )
    add(
        "--jobs",
        type=whole(1, 1024),
        metavar="K",
        help="trials trained at once, as processes of their own (default: they take turns here, "
        "on a graph that is read once)",
    )
    add("--ranks", type=whole(1), default=1, metavar="P", help="of --jobs: ranks of a trial")
    add(
        "--launcher",
        metavar="COMMAND",
        help="of --jobs: what starts the ranks of a trial, such as 'srun -n 4' (default: mpirun)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Search, and report."""
    from distgnn.comm.launch import detect
    from distgnn.tuning.space import Space
    from distgnn.tuning.verb import tune

    settings = {name: value for name, value in vars(arguments).items() if name not in _OWN}
    settings["search"] = Space.parse(arguments.search)
    found = tune(arguments.source, out=arguments.run_dir, **settings)
    if detect().rank > 0:
        return 0
    if arguments.json:
        print_json(found.summary)
    else:
        print_lines(_lines(found.summary, found.recipe))
    return 0


def _lines(found: Mapping[str, Any], recipe: Path) -> list[str]:
    """Describe a study for people: its best trials, and what it cost."""
    from distgnn.tuning.verb import sign_of

    sign = sign_of(found)
    order = sorted(
        found["trials"],
        key=lambda trial: -float("inf") if trial["score"] is None else trial["score"],
        reverse=True,
    )
    names = list(found["best"]["settings"])
    rows = [
        [
            trial["run"],
            trial["epochs"],
            "failed" if trial["score"] is None else f"{sign * trial['score']:.4f}",
            *(_short(trial["settings"][name]) for name in names),
        ]
        for trial in order[:_MOST_TRIALS]
    ]
    best = found["best"]
    figures = {split: best[f"{split}_metric"] for split in ("val", "test")}
    shown = {f"{split} metric": "-" if v is None else f"{v:.4f}" for split, v in figures.items()}
    return [
        *table(["trial", "epochs", "best", *names], rows),
        "",
        *pairs(
            {
                "trials": f"{found['num_trials']}, {found['num_failed']} failed",
                "epochs": f"{found['epochs_trained']} of {found['epochs_of_all']}",
                "best": best["run"],
                "metric": found["metric"],
                **shown,
                "recipe": recipe,
            }
        ),
    ]


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
