"""Label smoothing: torch's values, the same on any number of ranks, resumed exactly."""

from __future__ import annotations

import pytest
import torch
from graphs import cut, make_graph
from torch.nn import functional
from training import check_equal, check_same_values, ends_of, first_step, make_config, run

from distgnn.datasets import InputError
from distgnn.training.tasks.objective import smoothed
from distgnn.training.tasks.tasks import TASKS, resolve


@pytest.mark.parametrize("share", [0.1, 0.75])
def test_values_and_gradients_are_those_of_torch(share):
    scores = torch.randn(50, 7, generator=torch.Generator().manual_seed(1))
    classes = torch.arange(50) % 7
    ours, theirs = (scores.clone().requires_grad_() for _ in range(2))
    got = smoothed(TASKS["single-label"].losses, share)(ours, classes)
    expected = functional.cross_entropy(theirs, classes, reduction="none", label_smoothing=share)
    torch.testing.assert_close(got, expected)
    got.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-6)


def test_the_loss_is_the_same_on_any_number_of_ranks():
    graph = make_graph("random")
    expected = first_step(cut(graph, 1), graph, "gcn", label_smoothing=0.2)
    check_equal(first_step(cut(graph, 3), graph, "gcn", label_smoothing=0.2), expected)
    plain, _ = first_step(cut(graph, 1), graph, "gcn")
    assert plain[0]["loss"] != pytest.approx(expected[0][0]["loss"], rel=1e-3)


def test_a_resumed_run_has_the_bits_of_the_straight_one(tmp_path):
    graph = make_graph("random")
    parts, config = cut(graph, 3), make_config(label_smoothing=0.2, epochs=6, checkpoint_every=2)
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "halted", graph, parts, config, stop_at=3)
    resumed = run(tmp_path / "halted", graph, parts, config, resume=True)
    for one, other in zip(resumed, straight, strict=True):
        check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())


def test_a_task_without_classes_is_refused():
    graph = make_graph("regression")
    sentence = "--label-smoothing 0.1 spreads the one class of a vertex over all, but this is a re"
    with pytest.raises(InputError, match=f"^{sentence}"):
        resolve(make_config(label_smoothing=0.1), ends_of(graph))
    with pytest.raises(
        InputError, match=r"^--label-smoothing must be at least 0 and below 1, got 1.0$"
    ):
        make_config(label_smoothing=1.0)
