"""The files of a run, written while it trains, whatever the disk does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from distgnn.comm.collective import on_rank_0
from distgnn.datasets.errors import InputError
from distgnn.machine.facts import processor
from distgnn.training.loop.metrics import peak_rss_bytes, summarise
from distgnn.training.loop.screened import screen_figures, warning_of
from distgnn.training.loop.stop import stopped
from distgnn.training.run.directory import SUMMARY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distgnn.training.loop.goal import Goal
    from distgnn.training.loop.progress import Progress
    from distgnn.training.loop.trainer import Trainer
    from distgnn.training.run.directory import RunDirectory


class RunWriter:
    """Writes metrics and checkpoints of a run.

    A file that cannot be written in the middle of a run, because the disk is full or its server is
    away, is a warning. Earlier lines stay whole, training continues, and the next epoch or
    checkpoint tries again. Only a line that is missing at the end is an error.

    Args:
        trainer: Fresh or resumed.
        run: The directory, already created.
        progress: Shows the warnings.
    """

    def __init__(self, trainer: Trainer, run: RunDirectory, progress: Progress) -> None:
        self._trainer = trainer
        self._run = run
        self._progress = progress
        self._is_writer = trainer.group.rank == 0
        self._checkpoints = trainer.checkpoints(run.checkpoints)
        self._unwritten: list[dict[str, Any]] = []

    def epoch(self, record: dict[str, Any]) -> None:
        """Add one epoch to metrics.jsonl, with those that could not be added before.

        Args:
            record: Record of the epoch.

        Raises:
            InputError: If another job writes there by now.
        """
        if not self._is_writer:
            return
        if self._run.lock.is_lost:
            self._run.lock.check()
        is_first_failure = not self._unwritten
        self._unwritten.append(record)
        error = self._append()
        if error is not None and is_first_failure:
            self._progress.warn(f"{error}; training continues, and keeps the lines until then")

    def _append(self) -> InputError | None:
        try:
            self._run.append_metrics(self._unwritten)
        except InputError as error:
            return error
        self._unwritten = []
        return None

    def save_if_due(self) -> None:
        """Write a checkpoint if it is due; collective.

        Raises:
            InputError: If the weights are not finite.
        """
        every = self._trainer.config.checkpoint_every
        if every and self._trainer.num_epochs % every == 0:
            self._save(f"the next checkpoint is due {every} epochs from now")

    def _save(self, what_next: str, *, needed_by: str = "") -> None:
        on_rank_0(self._trainer.group, self._run.lock.check)
        self._trainer.check_weights()
        if self._is_writer:
            self._run.sync_metrics()
        try:
            self._trainer.save(self._checkpoints)
        except InputError as error:
            if needed_by:
                raise InputError(
                    f"{error}, and {needed_by} cannot go on from one of them; make room there, and "
                    "continue with the same command and --resume"
                ) from error
            self._progress.warn(f"{error}; training continues: {what_next}")

    def stop_if_asked(self) -> None:
        """End the run with a checkpoint if a rank was asked to; collective.

        Raises:
            StoppedError: If so.
            InputError: If the checkpoint or metrics.jsonl cannot be written.
        """
        trainer = self._trainer
        if not trainer.stop_number or trainer.is_done:
            return
        on_rank_0(trainer.group, self._run.lock.check)
        trainer.check_weights()
        trainer.save(self._checkpoints)
        self._finish_metrics()
        raise stopped(trainer.group, trainer.stop_number, trainer.num_epochs)

    def finish(self, *, goes_on: bool = False) -> None:
        """Write the last checkpoint and the lines that are still missing; collective.

        Args:
            goes_on: Whether training goes on from the checkpoint at once.

        Raises:
            InputError: If the weights are not finite, or metrics.jsonl cannot be written, or the
                checkpoint that training is to go on from.
        """
        trainer = self._trainer
        is_pause = trainer.num_epochs == trainer.until < trainer.config.epochs
        needed_by = "the next cut" if goes_on else "a paused run" if is_pause else ""
        self._save("its results do not need this one", needed_by=needed_by)
        self._finish_metrics()

    def _finish_metrics(self) -> None:
        error = self._append() if self._unwritten else None
        self._trainer.group.agree(error)


def train(
    trainer: Trainer,
    run: RunDirectory,
    progress: Progress,
    *,
    records: list[dict[str, Any]],
    goes_on: bool = False,
) -> dict[str, Any]:
    """Run all epochs and write metrics, checkpoints, the best weights and the summary.

    Collective; only rank 0 writes.

    Args:
        trainer: Fresh or resumed.
        run: The directory, already created.
        progress: Shows each epoch.
        records: Records of the epochs done before; extended here.
        goes_on: Whether training goes on at once, on another cut, from the last checkpoint.

    Returns:
        The summary, the same on every rank.

    Raises:
        InputError: If the loss is not finite, no epoch is left to train and none was evaluated, or
            the results cannot be written.
        StoppedError: If a rank was asked to stop; a checkpoint is written.
    """
    writer = RunWriter(trainer, run, progress)
    first, counts = trainer.num_epochs + 1, trainer.walk_orders.counts
    try:
        for record in trainer.epochs():
            records.append(record)
            writer.epoch(record)
            progress.epoch(record)
            if (note := _note_of_goal(trainer.goal, records)) is not None:
                progress.note(note)
            if trainer.num_epochs == first and counts.num_walk_orders:
                progress.note(counts.describe())
            for repeated in (trainer.steps, trainer.scores, trainer.optimizer, trainer.controller):
                if (note := repeated.take_note()) is not None:
                    progress.note(note)
            writer.save_if_due()
        writer.stop_if_asked()
    finally:
        progress.close()
    trainer.settle(records)
    if not trainer.best_state:
        raise InputError(
            f"none of the run's {trainer.num_epochs} epochs was evaluated, so there is no model "
            f"to keep; use --epochs above {trainer.num_epochs}"
        )
    writer.finish(goes_on=goes_on)
    summary = {
        **summarise(records, trainer.best.epoch, trainer.goal, num_epochs=trainer.num_epochs),
        **screen_figures(records),
        **_of_all_ranks(trainer),
        **trainer.controller.figures(),
    }
    if (warning := warning_of(trainer.config.screening, summary)) is not None:
        progress.warn(warning)
    error = None
    if trainer.group.rank == 0:
        try:
            run.write_model(trainer.best_state)
            run.write_json(SUMMARY, summary)
        except InputError as caught:
            error = caught
    trainer.group.agree(error)
    return summary


def _note_of_goal(goal: Goal | None, records: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a line if the last epoch is the first that reached the goal."""
    if goal is None or not goal.is_reached(records[-1]) or any(map(goal.is_reached, records[:-1])):
        return None
    return f"goal: {goal} reached in epoch {records[-1]['epoch']}"


def _of_all_ranks(trainer: Trainer) -> dict[str, Any]:
    """Gather the values of the summary that are of ranks, not of epochs; collective."""
    counts = trainer.walk_orders.counts
    own = [peak_rss_bytes(), trainer.graphs.setup_bytes_sent, counts.num_read, counts.num_made]
    table = trainer.group.all_gather(torch.tensor([*own, counts.seconds], dtype=torch.float64))
    memory, sent, num_read, num_made, seconds = torch.stack(table).unbind(dim=1)
    texts = trainer.group.all_gather_bytes(json.dumps(trainer.walk_orders.records).encode())
    return {
        "estimated_epoch_s": trainer.estimated_epoch_s,
        "setup_bytes_sent": int(sent.sum()),
        "peak_rss_bytes": [int(value) for value in memory],
        "walk_orders_read": int(num_read.sum()),
        "walk_orders_made": int(num_made.sum()),
        "walk_orders_s": float(seconds.max()),
        "kernels": [json.loads(text) for text in texts],
        "num_parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        "num_ranks": trainer.group.size,
        "processor": processor(),
        "task": trainer.config.task,
        "metric": trainer.config.metric,
    }
