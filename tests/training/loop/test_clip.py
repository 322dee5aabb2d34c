"""Shortened gradients: torch's values, the same on any number of ranks, resumed exactly."""

from __future__ import annotations

import pytest
import torch
from graphs import cut, make_graph
from training import check_equal, check_same_values, first_step, make_config, run

from distgnn.datasets import InputError


def norm_of(grads):
    return float(torch.stack([grad.norm() for grad in grads.values()]).norm())


def test_the_gradient_of_all_ranks_is_shortened_as_a_whole():
    graph = make_graph("random")
    plain = first_step(cut(graph, 1), graph, "gcn", weight_decay=0.0)
    longest = norm_of(plain[1][0])
    expected = first_step(cut(graph, 1), graph, "gcn", clip_grad_norm=longest / 4)
    for name, grad in plain[1][0].items():
        torch.testing.assert_close(expected[1][0][name], grad / 4, rtol=1e-4, atol=1e-7)
    check_equal(first_step(cut(graph, 3), graph, "gcn", clip_grad_norm=longest / 4), expected)
    check_equal(first_step(cut(graph, 3), graph, "gcn", clip_grad_norm=2 * longest), plain)


def test_a_resumed_run_has_the_bits_of_the_straight_one(tmp_path):
    graph = make_graph("random")
    parts, config = cut(graph, 3), make_config(clip_grad_norm=0.01, epochs=6, checkpoint_every=2)
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "halted", graph, parts, config, stop_at=3)
    resumed = run(tmp_path / "halted", graph, parts, config, resume=True)
    for one, other in zip(resumed, straight, strict=True):
        check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())


def test_a_limit_below_zero_is_refused():
    with pytest.raises(InputError, match=r"^--clip-grad-norm must be at least 0 and finite"):
        make_config(clip_grad_norm=-1.0)
