"""The full-batch trainer."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from distgnn.datasets.errors import InputError
from distgnn.edges.planner import Planner
from distgnn.kernels.devices import PROCESSOR
from distgnn.nn.models import GNN, LinkModel
from distgnn.optim.optimizers import build_optimizer
from distgnn.training.data.identity import layout_of
from distgnn.training.data.label_input import build_input
from distgnn.training.data.placement import place
from distgnn.training.loop.best import Best
from distgnn.training.loop.graphs import build_graphs
from distgnn.training.loop.metrics import over_ranks, peak_rss_bytes, summarise
from distgnn.training.loop.own_model import (
    build_own,
    call_own,
    check_own,
    rows_for,
    seeded,
    trainable,
)
from distgnn.training.loop.replay import build_repeated, may_replay
from distgnn.training.loop.stop import NoStop, encode
from distgnn.training.loop.trace import NoTrace
from distgnn.training.run.checkpoint import Checkpoints, pack_state, unpack_state
from distgnn.training.run.directory import SUMMARY
from distgnn.training.run.writer import RunWriter
from distgnn.training.tasks.learning import build_objective, load_task
from distgnn.training.tasks.tasks import resolve
from distgnn.weights.summed_gradients import WeightSync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import nn

    from distgnn.aggregate.learned_rows import RelationSources
    from distgnn.comm.group import Group
    from distgnn.graph.local_graph import LocalGraph
    from distgnn.ops.rows import Rows
    from distgnn.optim.optimizers import Optimizer
    from distgnn.partition.directory.store import Part
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.info import DataInfo
    from distgnn.training.loop.progress import Progress
    from distgnn.training.loop.stop import StopRequest
    from distgnn.training.run.checkpoint import Checkpoint
    from distgnn.training.run.directory import RunDirectory
    from distgnn.training.tasks.objective import Evaluation


class Trainer:
    """Trains one model on one rank's part; every rank runs the same.

    Args:
        config: The run.
        ends: Widths of the model's ends.
        part: This rank's part.
        group: One rank per part.
        planner: Decides how sums walk the graph; None for one that keeps nothing.
        device: That computes; the planner's plans are for the processor.
        factory: Class or function that makes the model of the data's sizes, where the user wrote
            it; the configuration is then that of `own_config`. None for a model of ours.

    Attributes:
        model: The model, an nn.Module with forward(graph, x); a `GNN` unless there is a factory.
        stop: May ask for an early end.
        stop_number: Which rank was asked, and how, as `stop.encode` puts it; 0 for none.
        estimated_epoch_s: What `estimate_epoch` said; None where nobody asked.
    """

    def __init__(
        self,
        config: TrainConfig,
        ends: DataInfo,
        part: Part,
        group: Group,
        *,
        planner: Planner | None = None,
        device: torch.device = PROCESSOR,
        factory: Callable[[DataInfo], nn.Module] | None = None,
    ) -> None:
        self.config = config = resolve(config, ends)
        assert bool(config.model.own) == (factory is not None), "a model of its own is made"
        self.group = group
        self.planner = planner or Planner()
        self._ends = ends
        self.inputs = load_task(part, group, config, num_classes=ends.num_classes)
        if factory is not None:
            rows = rows_for(factory, self.inputs.features)
            self.inputs = replace(self.inputs, features=rows)
        # Not by another name: where they were is let go before more is made of them.
        self.inputs = place(self.inputs, config, ends, part, group, device=device)
        self.graphs = build_graphs(
            config, self.inputs, part, group, planner=self.planner, device=device
        )
        self.graph = self.graphs.training
        self.input = build_input(
            config.labels_as_input, self.graphs.features, self.graph, ends.num_classes
        )
        self._layout = "" if config.delays.is_synchronous else layout_of(part)
        self.model: nn.Module
        if factory is None:
            model = build_model(config, ends, self.graphs.exact.relation_sources)
            model.set_recompute(config.recompute)
            self.model = model.to(device)
        else:
            sizes = replace(ends, num_features=num_inputs(config, ends))
            self.model = build_own(factory, sizes, config.seed).to(device)
            check_own(self.model, group, num_vertices=ends.num_vertices)
        self.objective = build_objective(config, self.inputs, self.graphs, self.model)
        self.optimizer = optimizer_of(config, self.model)
        self.weights = WeightSync(group, self.graph.exchange.clock)
        self.begin_trace(NoTrace(device))
        self.weights.broadcast(self.model)
        self.best = Best()
        self.best_state: dict[str, torch.Tensor] = {}
        self.num_epochs = 0
        self._saved_at: int | None = None
        self.stop: StopRequest = NoStop()
        self.stop_number = 0
        self.estimated_epoch_s: float | None = None
        self._last_loss = ""

    def begin_trace(self, trace: NoTrace) -> None:
        """Remember from now on what happens when.

        Args:
            trace: What to remember it with.
        """
        self.trace = trace
        self.graph.exchange.clock = self.weights.clock = trace.clock
        is_wanted = may_replay(self.config, trace, self.inputs.features) and self.gnn is not None
        # Pairs of vertices, and labels that are given, are drawn anew.
        is_same = self.config.task != "link" and not self.config.labels_as_input
        self.steps = build_repeated(
            "a step", self._step, self.graph, is_wanted=is_wanted and is_same
        )
        self.scores = build_repeated(
            "evaluation", self._scores, self.graphs.exact, is_wanted=is_wanted
        )

    def train_epoch(self) -> float:
        """Take one full-batch step.

        Returns:
            This rank's share of the loss before the step.
        """
        self.model.train()
        if self.gnn is None:
            seed = self.graph.mask_seeds.epoch_seed ^ self.group.rank
            with seeded(seed, self.graph.device):
                loss = self.steps.take()
        else:
            loss = self.steps.take()
        self.graph.end_epoch()
        return float(loss)

    def _step(self) -> torch.Tensor:
        scores = self._call(self.graph, self.input.rows())
        loss: torch.Tensor = self.objective.loss(scores)
        loss.backward()  # type: ignore[no-untyped-call]
        self.weights.sync(self.model)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    @torch.no_grad()
    def evaluate(self) -> Evaluation:
        """Score all splits with an exact pass, whatever the algorithm delays or leaves out."""
        self.model.eval()
        scores = self.scores.take()
        self.graphs.exact.end_epoch()
        return self.objective.evaluate(scores)

    def _scores(self) -> torch.Tensor:
        return self._call(self.graphs.exact, self.inputs.features)

    def known_model(self, what: str) -> GNN:
        """Return the model for something that has to know its layers.

        Args:
            what: What asks, for the message.

        Raises:
            InputError: If the user wrote the model.
        """
        if self.gnn is None:
            raise InputError(
                f"{what} needs to know the layers of the model, which is one of your own; leave it "
                "out"
            )
        return self.gnn

    def _call(self, graph: LocalGraph, rows: Rows) -> torch.Tensor:
        if self.gnn is None:
            return call_own(self.model, graph, rows, self._ends)
        scores: torch.Tensor = self.model(graph, rows)
        return scores

    @property
    def gnn(self) -> GNN | None:
        """The model, if its layers are known; None if the user wrote it."""
        return self.model if isinstance(self.model, GNN) else None

    def epochs(self) -> Iterator[dict[str, Any]]:
        """Train until the last epoch, until patience ends, or until a rank is asked to stop.

        Yields:
            One record of metrics.jsonl per epoch, the same on every rank.
        """
        while not (self.is_done or self.stop_number):
            self.group.note(self.num_epochs, "train")
            start = time.perf_counter()
            loss = self.train_epoch()
            stop = time.perf_counter()
            self.trace.add("epoch", start, stop)
            own = self._measure(loss, stop - start)
            metrics, eval_s = self._evaluate_if_due()
            own |= {
                "eval_s": eval_s,
                "eval_halo_bytes_sent": self.graphs.exact.exchange.take_bytes()
                + self.objective.take_eval_bytes(),
                "stop_number": encode(self.stop, self.group.rank),
            }
            values = over_ranks(self.group, own)
            self.stop_number = values.pop("stop_number")
            record = {"epoch": self.num_epochs, **values, **metrics}
            self._check_finite("loss", record["loss"])
            self._last_loss = f", after a loss of {record['loss']:.6g} in epoch {self.num_epochs}"
            self.trace.end_epoch(self.num_epochs)
            self.num_epochs += 1
            yield record

    @property
    def is_done(self) -> bool:
        """Whether no epoch is left to train."""
        return self.num_epochs >= self.config.epochs or self._is_out_of_patience()

    def check_weights(self) -> None:
        """Check that the weights can be gone on with; a finite loss may have an infinite gradient.

        Raises:
            InputError: If one is not finite.
        """
        if not all(bool(weight.isfinite().all()) for weight in self.model.parameters()):
            raise self._diverged(f"the weights are not finite after epoch {self.num_epochs - 1}")

    def _check_finite(self, name: str, value: float) -> None:
        if not value < float("inf"):
            raise self._diverged(f"the {name} is {value} in epoch {self.num_epochs}")

    def _diverged(self, what: str) -> InputError:
        kept = "no checkpoint was written yet"
        if self._saved_at is not None:
            kept = f"the checkpoint of epoch {self._saved_at} is kept"
        return InputError(
            f"{what}{self._last_loss}, and {kept}; lower --lr, scale the input with "
            "--feature-norm, or use --norm"
        )

    def _measure(self, loss: float, epoch_s: float) -> dict[str, float]:
        exchange = self.graph.exchange
        seconds = {f"{phase}_s": value for phase, value in exchange.clock.take().items()}
        return {
            "loss": loss,
            "epoch_s": epoch_s,
            "update_s": max(epoch_s - sum(seconds.values()), 0.0),
            **seconds,
            "halo_bytes_sent": exchange.take_bytes() + self.objective.take_bytes(),
            "weight_bytes_sent": self.weights.take_bytes() + exchange.take_reduced_bytes(),
            "max_staleness": exchange.max_staleness,
        }

    def _evaluate_if_due(self) -> tuple[dict[str, Any], float]:
        """Evaluate, and keep the weights if they are the best so far."""
        is_last = self.num_epochs + 1 == self.config.epochs
        if (self.num_epochs + 1) % self.config.eval_every and not is_last:
            return {f"{split}_metric": None for split in ("train", "val", "test")}, 0.0
        start = time.perf_counter()
        self.group.note(self.num_epochs, "evaluate")
        scores = self.evaluate()
        # Weights that are not finite could otherwise look best and be kept.
        self._check_finite("validation loss", scores.val_loss)
        # Without validation vertices the latest epoch is the best one.
        metric = scores.metric["val"]
        if metric is None:
            merit = float(self.num_epochs)
        else:
            merit = -metric if self.objective.measure.is_lower_better else metric
        if self.best.improves(merit, scores.val_loss):
            self.best = Best(self.num_epochs, merit, scores.val_loss)
            self.best_state = {k: v.clone() for k, v in self.model.state_dict().items()}
        metrics = {f"{split}_metric": value for split, value in scores.metric.items()}
        stop = time.perf_counter()
        self.trace.add("evaluate", start, stop)
        return metrics, stop - start

    def _is_out_of_patience(self) -> bool:
        if not self.config.patience or self.best.epoch is None:
            return False
        return self.num_epochs - 1 - self.best.epoch >= self.config.patience

    def checkpoints(self, folder: Path) -> Checkpoints:
        """Return the checkpoints of this run.

        Args:
            folder: Where they lie.
        """
        return Checkpoints(folder, self.group, layout=self._layout)

    def save(self, checkpoints: Checkpoints) -> None:
        """Write all that the next epoch depends on, unless that was just done; collective."""
        if self._saved_at == self.num_epochs:
            return
        self.group.note(self.num_epochs, "checkpoint")
        progress = {
            "best_epoch": self.best.epoch,
            "metric": self.best.metric,
            "loss": self.best.loss,
        }
        state = pack_state(self.model, self.optimizer, self.best_state)
        checkpoints.write(self.num_epochs, progress, state, self.graph.exchange.state())
        self._saved_at = self.num_epochs

    def resume(self, checkpoints: Checkpoints) -> Checkpoint | None:
        """Go on from the newest checkpoint; collective.

        Weights and optimizer go on exactly, whatever the partition. Delayed rows do so on the
        partition that they belong to; on another one the delays start cold, as in epoch 0.

        Returns:
            The checkpoint; None if there was none.
        """
        found = checkpoints.read_newest()
        if found is None:
            return None
        self.best_state = unpack_state(found.state, self.model, self.optimizer)
        progress = found.progress
        self.best = Best(progress["best_epoch"], progress["metric"], progress["loss"])
        self.num_epochs = self.graph.mask_seeds.epoch = self._saved_at = found.num_epochs
        if found.rows:
            self.graph.exchange.load_state(found.rows)
        return found


def build_model(config: TrainConfig, ends: DataInfo, sources: RelationSources | None = None) -> GNN:
    """Draw the model of a run; the same seed gives the same weights.

    Args:
        config: The run.
        ends: Widths of the model's ends.
        sources: Of a typed graph without features; None for a model whose weights will be read, or
            that only says what travels.

    Returns:
        The model.
    """
    size = ends.size
    if sources is not None:
        number, digest = len(sources.keys), sources.digest
        size = size._replace(num_relation_sources=number, relation_digest=digest)
    if config.task == "link":
        model: GNN = LinkModel(config.model, ends.num_features, size, config.decoder)
    else:
        model = GNN(config.model, num_inputs(config, ends), ends.num_classes, size)
    model.reset_parameters(torch.Generator().manual_seed(config.seed))
    return model


def num_inputs(config: TrainConfig, ends: DataInfo) -> int:
    """Return the number of columns that a model reads: features, and labels that are given.

    Args:
        config: Settings of the run.
        ends: Sizes of the graph.
    """
    return ends.num_features + (ends.num_classes if config.labels_as_input else 0)


def optimizer_of(config: TrainConfig, model: nn.Module) -> Optimizer:
    """Build the optimizer of a run.

    Args:
        config: Settings of the run.
        model: Model whose weights it steps.
    """
    decaying = None
    if config.decay_of == "first":
        assert isinstance(model, GNN), "others have no layers that are known"
        decaying = model.convolutions[0].parameters()
    return build_optimizer(
        config.optimizer,
        trainable([model]),
        lr=config.lr,
        weight_decay=config.weight_decay,
        decaying=decaying,
    )


def train(
    trainer: Trainer, run: RunDirectory, progress: Progress, *, records: list[dict[str, Any]]
) -> dict[str, Any]:
    """Run all epochs and write metrics, checkpoints, the best weights and the summary.

    Collective; only rank 0 writes.

    Args:
        trainer: Fresh or resumed.
        run: The directory, already created.
        progress: Shows each epoch.
        records: Records of the epochs done before; extended here.

    Returns:
        The summary, the same on every rank.

    Raises:
        InputError: If the loss is not finite, no epoch is left to train and none was evaluated, or
            the results cannot be written.
        StoppedError: If a rank was asked to stop; a checkpoint is written.
    """
    keeper = RunWriter(trainer, run, progress)
    first, counts = trainer.num_epochs + 1, trainer.planner.counts
    try:
        for record in trainer.epochs():
            records.append(record)
            keeper.epoch(record)
            progress.epoch(record)
            if trainer.num_epochs == first and counts.num_plans:
                progress.note(counts.describe())
            for repeated in (trainer.steps, trainer.scores):
                if (note := repeated.take_note()) is not None:
                    progress.note(note)
            keeper.save_if_due()
        keeper.stop_if_asked()
    finally:
        progress.close()
    if not trainer.best_state:
        raise InputError(
            f"none of the run's {trainer.num_epochs} epochs was evaluated, so there is no model "
            f"to keep; use --epochs above {trainer.num_epochs}"
        )
    keeper.finish()
    summary = {**summarise(records, trainer.best.epoch), **_of_all_ranks(trainer)}
    error = None
    if trainer.group.rank == 0:
        try:
            run.write_model(trainer.best_state)
            run.write_json(SUMMARY, summary)
        except InputError as caught:
            error = caught
    trainer.group.agree(error)
    return summary


def _of_all_ranks(trainer: Trainer) -> dict[str, Any]:
    """Gather what the summary says of ranks rather than epochs; collective."""
    counts = trainer.planner.counts
    own = [peak_rss_bytes(), trainer.graphs.setup_bytes_sent, counts.num_read, counts.num_made]
    table = trainer.group.all_gather(torch.tensor([*own, counts.seconds], dtype=torch.float64))
    memory, sent, num_read, num_made, seconds = torch.stack(table).unbind(dim=1)
    texts = trainer.group.all_gather_bytes(json.dumps(trainer.planner.records).encode())
    return {
        "estimated_epoch_s": trainer.estimated_epoch_s,
        "setup_bytes_sent": int(sent.sum()),
        "peak_rss_bytes": [int(value) for value in memory],
        "plans_read": int(num_read.sum()),
        "plans_made": int(num_made.sum()),
        "plans_s": float(seconds.max()),
        "kernels": [json.loads(text) for text in texts],
        "num_parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        "num_ranks": trainer.group.size,
        "task": trainer.config.task,
        "metric": trainer.config.metric,
    }
