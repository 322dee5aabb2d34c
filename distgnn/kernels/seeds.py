"""The numbers that seed the random masks of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_SEED_STEPS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_WORD = 2**64 - 1
# Numbers of the messages of an epoch begin here, where no call of a mask comes.
_FIRST_MESSAGE = 1 << 32


class Seed(int):
    """A number in [0, 2**64) that seeds one mask.

    Attributes:
        place: (1,) int64 on a device, from which a kernel reads what becomes of the number there; a
            kernel that is replayed draws by what lies there then. None where it takes the number.
    """

    place: Tensor | None = None


class MaskSeeds:
    """Numbers the random masks of a run, so that each call of each epoch gets a seed of its own.

    Attributes:
        seed: Seed of the run.
        epoch: Epochs begun before this one.
        num_drawn: Seeds that the epoch has taken.
        places: (any, 2) int64. Row k is the place of the epoch's seed k, if it has so many; None
            for seeds without a place.
        draws_again: Whether calls are numbered as in the forward pass that they repeat.
    """

    def __init__(self) -> None:
        self.seed = 0
        self.epoch = 0
        self.num_drawn = 0
        self.places: Tensor | None = None
        self.draws_again = False

    def next_seed(self) -> Seed:
        """Mix (seed, epoch, call) into 64 bits; odd multipliers keep the three apart.

        Raises:
            InputError: If a backward pass runs whose masks are not known to be the same ones.
        """
        # torch.utils.checkpoint repeats a forward pass, but knows torch's own generator alone.
        if not self.draws_again and torch._C._current_graph_task_id() != -1:
            from distgnn.datasets.errors import InputError

            raise InputError(
                "dropout was called during a backward pass, as torch.utils.checkpoint does, and "
                "would draw another mask than in the forward pass; call graph.dropout, "
                "distgnn.nn.Dropout and layers that drop out outside of the checkpointed function"
            )
        self.num_drawn += 1
        drawn = Seed(self._seed_of(self.num_drawn))
        if self.places is not None and self.num_drawn <= len(self.places):
            drawn.place = self.places[self.num_drawn - 1, :1]
        return drawn

    def coming_seeds(self, count: int) -> list[int]:
        """Return the seeds that so many calls in this epoch get, from the first."""
        return [self._seed_of(call) for call in range(1, count + 1)]

    @property
    def epoch_seed(self) -> int:
        """A seed of the epoch as a whole, which no call gets and none changes."""
        return self._seed_of(0)

    def wire_seed(self, message: int) -> int:
        """Return the seed of the random rounding of a message; no mask gets it, and none changes.

        Args:
            message: Number of the message among those that all ranks send in an epoch.
        """
        return self._seed_of(_FIRST_MESSAGE + message)

    def _seed_of(self, call: int) -> int:
        counters = (self.seed + 1, self.epoch + 1, call)
        mixed = 0
        for counter, step in zip(counters, _SEED_STEPS, strict=True):
            mixed = ((mixed ^ (counter * step)) * _SEED_STEPS[1]) & _WORD
            mixed ^= mixed >> 31
        return mixed

    def end_epoch(self) -> None:
        """Start numbering calls again, in the next epoch."""
        self.epoch += 1
        self.num_drawn = 0


def mixed_seed(seed: int) -> int:
    """Mix a seed as csrc/mask.h does, into 64 bits: what lies in the place of a `Seed`.

    Args:
        seed: In [0, 2**64).
    """
    z = (seed + _SEED_STEPS[0]) & _WORD
    z = ((z ^ (z >> 30)) * _SEED_STEPS[1]) & _WORD
    z = ((z ^ (z >> 27)) * _SEED_STEPS[2]) & _WORD
    return z ^ (z >> 31)
