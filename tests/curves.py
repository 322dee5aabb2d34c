"""Recorded curves of trials, for tests of searches."""

from __future__ import annotations

import numpy as np


def curves(num_trials, num_epochs, seed):
    """(num_trials, num_epochs) scores that rise with noise; no two are equal."""
    random = np.random.default_rng(seed)
    limits = random.uniform(size=(num_trials, 1))
    speeds = random.uniform(0.02, 0.5, size=(num_trials, 1))
    epochs = np.arange(1, num_epochs + 1)
    noise = 0.02 * random.normal(size=(num_trials, num_epochs))
    return limits * (1 - np.exp(-speeds * epochs)) + noise
