"""What a run leaves behind while it goes on: metrics and checkpoints, whatever the disk does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distgnn.datasets.errors import InputError
from distgnn.training.loop.stop import StoppedError, decode, name_of

if TYPE_CHECKING:
    from distgnn.training.loop.progress import Progress
    from distgnn.training.loop.trainer import Trainer
    from distgnn.training.run.directory import RunDirectory


class RunWriter:
    """Writes metrics and checkpoints of a run.

    A file that cannot be written in the middle of a run, because the disk is full or its server is
    away, is a warning: what was written before stays whole, training goes on, and the next epoch
    or checkpoint tries again. Only what is missing at the end is an error.

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
            record: Of the epoch.
        """
        if not self._is_writer:
            return
        is_first_failure = not self._unwritten
        self._unwritten.append(record)
        error = self._append()
        if error is not None and is_first_failure:
            self._progress.warn(f"{error}; training goes on, and keeps the lines until then")

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

    def _save(self, what_next: str) -> None:
        self._trainer.check_weights()
        try:
            self._trainer.save(self._checkpoints)
        except InputError as error:
            self._progress.warn(f"{error}; training goes on: {what_next}")

    def stop_if_asked(self) -> None:
        """End the run with a checkpoint if a rank was asked to; collective.

        Raises:
            StoppedError: If so.
            InputError: If the checkpoint or metrics.jsonl cannot be written.
        """
        trainer = self._trainer
        if not trainer.stop_number or trainer.is_done:
            return
        trainer.check_weights()
        trainer.save(self._checkpoints)
        self._finish_metrics()
        rank, number = decode(trainer.stop_number)
        host = trainer.group.all_gather_bytes(trainer.group.host.encode())[rank].decode()
        raise StoppedError(
            f"rank {rank} ({host}) was asked to stop by {name_of(number)}: the checkpoint of epoch "
            f"{trainer.num_epochs} is written; go on with --resume",
            number,
        )

    def finish(self) -> None:
        """Write the last checkpoint and the lines that are still missing; collective.

        Raises:
            InputError: If the weights are not finite, or metrics.jsonl cannot be written.
        """
        self._save("its results do not need this one")
        self._finish_metrics()

    def _finish_metrics(self) -> None:
        error = self._append() if self._unwritten else None
        self._trainer.group.agree(error)
