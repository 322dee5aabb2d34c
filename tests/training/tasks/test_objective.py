"""Loss and metric: each vertex once over all ranks, equal to the plain formula on all of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import CUTS, cut, make_graph
from torch.nn import functional
from training import task_of

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.graph.local_graph import LocalGraph
from distgnn.training.data.inputs import Inputs, load_inputs
from distgnn.training.tasks.objective import Loss, Scores, build_loss, coverage_weights
from distgnn.training.tasks.tasks import METRICS, TASKS

RANKS = [1, 2, 3, 7]
KINDS = ["random", "multi-label"]


def scores_of(graph, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(graph.num_vertices, graph.num_classes, generator=generator)


def mask_of(graph, split):
    return torch.from_numpy(getattr(graph, f"{split}_mask")[0])


def dense_losses(scores, labels):
    """The loss of each vertex, term by term."""
    scores = scores.double()
    labels = torch.from_numpy(labels)
    if labels.ndim == 2:
        chance = scores.sigmoid()
        terms = torch.where(labels > 0, chance.log(), (1 - chance).log())
        return -terms.mean(dim=1)
    return -(scores.softmax(dim=1).log()[torch.arange(len(labels)), labels])


def dense_metric(scores, labels, mask):
    """Accuracy, or micro-F1 from counted true and false positives and negatives."""
    if labels.ndim == 1:
        hits = [int(scores[v].argmax()) == labels[v] for v in np.flatnonzero(mask)]
        return sum(hits) / len(hits)
    tp = fp = fn = 0
    for vertex in np.flatnonzero(mask):
        for label in range(labels.shape[1]):
            predicted, true = scores[vertex, label] > 0, labels[vertex, label] > 0
            tp += bool(predicted and true)
            fp += bool(predicted and not true)
            fn += bool(true and not predicted)
    precision, recall = tp / (tp + fp), tp / (tp + fn)
    return 2 * precision * recall / (precision + recall)


def on_parts(parts, scores, work):
    """Call work(group, inputs, part, own scores) on every rank."""

    def on_rank(group):
        part = parts[group.rank]
        inputs = load_inputs(part, group, split_index=0, feature_norm="none", **task_of(part))
        own = scores[part.global_id[: part.num_roots]].clone()
        return work(group, inputs, part, own)

    return run_ranks(len(parts), on_rank)


@pytest.mark.parametrize("num_parts", RANKS)
@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_shares_of_the_loss_and_its_gradient_add_up_to_the_dense_ones(kind, how, num_parts):
    graph = make_graph(kind)
    scores = scores_of(graph)
    parts = cut(graph, num_parts, how=how)

    def work(group, inputs, part, own):
        loss = build_loss(inputs, group, rows=inputs.rows["train"])
        own.requires_grad_()
        share = loss(own)
        share.backward()
        return float(share.detach()), own.grad

    results = on_parts(parts, scores, work)
    whole = scores.clone().requires_grad_()
    expected = dense_losses(whole, graph.labels)[mask_of(graph, "train")].mean()
    expected.backward()
    assert sum(share for share, _ in results) == pytest.approx(float(expected.detach()), rel=1e-6)
    for part, (_, grad) in zip(parts, results, strict=True):
        own = whole.grad[part.global_id[: part.num_roots]]
        torch.testing.assert_close(grad, own, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("num_parts", RANKS)
@pytest.mark.parametrize("kind", KINDS)
def test_metrics_are_those_of_counting_each_vertex_once(kind, num_parts):
    graph = make_graph(kind)
    scores = scores_of(graph)
    work = on_parts(
        cut(graph, num_parts),
        scores,
        lambda group, inputs, part, own: Scores(own, inputs, group),
    )
    for got in work:
        for split in ("train", "val", "test"):
            expected = dense_metric(scores, graph.labels, mask_of(graph, split).numpy())
            assert got.metric[split] == pytest.approx(expected, rel=1e-12)
        losses = dense_losses(scores, graph.labels)[mask_of(graph, "val")]
        assert got.val_loss == pytest.approx(float(losses.mean()), rel=1e-6)


def test_ranks_without_training_vertices_have_no_share_but_a_gradient():
    graph = make_graph("random", num_vertices=12)
    parts = cut(graph, 7)
    has_train = [bool(part.train_mask[0].any()) for part in parts]
    assert not all(has_train)

    def work(group, inputs, part, own):
        own.requires_grad_()
        rows = inputs.rows["train"]
        total, losses = inputs.counts["train"], inputs.task.losses
        share = Loss(inputs, rows=rows, weight=None, total=total, losses=losses)(own)
        share.backward()
        return float(share.detach()), own.grad

    results = on_parts(parts, scores_of(graph), work)
    for has, part, (share, grad) in zip(has_train, parts, results, strict=True):
        assert (share > 0) == has
        assert grad.shape == (part.num_roots, graph.num_classes)
        assert bool(grad.any()) == has


def inputs_of(labels, rows):
    """Inputs of one rank, with everything but the features."""
    empty = torch.empty(0, dtype=torch.int64)
    rows = {"train": empty, "val": empty, "test": empty, **rows}
    counts = {name: len(own) for name, own in rows.items()}
    name = "multi-label" if labels.ndim == 2 else "single-label"
    features = torch.empty(len(labels), 1)
    return Inputs(features, labels, rows, counts, TASKS[name], METRICS[name][0]())


def test_a_split_without_vertices_has_no_metric():
    inputs = inputs_of(torch.tensor([0, 1]), {"train": torch.tensor([0, 1])})
    got = Scores(torch.eye(2), inputs, SingleGroup())
    assert got.metric == {"train": 1.0, "val": None, "test": None}
    assert got.val_loss == 0


def test_where_nothing_is_true_and_nothing_predicted_micro_f1_is_zero():
    inputs = inputs_of(torch.zeros(2, 3), {"val": torch.tensor([0, 1])})
    assert Scores(-torch.ones(2, 3), inputs, SingleGroup()).metric["val"] == 0
    assert Scores(torch.ones(2, 3), inputs, SingleGroup()).metric["val"] == 0


def test_micro_f1_of_a_known_table():
    labels = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    scores = torch.tensor([[2.0, 1.0], [-1.0, 3.0], [0.0, -2.0]])
    # True positives 2, false positives 1, false negatives 1; a score of exactly 0 is a no.
    got = Scores(scores, inputs_of(labels, {"test": torch.arange(3)}), SingleGroup())
    assert got.metric["test"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))


def test_the_loss_of_a_vertex_is_torchs():
    scores = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 2, 1, 1, 0])
    expected = functional.cross_entropy(scores, labels)
    torch.testing.assert_close(TASKS["single-label"].losses(scores, labels).mean(), expected)
    several = (scores > 0.3).float()
    expected = functional.binary_cross_entropy_with_logits(scores, several)
    torch.testing.assert_close(TASKS["multi-label"].losses(scores, several).mean(), expected)


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("num_parts", [1, 3])
def test_the_reweighted_loss_is_the_weighted_mean_over_all_training_vertices(num_parts, how):
    graph = make_graph("loops")
    scores = scores_of(graph)
    parts = cut(graph, num_parts, how=how)

    def work(group, inputs, part, own):
        exact = LocalGraph.exact(part, group)
        alone = LocalGraph.isolated(part, group)
        degrees = (alone.in_degree, exact.in_degree)
        loss = build_loss(inputs, group, rows=inputs.rows["train"], degrees=degrees)
        clones = scores[part.global_id].clone().requires_grad_()
        share = loss(clones)
        share.backward()
        assert not clones.grad[part.num_roots :].any(), "leaves have no loss"
        return float(share.detach())

    weights = np.ones(graph.num_vertices)
    degree = np.bincount(graph.dst, minlength=graph.num_vertices)
    for part in parts:
        ids = part.global_id[: part.num_roots]
        local = np.diff(part.indptr)[: part.num_roots]
        weights[ids] = np.divide(local, degree[ids], out=np.ones(len(ids)), where=degree[ids] > 0)
    train = mask_of(graph, "train").numpy()
    losses = dense_losses(scores, graph.labels).numpy()
    expected = (weights * losses)[train].sum() / weights[train].sum()
    assert sum(on_parts(parts, scores, work)) == pytest.approx(expected, rel=1e-5)
    assert num_parts == 1 or how in ("at-destination", "empty-part") or weights[train].min() < 1


def test_weights_of_coverage_are_those_of_a_table():
    local, whole = torch.tensor([4.0, 2, 1, 0, 0]), torch.tensor([4.0, 4, 4, 4, 0])
    assert coverage_weights(local, whole, 1.0).tolist() == [1, 2, 4, 4, 1]
    assert coverage_weights(local, whole, 0.5).tolist() == [1, 1.5, 2.5, 2.5, 1]
    assert coverage_weights(local, whole, 0.0).tolist() == [1] * 5


def test_corrected_sums_are_unbiased_over_random_parts():
    """Each in-edge is in the part of its target with probability 1/2: seen terms stand for all."""
    generator = torch.Generator().manual_seed(0)
    whole, values = torch.full((20000,), 8.0), torch.randn(20000, 8, generator=generator) + 1
    is_seen = torch.rand(20000, 8, generator=generator) < 0.5
    local = is_seen.sum(dim=1).float()
    weight = coverage_weights(local, whole, 1.0)
    corrected = ((values * is_seen).sum(dim=1) * weight).mean()
    # Of 256 vertices one has no edge at all, whose terms are lost.
    assert float(corrected) == pytest.approx(float(values.sum(dim=1).mean()), rel=0.01)
    assert float((values * is_seen).sum(dim=1).mean()) < 0.6 * float(corrected)


def test_a_part_that_has_no_in_edge_of_any_training_vertex_still_has_a_finite_loss():
    inputs = inputs_of(torch.tensor([0, 1]), {"train": torch.tensor([0, 1])})
    parts = cut(make_graph("few-edges", num_vertices=12), 7, how="anywhere")
    alone = run_ranks(7, lambda group: LocalGraph.isolated(parts[group.rank], group))[0]
    assert not alone.in_degree[:2].any()
    degrees = (alone.in_degree, torch.ones(2, 1))
    loss = build_loss(inputs, SingleGroup(), rows=inputs.rows["train"], degrees=degrees)
    assert float(loss(torch.eye(2))) == 0
