"""Models that ranks train by themselves, and that tell codes of how they changed at a merge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.weights.local_models import LocalModels
from distgnn.weights.own_models import (
    bound_squares,
    is_moment,
    is_never_negative,
    is_square,
)
from distgnn.weights.sums import Sums

if TYPE_CHECKING:
    from torch import Tensor, nn

    from distgnn.comm.group import Group
    from distgnn.exchange.clock import Clock
    from distgnn.kernels.seeds import MaskSeeds
    from distgnn.ops.buffers import Buffers
    from distgnn.weights.own_models import HasMoments
    from distgnn.weights.rule import WeightRule

_BEFORE = "before."


class CodedModels(LocalModels):
    """Each rank steps by itself; models become their mean, by codes of how they changed.

    With x, what the model of all ranks was after the last merge, and a code c::

        d_p  = w_p - x
        w_p <- x + c(c(d_0) + ... + c(d_(P-1))) / P,  and so the moments of the optimizer

    Changes are smaller than models, and so are errors of their codes. A moment that is a square
    travels as its root, and its mean is that of roots. A code of squares would take most of them
    for zero, beside the largest of a row, and steps are divided by them. Only float32 is coded.

    Args:
        group: All ranks.
        clock: Gets the time of merges.
        optimizer: Optimizer of the model, whose moments are merged.
        rule: Rule of merges: when, the code of large matrices, and whether moments stay a rank's
            own. All ranks merge together.
        seeds: Seeds of the code's random rounding, which know the epoch; of no run if None.
        buffers: Memory for codes; its own if None.

    References:
        Basu et al., "Qsparse-local-SGD: Distributed SGD with Quantization, Sparsification, and
        Local Computations", NeurIPS 2019.
    """

    def __init__(
        self,
        group: Group,
        clock: Clock,
        *,
        optimizer: HasMoments,
        rule: WeightRule,
        seeds: MaskSeeds | None = None,
        buffers: Buffers | None = None,
    ) -> None:
        super().__init__(group, clock, optimizer=optimizer, rule=rule)
        self._sums = Sums(group, seeds=seeds, buffers=buffers)
        self._before: dict[str, Tensor] = {}

    def after_backward(self, model: nn.Module) -> None:
        """Scale the gradient; remember what all ranks have in common before the first step."""
        super().after_backward(model)
        if self.group.size == 1:
            return
        now = self._merged(model)
        if not self._before:
            self._remember(now)
        # An optimizer that begins again has other moments, and a weight may be trained from now on.
        self._before = {name: each for name, each in self._before.items() if name in now}
        new = [name for name in now if name not in self._before and not is_moment(name)]
        self._before |= {name: now[name].clone() for name in new}

    @torch.no_grad()
    def _merge(self, model: nn.Module) -> None:
        now = self._merged(model)
        with self.clock.timed("weight_sync"):
            for dtype in dict.fromkeys(each.dtype for each in now.values()):
                self._merge_alike({k: each for k, each in now.items() if each.dtype == dtype})
        if not self._rule.keeps_moments:
            bound_squares(self._optimizer)
        self._remember(now)

    def _merge_alike(self, now: dict[str, Tensor]) -> None:
        """Merge tensors of one type."""
        # Moments are zeros before the first step.
        before = {
            name: self._before[name].to(each) if name in self._before else torch.zeros_like(each)
            for name, each in now.items()
        }
        changes = [_told(name, each) - before[name] for name, each in now.items()]
        sums, num_bytes = self._sums.of(changes, self._rule.codec)
        self.bytes_sent += num_bytes
        for (name, each), total in zip(now.items(), sums, strict=True):
            # Two roundings: one of both, where there is an instruction for it, has other bits.
            found = before[name] + total / self.group.size
            if is_moment(name) and is_never_negative(name):
                found.clamp_(min=0)
            each.copy_(found.square_() if _is_root(name) else found)

    def _remember(self, now: dict[str, Tensor]) -> None:
        """Keep what all ranks have in common now."""
        self._before = {name: _told(name, each).clone() for name, each in now.items()}

    def _merged(self, model: nn.Module) -> dict[str, Tensor]:
        """Return what is merged, by name."""
        moments = {} if self._rule.keeps_moments else self._moments(model)
        return self._weights(model) | moments

    def _others(self) -> dict[str, Tensor]:
        # While models are one, the checkpoint of all has it.
        before = {} if self._has_one_model else self._before
        return super()._others() | {f"{_BEFORE}{name}": each for name, each in before.items()}

    def _load_others(self, others: dict[str, Tensor], num_steps: int, *, is_one: bool) -> None:
        rest = dict(others)
        kept = [name for name in others if name.startswith(_BEFORE)]
        self._before = {name.removeprefix(_BEFORE): rest.pop(name) for name in kept}
        super()._load_others(rest, num_steps, is_one=is_one)


def _is_root(name: str) -> bool:
    """Return whether the roots of what is merged are told."""
    return is_moment(name) and is_square(name)


def _told(name: str, values: Tensor) -> Tensor:
    """Return what ranks tell each other of weights or moments."""
    return values.sqrt() if _is_root(name) else values
