"""`distgnn bench accuracy`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.cli.flags import MAX_THREADS, number, path, whole
from distgnn.cli.output import note, table
from distgnn.datasets import load
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this benchmark alone."""
    group = parser.add_argument_group("accuracy")
    group.add_argument("--seeds", type=whole(1), default=3, help="default: %(default)s")
    group.add_argument(
        "--epochs", type=whole(1), default=100, help="on the graph (default: %(default)s)"
    )
    group.add_argument(
        "--sampled-epochs",
        type=whole(1),
        metavar="N",
        help="of samplers, whose epochs take longer (default: as many as --epochs)",
    )
    group.add_argument(
        "--fan-outs",
        default="15,10,5",
        metavar="F1,F2,...",
        help="neighbours that samplers draw, one number for each layer (default: %(default)s)",
    )
    group.add_argument("--batch-size", type=whole(1), default=1024, help="default: %(default)s")
    group.add_argument(
        "--rates",
        default="0.01,0.003",
        metavar="R1,R2,...",
        help="learning rates of everybody, ten times as much for K-FAC (default: %(default)s)",
    )
    group.add_argument(
        "--start", type=whole(1), default=50, help="epochs of the head start (default: %(default)s)"
    )
    group.add_argument(
        "--goal",
        type=number,
        metavar="X",
        help="validation accuracy to reach (default: half a point below the lower one of the best "
        "of ours and the best of the samplers; without samplers below Adam's best)",
    )
    group.add_argument(
        "--plot",
        type=path,
        metavar="FILE",
        help="draw accuracy over seconds as SVG; of several graphs the last",
    )


def results(arguments: argparse.Namespace, peers: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Let everybody train on each graph.

    Args:
        arguments: Arguments of the verb.
        peers: Names of samplers.

    Yields:
        One result per graph.

    Raises:
        InputError: If a value is not allowed, or a graph cannot be loaded.
    """
    from distgnn.bench import accuracy
    from distgnn.bench.measure import keep_freed_memory

    if not arguments.files:
        raise InputError("bench accuracy needs graphs, such as cora or a file")
    race = accuracy.AccuracyRace(
        seeds=arguments.seeds,
        epochs=arguments.epochs,
        sampled_epochs=arguments.sampled_epochs or arguments.epochs,
        hidden=arguments.hidden,
        dropout=arguments.dropout,
        fan_outs=tuple(int(value) for value in _values("--fan-outs", arguments.fan_outs, int)),
        batch_size=arguments.batch_size,
        rates=_values("--rates", arguments.rates, float),
        start=arguments.start,
        goal=arguments.goal,
        threads=_threads(arguments.threads),
        peers=peers,
    )
    if not arguments.fresh_memory:
        keep_freed_memory()
    for source in arguments.files:
        result = accuracy.measure(load(source), race, progress=note)
        # First, so that it is kept if it cannot be drawn.
        yield result
        if arguments.plot is not None:
            Path(arguments.plot).write_text(accuracy.plot(result))


def lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """Show results to people.

    Args:
        found: Results.
    """
    from distgnn.bench import accuracy

    text = []
    for result in found:
        goals = ", ".join(f"{run['goal']:.4f}" for run in result["runs"])
        text += [f"{result['source']}, to a validation accuracy of {goals}:"]
        text += [*table(accuracy.HEADER, accuracy.rows(result)), ""]
    text.append(
        "bytes: of rows and gradients that ranks sent, or of features that batches gathered"
    )
    return text


def _values(flag: str, text: str, kind: type[int] | type[float]) -> tuple[float, ...]:
    try:
        values = tuple(kind(value) for value in text.split(","))
    except ValueError:
        values = (0,)
    if not all(0 < value < float("inf") for value in values):
        raise InputError(f"{flag} must be positive numbers with commas between them, got '{text}'")
    return values


def _threads(text: str | None) -> int:
    """Return the threads of everybody: one number, or all cores."""
    cores = len(os.sched_getaffinity(0))
    if text is None:
        return cores
    try:
        return whole(1, MAX_THREADS)(text)
    except argparse.ArgumentTypeError as error:
        raise InputError(
            "--threads of bench accuracy must be one positive number of at most "
            f"{MAX_THREADS}, got '{text}'"
        ) from error
