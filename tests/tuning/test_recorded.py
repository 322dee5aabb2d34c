"""Schedulers with their default first rungs, on the recorded curves of two grids.

The files in `recorded` have the validation metrics of the 64 combinations of
`examples/tuning/compare.py`. Minesweeper has 128 epochs each, facebook-pages 32. The order is that
of the grid sampler. On minesweeper few settings are good, and curves cross late.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from curves import play

from distgnn.tuning.samplers import GridSampler
from distgnn.tuning.space import Space
from distgnn.tuning.verb import SearchOptions

GRID = {"lr": [1e-3 * number for number in range(1, 65)]}
FILES = sorted(path.name for path in (Path(__file__).parent / "recorded").glob("*.npz"))


@pytest.fixture(params=FILES)
def scores(request):
    return np.load(Path(__file__).parent / "recorded" / request.param)["scores"].astype(float)


def outcome(scheduler, table, slots, seed):
    """Points below the best of the grid, and share of its epochs."""
    options = SearchOptions(GRID, scheduler=scheduler, sampler="grid", epochs=table.shape[1])
    built = options.build_scheduler(GridSampler(Space.of(GRID), 0))
    trials, _ = play(built, table.copy(), slots=slots, seed=seed)
    below = 100 * (table.max() - max(trial.best() for trial in trials))
    return below, sum(trial.epochs for trial in trials) / table.size


@pytest.mark.parametrize("scheduler", ["asha", "halving", "hyperband"])
def test_the_grid_is_reached_with_an_eighth_of_its_epochs(scheduler, scores):
    below, share = outcome(scheduler, scores, 1, 0)
    assert below <= 0.3
    assert share <= 1 / 8


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("scheduler", ["asha", "halving"])
def test_the_order_of_the_trials_hardly_matters(scheduler, slots, scores):
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(len(scores))
        below, share = outcome(scheduler, scores[order], slots, seed)
        assert below <= 0.3
        assert share <= 1 / 8
