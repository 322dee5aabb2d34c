"""Metrics of predictions, exact over ranks: each vertex counts once, wherever its root lies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.comm.group import Group

_GATHERED_VALUES = 1 << 24
"""Scores and labels of one message; columns are gathered in blocks of about so many values."""


class Metric(ABC):
    """Metric that chooses the best epoch.

    Attributes:
        name: Name in `--metric`.
        is_lower_better: Whether a smaller value is a better one.
    """

    name: str
    is_lower_better = False

    @abstractmethod
    def value(self, sums: Tensor) -> float | None:
        """Return the metric of the summed shares of all ranks; None where it is not defined."""


class Measure(Metric):
    """A metric of scores against targets."""

    @abstractmethod
    def shares(self, scores: Tensor, targets: Tensor, group: Group) -> Tensor:
        """Return this rank's share of the metric; collective.

        Args:
            scores: (num, num_classes) scores of this rank's vertices, before softmax or sigmoid.
            targets: (num,) int64 classes, or (num, num_classes) float32 with NaN where unknown.
            group: All ranks.

        Returns:
            (width,) float64 to sum over ranks; the width is the same on every rank.
        """


class Accuracy(Measure):
    """Share of vertices whose highest score is that of their class."""

    name = "accuracy"

    def shares(self, scores: Tensor, targets: Tensor, group: Group) -> Tensor:
        """Return the number of correct vertices, and of all."""
        del group
        hits = (scores.argmax(dim=1) == targets).sum()
        return torch.tensor([int(hits), len(targets)], dtype=torch.float64)

    def value(self, sums: Tensor) -> float | None:
        """Return the quotient of the sums."""
        return float(sums[0] / sums[1]) if sums[1] else None


class MicroF1(Measure):
    """F1 over all labels of all vertices: 2 TP / (2 TP + FP + FN); a score above 0 is a yes.

    2 TP + FP + FN is the number of predicted plus the number of true labels. Where both are 0, F1
    is 0 by convention. Unknown labels do not count.
    """

    name = "micro-f1"

    def shares(self, scores: Tensor, targets: Tensor, group: Group) -> Tensor:
        """Return numerator and denominator."""
        del group
        predicted, true = (scores > 0) & ~targets.isnan(), targets > 0
        counts = [2 * (predicted & true).sum(), predicted.sum() + true.sum()]
        return torch.stack(counts).double()

    def value(self, sums: Tensor) -> float | None:
        """Return the quotient of the sums."""
        return float(sums[0] / sums[1].clamp(min=1))


class MacroF1(Measure):
    """Mean over classes of F1 = 2 TP / (2 TP + FP + FN), as scikit-learn's `average="macro"`.

    Of several labels a score above 0 is a yes, and all labels count of which a value is known. Else
    the highest score is the class, and those that are neither predicted nor true do not count.
    """

    name = "macro-f1"

    def shares(self, scores: Tensor, targets: Tensor, group: Group) -> Tensor:
        """Return the numerator and the denominator of each class."""
        del group
        if targets.ndim == 1:
            num_classes = scores.shape[1]
            best = scores.argmax(dim=1)
            true = torch.bincount(targets, minlength=num_classes)
            predicted = torch.bincount(best, minlength=num_classes)
            hits = torch.bincount(targets[best == targets], minlength=num_classes)
            known = torch.zeros_like(hits)
        else:
            yes, flags = (scores > 0) & ~targets.isnan(), targets > 0
            true, predicted, hits = (part.sum(dim=0) for part in (flags, yes, yes & flags))
            known = (~targets.isnan()).sum(dim=0)
        return torch.cat([2 * hits, predicted + true, known]).double()

    def value(self, sums: Tensor) -> float | None:
        """Return the mean of the quotients; None without a class."""
        hits, counts, known = sums.chunk(3)
        is_there = counts + known > 0
        if not is_there.any():
            return None
        return float((hits[is_there] / counts[is_there].clamp(min=1)).mean())


class _Ranked(Measure):
    """Metric of the order of scores: the mean over columns with both a yes and a no.

    Each column is gathered to all ranks and reduced by one of them, so the value is that of one
    process. With two classes, the only column is the second score minus the first.
    """

    def shares(self, scores: Tensor, targets: Tensor, group: Group) -> Tensor:
        """Return the sum over this rank's columns, and the number of defined ones."""
        if targets.ndim == 1:
            scores, targets = scores[:, 1:] - scores[:, :1], targets[:, None].float()
        sizes = torch.stack(group.all_gather(torch.tensor([len(scores)]))).flatten().tolist()
        step = max(_GATHERED_VALUES // max(2 * sum(sizes), 1), 1)
        total = torch.zeros(2, dtype=torch.float64)
        for start in range(0, scores.shape[1], step):
            block = slice(start, start + step)
            own = torch.cat([scores[:, block].float(), targets[:, block]], dim=1)
            columns = _gathered(own, sizes, group).t()
            width = len(columns) // 2
            for number in range((group.rank - start) % group.size, width, group.size):
                value = self._of_column(columns[number], columns[width + number])
                if value is not None:
                    total += torch.stack([value, torch.ones_like(value)])
        return total

    def value(self, sums: Tensor) -> float | None:
        """Return the quotient of the sums."""
        return float(sums[0] / sums[1]) if sums[1] else None

    def _of_column(self, score: Tensor, target: Tensor) -> Tensor | None:
        is_known = ~target.isnan()
        score, is_yes = score[is_known], target[is_known] > 0
        num_yes = int(is_yes.sum())
        if num_yes in (0, len(is_yes)):
            return None
        # Equal scores form one group, because they have no order.
        _, group_of, counts = torch.unique(score, return_inverse=True, return_counts=True)
        yes = torch.bincount(group_of, weights=is_yes.double(), minlength=len(counts))
        return self._of_groups(yes, counts.double())

    @abstractmethod
    def _of_groups(self, yes: Tensor, counts: Tensor) -> Tensor:
        """Return the metric of groups of equal scores, in ascending order."""


class RocAuc(_Ranked):
    """Area under the ROC curve: the chance that a yes scores higher than a no, a tie half.

    AUC = sum over groups of equal scores of yes (no below + no / 2) / (all yes * all no): the
    trapezoidal area of scikit-learn and of OGB's evaluator.

    References:
        Hanley and McNeil, "The meaning and use of the area under a receiver operating
        characteristic (ROC) curve", Radiology 1982.
    """

    name = "roc-auc"

    def _of_groups(self, yes: Tensor, counts: Tensor) -> Tensor:
        no = counts - yes
        below = no.cumsum(0) - no
        return (yes * (below + no / 2)).sum() / (yes.sum() * no.sum())


class AveragePrecision(_Ranked):
    """Sum over thresholds of (recall - recall before) * precision, without interpolation.

    A threshold is a score that occurs: the definition of scikit-learn and of OGB's evaluator.
    """

    name = "average-precision"

    def _of_groups(self, yes: Tensor, counts: Tensor) -> Tensor:
        yes, counts = yes.flip(0), counts.flip(0)
        precision = yes.cumsum(0) / counts.cumsum(0)
        return (yes * precision).sum() / yes.sum()


class _OfErrors(Measure):
    """Mean over columns of the mean of a function of the known errors."""

    is_lower_better = True

    def shares(self, scores: Tensor, targets: Tensor, group: Group) -> Tensor:
        """Return the sum and the number of errors of each column."""
        del group
        errors, is_known = _errors(scores, targets)
        return torch.cat([self._of(errors).sum(dim=0), is_known.sum(dim=0).double()])

    def value(self, sums: Tensor) -> float | None:
        """Return the mean of the column means."""
        total, count = sums.chunk(2)
        has_any = count > 0
        return float((total[has_any] / count[has_any]).mean()) if has_any.any() else None

    @abstractmethod
    def _of(self, errors: Tensor) -> Tensor:
        """Return the values to average; 0 for an error of 0."""


class MeanSquaredError(_OfErrors):
    """Mean of (score - value)^2."""

    name = "mse"

    def _of(self, errors: Tensor) -> Tensor:
        return errors.square()


class MeanAbsoluteError(_OfErrors):
    """Mean of |score - value|."""

    name = "mae"

    def _of(self, errors: Tensor) -> Tensor:
        return errors.abs()


class R2(Measure):
    """Mean over columns of 1 - sum (score - value)^2 / sum (value - mean value)^2.

    A column of equal values counts 1 if all scores are exact, else 0, as in scikit-learn.
    """

    name = "r2"

    def shares(self, scores: Tensor, targets: Tensor, group: Group) -> Tensor:
        """Return both sums and the number of known values of each column."""
        errors, is_known = _errors(scores, targets)
        known = torch.where(is_known, targets.double(), 0)
        sums = torch.stack([known.sum(dim=0), is_known.sum(dim=0).double()])
        # The mean comes first: the difference of two large sums of squares would lose digits.
        group.all_reduce(sums)
        mean = sums[0] / sums[1].clamp(min=1)
        deviation = torch.where(is_known, known - mean, 0)
        counts = is_known.sum(dim=0).double()
        return torch.cat([errors.square().sum(dim=0), deviation.square().sum(dim=0), counts])

    def value(self, sums: Tensor) -> float | None:
        """Return the mean of the columns' quotients."""
        missed, varied, count = sums.chunk(3)
        exact = (missed == 0).double()
        values = torch.where(varied > 0, 1 - missed / torch.where(varied > 0, varied, 1), exact)
        has_any = count > 0
        return float(values[has_any].mean()) if has_any.any() else None


def lower_is_better(name: str) -> bool:
    """Return whether a smaller value of a metric is a better one.

    Args:
        name: Name in `--metric`.
    """
    return name in (MeanSquaredError.name, MeanAbsoluteError.name)


def _errors(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return (num, num_columns) float64 errors, 0 where unknown, and whether each is known."""
    is_known = ~targets.isnan()
    return torch.where(is_known, scores.double() - targets.double(), 0), is_known


def _gathered(own: Tensor, sizes: list[int], group: Group) -> Tensor:
    """Gather (sum of sizes, width) rows of all ranks, in rank order; collective."""
    padded = own.new_zeros(max(sizes), own.shape[1])
    padded[: len(own)] = own
    rows = group.all_gather(padded)
    return torch.cat([row[:size] for row, size in zip(rows, sizes, strict=True)])
