"""Bytes that ranks send about weights in an epoch, known before it."""

from __future__ import annotations

import math
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from distgnn.exchange.base import all_reduce_bytes
from distgnn.exchange.codec import EXACT
from distgnn.exchange.sliced import slice_bytes
from distgnn.weights.layout import WIDTH, Layout
from distgnn.weights.machines import machine_bytes
from distgnn.weights.rule import SUM, VOTE_BYTES, WeightRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from distgnn.exchange.codec import CodecSpec
    from distgnn.optim.described import FactorTraffic

_ITEM_BYTES = 4


class WeightTraffic(NamedTuple):
    """Sums over ranks in an epoch.

    Attributes:
        shapes: Shape of each gradient that is summed, float32.
        rule: Rule of the weights that ranks tell each other.
        statistics: Bytes of each sum of statistics, such as those of batch norm, and of the numbers
            of a line search that evaluates once.
        num_moments: Moments of the optimizer for each weight.
        factors: Factors of K-FAC; None for other optimizers.
        seed: Seed of the run, from which groups of ranks are drawn.
        restarts_at: Epoch in which the optimizer begins again; 0 for none.
    """

    shapes: tuple[tuple[int, ...], ...] = ()
    rule: WeightRule = SUM
    statistics: tuple[int, ...] = ()
    num_moments: int = 0
    factors: FactorTraffic | None = None
    seed: int = 0
    restarts_at: int = 0

    def ring_bytes(self, num_ranks: int) -> float:
        """Return the bytes of a rank that are summed in an epoch, as they travel; the mean.

        Where codes follow each other, the most that an epoch has.

        Sums within groups count as sums over all ranks, which take longer. Values that a rank tells
        each of the others count as a sum for which a ring sends as many bytes.

        Args:
            num_ranks: Number of ranks.
        """
        if self.rule.later:
            return self._replace(rule=self.rule.alike).ring_bytes(num_ranks)
        if self.rule.significance is not None:
            return self._told_bytes * num_ranks / 2
        if self.rule.is_local:
            period = self.rule.merge_every
            if self.rule.is_ring and num_ranks > 1:
                return self._ring_bytes(num_ranks) * num_ranks / (2 * (num_ranks - 1) * period)
            num_merges = (1 + self.rule.corrections) * self.rule.may_merge(period)
            merged = self._merged_bytes
            if self.rule.codes_models:
                layout, row_bytes = self._merged_layout
                merged = _ITEM_BYTES * layout.num_exact + layout.num_rows * row_bytes
            return merged * num_merges / period
        layout, row_bytes = self._layout
        if self.rule.machine_size and num_ranks > 1:
            ranks = range(num_ranks)
            told = sum(self._machine_bytes(rank, num_ranks, layout, row_bytes) for rank in ranks)
            return told / (2 * (num_ranks - 1))
        return _ITEM_BYTES * layout.num_exact + layout.num_rows * row_bytes

    def bytes_of(self, rank: int, num_ranks: int, epoch: int = 0, *, is_evaluated: bool) -> int:
        """Return the bytes that a rank sends in an epoch; at most, where values decide.

        Args:
            rank: The rank.
            num_ranks: Number of ranks.
            epoch: The epoch, from 0.
            is_evaluated: Whether the model is evaluated after it, for which local models are
                averaged.
        """
        own = self._bytes_besides_groups(rank, num_ranks, epoch, is_evaluated=is_evaluated)
        if not self._merges_slices(num_ranks, epoch + 1):
            return own
        num_values = self._merged_bytes // _ITEM_BYTES
        groups = (
            self.rule.members(rank, num_ranks, self.seed, epoch + 1, merge)
            for merge in self.rule.merges_after(epoch + 1, num_ranks)
        )
        return own + max(
            slice_bytes(num_values, members.index(rank), len(members), _ITEM_BYTES)
            for members in groups
        )

    def _merges_slices(self, num_ranks: int, num_steps: int) -> bool:
        """Return whether the members of a group each find the mean of a slice after some steps."""
        rule = self.rule
        is_sliced = rule.has_groups(num_ranks) or rule.background is not None
        return rule.may_merge(num_steps) and not rule.is_ring and is_sliced

    def _bytes_besides_groups(
        self, rank: int, num_ranks: int, epoch: int, *, is_evaluated: bool
    ) -> int:
        """Return the bytes that a rank sends in an epoch, besides slices of means."""
        sums = list(self.statistics)
        coded, num_steps = 0, epoch + 1
        if not self.rule.is_local:
            layout, row_bytes = self._layout_of(self.rule.codec_in(epoch))
            if self._steps_before(epoch) < self.rule.warm_up_steps:
                layout, row_bytes = Layout.of(self.shapes, EXACT), 0
            if self.rule.machine_size:
                coded = self._machine_bytes(rank, num_ranks, layout, row_bytes)
            else:
                sums.append(_ITEM_BYTES * layout.num_exact)
                coded = slice_bytes(layout.num_rows, rank, num_ranks, row_bytes)
        coded += (num_ranks - 1) * self._told_bytes
        is_merged = self.rule.may_merge(num_steps)
        if is_merged and self.rule.is_ring:
            coded = self._ring_bytes(num_ranks)
        elif is_merged and self.rule.codes_models:
            layout, row_bytes = self._merged_layout
            sums.append(_ITEM_BYTES * layout.num_exact)
            coded = slice_bytes(layout.num_rows, rank, num_ranks, row_bytes)
        elif is_merged and not self._merges_slices(num_ranks, num_steps):
            sums.append(self._merged_bytes)
        if self.rule.votes:
            coded += (num_ranks - 1) * VOTE_BYTES
        is_one = (is_merged and self.rule.makes_one(num_ranks)) or self.rule.tells_all
        if self.rule.is_local and is_evaluated and not is_one:
            sums.append(_ITEM_BYTES * self._num_values)
        return coded + sum(all_reduce_bytes(each, num_ranks) for each in sums)

    def bytes_in_epoch(self, num_ranks: int, epoch: int = 0, *, is_evaluated: bool = False) -> int:
        """Return the bytes that all ranks send in an epoch, as each of them counts; see above.

        Of K-FAC with a start, epochs of the start count as if they were on the graph, though layers
        may have one factor more or less there.
        """
        before = self._steps_before(epoch)
        factors = self.factors.bytes_in_epoch(num_ranks, before) if self.factors else 0
        return factors + self._summed_bytes(num_ranks, epoch, is_evaluated=is_evaluated)

    def _steps_before(self, epoch: int) -> int:
        """Return the steps that the optimizer has taken since it began, or began again."""
        return epoch - self.restarts_at if epoch >= self.restarts_at else epoch

    def _summed_bytes(self, num_ranks: int, epoch: int, *, is_evaluated: bool = False) -> int:
        """Return the bytes of gradients, models and statistics."""
        total = sum(
            self._bytes_besides_groups(rank, num_ranks, epoch, is_evaluated=is_evaluated)
            for rank in range(num_ranks)
        )
        if self._merges_slices(num_ranks, epoch + 1):
            # A group of m sends its model m - 1 times to the owners of slices, and as often back.
            num_groups = self.rule.num_groups(num_ranks, epoch + 1)
            total += 2 * (num_ranks - num_groups) * self._merged_bytes
        return total

    def bytes_per_epoch(self, num_ranks: int) -> float:
        """Return the mean of the bytes that all ranks send in an epoch without an evaluation.

        Where codes follow each other, the most that an epoch has.
        """
        if self.rule.later:
            return self._replace(rule=self.rule.alike).bytes_per_epoch(num_ranks)
        # All rounds of a tournament have as many groups.
        is_alike = self.rule.group_order == "tournament"
        num_rounds = 1 if is_alike else self.rule.num_rounds(num_ranks)
        period = max(self.rule.merge_every, 1)
        # Steps of a period are alike that merge, with its groups, and so are all that do not.
        first = (self.restarts_at + self.rule.warm_up_steps) // period + 2
        merges = range(first * period, (first + num_rounds) * period, period)
        num_merges = 1 + self.rule.corrections
        num_others = (period - num_merges) * num_rounds
        total = num_merges * sum(self._summed_bytes(num_ranks, step - 1) for step in merges)
        if num_others:
            total += num_others * self._summed_bytes(num_ranks, merges[0] - 2)
        num_steps = period * num_rounds
        mean = total // num_steps if total % num_steps == 0 else total / num_steps
        return mean + (self.factors.mean_bytes(num_ranks) if self.factors else 0)

    def working_bytes(self, num_ranks: int) -> int:
        """Return the memory that a rank takes for messages, besides gradients and moments.

        Codes that leave, those of its slice that arrive from the others, and those of all sums; the
        sum of its slice, and a decoded one. Of local models the message of a mean, and the model
        that waits while the mean is in its place. Factors of K-FAC are here on one rank, too.

        Args:
            num_ranks: Number of ranks.
        """
        factors = self.factors.num_bytes if self.factors else 0
        if num_ranks == 1:
            return factors
        if self.rule.is_local:
            # A checkpoint takes the mean of the moments, too, even if ranks keep theirs.
            told = num_ranks * self._told_bytes + _ITEM_BYTES * self._num_values
            merged = 2 * _ITEM_BYTES * self._num_values * (1 + self.num_moments)
            if self.rule.codes_models:
                # Weights of before, changes, and what is coded, told and found of them.
                return 3 * merged
            if self.rule.is_ring or self.rule.background is not None:
                # Three models, what changes, and its message; or weights of before, those that
                # arrive, what is found and told, and the center.
                return merged + 5 * self._merged_bytes
            return merged if self.rule.significance is None else merged + told
        return factors + max(self._coding_bytes(codec, num_ranks) for codec in self.rule.codecs)

    def _coding_bytes(self, codec: CodecSpec, num_ranks: int) -> int:
        """Return the memory that sums in a code take."""
        layout, row_bytes = self._layout_of(codec)
        coded = layout.num_rows * (3 * row_bytes + 2 * _ITEM_BYTES * WIDTH // num_ranks)
        if self.rule.machine_size:
            # Slices of a machine's ranks, as they are, and their sum.
            coded += _ITEM_BYTES * (layout.num_exact + layout.num_rows * WIDTH)
        return coded

    def _machine_bytes(self, rank: int, num_ranks: int, layout: Layout, row_bytes: int) -> int:
        """Bytes of a rank for sums that are made on machines first."""
        size = self.rule.machine_size
        rows = (_ITEM_BYTES * WIDTH, row_bytes)
        sent = machine_bytes(layout.num_exact, rank, num_ranks, size, (_ITEM_BYTES, _ITEM_BYTES))
        return sent + machine_bytes(layout.num_rows, rank, num_ranks, size, rows)

    def _ring_bytes(self, num_ranks: int) -> int:
        """Bytes that a rank tells its neighbors in a ring."""
        layout, row_bytes = self._layout
        told = _ITEM_BYTES * layout.num_exact + layout.num_rows * row_bytes
        return min(num_ranks - 1, 2) * told

    @property
    def _num_values(self) -> int:
        return sum(prod(shape) for shape in self.shapes)

    @property
    def _told_bytes(self) -> int:
        """Most bytes of the gradient that a rank tells another one, and of its mask."""
        how, count = self.rule.significance, self._num_values
        is_never = how is None or how.threshold == math.inf
        return 0 if is_never else -(-count // 8) + _ITEM_BYTES * count

    @property
    def _merged_bytes(self) -> int:
        """Bytes of the weights, and of the moments, that become their means."""
        num_moments = 0 if self.rule.keeps_moments else self.num_moments
        return _ITEM_BYTES * self._num_values * (1 + num_moments)

    @property
    def _layout(self) -> tuple[Layout, int]:
        return self._layout_of(self.rule.codec)

    def _layout_of(self, codec: CodecSpec) -> tuple[Layout, int]:
        return Layout.of(self.shapes, codec), codec.row_bytes(WIDTH, _ITEM_BYTES)

    @property
    def _merged_layout(self) -> tuple[Layout, int]:
        """Weights, and moments, whose changes since the last merge are told in a code."""
        num_moments = 0 if self.rule.keeps_moments else self.num_moments
        return self._replace(shapes=self.shapes * (1 + num_moments))._layout


NO_WEIGHTS = WeightTraffic()
"""Sums of a run without weights."""


def gradient_shapes(
    model: nn.Module, num_rows: Mapping[nn.Parameter, int]
) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a model's gradients as they are summed.

    Args:
        model: The model.
        num_rows: Rows of learned tables that are sent, where these are not those of the table.
    """
    return tuple(
        (num_rows.get(parameter, len(parameter)), *parameter.shape[1:]) if parameter.dim() else ()
        for parameter in model.parameters()
        if parameter.requires_grad
    )
