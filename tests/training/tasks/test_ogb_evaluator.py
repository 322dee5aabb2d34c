"""Metrics beside the evaluators of OGB, where ogb is installed."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.training.tasks.link_measures import Hits, MeanReciprocalRank
from distgnn.training.tasks.measures import Accuracy, RocAuc


@pytest.fixture(scope="module")
def ogb():
    with warnings.catch_warnings():
        # Of its packages, and of its question for a newer version, which needs a network.
        warnings.simplefilter("ignore")
        linkproppred = pytest.importorskip("ogb.linkproppred")
        nodeproppred = pytest.importorskip("ogb.nodeproppred")
    return nodeproppred.Evaluator, linkproppred.Evaluator


def theirs(evaluator, name, given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return evaluator(name=name).eval(given)


def ours(measure, *given, num_ranks=1):
    """Deal rows to ranks and sum their shares."""
    if num_ranks == 1:
        return measure.value(measure.shares(*given, SingleGroup()))

    def on_rank(group):
        sums = measure.shares(*(array[group.rank :: num_ranks] for array in given), group)
        group.all_reduce(sums)
        return measure.value(sums)

    return run_ranks(num_ranks, on_rank)[0]


@pytest.mark.parametrize("name", ["ogbn-arxiv", "ogbn-products"])
@pytest.mark.parametrize("num_ranks", [1, 3])
def test_accuracy_is_that_of_ogb(ogb, name, num_ranks):
    rng = np.random.default_rng(0)
    scores = torch.from_numpy(rng.normal(size=(200, 7)).astype(np.float32))
    classes = torch.from_numpy(rng.integers(0, 7, 200))
    given = {"y_true": classes[:, None], "y_pred": scores.argmax(dim=1)[:, None]}
    expected = theirs(ogb[0], name, given)["acc"]
    assert ours(Accuracy(), scores, classes, num_ranks=num_ranks) == pytest.approx(expected)


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_roc_auc_is_that_of_ogb(ogb, num_ranks):
    rng = np.random.default_rng(1)
    scores = torch.from_numpy((rng.integers(-4, 5, (300, 112)) / 4).astype(np.float32))  # with ties
    flags = torch.from_numpy(rng.integers(0, 2, (300, 112)).astype(np.float32))
    expected = theirs(ogb[0], "ogbn-proteins", {"y_true": flags, "y_pred": scores})["rocauc"]
    assert ours(RocAuc(), scores, flags, num_ranks=num_ranks) == pytest.approx(expected)


@pytest.mark.parametrize(("name", "k"), [("ogbl-ddi", 20), ("ogbl-collab", 50), ("ogbl-ppa", 100)])
@pytest.mark.parametrize("num_ranks", [1, 3])
def test_hits_are_those_of_ogb(ogb, name, k, num_ranks):
    rng = np.random.default_rng(2)
    links, others = (
        torch.from_numpy((rng.integers(0, 400, size) / 8).astype(np.float32)) for size in (500, 900)
    )
    given = {"y_pred_pos": links, "y_pred_neg": others}
    expected = theirs(ogb[1], name, given)[f"hits@{k}"]
    assert 0 < expected < 1
    assert ours(Hits(k), links, others, num_ranks=num_ranks) == pytest.approx(expected)


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_the_mean_reciprocal_rank_is_that_of_ogb(ogb, num_ranks):
    rng = np.random.default_rng(3)
    links = torch.from_numpy((rng.integers(300, 400, 50) / 8).astype(np.float32))
    others = torch.from_numpy((rng.integers(0, 400, (50, 1000)) / 8).astype(np.float32))
    given = {"y_pred_pos": links, "y_pred_neg": others}
    expected = float(theirs(ogb[1], "ogbl-citation2", given)["mrr_list"].mean())
    found = ours(MeanReciprocalRank(), links, others, num_ranks=num_ranks)
    assert found == pytest.approx(expected, rel=1e-6)
