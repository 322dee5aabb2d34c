"""`distgnn evaluate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distgnn.cli.flags import whole
from distgnn.cli.output import add_json_flag, pairs, print_json, print_lines
from distgnn.cli.runs import (
    add_run_arguments,
    add_smoothing_argument,
    run_on_parts,
    smoothing,
)

if TYPE_CHECKING:
    import argparse

    from distgnn.cli.runs import Share
    from distgnn.training.run.inference import TrainedRun
    from distgnn.training.tasks.smoothing import CorrectAndSmooth

HELP = "score a trained run on its graph"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_run_arguments(parser)
    parser.add_argument(
        "--split-index", type=whole(0), metavar="K", help="row of the masks (default: the run's)"
    )
    add_smoothing_argument(parser)
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Score all splits and report."""

    def work(trained: TrainedRun, share: Share) -> dict[str, Any]:
        return _evaluate(trained, share, arguments.split_index, smoothing(arguments))

    def report(results: list[dict[str, Any]]) -> None:
        if arguments.json:
            print_json(results[0])
        else:
            print_lines(pairs({name: _text(value) for name, value in results[0].items()}))

    return run_on_parts(arguments, work, report)


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _evaluate(
    trained: TrainedRun,
    share: Share,
    split_index: int | None,
    after: CorrectAndSmooth | None,
) -> dict[str, Any]:
    from dataclasses import replace

    from distgnn.training.data.placement import place
    from distgnn.training.tasks.learning import evaluate_task, load_task
    from distgnn.training.tasks.tasks import check_split_index

    part, group, planner = share
    index = trained.config.split_index if split_index is None else split_index
    config = replace(trained.config, split_index=index)
    check_split_index(config)
    num_classes = trained.ends.num_classes
    inputs = load_task(part, group, config, num_classes=num_classes)
    inputs = place(inputs, config, trained.ends, part, group, device=group.device)
    # Labels that the model reads are those of the vertices that it was trained on.
    features = inputs.features if index == trained.config.split_index else None
    scores = trained.scores(part, group, features=features, planner=planner, after=after)
    result = evaluate_task(inputs, scores, trained.load_model(group.device), group)
    metrics = {f"{split}_metric": value for split, value in result.metric.items()}
    return {
        **metrics,
        "val_loss": result.val_loss,
        "metric": inputs.measure.name,
        "split_index": index,
    }
