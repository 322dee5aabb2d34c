"""Learning rates: torch's values, the same on any number of ranks, resumed exactly."""

from __future__ import annotations

import json
import random

import pytest
import torch
from graphs import cut, make_graph
from torch.optim import lr_scheduler
from training import (
    check_equal,
    check_same_values,
    ends_of,
    first_step,
    make_config,
    run,
)

from distgnn.comm.single import SingleGroup
from distgnn.datasets import InputError
from distgnn.optim.optimizers import build_optimizer
from distgnn.optim.schedules import LearningRate, parse_schedule
from distgnn.training.config.compatibility import check_length
from distgnn.training.config.settings import TrainConfig
from distgnn.training.loop.trainer import Trainer

NUM_EPOCHS = 30
THEIRS = {
    "constant": lambda o, _: lr_scheduler.ConstantLR(o, 1.0),
    "cosine": lambda o, n: lr_scheduler.CosineAnnealingLR(o, n),
    "cosine:0.25": lambda o, n: lr_scheduler.CosineAnnealingLR(o, n, eta_min=0.05),
    "step:7": lambda o, _: lr_scheduler.StepLR(o, 7),
    "step:4:0.5": lambda o, _: lr_scheduler.StepLR(o, 4, 0.5),
}


def their_optimizer():
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2)


def rate_of(text, warm_up=0):
    optimizer = build_optimizer("sgd", [torch.zeros(1)], lr=0.2, weight_decay=0.0)
    schedule = parse_schedule(text, num_epochs=NUM_EPOCHS, warm_up=warm_up)
    return LearningRate(optimizer, schedule, warm_up), optimizer


@pytest.mark.parametrize("warm_up", [0, 5])
@pytest.mark.parametrize("text", THEIRS)
def test_rates_are_those_of_torch(text, warm_up):
    rate, optimizer = rate_of(text, warm_up)
    theirs = their_optimizer()
    main = THEIRS[text](theirs, NUM_EPOCHS - warm_up)
    if warm_up:
        start = lr_scheduler.LinearLR(theirs, 1 / (warm_up + 1), total_iters=warm_up)
        main = lr_scheduler.SequentialLR(theirs, [start, main], [warm_up])
    for epoch in range(NUM_EPOCHS):
        rate.begin_epoch(epoch)
        assert rate.value == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-9), epoch
        assert optimizer.lr == rate.value
        theirs.step()
        main.step()


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("plateau", {}),
        ("plateau:2", {"patience": 2}),
        ("plateau:0:0.5", {"patience": 0, "factor": 0.5}),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_a_plateau_cuts_the_rate_when_torchs_does(text, options, seed):
    draw = random.Random(seed)
    metrics = [draw.randrange(50) + epoch // 3 for epoch in range(60)]
    rate, _ = rate_of(text)
    theirs = their_optimizer()
    main = lr_scheduler.ReduceLROnPlateau(theirs, "max", threshold=0.0, eps=0.0, **options)
    values = []
    for epoch, metric in enumerate(metrics):
        rate.begin_epoch(epoch)
        assert rate.value == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-9), epoch
        values.append(rate.value)
        is_best = metric > max(metrics[:epoch], default=-1)
        # A run that is resumed reads what the checkpoint holds.
        state = json.loads(json.dumps(rate.state()))
        rate, _ = rate_of(text)
        rate.load_state(state)
        rate.watch(epoch, is_best)
        main.step(metric)
    assert len(set(values)) > 1


def test_a_plateau_does_not_count_the_epochs_of_the_warm_up():
    rate, _ = rate_of("plateau:2", warm_up=6)
    values = []
    for epoch in range(11):
        rate.begin_epoch(epoch)
        values.append(rate.value)
        rate.watch(epoch, is_best=epoch == 0)
    assert values == pytest.approx([0.2 * min(epoch + 1, 7) / 7 for epoch in range(9)] + [0.02] * 2)


def test_a_plateau_begins_where_another_schedule_was():
    rate, _ = rate_of("plateau:0", warm_up=2)
    rate.load_state(rate_of("cosine")[0].state())
    assert rate.state() == {"num_cuts": 0, "counted_from": 1}


OPTIONS = {
    "cosine": {"lr_schedule": "cosine:0.1"},
    "step": {"lr_schedule": "step:2:0.5"},
    "plateau": {"lr_schedule": "plateau:0:0.5"},
    "warm-up": {"lr_warm_up": 3},
    "warm-cosine": {"lr_schedule": "cosine", "lr_warm_up": 2},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_steps_are_those_of_torch_and_the_same_on_any_number_of_ranks(name):
    graph = make_graph("random")
    options = {"optimizer": "sgd", "num_epochs": 7, "lr": 0.1, **OPTIONS[name]}
    expected = first_step(cut(graph, 1), graph, "gcn", **options)
    check_equal(first_step(cut(graph, 3), graph, "gcn", **options), expected)
    rates = [record["lr"] for record in expected[0]]
    assert len(set(rates)) > 1
    # Steps of torch's optimizer with the rates that the records show, and the same gradients.
    config = make_config(hidden=5, epochs=7, model="gcn")
    trainer = Trainer(config, ends_of(graph), cut(graph, 1)[0], SingleGroup())
    named = dict(trainer.model.named_parameters())
    theirs = torch.optim.SGD(named.values(), momentum=0.9, weight_decay=config.weight_decay)
    for rate, grads in zip(rates, expected[1], strict=True):
        trainer.model.train()
        trainer.objective.loss(trainer.model(trainer.graph, trainer.inputs.features)).backward()
        for parameter_name, grad in grads.items():
            torch.testing.assert_close(named[parameter_name].grad, grad, rtol=1e-4, atol=1e-6)
        theirs.param_groups[0]["lr"] = rate
        theirs.step()
        theirs.zero_grad()


@pytest.mark.parametrize("name", OPTIONS)
def test_a_resumed_run_has_the_bits_of_the_straight_one(name, tmp_path):
    graph = make_graph("random")
    parts = cut(graph, 3)
    config = make_config(epochs=8, checkpoint_every=2, lr=0.3, **OPTIONS[name])
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "halted", graph, parts, config, stop_at=5)
    resumed = run(tmp_path / "halted", graph, parts, config, resume=True)
    for one, other in zip(resumed, straight, strict=True):
        check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())
        rates = [[record["lr"] for record in which.records] for which in (one, other)]
        assert rates[0] == rates[1]
        assert len(set(rates[0])) > 1


def test_a_device_reads_a_rate_that_varies_from_its_memory():
    parameter = torch.ones(3)
    optimizer = build_optimizer("adam", [parameter], lr=0.25, weight_decay=0.0)
    # As on a device, where this is made by the first change.
    optimizer.lr = place = torch.full((), 0.25)
    other = torch.ones(3)
    expected = build_optimizer("adam", [other], lr=0.25, weight_decay=0.0)
    for rate in (0.25, 0.125, 0.5):
        optimizer.set_lr(rate)
        expected.set_lr(rate)
        assert optimizer.lr is place
        parameter.grad = other.grad = torch.tensor([1.0, -2.0, rate])
        optimizer.step()
        expected.step()
        assert torch.equal(parameter, other)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "linear",
        "constant:1",
        "cosine:1",
        "cosine:-0.1",
        "cosine:nan",
        "cosine:0.1:2",
        "step",
        "step:0",
        "step:-1",
        "step:1.5",
        "step:5:0",
        "step:5:1",
        "step:5:0.5:1",
        "plateau:x",
        "plateau:5:2",
    ],
)
def test_words_that_are_no_schedule_are_refused(text):
    sentence = (
        r"--lr-schedule must be constant, cosine\[:FLOOR\], step:EPOCHS\[:FACTOR\] or "
        r"plateau\[:PATIENCE\[:FACTOR\]\], with FLOOR and FACTOR below 1, got "
    )
    with pytest.raises(InputError, match=f"^{sentence}{text}$"):
        make_config(lr_schedule=text)


def test_a_warm_up_that_never_ends_is_refused():
    sentence = "^--lr-warm-up 3 leaves none of the 3 epochs to --lr; use fewer or more --epochs$"
    with pytest.raises(InputError, match=sentence):
        check_length(make_config(lr_warm_up=3, epochs=3))
    with pytest.raises(InputError, match=r"^--lr-warm-up must be at least 0, got -1$"):
        make_config(lr_warm_up=-1)


def test_a_plateau_without_validation_vertices_is_refused():
    graph = make_graph("random")
    graph.val_mask[:] = False
    sentence = "^--lr-schedule plateau:5 watches the validation metric, but the split has no valid"
    with pytest.raises(InputError, match=sentence):
        Trainer(
            make_config(lr_schedule="plateau:5"), ends_of(graph), cut(graph, 1)[0], SingleGroup()
        )


def test_a_resumed_run_keeps_its_schedule():
    begun = TrainConfig(lr_schedule="cosine", lr_warm_up=2)
    assert begun.differences(TrainConfig()) == [
        "lr_schedule (begun with cosine, now constant)",
        "lr_warm_up (begun with 2, now 0)",
    ]
