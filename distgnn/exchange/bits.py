"""Bits for groups of rows: as few errors as a budget of bytes allows, or as few bytes as errors.

    minimise sum_g values[g, c_g]   so that   sum_g weights[g, c_g] <= limit

Errors are values and bytes are weights, or the other way round. Marginal gains solve the problem
for groups that may be split. Each group steps along the lower hull of its choices, and the step
that gains most for its weight is taken first. Whole groups lose at most one step against that.
This is next to nothing of many groups, and may be much of few. A search over sums that no other
sums dominate then comes within `_TOLERANCE` of the best.

References:
    Kellerer, Pferschy, Pisinger, "Knapsack Problems", Springer 2004, chapter 11.
    Markov et al., "L-GreCo: Layerwise-Adaptive Gradient Compression for Efficient Data-parallel
    Deep Learning", MLSys 2024.
    Wan et al., "Adaptive Message Quantization and Parallelization for Distributed Full-graph GNN
    Training", MLSys 2023 (AdaQP).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = NDArray[np.float64]
    Choices = NDArray[np.int64]

# Share of the best total that may be lost: half of it by rounding sums, half by what is not tried.
_TOLERANCE = 0.008


class _Steps(NamedTuple):
    """Steps along the lower hulls of all groups, those that gain most for their weight first.

    Attributes:
        group: (num,) Group that makes the step.
        to: (num,) Choice that it leads to.
        weight: (num,) Weight that it adds; positive.
        gain: (num,) Value that it saves; positive.
    """

    group: Choices
    to: Choices
    weight: Table
    gain: Table


def allocate(values: Table, weights: Table, limit: float) -> Choices | None:
    """Choose one column for each row, so that values are small and weights stay in a limit.

    Args:
        values: (num_groups, num_choices). Cost of each choice; at least 0.
        weights: (num_groups, num_choices). Share of the limit that each choice takes; at least 0.
        limit: Most that all weights together may be.

    Returns:
        (num_groups,) int64. Choices whose values add up to at most 1 % more than is possible, and
        whose weights, added in the order of groups, never exceed the limit. None if no choice does.
        The same tables give the same choices.
    """
    first = _lightest(values, weights)
    if _total(weights, first) > limit:
        return None
    steps = _steps(values, weights, first)
    chosen = _by_gains(steps, values, weights, first, limit)
    bound = float(_relaxed(steps, np.arange(len(values)), values, weights, first, limit))
    if _total(values, chosen) <= bound * (1 + _TOLERANCE):
        return chosen
    found = _search(steps, values, weights, first, limit, chosen, bound)
    return chosen if found is None else found


def _total(table: Table, chosen: Choices) -> float:
    """Add up chosen entries in the order of groups."""
    picked = table[np.arange(len(table)), chosen]
    return float(np.cumsum(picked)[-1]) if len(picked) else 0.0


def _lightest(values: Table, weights: Table) -> Choices:
    """Return the choice of the least weight of each group; of several, that of the least value."""
    tied = weights == weights.min(axis=1, keepdims=True)
    return np.asarray(np.where(tied, values, np.inf).argmin(axis=1))


def _steps(values: Table, weights: Table, first: Choices) -> _Steps:
    """Return the steps of all groups from their lightest choice on, in the order of their gains."""
    found: list[tuple[float, int, int, int, float, float]] = []
    for group, start in enumerate(first.tolist()):
        now, number = start, 0
        while True:
            more = weights[group] - weights[group, now]
            gain = values[group, now] - values[group]
            better = np.flatnonzero((more > 0) & (gain > 0))
            if not len(better):
                break
            rate = gain[better] / more[better]
            # Of steps with one rate the longest, so that rates fall from step to step.
            then = int(better[np.lexsort((-more[better], -rate))[0]])
            found.append(
                (-gain[then] / more[then], group, number, then, more[then], gain[then]),
            )
            now, number = then, number + 1
    found.sort()
    _, group_of, _, to, weight, gain_of = zip(*found, strict=True) if found else ((),) * 6
    return _Steps(
        np.array(group_of, dtype=np.int64),
        np.array(to, dtype=np.int64),
        np.array(weight, dtype=np.float64),
        np.array(gain_of, dtype=np.float64),
    )


def _by_gains(
    steps: _Steps, values: Table, weights: Table, first: Choices, limit: float
) -> Choices:
    """Take steps in order; one without room is left out, with the later ones of its group."""
    chosen: Choices = first.copy()
    is_stuck = np.zeros(len(values), dtype=bool)
    for group, to in zip(steps.group.tolist(), steps.to.tolist(), strict=True):
        if is_stuck[group]:
            continue
        before, chosen[group] = chosen[group], to
        if _total(weights, chosen) > limit:
            chosen[group], is_stuck[group] = before, True
    return chosen


def _relaxed(
    steps: _Steps,
    groups: Choices,
    values: Table,
    weights: Table,
    first: Choices,
    limit: float | Table,
) -> Table:
    """Return the least value of some groups if they could be split, a bound for whole ones.

    Args:
        steps: Steps of all groups.
        groups: Numbers of the groups, ascending.
        values: See `allocate`.
        weights: See `allocate`.
        first: Lightest choice of each group.
        limit: Weight that these groups may take; at least that of their lightest choices.
    """
    mine = np.isin(steps.group, groups)
    most = values[groups, first[groups]].sum()
    weight = np.concatenate([[0.0], steps.weight[mine].cumsum()])
    gain = np.concatenate([[0.0], steps.gain[mine].cumsum()])
    return np.asarray(most - np.interp(limit - weights[groups, first[groups]].sum(), weight, gain))


def _search(
    steps: _Steps,
    values: Table,
    weights: Table,
    first: Choices,
    limit: float,
    known: Choices,
    bound: float,
) -> Choices | None:
    """Search the sums that no other sums dominate, group by group; None if `known` will do."""
    best = _total(values, known) / (1 + _TOLERANCE / 2)
    # Sums that fall into one of these intervals count as equal.
    width = bound * _TOLERANCE / 2 / len(values)
    weight, value = np.zeros(1), np.zeros(1)
    trail: list[tuple[Choices, Choices]] = []
    for group in range(len(values)):
        rest = np.arange(group + 1, len(values))
        least = weights[rest, first[rest]].sum()
        weight = (weight[:, None] + weights[group]).ravel()
        value = (value[:, None] + values[group]).ravel()
        kept = np.flatnonzero((weight + least <= limit) & (value < best))
        rest_value = _relaxed(steps, rest, values, weights, first, limit - weight[kept])
        kept = kept[value[kept] + rest_value < best]
        kept = kept[_undominated(weight[kept], value[kept], width)]
        if not len(kept):
            return None
        trail.append((kept // values.shape[1], kept % values.shape[1]))
        weight, value = weight[kept], value[kept]
    chosen = np.zeros(len(values), dtype=np.int64)
    place = int(value.argmin())
    for group in reversed(range(len(values))):
        before, choice = trail[group]
        chosen[group], place = choice[place], before[place]
    # The last bit of a sum may depend on the order that it was tested in.
    return chosen if _total(weights, chosen) <= limit else None


def _undominated(weight: Table, value: Table, width: float) -> Choices:
    """Return the sums that are lighter than all sums of less value, one an interval of values."""
    interval = np.floor(value / width) if width > 0 else value
    order = np.lexsort((value, weight, interval))
    lighter = weight[order]
    before = np.concatenate([[np.inf], np.minimum.accumulate(lighter)[:-1]])
    return np.asarray(order[lighter < before])
