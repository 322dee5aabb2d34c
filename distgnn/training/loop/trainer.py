"""The full-batch trainer."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from distgnn.datasets.errors import InputError
from distgnn.edges.walk_orders import AsItIs, WalkOrders
from distgnn.kernels.devices import PROCESSOR
from distgnn.nn.models import GNN
from distgnn.ops import SparseRows
from distgnn.optim.average import build_average
from distgnn.optim.clip import build_clip
from distgnn.training.data.identity import layout_of
from distgnn.training.data.inputs import SPLITS
from distgnn.training.data.label_input import build_input
from distgnn.training.data.placement import place
from distgnn.training.loop.best import Best, Patience
from distgnn.training.loop.controllers import NoController
from distgnn.training.loop.goal import goal_of
from distgnn.training.loop.graphs import build_graphs, is_input_fixed, is_summed_once
from distgnn.training.loop.head_start import build_course
from distgnn.training.loop.metrics import over_ranks
from distgnn.training.loop.model import (
    WholeLoss,
    build_model,
    learning_rate_of,
    num_inputs,
    optimizer_of,
)
from distgnn.training.loop.own_model import (
    begin_with,
    build_own,
    call_own,
    check_own,
    rows_for,
    seeded,
)
from distgnn.training.loop.replay import build_repeated, may_replay
from distgnn.training.loop.screened import (
    CONFIRMED,
    build_screen,
    check_screening,
    pack_held,
    unpack_held,
)
from distgnn.training.loop.skew_scout import SkewScout
from distgnn.training.loop.stop import NoStop, encode
from distgnn.training.loop.trace import NoTrace
from distgnn.training.loop.weights import build_weights, join_state, split_state
from distgnn.training.run.checkpoint import Checkpoints, pack_state, unpack_state
from distgnn.training.tasks.learning import build_objective, load_task
from distgnn.training.tasks.tasks import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import nn

    from distgnn.comm.group import Group
    from distgnn.graph.local_graph import LocalGraph
    from distgnn.ops.rows import Rows
    from distgnn.partition.directory.store import Part
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.info import DataInfo
    from distgnn.training.loop.controllers import Controller
    from distgnn.training.loop.stop import StopRequest
    from distgnn.training.run.checkpoint import Checkpoint
    from distgnn.training.tasks.objective import Evaluation


class Trainer:
    """Trains one model on one rank's part; every rank runs the same.

    Args:
        config: The run.
        ends: Widths of the model's ends.
        part: This rank's part.
        group: One rank per part.
        walk_orders: Decide how sums walk the graph; None to keep nothing.
        device: Device that computes; walk orders are for the processor.
        crowded: Reason why features have no room on the device. --features-on auto needs that of
            `forecast.room.why_crowded`; with an empty one it keeps them on the device unasked.
        factory: Class or function that makes the model of the data's sizes, where the user wrote
            it; the configuration is then that of `own_config`. None for a model of ours.

    Attributes:
        goal: Validation metric that is to be reached; None without.
        model: The model, an nn.Module with forward(graph, x); a `GNN` unless there is a factory.
        stop: May ask for an early end.
        until: Number of epochs after which training ends, or pauses for a later resumption.
        controller: Turns a knob between epochs.
        stop_number: Which rank was asked, and how, as `stop.encode` puts it; 0 for none.
        estimated_epoch_s: Result of `estimate_epoch`; None where nobody asked.
    """

    def __init__(
        self,
        config: TrainConfig,
        ends: DataInfo,
        part: Part,
        group: Group,
        *,
        walk_orders: WalkOrders | None = None,
        device: torch.device = PROCESSOR,
        crowded: str = "",
        factory: Callable[[DataInfo], nn.Module] | None = None,
    ) -> None:
        self.config = config = resolve(config, ends)
        assert bool(config.model.own) == (factory is not None), "a model of its own is made"
        self.group = group
        self.walk_orders = walk_orders or WalkOrders()
        self._ends = ends
        self.inputs = load_task(part, group, config, num_classes=ends.num_classes)
        self.goal = goal_of(config, self.inputs)
        check_screening(config, self.inputs)
        if factory is not None:
            rows = rows_for(factory, self.inputs.features)
            self.inputs = replace(self.inputs, features=rows)
        # Not by another name: where they were is let go before more is made of them.
        self.inputs = place(self.inputs, config, device=device, crowded=crowded)
        is_sparse = isinstance(self.inputs.features, SparseRows)
        if is_summed_once(config, is_sparse=is_sparse):
            self.walk_orders = WalkOrders(chooser=AsItIs())
        self.graphs = build_graphs(
            config, self.inputs, part, group, walk_orders=self.walk_orders, device=device
        )
        self.graph = self.graphs.training
        keeps_own = config.halo_rule.keeps_state or config.weight_rule.is_local
        self._layout = layout_of(part) if keeps_own else ""
        self.model: nn.Module
        if factory is None:
            model = build_model(config, ends, self.graphs.exact.relation_sources)
            model.set_recompute(config.recompute)
            self.model = model.to(device)
        else:
            sizes = replace(ends, num_features=num_inputs(config, ends))
            self.model = build_own(factory, sizes, config.seed).to(device)
            check_own(self.model, group, num_vertices=ends.num_vertices)
        self.objective = build_objective(
            *(config, self.inputs, self.graphs, self.model), num_classes=ends.num_classes
        )
        measure = self.objective.measure
        self.screen = build_screen(
            self.graphs.screened, self.evaluate_on, measure, self.model, config
        )
        is_fixed = is_input_fixed(config, is_sparse=is_sparse)
        whole = WholeLoss(group, self.objective, is_fixed or factory is not None)
        self.optimizer = optimizer_of(config, self.model, whole)
        given = build_input(
            config.labels_as_input, self.graphs.features, self.graph, ends.num_classes
        )
        self.course = build_course(config, self.graphs, given, self.inputs, self.optimizer)
        self.lr = learning_rate_of(config, self.optimizer, self.inputs.counts)
        self.clip = build_clip(config.clip_grad_norm)
        self.average = build_average(self.model, config.ema)
        self.weights = build_weights(config, self.graph, self.model, self.optimizer)
        self.begin_trace(NoTrace(device))
        self.weights.broadcast(self.model)
        self.best = Best()
        self.patience = Patience(config, self.inputs.counts)
        self.best_state: dict[str, torch.Tensor] = {}
        self.num_epochs, self.until = 0, config.epochs
        self._saved_at: int | None = None
        self.stop: StopRequest = NoStop()
        self.controller: Controller = NoController()
        if (travel := config.weight_rule.travel) is not None and group.size > 1:
            self.controller = SkewScout(self, travel)
        self._look_bytes, self._look_s = 0, 0.0
        self.stop_number = 0
        self.estimated_epoch_s: float | None = None
        self._last_loss = ""

    def begin_trace(self, trace: NoTrace) -> None:
        """Remember from now on what happens when.

        Args:
            trace: Record of the times.
        """
        self.trace = trace
        self.graph.exchange.clock = self.weights.clock = trace.clock
        is_wanted = may_replay(self.config, trace, self.inputs.features) and self.gnn is not None
        # Pairs of vertices, and labels that are given, are drawn again; some steps decompose.
        is_same = self.config.task != "link" and not self.config.labels_as_input
        is_same = is_same and not (self.config.is_second_order or self.course.quiet)
        is_same = is_same and not self.config.weight_rule.warm_up_steps
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
        self.lr.begin_epoch(self.num_epochs)
        self.course.begin_epoch(self.num_epochs)
        if self.graphs.parts is not None and self.num_epochs >= self.course.quiet.stop:
            self.graphs = replace(self.graphs, parts=None)
        if self.gnn is None:
            seed = self.graph.mask_seeds.epoch_seed ^ self.group.rank
            with seeded(seed, self.graph.device):
                loss = self.steps.take()
        else:
            loss = self.steps.take()
        self.average.update()
        self.graph.end_epoch()
        return float(loss)

    def _step(self) -> torch.Tensor:
        loss = self.optimizer.take(self._differentiate)
        self.weights.after_step(self.model)
        return loss

    def _differentiate(self) -> torch.Tensor:
        """Return this rank's share of the loss, with its gradients summed over ranks."""
        scores = self._call(*self.course.take())
        loss: torch.Tensor = self.objective.loss(scores)
        loss.backward()  # type: ignore[no-untyped-call]
        self.weights.after_backward(self.model)
        self.clip(self.model.parameters())
        return loss.detach()

    @torch.no_grad()
    def evaluate(self) -> Evaluation:
        """Score all splits with an exact pass, whatever the algorithm delays or leaves out."""
        return self.objective.evaluate(self.exact_scores())

    @torch.no_grad()
    def exact_scores(self) -> torch.Tensor:
        """Return the scores of this rank's vertices by an exact pass; collective."""
        self.model.eval()
        scores = self.scores.take()
        self.graphs.exact.end_epoch()
        return scores

    @torch.no_grad()
    def evaluate_on(self, graph: LocalGraph) -> Evaluation:
        """Score all splits on a graph, whose exchange may code rows.

        Args:
            graph: The graph, whole as that of an exact evaluation.
        """
        self.model.eval()
        scores = self._call(graph, self.inputs.features)
        graph.end_epoch()
        return self.objective.evaluate(scores)

    def _scores(self) -> torch.Tensor:
        return self._call(self.graphs.exact, self.inputs.features)

    def known_model(self, what: str) -> GNN:
        """Return the model for something that has to know its layers.

        Args:
            what: Name of the caller, for the message.

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
        if self.config.model.own:
            begin_with(self.model, is_resumed=self.num_epochs > 0)
        if not (self.num_epochs or self.is_done):
            self._look(self.controller.begin)
        while not (self.is_done or self.stop_number):
            self.group.note(self.num_epochs, "train")
            start = time.perf_counter()
            loss = self.train_epoch()
            stop = time.perf_counter()
            self.trace.add("epoch", start, stop)
            own = self._measure(loss, stop - start)
            metrics, eval_s = self._evaluate_if_due()
            own["weight_bytes_sent"] += self.weights.take_bytes()
            deviation = self.weights.take_deviation()
            own |= {
                # What a controller looked at before the epoch counts with what was evaluated.
                "eval_s": eval_s + self._look_s,
                "deviation": math.nan if deviation is None else deviation,
                "eval_halo_bytes_sent": self._take_eval_bytes() + self._look_bytes,
                "stop_number": encode(self.stop, self.group.rank),
            }
            self._look_bytes, self._look_s = 0, 0.0
            values = over_ranks(self.group, own)
            self.stop_number = values.pop("stop_number")
            record = {"epoch": self.num_epochs, "lr": self.lr.value, **values, **metrics}
            self._check_finite("loss", record["loss"])
            self._last_loss = f", after a loss of {record['loss']:.6g} in epoch {self.num_epochs}"
            self.trace.end_epoch(self.num_epochs)
            self.num_epochs += 1
            self._look(partial(self.controller.observe, record))
            yield record

    def _look(self, decide: Callable[[], None]) -> None:
        """Let the controller decide, and note what that took for the next record."""
        start = time.perf_counter()
        decide()
        if not isinstance(self.controller, NoController):
            self._look_s += time.perf_counter() - start
            self._look_bytes += self._take_eval_bytes()

    def _take_eval_bytes(self) -> int:
        """Return the bytes that this rank sent to evaluate, or to decide, since the last call."""
        return (
            self.graphs.exact.exchange.take_bytes()
            + self.screen.take_bytes()
            + self.controller.take_bytes()
            + self.objective.take_eval_bytes()
        )

    def _looks(self) -> tuple[int, float]:
        """Return the bytes of all ranks, and the seconds, that no record has yet; collective."""
        if isinstance(self.controller, NoController):
            return 0, 0.0
        own = torch.tensor([self._look_bytes, self._look_s], dtype=torch.float64)
        table = torch.stack(self.group.all_gather(own))
        return int(table[:, 0].sum()), float(table[:, 1].max())

    @property
    def is_done(self) -> bool:
        """Whether no epoch is left to train."""
        # While epochs are held, the best one is not known, but it is recent.
        # On one rank parts are the graph, but a start lasts as long.
        latest, since = self.num_epochs - 1, (self.course.quiet or self.config.quiet_epochs).stop
        is_known = self._is_evaluated(latest) and not self.screen.held
        is_out = is_known and self.patience.is_out(latest, since=since)
        return is_out or self.num_epochs >= self.until

    def _is_evaluated(self, epoch: int) -> bool:
        """Whether an epoch is evaluated, be it the last one or not."""
        return (epoch + 1) % self.config.eval_every == 0 and self.course.is_evaluated(epoch)

    def check_weights(self) -> None:
        """Check that the weights can be gone on with; a finite loss may have an infinite gradient.

        Collective: models may differ between ranks.

        Raises:
            InputError: If one is not finite.
        """
        error: InputError | None = None
        if not all(bool(weight.isfinite().all()) for weight in self.model.parameters()):
            error = self._diverged(f"the weights are not finite after epoch {self.num_epochs - 1}")
        self.group.agree(error)

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
        code_bits, coded_values = exchange.take_codec_bits()
        seconds = {f"{phase}_s": value for phase, value in exchange.clock.take().items()}
        return {
            "loss": loss,
            "epoch_s": epoch_s,
            "update_s": max(epoch_s - sum(seconds.values()), 0.0),
            "preconditioner_s": self.optimizer.take_preconditioner_s(),
            **seconds,
            "halo_bytes_sent": exchange.take_bytes() + self.objective.take_bytes(),
            "weight_bytes_sent": self.weights.take_bytes()
            + self.optimizer.take_bytes()
            + exchange.take_reduced_bytes(),
            "max_staleness": exchange.max_staleness,
            "weight_syncs": self.weights.take_merges(),
            "codec_error": exchange.take_codec_error(),
            "code_bits": code_bits,
            "coded_values": coded_values,
        }

    def _evaluate_if_due(self) -> tuple[dict[str, Any], float]:
        """Evaluate, and keep the weights if they are the best so far."""
        is_last = self.num_epochs + 1 == self.until
        names = (*(f"{split}_metric" for split in SPLITS), "val_loss")
        metrics: dict[str, Any] = dict.fromkeys(names)
        epoch = self.num_epochs
        # A pause shows how far the run is, and changes nothing of what comes: the run that does not
        # pause looks at other epochs. Before the first look it has to, as a model is to be kept.
        is_shown = (
            is_last
            and self.until < self.config.epochs
            and self.best.epoch is not None
            and not self._is_evaluated(epoch)
        )
        is_due = self._is_evaluated(epoch) or (is_last and not is_shown)
        if not (is_due or is_shown or self.screen.is_due(self.best, epoch, is_last=is_last)):
            return metrics | self.screen.take_values(), 0.0
        start = time.perf_counter()
        self.group.note(epoch, "evaluate")
        with self.weights.consensus(self.model), self.average.in_place():
            if is_due and self.screen.passes(self.best, epoch, is_last=is_last):
                metrics |= self._evaluate_exactly(epoch)
            elif is_shown:
                metrics |= self._metrics_of(self.evaluate())
            while self.screen.is_due(self.best, epoch, is_last=is_last):
                self.screen.settle(self._evaluate_exactly, lambda: self.best)
        if is_due:
            self.lr.watch(epoch, self.patience.best_at == epoch)
        stop = time.perf_counter()
        self.trace.add("evaluate", start, stop)
        return metrics | self.screen.take_values(), stop - start

    def _evaluate_exactly(self, epoch: int) -> dict[str, Any]:
        """Return the metrics of an epoch's weights; keep them if they are the best so far."""
        scores = self.evaluate()
        if self.goal is not None and scores.metric["val"] is None:
            raise self.goal.never_reached()
        metrics = self._metrics_of(scores)
        metric = scores.metric["val"]
        if not self.inputs.counts["val"]:
            # The latest epoch is the best one.
            merit = float(epoch)
        elif metric is None:
            # An area is not defined where all validation labels are equal; the loss is.
            merit = -scores.val_loss
        else:
            merit = -metric if self.objective.measure.is_lower_better else metric
        self.patience.watch(epoch, merit, scores.val_loss)
        merit = -scores.val_loss if self.config.select_by == "loss" else merit
        if self.best.improves(merit, scores.val_loss, epoch):
            self.best = Best(epoch, merit, scores.val_loss)
            self.best_state = {k: v.clone() for k, v in self.model.state_dict().items()}
        return metrics

    def _metrics_of(self, scores: Evaluation) -> dict[str, Any]:
        """Return the values of an evaluation by name."""
        # Weights that are not finite could otherwise look best and be kept.
        self._check_finite("validation loss", scores.val_loss)
        metrics: dict[str, Any] = {f"{split}_metric": v for split, v in scores.metric.items()}
        return metrics | {"val_loss": scores.val_loss if self.inputs.counts["val"] else None}

    def settle(self, records: list[dict[str, Any]]) -> None:
        """Find the best epoch where a run ends at once that was to go on; collective.

        Args:
            records: Records of all epochs; the last one gets the metrics that were found.
        """
        if self.screen.held:
            # What is held was taken from the mean of the ranks' models, or from the average of the
            # steps, and takes the place of all weights. So neither is needed here.
            while self.screen.held:
                self.screen.settle(self._evaluate_exactly, lambda: self.best)
            for record in records[-1:]:
                record[CONFIRMED] = record[CONFIRMED] + self.screen.take_values()[CONFIRMED]

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
        held, tensors = pack_held(self.screen)
        progress = {
            "best_epoch": self.best.epoch,
            "metric": self.best.metric,
            "loss": self.best.loss,
            "lr": self.lr.state(),
            "patience": self.patience.state(),
            "held": held,
            "controller": self.controller.state(),
            "looks": self._looks(),
        }
        own = join_state(self.graph.exchange.state(), self.weights.state(self.model))
        with self.weights.consensus(self.model, has_moments=True):
            state = pack_state(self.model, self.optimizer, self.average, self.best_state)
            state |= tensors
            checkpoints.write(self.num_epochs, progress, state, own)
        # What a checkpoint sends and finds is of no epoch.
        self.weights.take_bytes()
        self.weights.take_deviation()
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
        self.best_state = unpack_state(found.state, self.model, self.optimizer, self.average)
        self.num_epochs = self.graph.mask_seeds.epoch = self._saved_at = found.num_epochs
        self._load_progress(found)
        rows, weights = split_state(found.rows)
        if rows:
            self.graph.exchange.load_state(rows)
        self.weights.load_state(weights, self.model, self.num_epochs)
        return found

    def _load_progress(self, found: Checkpoint) -> None:
        """Restore what `save` wrote beside the tensors."""
        progress = found.progress
        try:
            self.best = Best(progress["best_epoch"], progress["metric"], progress["loss"])
            is_old = "best" not in progress["patience"] and self.inputs.counts["val"]
            if is_old and self.best.metric == self.best.epoch:
                # So older versions wrote a metric that is not defined. Now the loss stands for it.
                self.best = Best()
            self.lr.load_state(progress["lr"])
            self.patience.load_state(progress["patience"], self.best)
            self.controller.load_state(progress.get("controller", {}))
            look_bytes, self._look_s = progress.get("looks", (0, 0.0))
            # Records add bytes up over ranks, of which one has those of all.
            self._look_bytes = look_bytes if self.group.rank == 0 else 0
            self.screen.held = unpack_held(progress["held"], found.state)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"the checkpoint of epoch {found.num_epochs} lacks what the run had reached "
                f"({error!r}); remove its folder to go on from an older one"
            ) from error
