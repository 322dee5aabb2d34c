"""Labels as input: draws, reads and losses, on any number of ranks and after any resume."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import cut, make_graph
from training import (
    check_equal,
    check_same_values,
    ends_of,
    first_step,
    make_config,
    run,
    task_of,
)

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.kernels.seeds import MaskSeeds
from distgnn.ops import SparseRows
from distgnn.training.data.inputs import split_rows
from distgnn.training.data.label_input import LabelDraw
from distgnn.training.loop.trainer import Trainer
from distgnn.training.run.directory import RunDirectory
from distgnn.training.run.inference import TrainedRun
from distgnn.training.tasks.learning import evaluate_task, load_task
from distgnn.training.tasks.smoothing import CorrectAndSmooth
from distgnn.training.tasks.tasks import TASKS, resolve

HALF = {"labels_as_input": 0.5}
KINDS = ("random", "sparse-features", "multi-label", "unknown-flags")


def draw_of(fraction, *, seed=0, epoch=0):
    draws = MaskSeeds()
    draws.seed, draws.epoch = seed, epoch
    return LabelDraw(fraction, draws)


def test_each_vertex_is_drawn_by_its_id_and_the_epoch_alone():
    ids = torch.arange(20_000)
    draw = draw_of(0.3)
    given = draw.is_given(ids)
    assert given.double().mean() == pytest.approx(0.3, abs=0.015)
    assert torch.equal(draw.is_given(ids.flip(0)[:50]), given.flip(0)[:50])
    for other in (draw_of(0.3, epoch=1), draw_of(0.3, seed=1)):
        both = (other.is_given(ids) & given).double().mean()
        assert both == pytest.approx(0.09, abs=0.015)


def test_masks_of_dropout_and_the_draw_leave_each_other_alone():
    draws = MaskSeeds()
    first = draws.epoch_seed
    calls = [draws.next_seed() for _ in range(3)]
    assert draws.epoch_seed == first
    assert len({first, *calls}) == 4
    draws.end_epoch()
    assert draws.epoch_seed not in {first, *calls}


def trainer_of(graph, part, group=None, **options):
    config = make_config(**{**HALF, **options})
    return Trainer(config, ends_of(graph), part, group or SingleGroup())


def flags_of(graph, part):
    """(num_roots, num_classes) labels of training vertices, in numpy's words; and who they are."""
    task = task_of(part)["task"]
    train = np.zeros(part.num_roots, dtype=bool)
    train[split_rows(part, 0, task)["train"].numpy()] = True
    labels = np.array(part.labels)
    # 255 is an unknown flag.
    flags = labels[:, None] == np.arange(graph.num_classes) if labels.ndim == 1 else labels == 1
    return flags * train[:, None], train


@pytest.mark.parametrize(
    ("kind", "dtype"), [*((kind, "fp32") for kind in KINDS), ("random", "bf16")]
)
def test_training_reads_the_labels_that_were_drawn_and_evaluation_all(kind, dtype):
    graph = make_graph(kind)
    (part,) = cut(graph, 1)
    trainer = trainer_of(graph, part, features_dtype=dtype, receptive_field=False)
    flags, train = flags_of(graph, part)
    features = np.asarray(part.features.todense() if kind == "sparse-features" else part.features)
    stored = torch.tensor(features).to(torch.bfloat16 if dtype == "bf16" else None).float()
    draw = LabelDraw(0.5, trainer.graph.mask_seeds)
    numbers = []
    for _ in range(3):
        given = draw.is_given(trainer.graph.row_id).numpy()
        rows = trainer.course.take().rows
        assert isinstance(rows, SparseRows) == (kind == "sparse-features")
        rows = rows.to_dense().float()
        assert torch.equal(rows[:, :6], stored)
        assert np.array_equal(rows[:, 6:].numpy(), flags * given[:, None])
        numbers.append((given & train).sum())
        assert 0 < numbers[-1] < train.sum()
        trainer.train_epoch()
        whole = trainer.inputs.features.to_dense().float()
        assert torch.equal(whole[:, :6], stored)
        assert np.array_equal(whole[:, 6:].numpy(), flags)
    assert len(set(numbers)) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_the_mean_over_the_vertices_whose_labels_are_not_given(kind):
    graph = make_graph(kind)
    (part,) = cut(graph, 1)
    trainer = trainer_of(graph, part, model="gcn", input_dropout=0.0)
    task = TASKS[trainer.config.task]
    targets = task.targets(np.array(part.labels))
    flags, train = flags_of(graph, part)
    for _ in range(3):
        given = (
            LabelDraw(0.5, trainer.graph.mask_seeds).is_given(trainer.graphs.exact.row_id).numpy()
        )
        others = torch.from_numpy(np.flatnonzero(train & ~given))
        features = trainer.inputs.features.to_dense().clone()
        features[:, 6:] = torch.from_numpy(flags * given[:, None])
        with torch.no_grad():
            scores = trainer.model(trainer.graphs.exact, features)
        expected = float(task.losses(scores[others], targets[others]).mean())
        assert trainer.train_epoch() == pytest.approx(expected, rel=1e-5)


def test_an_epoch_that_withholds_no_label_has_no_loss():
    graph = make_graph()
    train = np.zeros_like(graph.train_mask)
    train[0, 5] = True
    graph = replace(graph, train_mask=train)
    records, grads = first_step(cut(graph, 3), graph, "gcn", num_epochs=6, **HALF)
    losses = [record["loss"] for record in records]
    assert 0.0 in losses
    assert max(losses) > 0
    gradients = grads[losses.index(0.0)].values()
    assert all(not gradient.any() for gradient in gradients)


@pytest.mark.parametrize(
    ("model", "kind", "num_parts"),
    [
        *((model, "random", 3) for model in ("sage-mean", "sage-max", "gat", "gcn-batch-residual")),
        *(("gcn-dropout", kind, 3) for kind in KINDS),
        ("sage-dropout", "random", 7),
    ],
)
def test_the_number_of_ranks_does_not_matter(model, kind, num_parts):
    graph = make_graph(kind)
    options = {"num_epochs": 2, "optimizer": "sgd", **HALF}
    expected = first_step(cut(graph, 1), graph, model, **options)
    check_equal(first_step(cut(graph, num_parts), graph, model, **options), expected)


@pytest.mark.parametrize("kind", ["random", "sparse-features"])
def test_the_exact_savings_change_nothing_beyond_rounding(kind):
    graph = make_graph(kind, num_vertices=80)
    train = graph.train_mask.copy()
    train[:, 20:] = False
    graph = replace(graph, train_mask=train)
    parts = cut(graph, 3)
    off = {"static_input": False, "receptive_field": False}
    expected = first_step(parts, graph, "sage-mean", num_epochs=3, **HALF, **off)
    check_equal(first_step(parts, graph, "sage-mean", num_epochs=3, **HALF), expected)


def test_leaves_of_0c_read_the_labels_that_their_roots_read():
    graph = make_graph()
    options = {"algorithm": "0c", "reweight_loss": True}
    alone = trainer_of(graph, cut(graph, 1)[0], receptive_field=False)
    expected = alone.course.take().rows.to_dense()

    def on_rank(group):
        part = parts[group.rank]
        trainer = trainer_of(graph, part, group, receptive_field=False, **options)
        rows = trainer.course.take().rows.to_dense()
        # A leaf that only writes has no row of its own.
        is_read = np.append(np.ones(part.num_roots, bool), part.is_reading)
        return rows[is_read], part.global_id[is_read], part.num_roots

    parts = cut(graph, 3)
    for rows, ids, num_roots in run_ranks(3, on_rank):
        assert len(ids) > num_roots
        assert torch.equal(rows, expected[ids])


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("algorithm", ["cd-0", "0c"])
def test_a_resumed_run_has_the_bits_of_the_straight_one(algorithm, num_ranks, tmp_path):
    graph = make_graph()
    parts = cut(graph, num_ranks)
    options = {"algorithm": algorithm, "dropout": 0.4, "input_dropout": 0.2, **HALF}
    config = make_config(epochs=9, **options)
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "resumed", graph, parts, make_config(epochs=4, **options))
    resumed = run(tmp_path / "resumed", graph, parts, config, resume=True)
    for one, other in zip(resumed, straight, strict=True):
        losses = [[record["loss"] for record in which.records] for which in (one, other)]
        assert losses[0] == losses[1]
        check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())


@pytest.mark.parametrize("kind", ["random", "sparse-features", "multi-label"])
def test_a_run_that_is_read_back_reads_the_labels_of_its_training_vertices(kind, tmp_path):
    graph = make_graph(kind)
    summary = run(tmp_path, graph, cut(graph, 3), make_config(**HALF))[0].summary
    trained = TrainedRun(RunDirectory(tmp_path))
    parts = cut(graph, 2)

    def on_rank(group):
        part = parts[group.rank]
        scores = trained.scores(part, group)
        inputs = load_task(part, group, trained.config, num_classes=graph.num_classes)
        given = trained.scores(part, group, features=inputs.features)
        assert torch.equal(scores, given)
        smoothed = None
        if kind != "multi-label":
            smoothed = trained.scores(part, group, after=CorrectAndSmooth(0.5, 0.5, 3))
        found = evaluate_task(inputs, scores, trained.load_model(), group)
        return found.metric, scores, smoothed

    for metric, scores, smoothed in run_ranks(2, on_rank):
        for split, value in metric.items():
            assert value == pytest.approx(summary[f"{split}_metric"])
        assert smoothed is None or smoothed.shape == scores.shape


def test_the_log_says_what_is_drawn_and_why_input_is_not_static():
    graph = make_graph()
    savings = trainer_of(graph, cut(graph, 1)[0], labels_as_input=0.25).graphs.savings
    assert savings[0] == "static input: off, labels in it are drawn again in every epoch"
    line = "labels: 25 % of the training vertices give theirs as input, drawn in each epoch; "
    assert savings[2].startswith(line)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("regression", "gives classes or flags, but the graph's labels are values to be learned"),
        ("links", "has no effect on a link task, which reads no labels; leave it out"),
    ],
)
def test_tasks_without_classes_are_refused(kind, sentence):
    about = ends_of(make_graph("regression" if kind == "regression" else "random"))
    about = replace(about, has_links=kind == "links")
    with pytest.raises(InputError, match=rf"^--labels-as-input 0.5 {sentence}"):
        resolve(make_config(**HALF), about)
