"""The numbers that seed the random masks of a run."""

from __future__ import annotations

_SEED_STEPS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


class Draws:
    """Numbers the random masks of a run, so that each call of each epoch gets a seed of its own.

    Attributes:
        seed: Of the run.
        epoch: Epochs begun before this one.
    """

    def __init__(self) -> None:
        self.seed = 0
        self.epoch = 0
        self.num_drawn = 0

    def next_seed(self) -> int:
        """Mix (seed, epoch, call) into 64 bits; odd multipliers keep the three apart."""
        self.num_drawn += 1
        return self._seed_of(self.num_drawn)

    @property
    def epoch_seed(self) -> int:
        """A seed of the epoch as a whole, which no call gets and none changes."""
        return self._seed_of(0)

    def _seed_of(self, call: int) -> int:
        counters = (self.seed + 1, self.epoch + 1, call)
        mixed = 0
        for counter, step in zip(counters, _SEED_STEPS, strict=True):
            mixed = ((mixed ^ (counter * step)) * _SEED_STEPS[1]) & 0xFFFFFFFFFFFFFFFF
            mixed ^= mixed >> 31
        return mixed

    def end_epoch(self) -> None:
        """Start numbering calls again, in the next epoch."""
        self.epoch += 1
        self.num_drawn = 0
