"""Seconds, epochs and bytes to an accuracy: full batch beside sampled mini-batches, in turns."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from distgnn.bench.peers import sampled
from distgnn.comm.single import SingleGroup
from distgnn.datasets import InputError
from distgnn.optim.kfac import ADAM_SHARE
from distgnn.training.config.settings import TrainConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from distgnn.bench.peers.sampled import SampledRun
    from distgnn.datasets import Graph

BELOW = 0.005
"""Accuracy below the best that counts that is the goal, unless another one is given."""
ADAM = "adam"
_NEWS_S = 30.0
"""Seconds after which an epoch is reported."""


class Step(NamedTuple):
    """One epoch of a contestant.

    Attributes:
        train_s: Seconds of training; those of the first epoch include what is done once.
        eval_s: Seconds of the evaluation after it.
        metric: Validation accuracy; None if the epoch is not evaluated.
        num_bytes: Bytes that ranks sent, or of the features that batches gathered.
    """

    train_s: float
    eval_s: float
    metric: float | None
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class AccuracyRace:
    """A contest.

    Attributes:
        seeds: Number of seeds.
        epochs: Epochs of each of ours on the graph.
        sampled_epochs: Epochs of each sampler.
        hidden: Columns of hidden rows.
        dropout: Probability of dropping an entry of them.
        fan_outs: Neighbours that a sampler draws, from the vertex outward; one for each layer.
        batch_size: Training vertices of a mini-batch.
        rates: Rates of Adam that ours and each sampler run with; K-FAC has ten times these.
        start: Epochs of the head start without the graph.
        goal: Validation accuracy to reach; None for half a point below what both sides reach, see
            `both_reach`.
        threads: Threads of every contestant.
        peers: Names of samplers.
    """

    seeds: int
    epochs: int
    sampled_epochs: int
    hidden: int
    dropout: float
    fan_outs: tuple[int, ...]
    batch_size: int
    rates: tuple[float, ...]
    start: int
    goal: float | None
    threads: int
    peers: Sequence[str]

    def sampled(self, lr: float, seed: int) -> SampledRun:
        """Return the run of a sampler."""
        return sampled.SampledRun(
            epochs=self.sampled_epochs,
            hidden=self.hidden,
            dropout=self.dropout,
            fan_outs=self.fan_outs,
            batch_size=self.batch_size,
            lr=lr,
            seed=seed,
        )


def ours(race: AccuracyRace, seed: int) -> dict[str, dict[str, Any]]:
    """Return the settings of our contestants by name.

    Args:
        race: The contest.
        seed: Seed of the runs.
    """
    shared = {"epochs": race.epochs, "seed": seed, "patience": 0, "eval_every": 1}
    sage = {
        **shared,
        "model": "sage",
        "layers": len(race.fan_outs),
        "hidden": race.hidden,
        "dropout": race.dropout,
    }
    started = {**sage, "start": f"mlp({race.start})", "epochs": race.epochs + race.start}
    found = {_named(ADAM, lr): {**sage, "lr": lr} for lr in race.rates}
    # Where Adam steps with K-FAC, its rate is a tenth of K-FAC's.
    for lr in (rate / ADAM_SHARE for rate in race.rates):
        found[_named("kfac", lr)] = {**sage, "optimizer": "kfac", "lr": lr}
    found |= {_named("mlp start", lr): {**started, "lr": lr} for lr in race.rates}
    return {**found, "lbfgs on sgc": {**shared, "model": "sgc", "optimizer": "lbfgs"}}


def _named(method: str, lr: float) -> str:
    return f"{method}, lr {lr:g}"


def train(graph: Graph, settings: Mapping[str, Any]) -> Iterator[Step]:
    """Train ours on one rank, an epoch at a time.

    Args:
        graph: The graph.
        settings: Settings of the run by name.

    Yields:
        Epochs.
    """
    from distgnn.partition.directory.store import whole_part
    from distgnn.training.data.info import DataInfo
    from distgnn.training.loop.trainer import Trainer

    start = time.perf_counter()
    config = TrainConfig.of(settings)
    trainer = Trainer(config, DataInfo.of(graph), whole_part(graph), SingleGroup())
    setup_s = time.perf_counter() - start
    for record in trainer.epochs():
        sent = record["halo_bytes_sent"] + record["weight_bytes_sent"]
        yield Step(record["epoch_s"] + setup_s, record["eval_s"], record["val_metric"], sent)
        setup_s = 0.0


def contestants(graph: Graph, race: AccuracyRace, seed: int) -> dict[str, Iterator[Step]]:
    """Prepare everybody; the work is done as their epochs are asked for.

    Args:
        graph: The graph.
        race: The contest.
        seed: Seed of weights and samples.
    """
    made = {name: train(graph, settings) for name, settings in ours(race, seed).items()}
    for peer in race.peers:
        for lr in race.rates:
            rows = sampled.train(peer, graph, race.sampled(lr, seed))
            made[_named(peer, lr)] = (Step(*row) for row in rows)
    return made


def in_turns(
    racing: Mapping[str, Iterator[Step]], progress: Callable[[str], None]
) -> dict[str, list[Step]]:
    """Let the one that has spent the least go next, so that a slow minute of the machine hits all.

    Args:
        racing: Epochs by name of the contestant.
        progress: Is told what is under way.

    Returns:
        All epochs by name.
    """
    found: dict[str, list[Step]] = {name: [] for name in racing}
    spent = dict.fromkeys(racing, 0.0)
    told_s = time.monotonic()
    while spent:
        name = min(spent, key=spent.__getitem__)
        step = next(racing[name], None)
        if step is None:
            del spent[name]
            progress(f"{name}: {len(found[name])} epochs, {_best(found[name]):.4f}")
        else:
            found[name].append(step)
            spent[name] += step.train_s + step.eval_s
            if time.monotonic() - told_s > _NEWS_S:
                told_s = time.monotonic()
                progress(f"{name}: epoch {len(found[name])}, {_best(found[name]):.4f}")
    return found


def measure(graph: Graph, race: AccuracyRace, *, progress: Callable[[str], None]) -> dict[str, Any]:
    """Let everybody train on a graph, with every seed.

    Args:
        graph: A graph with single labels and a split.
        race: The contest.
        progress: Is told what is under way.

    Returns:
        JSON values: the race, the goal of each seed, and the epochs of each contestant.

    Raises:
        InputError: If the graph has no classes to learn, or no validation vertices.
    """
    labels, masks = graph.labels, graph.val_mask
    if labels is None or labels.ndim != 1 or masks is None or not masks[0].any():
        raise InputError(
            "bench accuracy needs single labels and validation vertices, which "
            f"'{graph.name}' lacks; use another graph"
        )
    before = torch.get_num_threads()
    torch.set_num_threads(race.threads)
    runs = []
    try:
        for seed in range(race.seeds):
            progress(f"{graph.name}: seed {seed}")
            steps = in_turns(contestants(graph, race, seed), progress)
            goal = both_reach(steps, race) - BELOW if race.goal is None else race.goal
            to_goal = {name: price(found, goal) for name, found in steps.items()}
            runs.append({"seed": seed, "goal": goal, "to_goal": to_goal, "steps": steps})
    finally:
        torch.set_num_threads(before)
    # Twins of one graph differ in their scale, which the source alone tells.
    values = {"graph": graph.name, "source": graph.source, "num_vertices": graph.num_vertices}
    return {**values, "num_edges": graph.num_edges, "race": asdict(race), "runs": runs}


def both_reach(steps: Mapping[str, Sequence[Step]], race: AccuracyRace) -> float:
    """Return the lower one of our best and the samplers' best; without samplers Adam's best.

    Args:
        steps: Epochs by name of the contestant.
        race: The contest.
    """
    theirs = {_named(peer, lr) for peer in race.peers for lr in race.rates}
    if not theirs:
        return max(_best(steps[_named(ADAM, lr)]) for lr in race.rates)
    sides = (theirs, steps.keys() - theirs)
    return min(max(_best(steps[name]) for name in side) for side in sides)


def _best(steps: Sequence[Step]) -> float:
    return max((step.metric for step in steps if step.metric is not None), default=0.0)


def price(steps: Sequence[Step], goal: float) -> dict[str, Any] | None:
    """Return what a contestant spent until it reached a metric.

    Args:
        steps: Its epochs.
        goal: Validation accuracy.

    Returns:
        Epochs, seconds of training, seconds with evaluations, and bytes; None if it never did.
    """
    for number, step in enumerate(steps, start=1):
        if step.metric is not None and step.metric >= goal:
            spent = steps[:number]
            train_s = sum(one.train_s for one in spent)
            return {
                "epochs": number,
                "train_s": train_s,
                "total_s": train_s + sum(one.eval_s for one in spent),
                "num_bytes": sum(one.num_bytes for one in spent),
            }
    return None


HEADER = ("", "seeds", "epochs", "training s", "with evaluation s", "bytes", "best")


def rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row of medians over the seeds for each contestant.

    Args:
        result: Result of `measure`.
    """
    runs = result["runs"]
    lines = []
    for name in runs[0]["steps"]:
        prices = [run["to_goal"][name] for run in runs if run["to_goal"][name] is not None]
        best = statistics.median(_best(run["steps"][name]) for run in runs)
        cells = ["-"] * 4
        if prices:
            epochs, trained, total, sent = (
                statistics.median(one[key] for one in prices)
                for key in ("epochs", "train_s", "total_s", "num_bytes")
            )
            cells = [f"{epochs:g}", f"{trained:.2f}", f"{total:.2f}", f"{sent:.3g}"]
        lines.append((name, f"{len(prices)} of {len(runs)}", *cells, f"{best:.4f}"))
    return lines


def plot(result: Mapping[str, Any]) -> str:
    """Draw the best accuracy so far over seconds of training and evaluation, of the first seed.

    Args:
        result: Result of `measure`.

    Returns:
        SVG.
    """
    from distgnn.pages.charts import lines
    from distgnn.pages.markup import standalone

    curves = {}
    for name, steps in result["runs"][0]["steps"].items():
        seconds, best, curve = 0.0, 0.0, []
        for step in steps:
            seconds += step.train_s + step.eval_s
            if step.metric is not None:
                best = max(best, step.metric)
                curve.append((seconds, best))
        curves[name] = curve
    drawn = lines(
        curves,
        labels=("seconds", "best validation accuracy"),
        description=f"Accuracy over seconds on {result['source']}",
        write=lambda value: f"{value:.3f}",
    )
    return standalone(drawn)
