"""Samplers: the settings of a new trial.

References:
    Bergstra and Bengio, JMLR 2012, for random search; Bergstra et al., NIPS 2011, for the tree
    Parzen estimator, which is Optuna's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.tuning.space import Numbers, Space, WholeNumbers
from distgnn.tuning.trial import WORST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distgnn.tuning.trial import Trial


class RandomSampler:
    """Draws every trial by itself, so that its settings depend on its number alone.

    Args:
        space: Settings that are searched.
        seed: Seed of the draws.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._seed = seed

    def suggest(self, number: int, trials: Sequence[Trial]) -> dict[str, Any]:
        """Return the settings of a new trial; see `Sampler`."""
        random = np.random.default_rng([self._seed, number])
        return {name: values.sample(random) for name, values in self._space.values.items()}


class GridSampler:
    """Takes all combinations of values, in a random order.

    Args:
        space: Settings that are searched; their values can be listed.
        seed: Seed of the order, so that a part of the grid is spread over all of it.

    Attributes:
        size: Number of combinations.
    """

    def __init__(self, space: Space, seed: int) -> None:
        grid = space.grid
        order = np.random.default_rng(seed).permutation(len(grid))
        self._grid = [grid[place] for place in order]
        self.size = len(grid)

    def suggest(self, number: int, trials: Sequence[Trial]) -> dict[str, Any]:
        """Return the settings of a new trial; see `Sampler`."""
        return dict(self._grid[number])


class TpeSampler:
    """Draws trials near the good ones, by Optuna's tree Parzen estimator.

    Args:
        space: Settings that are searched.
        seed: Seed of the draws.

    Attributes:
        spans: Distributions of Optuna, by the name of their setting.

    Raises:
        InputError: If Optuna is not installed.
    """

    def __init__(self, space: Space, seed: int) -> None:
        try:
            import optuna
        except ImportError as error:
            raise InputError(
                "--sampler tpe needs Optuna, which is not installed; install distgnn[tune], or use "
                "--sampler random"
            ) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna = optuna
        self._seed = seed
        self._space = space
        self.spans = {name: self._span(values) for name, values in space.values.items()}

    def _span(self, values: Any) -> Any:
        spans = self._optuna.distributions
        if isinstance(values, Numbers):
            return spans.FloatDistribution(values.low, values.high, log=values.is_log)
        if isinstance(values, WholeNumbers):
            return spans.IntDistribution(values.low, values.high)
        return spans.CategoricalDistribution(values.values)

    def suggest(self, number: int, trials: Sequence[Trial]) -> dict[str, Any]:
        """Return the settings of a new trial; see `Sampler`.

        They depend on the seed and on the earlier trials alone, so a study that was killed goes
        through the same ones.
        """
        if not self._space.values:
            return {}
        study = self._optuna.create_study(
            direction="maximize",
            sampler=self._optuna.samplers.TPESampler(seed=_seed_of(self._seed, number)),
        )
        study.add_trials([self._as_optuna(trial) for trial in trials])
        return dict(study.ask(self.spans).params)

    def _as_optuna(self, trial: Trial) -> Any:
        states = self._optuna.trial.TrialState
        score = trial.best()
        has_score = score != WORST
        return self._optuna.trial.create_trial(
            params=trial.settings,
            distributions=self.spans,
            value=score if has_score else None,
            state=states.COMPLETE if has_score else states.FAIL,
            intermediate_values=dict(trial.curve),
        )


def changed_settings(space: Space, trial: Trial, parent: Trial, seed: int) -> dict[str, Any]:
    """Return the settings under which a trial continues from a copy of another.

    Each setting is drawn again with probability 1/4, else it is moved near the parent's value.

    Args:
        space: Settings that are searched.
        trial: Trial that is replaced.
        parent: Trial that is copied.
        seed: Seed of the draws.

    References:
        Jaderberg et al., arXiv:1711.09846.
    """
    random = np.random.default_rng([seed, trial.number, trial.num_clones, 1])
    return {
        name: values.sample(random)
        if random.random() < 0.25
        else values.near(parent.settings[name], random)
        for name, values in space.values.items()
    }


def _seed_of(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
