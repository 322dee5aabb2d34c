"""QAdam: Adam for some steps, then coded first moments over a second one that rests."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import cut, make_graph
from torch import nn
from training import check_same_values, make_config, run, trained_on_ranks

from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.exchange.clock import Clock
from distgnn.exchange.codec import EXACT
from distgnn.optim.qadam import QAdam, QAdamW
from distgnn.training.config.codecs import parse_weights
from distgnn.training.config.compatibility import check_length
from distgnn.weights.rule import WeightRule
from distgnn.weights.summed_momentum import SummedMomentum

SIZES = [1, 2, 3, 4, 8]


def by_the_formula(gradients, *, warm_up_steps, lr, decay, is_decoupled):
    """Steps of one model by sums over ranks."""
    weights, first, second = np.ones((3, *gradients.shape[2:]))
    first, second = 0 * first, 0 * second
    for step, total in enumerate(gradients.sum(1), 1):
        if is_decoupled:
            weights = weights - lr * decay * weights
        else:
            total = total + decay * weights
        first = 0.9 * first + 0.1 * total
        if step <= warm_up_steps:
            second = 0.999 * second + 0.001 * total**2
        size = np.sqrt(second / (1 - 0.999 ** min(step, warm_up_steps))) + 1e-8
        weights = weights - lr * first / (1 - 0.9**step) / size
    return weights


def train(group, model, gradients, *, warm_up_steps, codec=EXACT, kind=QAdam, decay=0.0):
    nn.init.ones_(model.weight)
    optimizer = kind(model.parameters(), lr=0.05, weight_decay=decay, warm_up_steps=warm_up_steps)
    strategy = SummedMomentum(group, Clock(), optimizer=optimizer, codec=codec)
    sent = []
    for gradient in gradients:
        model.weight.grad = torch.from_numpy(gradient.copy()).to(model.weight.dtype)
        strategy.after_backward(model)
        optimizer.step()
        sent.append(strategy.take_bytes())
    return model.weight.detach().clone(), sent


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("warm_up_steps", [1, 5, 99])
@pytest.mark.parametrize(("kind", "decay"), [(QAdam, 0.0), (QAdam, 0.01), (QAdamW, 0.01)])
def test_without_loss_weights_are_those_of_the_formula(kind, decay, warm_up_steps, size):
    gradients = np.random.default_rng(0).normal(size=(12, size, 2, 5))

    def on_rank(group):
        model = nn.Linear(5, 2, bias=False).double()
        how = {"warm_up_steps": warm_up_steps, "kind": kind, "decay": decay}
        return train(group, model, gradients[:, group.rank], **how)[0]

    how = {"lr": 0.05, "decay": decay, "is_decoupled": kind is QAdamW}
    expected = by_the_formula(gradients, warm_up_steps=warm_up_steps, **how)
    for found in run_ranks(size, on_rank):
        torch.testing.assert_close(found, torch.from_numpy(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("code", ["int8(round=near)", "int8", "int4"])
def test_with_a_code_all_ranks_have_the_same_bits(code, size):
    gradients = np.random.default_rng(1).normal(size=(12, size, 30, 40))
    gradients[:, :, :, 3] = 0.0
    codec = parse_weights(code).codec

    def on_rank(group):
        model = nn.Linear(40, 30, bias=False)
        how = {"warm_up_steps": 4, "codec": codec}
        return train(group, model, gradients[:, group.rank], **how)

    how = {"lr": 0.05, "decay": 0.0, "is_decoupled": False}
    expected = by_the_formula(gradients, warm_up_steps=4, **how)
    found = run_ranks(size, on_rank)
    for weight, sent in found:
        assert torch.equal(weight, found[0][0])
        # A weight that had no gradient stays, though its moment is no step of the code.
        assert torch.equal(weight[:, 3], torch.ones(30))
        error = np.abs(weight.numpy() - expected).max()
        assert 0 < error < (1.0 if code == "int4" else 0.05)
        assert sent[:4] == [sent[0]] * 4
        assert max(sent[4:]) < 0.6 * sent[0]


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_a_warm_up_without_end_is_adam(optimizer):
    options = {"optimizer": optimizer, "weight_decay": 0.01, "dropout": 0.3}
    rests, adam = (
        trained_on_ranks(3, weights=words, **options) for words in ("qadam(99)+int8", "sum")
    )
    for (records, state), (others, other) in zip(rests, adam, strict=True):
        check_same_values(state, other)
        assert [r["loss"] for r in records] == [r["loss"] for r in others]


@pytest.mark.parametrize("size", [1, 2, 3, 4, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stop", [1, 2, 4])
def test_a_resumed_run_has_the_bits_of_the_straight_one(stop, size, tmp_path):
    graph = make_graph()
    parts = cut(graph, size)
    config = make_config(
        weights="qadam(3)+int8", hidden=40, epochs=7, checkpoint_every=1, dropout=0.3
    )
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "again", graph, parts, config, stop_at=stop)
    again = run(tmp_path / "again", graph, parts, config, resume=True)
    for one, other in zip(again, straight, strict=True):
        for key in ("loss", "val_metric", "weight_bytes_sent"):
            assert [r[key] for r in one.records] == [r[key] for r in other.records]
        check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())
        check_same_values(one.trainer.optimizer.state_dict(), other.trainer.optimizer.state_dict())


def test_words_are_read_and_written_back():
    plain = parse_weights("qadam(20)")
    assert plain == WeightRule(warm_up_steps=20)
    assert plain.text == "qadam(20)"
    coded = parse_weights("int8(round=near)+qadam(5)")
    assert coded.text == "qadam(5)+int8(round=near)"
    assert parse_weights(coded.text) == coded
    assert make_config(preset="qadam").weight_rule == make_config(weights="qadam").weight_rule


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"weights": "qadam(5)+every(2)"},
            (
                "--weights qadam(5)+every(2) adds first moments up in every step, but every says "
                "when models are merged; drop qadam or every"
            ),
        ),
        (
            {"weights": "qadam(0)"},
            "--weights qadam has 0 at character 7; it is a whole number of at least 1",
        ),
        (
            {"weights": "qadam(5)", "optimizer": "sgd"},
            (
                "--weights qadam(5) lets the second moment of Adam rest, which --optimizer sgd "
                "does not have; use adam or adamw, or drop qadam"
            ),
        ),
        (
            {"weights": "qadam(5)+int8", "clip_grad_norm": 0.5},
            (
                "--clip-grad-norm 0.5 shortens gradients, but with --weights qadam(5)+int8 "
                "moments are summed in their place; drop one of the two"
            ),
        ),
    ],
)
def test_what_cannot_work_is_refused(options, sentence):
    with pytest.raises(InputError) as caught:
        make_config(**options)
    assert str(caught.value) == sentence


def test_a_warm_up_that_takes_all_epochs_is_refused():
    message = r"--weights qadam\(4\)\+int8 is plain Adam for all of the epochs; use --epochs {} or "
    for start, most in (("graph", 4), ("mlp(2)", 6)):
        options = {"weights": "qadam(4)+int8", "start": start}
        with pytest.raises(InputError, match=message.format(most + 1)):
            check_length(make_config(epochs=most, **options))
        check_length(make_config(epochs=most + 1, **options))
