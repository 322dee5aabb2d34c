"""Metrics of a run for TensorBoard, MLflow and Weights & Biases, each an optional package."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from distgnn.training.loop.progress import Progress
    from distgnn.training.loop.trainer import Trainer
    from distgnn.training.run.directory import RunDirectory


class MetricLog(Protocol):
    """Receives what a run measures."""

    def log(self, values: Mapping[str, float], epoch: int) -> None:
        """Take the numbers of an epoch."""

    def close(self, *, has_ended: bool) -> None:
        """Write what is left; `has_ended` is false for a run that was interrupted."""


class Logged:
    """Progress of a run that also fills a log, which ends no run where it fails.

    Args:
        progress: Progress that is shown.
        log: Log of rank 0.
    """

    def __init__(self, progress: Progress, log: MetricLog) -> None:
        self._progress = progress
        self._log = log
        self._has_failed = False

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Show and log a finished epoch."""
        self._progress.epoch(record)
        self._try(lambda: self._log.log(numbers_of(record), record["epoch"]))

    def end(self, *, has_ended: bool) -> None:
        """Close the log; `has_ended` is false for a run that was interrupted."""
        self._try(lambda: self._log.close(has_ended=has_ended))

    def _try(self, action: Callable[[], None]) -> None:
        """Do what the package does, which has errors of its own, as where its server is away."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - any of any package
            if not self._has_failed:
                reason = str(error).strip().partition("\n")[0]
                self._progress.warn(
                    f"--log failed ({type(error).__name__}: {reason[:200]}); training continues, "
                    "and metrics.jsonl has all epochs"
                )
            self._has_failed = True

    def note(self, line: str) -> None:
        """Show a line."""
        self._progress.note(line)

    def warn(self, line: str) -> None:
        """Show a line that even a quiet run shows."""
        self._progress.warn(line)

    def close(self) -> None:
        """Restore the terminal."""
        self._progress.close()


def numbers_of(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a record, without the number of its epoch.

    Args:
        values: Line of metrics.jsonl.
    """
    return {
        name: float(value)
        for name, value in values.items()
        if name != "epoch" and isinstance(value, int | float)
    }


def check_log(name: str) -> None:
    """Check that a log can be written, before any work.

    Args:
        name: Value of --log.

    Raises:
        InputError: If its package is not installed.
    """
    if name != "none" and importlib.util.find_spec(name) is None:
        raise InputError(
            f"--log {name} needs the package {name}; pip install 'distgnn[{name}]', or leave --log "
            "out"
        )


def open_log(name: str, folder: Path, settings: Mapping[str, Any], first: int) -> MetricLog:
    """Open the log of a run.

    Args:
        name: Value of --log that is not none.
        folder: Directory of the run.
        settings: Settings of the run, by name.
        first: First epoch that will be logged; later ones of an earlier attempt are dropped where
            the log can do so.
    """
    makers: dict[str, Callable[..., MetricLog]] = {
        "tensorboard": _TensorBoard,
        "mlflow": _Mlflow,
        "wandb": _Wandb,
    }
    own = folder / name
    if first == 0 and own.exists():
        shutil.rmtree(own)
    own.mkdir(exist_ok=True)
    return makers[name](own, settings, first)


@contextmanager
def logged(
    progress: Progress, trainer: Trainer, run: RunDirectory, first: int
) -> Iterator[Progress]:
    """Log each epoch that is shown, on rank 0 of a run with --log.

    Args:
        progress: Progress that is shown.
        trainer: Trainer of the run.
        run: Directory of the run, already created.
        first: First epoch that will be logged.

    Yields:
        Progress to tell the epochs; the given one where there is no log.
    """
    config = trainer.config
    if config.log == "none" or trainer.group.rank != 0:
        yield progress
        return
    values = config.to_json()
    log = open_log(config.log, run.path, {**values.pop("model"), **values}, first)
    shown, has_ended = Logged(progress, log), False
    try:
        yield shown
        has_ended = True
    finally:
        shown.end(has_ended=has_ended)


class _TensorBoard:
    """Event files, for `tensorboard --logdir RUN`."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], first: int) -> None:
        module = importlib.import_module("torch.utils.tensorboard")
        self._writer = module.SummaryWriter(str(folder), purge_step=first or None)
        lines = (f"    {name}: {value}" for name, value in settings.items())
        self._writer.add_text("settings", "\n".join(lines), first)

    def log(self, values: Mapping[str, float], epoch: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, epoch)

    def close(self, *, has_ended: bool) -> None:
        del has_ended
        self._writer.close()


class _Mlflow:
    """Run of MLflow, in MLFLOW_TRACKING_URI or a database in the directory of the run."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], first: int) -> None:
        del first
        module = importlib.import_module("mlflow")
        self._entities = module.entities
        place = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
        self._client = module.MlflowClient(tracking_uri=place)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "distgnn")
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        self._run = self._client.create_run(number, run_name=folder.parent.name).info.run_id
        params = [self._entities.Param(key, str(value)) for key, value in settings.items()]
        self._client.log_batch(self._run, params=params)

    def log(self, values: Mapping[str, float], epoch: int) -> None:
        metric = self._entities.Metric
        now = time.time_ns() // 1_000_000
        found = [metric(name, value, now, epoch) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=found)

    def close(self, *, has_ended: bool) -> None:
        self._client.set_terminated(self._run, "FINISHED" if has_ended else "KILLED")


class _Wandb:
    """Run of Weights & Biases; offline unless WANDB_MODE says otherwise."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], first: int) -> None:
        del first
        module = importlib.import_module("wandb")
        self._run = module.init(
            project=os.environ.get("WANDB_PROJECT", "distgnn"),
            name=folder.parent.name,
            dir=str(folder),
            mode=os.environ.get("WANDB_MODE", "offline"),
            config=dict(settings),
        )

    def log(self, values: Mapping[str, float], epoch: int) -> None:
        self._run.log(dict(values), step=epoch)

    def close(self, *, has_ended: bool) -> None:
        self._run.finish(exit_code=0 if has_ended else 1)
