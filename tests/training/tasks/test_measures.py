"""Metrics: equal to plain formulas, tie-correct, and the same on any number of ranks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.training.tasks import measures
from distgnn.training.tasks.measures import (
    R2,
    AveragePrecision,
    MacroF1,
    MeanAbsoluteError,
    MeanSquaredError,
    MicroF1,
    RocAuc,
)

NAN = float("nan")


def table(seed, *, num_rows=60, num_columns=5):
    """Scores with many ties, flags with unknown ones, a column without a yes."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(-3, 4, (num_rows, num_columns)).astype(np.float32) / 2
    flags = rng.choice([0.0, 1.0, NAN], (num_rows, num_columns), p=[0.5, 0.3, 0.2])
    flags[:, 2] = np.where(flags[:, 2] == 1, 0, flags[:, 2])
    return torch.from_numpy(scores), torch.from_numpy(flags.astype(np.float32))


def one_process(measure, scores, targets):
    return measure.value(measure.shares(scores, targets, SingleGroup()))


def on_ranks(measure, scores, targets, num_ranks):
    """Deal rows to ranks, one of which gets none, and sum their shares."""
    owner = torch.arange(len(scores)) % max(num_ranks - 1, 1)

    def on_rank(group):
        own = owner == group.rank
        sums = measure.shares(scores[own], targets[own], group)
        group.all_reduce(sums)
        return measure.value(sums)

    return run_ranks(num_ranks, on_rank)


def auc_by_pairs(scores, flags):
    """The share of pairs of a yes and a no that are in order; equal scores count half."""
    pairs = itertools.product(scores[flags == 1].tolist(), scores[flags == 0].tolist())
    won = [1.0 if yes > no else 0.5 if yes == no else 0.0 for yes, no in pairs]
    return sum(won) / len(won)


def precision_by_thresholds(scores, flags):
    """Step by step over every score that occurs, from the highest."""
    total, recall_before = 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        predicted = scores >= threshold
        hits = float((flags[predicted] == 1).sum())
        recall = hits / float((flags == 1).sum())
        total += (recall - recall_before) * hits / float(predicted.sum())
        recall_before = recall
    return total


def mean_over_columns(of_column, scores, flags):
    """Evaluate as OGB does: columns with both a yes and a no; unknown flags are left out."""
    values = []
    for column in range(flags.shape[1]):
        known = ~flags[:, column].isnan()
        own = flags[known, column]
        if (own == 1).any() and (own == 0).any():
            values.append(of_column(scores[known, column], own))
    return sum(values) / len(values)


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 7])
@pytest.mark.parametrize(
    ("measure", "of_column"),
    [(RocAuc(), auc_by_pairs), (AveragePrecision(), precision_by_thresholds)],
)
def test_ranked_metrics_are_those_of_pairs_and_thresholds(measure, of_column, num_ranks):
    for seed in range(3):
        scores, flags = table(seed)
        expected = mean_over_columns(of_column, scores, flags)
        for value in on_ranks(measure, scores, flags, num_ranks):
            assert value == pytest.approx(expected, rel=1e-12)


def test_columns_that_are_gathered_in_blocks_are_each_counted_once(monkeypatch):
    scores, flags = table(4)
    expected = mean_over_columns(auc_by_pairs, scores, flags)
    monkeypatch.setattr(measures, "_GATHERED_VALUES", 2 * len(scores) * 2)
    for value in on_ranks(RocAuc(), scores, flags, 3):
        assert value == pytest.approx(expected, rel=1e-12)


def test_two_classes_are_ranked_by_the_difference_of_their_scores():
    scores = torch.tensor([[0.0, 1.0], [5.0, 5.0], [3.0, 1.0], [0.0, -1.0]])
    classes = torch.tensor([1, 0, 1, 0])
    # Differences 1, 0, -2, -1: of the four pairs two are in order.
    assert one_process(RocAuc(), scores, classes) == 0.5


def test_all_scores_equal_are_chance():
    flags = torch.tensor([[1.0], [0.0], [0.0], [1.0], [0.0]])
    assert one_process(RocAuc(), torch.zeros(5, 1), flags) == 0.5
    assert one_process(AveragePrecision(), torch.zeros(5, 1), flags) == 0.4


def test_a_ranked_metric_without_a_yes_is_not_defined():
    assert one_process(RocAuc(), torch.randn(4, 2), torch.zeros(4, 2)) is None
    assert one_process(AveragePrecision(), torch.randn(4, 2), torch.ones(4, 2)) is None
    assert one_process(RocAuc(), torch.randn(0, 2), torch.zeros(0, 2)) is None


def test_unknown_flags_count_nowhere_in_micro_f1():
    scores = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    flags = torch.tensor([[1.0, NAN], [0.0, 1.0]])
    # TP 1, FP 1, FN 1; the unknown flag was predicted.
    assert one_process(MicroF1(), scores, flags) == 0.5


def test_macro_f1_is_the_mean_over_classes_that_are_there():
    scores = torch.eye(4)[[0, 0, 1, 1, 2]]
    classes = torch.tensor([0, 1, 1, 1, 0])
    # Class 0: TP 1, FP 1, FN 1. Class 1: TP 2, FN 1. Class 2: FP 1. Class 3 is nowhere.
    wanted = (2 / 4 + 4 / 5 + 0) / 3
    assert one_process(MacroF1(), scores, classes) == pytest.approx(wanted)
    for value in on_ranks(MacroF1(), scores, classes, 3):
        assert value == pytest.approx(wanted)


def test_macro_f1_of_flags_leaves_out_those_that_are_unknown():
    scores = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 2.0]])
    flags = torch.tensor([[1.0, NAN], [0.0, 1.0], [0.0, 1.0]])
    assert one_process(MacroF1(), scores, flags) == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert one_process(MacroF1(), torch.zeros(0, 2), torch.zeros(0, 2)) is None


@pytest.mark.parametrize("num_ranks", [1, 2, 5])
def test_errors_of_regression_are_the_plain_formulas(num_ranks):
    rng = np.random.default_rng(0)
    values = torch.from_numpy(rng.normal(1e4, 1, (40, 3)).astype(np.float32))
    scores = values + torch.from_numpy(rng.normal(0, 0.5, (40, 3)).astype(np.float32))
    values[rng.random((40, 3)) < 0.2] = NAN
    squared, absolute, determined = [], [], []
    for column in range(3):
        known = ~values[:, column].isnan()
        y, p = values[known, column].double(), scores[known, column].double()
        squared.append(float((p - y).square().mean()))
        absolute.append(float((p - y).abs().mean()))
        determined.append(1 - float((p - y).square().sum() / (y - y.mean()).square().sum()))
    for measure, expected in (
        (MeanSquaredError(), squared),
        (MeanAbsoluteError(), absolute),
        (R2(), determined),
    ):
        for value in on_ranks(measure, scores, values, num_ranks):
            assert value == pytest.approx(np.mean(expected), rel=1e-9)


def test_r2_of_equal_values_is_one_if_they_are_met_else_zero():
    values = torch.full((4, 1), 2.0)
    assert one_process(R2(), values.clone(), values) == 1
    assert one_process(R2(), values + 1, values) == 0
    assert one_process(R2(), values[:0], values[:0]) is None


def test_macro_f1_of_flags_counts_all_labels_that_are_known():
    """In scikit-learn, too, a label that nobody has and nobody predicts has an F1 of 0."""
    flags = torch.tensor([[1.0, 0.0, NAN], [0.0, 0.0, NAN]])
    assert one_process(MacroF1(), flags.nan_to_num() - 0.5, flags) == 0.5
