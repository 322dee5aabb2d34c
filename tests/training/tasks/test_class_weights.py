"""Weights of classes: torch's values, the same on any number of ranks, resumed exactly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import cut, make_graph
from torch.nn import functional
from training import check_equal, check_same_values, ends_of, first_step, make_config, run

import distgnn
from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.training.config.settings import TrainConfig
from distgnn.training.loop.trainer import Trainer
from distgnn.training.tasks.tasks import resolve


def loss_of(graph, scores, *, num_ranks, **options):
    """The loss of a run, for scores of all vertices, and its gradient."""
    parts, config = cut(graph, num_ranks), make_config(receptive_field=False, **options)

    def on_rank(group):
        part = parts[group.rank]
        trainer = Trainer(config, ends_of(graph), part, group)
        own = torch.from_numpy(np.array(part.global_id[: part.num_roots]))
        mine = scores[own].clone().requires_grad_()
        loss = trainer.objective.loss(mine)
        loss.backward()
        gradient = torch.zeros_like(scores)
        gradient[own] = mine.grad
        return float(loss.detach()), gradient

    found = run_ranks(num_ranks, on_rank)
    return sum(loss for loss, _ in found), sum(gradient for _, gradient in found)


def drawn_scores(graph):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(graph.num_vertices, ends_of(graph).num_classes, generator=generator)


def check_loss(graph, expected_of, **options):
    """Compare the loss of a run with that of torch, of the scores of training vertices."""
    scores = drawn_scores(graph)
    theirs = scores.clone().requires_grad_()
    train = np.flatnonzero(graph.train_mask.reshape(-1, graph.num_vertices)[0])
    labels = torch.from_numpy(graph.labels[train])
    expected = expected_of(theirs[train], labels)
    expected.backward()
    for num_ranks in (1, 3):
        loss, gradient = loss_of(graph, scores, num_ranks=num_ranks, **options)
        assert loss == pytest.approx(float(expected.detach()), rel=1e-5)
        torch.testing.assert_close(gradient, theirs.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_the_loss_of_classes_is_that_of_torch(share):
    graph = make_graph("random")
    num_classes = ends_of(graph).num_classes
    weights = torch.rand(num_classes, generator=torch.Generator().manual_seed(1)) + 0.1
    check_loss(
        graph,
        lambda scores, labels: functional.cross_entropy(
            scores, labels, weight=weights, label_smoothing=share
        ),
        class_weights=",".join(str(float(weight)) for weight in weights),
        label_smoothing=share,
    )


@pytest.mark.parametrize("share", [0.0, 0.2])
@pytest.mark.parametrize("has_all", [True, False])
def test_balanced_weights_are_counted_over_the_training_vertices_of_all_ranks(share, has_all):
    graph = make_graph("random")
    num_classes = ends_of(graph).num_classes
    if not has_all:
        graph.train_mask[..., graph.labels == 0] = False
    counts = np.bincount(graph.labels[graph.train_mask.ravel()], minlength=num_classes)
    assert (counts == 0).any() != has_all
    occurs = counts > 0
    weights = counts.sum() / (occurs.sum() * np.maximum(counts, 1)) * occurs
    weights = torch.from_numpy(weights).float()
    check_loss(
        graph,
        lambda scores, labels: functional.cross_entropy(
            scores, labels, weight=weights, label_smoothing=share
        ),
        class_weights="balanced",
        label_smoothing=share,
    )


@pytest.mark.parametrize("is_balanced", [True, False])
def test_the_loss_of_labels_is_that_of_torch(is_balanced):
    graph = make_graph("multi-label")
    labels = graph.labels[graph.train_mask.ravel()]
    weights = (labels == 0).sum(axis=0) / (labels == 1).sum(axis=0)
    if not is_balanced:
        weights = np.arange(1, labels.shape[1] + 1) / 2
    pos_weight = torch.from_numpy(weights).float()
    check_loss(
        graph,
        lambda scores, flags: functional.binary_cross_entropy_with_logits(
            scores, flags.float(), pos_weight=pos_weight
        ),
        class_weights="balanced" if is_balanced else ",".join(map(str, weights)),
    )


OPTIONS = {
    "classes": ("random", {}),
    "labels": ("multi-label", {}),
    "unknown": ("unknown-flags", {}),
    "smoothed": ("random", {"label_smoothing": 0.1}),
    "given": ("random", {"labels_as_input": 0.5}),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_steps_are_the_same_on_any_number_of_ranks(name):
    kind, options = OPTIONS[name]
    graph, options = make_graph(kind), {"class_weights": "balanced", **options}
    expected = first_step(cut(graph, 1), graph, "gcn", **options)
    check_equal(first_step(cut(graph, 3), graph, "gcn", **options), expected)
    plain, _ = first_step(cut(graph, 1), graph, "gcn", **{**options, "class_weights": ""})
    assert plain[0]["loss"] != pytest.approx(expected[0][0]["loss"], rel=1e-3)


def test_weights_multiply_those_of_isolated_ranks():
    graph = make_graph("random")
    options = {"algorithm": "0c", "reweight_loss": True}
    losses = []
    for class_weights in ("", ",".join(["2.0"] * ends_of(graph).num_classes)):
        scores = drawn_scores(graph)
        options["class_weights"] = class_weights
        losses.append(loss_of(graph, scores, num_ranks=3, **options)[0])
    # The same weight of all classes changes nothing.
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_a_resumed_run_has_the_bits_of_the_straight_one(tmp_path):
    graph = make_graph("random")
    parts = cut(graph, 3)
    config = make_config(class_weights="balanced", epochs=6, checkpoint_every=2)
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "halted", graph, parts, config, stop_at=3)
    resumed = run(tmp_path / "halted", graph, parts, config, resume=True)
    for one, other in zip(resumed, straight, strict=True):
        check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())


def test_the_python_door_takes_numbers_and_the_other_options_of_training(tmp_path):
    graph = make_graph("random")
    weights = np.arange(1, ends_of(graph).num_classes + 1)
    found = distgnn.train(
        graph,
        out=tmp_path / "run",
        hidden=4,
        epochs=4,
        class_weights=weights,
        lr_schedule="cosine:0.1",
        lr_warm_up=1,
        ema=0.9,
        patience=3,
        stop_on="loss",
    )
    assert found.config["train"]["class_weights"] == ",".join(f"{weight}.0" for weight in weights)
    assert [record["lr"] for record in found.metrics][:2] == pytest.approx([0.005, 0.01])
    sentence = r"^class_weights must be a text, a file or a list of numbers, got "
    for value in (5, ["a"]):
        with pytest.raises(InputError, match=sentence):
            distgnn.train(graph, out=tmp_path / "other", class_weights=value)


def test_weights_are_read_from_a_file_once(tmp_path):
    graph, file = make_graph("random"), tmp_path / "weights.txt"
    file.write_text("1.5, 2\n0.25\n")
    found = distgnn.train(graph, out=tmp_path / "run", epochs=1, class_weights=file)
    assert found.config["train"]["class_weights"] == "1.5,2.0,0.25"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(
        InputError, match=r"^class_weights '.*weights.txt' cannot be read \(.*; give"
    ):
        distgnn.train(graph, out=tmp_path / "other", class_weights=str(file))
    file.write_text("one two")
    with pytest.raises(InputError, match=r"^class_weights must be a text, a file or a list of num"):
        distgnn.train(graph, out=tmp_path / "other", class_weights=str(file))


@pytest.mark.parametrize("text", ["even", "1,,2", "1,0", "1,-2", "inf", "nan,1"])
def test_words_that_are_no_weights_are_refused(text):
    sentence = "--class-weights must be balanced, or positive numbers with commas between them, got"
    with pytest.raises(InputError, match=f"^{sentence} {text}$"):
        make_config(class_weights=text)


def test_weights_that_no_class_has_are_refused():
    graph = make_graph("random")
    num_classes = ends_of(graph).num_classes
    sentence = f"--class-weights has 2 numbers, but the graph has {num_classes} classes; give one "
    with pytest.raises(InputError, match=f"^{sentence}"):
        resolve(make_config(class_weights="1,2"), ends_of(graph))
    with pytest.raises(InputError, match=r"^--class-weights balanced weighs classes, but this is "):
        resolve(make_config(class_weights="balanced"), ends_of(make_graph("regression")))
    links = replace(ends_of(graph), has_links=True)
    with pytest.raises(InputError, match=r"weighs classes, but this is a link task; leave it out$"):
        resolve(TrainConfig(class_weights="1,2"), links)


def test_a_validation_loss_has_no_weights():
    graph = make_graph("random")
    losses = []
    for class_weights in ("", "balanced"):
        config = make_config(class_weights=class_weights)
        trainer = Trainer(config, ends_of(graph), cut(graph, 1)[0], SingleGroup())
        losses.append(trainer.evaluate().val_loss)
    assert losses[0] == losses[1]
