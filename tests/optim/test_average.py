"""The average of weights: torch's bits, evaluated and kept, resumed exactly."""

from __future__ import annotations

import pytest
import torch
from graphs import cut, make_graph
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from training import check_equal, check_same_values, ends_of, first_step, make_config, run

from distgnn.comm.single import SingleGroup
from distgnn.datasets import InputError
from distgnn.training.loop.trainer import Trainer


class Watched(Trainer):
    """A trainer that follows torch's average, and notes the weights that it evaluates."""

    theirs = None

    def train_epoch(self):
        self.theirs = self.theirs or AveragedModel(
            self.model, multi_avg_fn=get_ema_multi_avg_fn(self.config.ema)
        )
        loss = super().train_epoch()
        self.theirs.update_parameters(self.model)
        self.raw = {name: weight.clone() for name, weight in self.model.named_parameters()}
        return loss

    def evaluate(self):
        weights = dict(self.model.named_parameters())
        for name, weight in self.theirs.module.named_parameters():
            assert torch.equal(weights[name], weight), name
        return super().evaluate()


def test_the_average_of_torch_is_evaluated_and_kept():
    graph = make_graph("random")
    config = make_config(epochs=6, ema=0.75, norm="batch", dropout=0.4, lr=0.1)
    trainer = Watched(config, ends_of(graph), cut(graph, 1)[0], SingleGroup())
    for number, record in enumerate(trainer.epochs()):
        # The training continues with the weights of the latest step.
        for name, weight in trainer.model.named_parameters():
            assert torch.equal(weight, trainer.raw[name]), name
        if trainer.best.epoch == number:
            expected = dict(trainer.theirs.module.named_parameters())
            for name, weight in expected.items():
                assert torch.equal(trainer.best_state[name], weight), name
                is_first = number == 0
                assert torch.equal(weight, trainer.raw[name]) == is_first or not weight.numel()
            running = trainer.model.state_dict()
            names = [name for name in running if "running" in name]
            assert names
            assert all(torch.equal(trainer.best_state[name], running[name]) for name in names)
        assert record["val_metric"] is not None
    assert trainer.best.epoch > 0
    held = sum(value.numel() for value in trainer.average.state().values())
    assert trainer.average.working_bytes() == 2 * 4 * held


def test_gradients_are_those_without_and_metrics_are_the_same_on_any_number_of_ranks():
    graph = make_graph("random")
    options = {"num_epochs": 5, "ema": 0.9, "lr": 0.1, "optimizer": "sgd"}
    expected = first_step(cut(graph, 1), graph, "gcn", **options)
    check_equal(first_step(cut(graph, 3), graph, "gcn", **options), expected)
    plain = first_step(cut(graph, 1), graph, "gcn", **{**options, "ema": 0.0})
    assert [one["loss"] for one in plain[0]] == [one["loss"] for one in expected[0]]
    assert plain[0][-1]["val_loss"] != pytest.approx(expected[0][-1]["val_loss"], rel=1e-4)


def test_a_resumed_run_has_the_bits_of_the_straight_one(tmp_path):
    graph = make_graph("random")
    parts = cut(graph, 3)
    config = make_config(ema=0.8, epochs=8, checkpoint_every=2, algorithm="cd-2", lr=0.1)
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "halted", graph, parts, config, stop_at=5)
    resumed = run(tmp_path / "halted", graph, parts, config, resume=True)
    for one, other in zip(resumed, straight, strict=True):
        check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())
        check_same_values(one.trainer.average.state(), other.trainer.average.state())
        check_same_values(one.trainer.best_state, other.trainer.best_state)
        assert len(one.trainer.average.state()) == len(list(one.trainer.model.parameters()))
        losses = [[record["val_loss"] for record in which.records] for which in (one, other)]
        assert losses[0] == losses[1]


def test_an_average_that_never_moves_is_refused():
    with pytest.raises(InputError, match=r"^--ema must be at least 0 and below 1, got 1.0$"):
        make_config(ema=1.0)
