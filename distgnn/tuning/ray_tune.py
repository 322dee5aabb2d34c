"""Runs as trials of Ray Tune, where a cluster has Ray already.

    from ray import tune
    from distgnn.tuning.ray_tune import trainable

    make = trainable("facebook-pages", every=10, epochs=100, model="gcn")
    tune.Tuner(make, param_space={"lr": tune.loguniform(1e-4, 1e-1)}, ...).fit()

Each step trains `every` epochs from the run's checkpoint, so all schedulers of Ray can pause, stop
and copy trials. A trial of Ray is one process here; for trials of several ranks use
`distgnn tune --jobs`.

References:
    Liaw et al., arXiv:1807.05118.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.api.settings import config_of
from distgnn.api.verbs import train, with_recipe
from distgnn.datasets.errors import InputError
from distgnn.training.run.directory import RunDirectory
from distgnn.tuning.in_job import clone_run, followed, read_curve

if TYPE_CHECKING:
    from ray.tune import Trainable as RayTrainable

_RUN = "run"


def trainable(source: Any, *, every: int, epochs: int, **settings: Any) -> type[RayTrainable]:
    """Return the class that Ray trains: a run of `distgnn.train`, `every` epochs a step.

    Its results are `score` (the best validation score so far, of which the higher one is better),
    `epochs` and `done`.

    Args:
        source: Graph, as for `distgnn.train`; a path should be absolute, since Ray's workers have
            other working directories.
        every: Epochs of a step.
        epochs: Epochs of a trial.
        settings: Settings that all trials share. Those of a trial come from Ray's param_space.

    Raises:
        InputError: If Ray is not installed, or a number of epochs is not positive.
    """
    try:
        from ray import tune
    except ImportError as error:
        raise InputError("Ray is not installed; install distgnn[ray]") from error
    if not 1 <= every <= epochs:
        raise InputError(f"every must be from 1 to epochs, {epochs}, got {every}")

    class RunOfRay(tune.Trainable):  # type: ignore[misc]
        """A run whose steps Ray asks for."""

        def setup(self, config: dict[str, Any]) -> None:
            """Begin a run under the settings of a trial."""
            self._run = Path(self.logdir) / _RUN
            self._chosen = config

        def step(self) -> dict[str, Any]:
            """Train some epochs more."""
            until = min((self.iteration + 1) * every, epochs)
            words = {**settings, **self._chosen, "epochs": epochs, "quiet": True}
            train(source, out=self._run, resume=True, pause_after=until, **words)
            score = max(score for _, score in read_curve(RunDirectory(self._run)))
            return {"score": score, "epochs": until, "done": until == epochs}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Copy the run to where Ray keeps it."""
            shutil.copytree(self._run, Path(checkpoint_dir) / _RUN)

        def load_checkpoint(self, checkpoint_dir: str) -> None:
            """Continue from a run of Ray, which may be that of another trial."""
            self._run.parent.mkdir(parents=True, exist_ok=True)
            words = {**settings, **self._chosen}
            config = config_of(with_recipe(words, words.get("recipe"), source))
            clone_run(Path(checkpoint_dir) / _RUN, self._run, followed(self._chosen, config))

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            """Take the settings of another trial, so that the process can be used again."""
            shutil.rmtree(self._run, ignore_errors=True)
            self._chosen = new_config
            return True

    return RunOfRay
