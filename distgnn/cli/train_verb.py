"""`distgnn train`."""

from __future__ import annotations

from argparse import BooleanOptionalAction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from distgnn.cli.delays import add_delay_arguments
from distgnn.cli.flags import MAX_SEED, number, path, switch, whole
from distgnn.cli.job import add_device_argument, add_machine_arguments
from distgnn.cli.model import add_model_arguments, model_from, picked
from distgnn.cli.output import add_json_flag, print_json, print_lines
from distgnn.cli.plans import add_plan_arguments, build_planner, check_tuning
from distgnn.cli.recipes import add_recipe_argument
from distgnn.cli.results import announce, check_estimate, result_lines
from distgnn.cli.series import (
    ALL,
    add_series_arguments,
    check_series,
    is_series,
    split_index,
    train_series,
)
from distgnn.cli.source import add_source_arguments, check_ranks, open_source, source_values
from distgnn.cli.trace import add_trace_arguments, check_trace, check_trace_file, open_trace

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from distgnn.comm.group import Group
    from distgnn.edges.planner import Planner
    from distgnn.partition.directory.store import Part
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.info import DataInfo
    from distgnn.training.loop.trainer import Trainer
    from distgnn.training.run.directory import RunDirectory

HELP = "train a model, on one process or under mpirun on one rank per part"
EPILOG = (
    "P ranks: mpirun -n P distgnn train DIR --run RUN, srun -n P distgnn ..., or "
    "torchrun --nproc-per-node P --no-python -- distgnn ..."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_source_arguments(parser, or_parts=True)
    parser.add_argument(
        "--run", type=path, required=True, metavar="RUN", dest="run_dir", help="results go here"
    )
    add_recipe_argument(parser)
    add_recipe_flags(parser)
    _add_machine_arguments(parser.add_argument_group("machine and files"))


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
        arguments: Of `distgnn train`, or of a verb that takes some of its flags; what it does not
            take is as by default.

    Returns:
        The checked configuration.

    Raises:
        InputError: If a value is not allowed.
    """
    from distgnn.training.config.settings import TrainConfig

    values = picked(arguments, TrainConfig, but=("model",))
    if values.get("split_index") == ALL:
        values["split_index"] = 0  # of the first run
    return TrainConfig(model=model_from(arguments), **values)


def run(arguments: argparse.Namespace) -> int:
    """Open the group, train, report."""
    from distgnn.cli.job import on_device, run_job
    from distgnn.training.data.placement import check_features_on

    several = is_series(arguments)
    config = config_from(arguments)
    check_trace(arguments)
    check_tuning(arguments)
    check_estimate(arguments, config)
    check_features_on(config.features_on, arguments.device)
    if several:
        check_series(arguments)

    def work(group: Group) -> None:
        group = on_device(group, arguments)
        if several:
            train_series(arguments, config, group, _train)
            return
        summary = _train(arguments, config, group)
        if group.rank == 0:
            _report(arguments, summary)

    return run_job(work, arguments)


def _report(arguments: argparse.Namespace, summary: dict[str, Any]) -> None:
    if arguments.json:
        print_json(summary)
    else:
        print_lines(result_lines(summary, Path(arguments.run_dir)))


def _train(arguments: argparse.Namespace, config: TrainConfig, group: Group) -> dict[str, Any]:
    """Train one run; its summary."""
    from distgnn.cli.job import on_rank_0
    from distgnn.training.run.directory import RunDirectory

    run_dir = RunDirectory(Path(arguments.run_dir))
    on_rank_0(group, lambda: _check_bounds(arguments, config, run_dir))
    trainer = _load(arguments, config, run_dir, group)
    with trainer.trace:
        return _run_epochs(arguments, trainer, run_dir)


def _check_bounds(
    arguments: argparse.Namespace, config: TrainConfig, run_dir: RunDirectory
) -> None:
    """Refuse what a run that begins may not ask for; one that goes on may have begun before."""
    from distgnn.training.config.delays import check_delay

    if not (arguments.resume and run_dir.has_run()):
        check_delay(config)


def _run_epochs(
    arguments: argparse.Namespace, trainer: Trainer, run_dir: RunDirectory
) -> dict[str, Any]:
    """Train; the summary."""
    from distgnn.cli.beginning import resume
    from distgnn.cli.signals import StopSignals
    from distgnn.training.loop.progress import choose_progress
    from distgnn.training.loop.trainer import train

    records = resume(trainer, run_dir) if arguments.resume else []
    progress = choose_progress(
        rank=trainer.group.rank,
        num_epochs=trainer.config.epochs,
        done=len(records),
        is_quiet=arguments.quiet,
    )
    with StopSignals().heard() as trainer.stop:
        return train(trainer, run_dir, progress, records=records)


def _load(
    arguments: argparse.Namespace, config: TrainConfig, run_dir: RunDirectory, group: Group
) -> Trainer:
    """Build the trainer and say what is to come; the part, of which it has what it needs, goes."""
    from distgnn.cli.beginning import prepare
    from distgnn.cli.job import on_rank_0
    from distgnn.forecast.memory import (
        predict_added_bytes,
        predict_host_bytes,
        predict_peak_bytes,
    )
    from distgnn.kernels.devices import PROCESSOR
    from distgnn.machine.memory_check import check_memory
    from distgnn.training.loop.trainer import Trainer

    opened = _open(arguments, config, run_dir, group)
    trainer = Trainer(
        *(opened.config, opened.ends, opened.part, group),
        planner=opened.planner,
        device=group.device,
    )
    working = trainer.objective.working_bytes(opened.config.model.hidden)
    # An earlier peak counts for nothing here: what was let go of since is free again.
    predicted = added = predict_added_bytes(trainer.model, trainer.graphs) + working
    check_memory(group, added, what="training", is_forced=arguments.force, device=group.device)
    if group.device == PROCESSOR:
        predicted = predict_peak_bytes(trainer.model, trainer.graphs) + working
    else:
        streamed, what = predict_host_bytes(trainer.graphs), "streaming sums of features"
        check_memory(group, streamed, what=what, is_forced=arguments.force)
    on_rank_0(group, lambda: prepare(run_dir, arguments.resume, opened.begin))
    announce(
        *(trainer, opened.part, opened.ends, predicted),
        estimates=arguments.estimate,
        is_quiet=arguments.quiet,
    )
    # The file may lie in the run's directory, which is there now.
    trainer.begin_trace(open_trace(arguments, group))
    return trainer


class _Opened(NamedTuple):
    """What is needed of a source: its edges are let go, as the part has them in another form."""

    config: TrainConfig
    ends: DataInfo
    part: Part
    planner: Planner
    begin: dict[str, Any]


def _open(
    arguments: argparse.Namespace, config: TrainConfig, run_dir: RunDirectory, group: Group
) -> _Opened:
    from distgnn.cli.beginning import begins_with, check_graph, check_settings
    from distgnn.cli.job import collectively, on_rank_0
    from distgnn.machine.memory_check import check_memory
    from distgnn.training.tasks.tasks import resolve

    source = collectively(group, lambda: open_source(source_values(arguments)))
    check_ranks(source, group, f"distgnn train {arguments.source} ...")
    config = collectively(group, lambda: resolve(config, source.ends))
    collectively(group, lambda: check_estimate(arguments, config))
    if not arguments.overwrite:
        on_rank_0(group, lambda: check_settings(run_dir, config, arguments.resume))
    on_rank_0(group, lambda: check_trace_file(arguments))
    to_read = source.feature_bytes(group.rank, config)
    check_memory(group, to_read, what="reading features", is_forced=arguments.force)
    part = collectively(group, lambda: source.part(group.rank))
    begin = begins_with(source, part, config, group)
    if arguments.resume:
        on_rank_0(group, lambda: check_graph(run_dir, begin))
    planner = build_planner(arguments, config, source, group)
    return _Opened(config, source.ends, part, planner, begin)
