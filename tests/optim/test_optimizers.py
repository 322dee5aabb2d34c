"""Steps: those of torch.optim, without the compiler that it imports."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from training import check_same_values

from distgnn.nn.config import ModelConfig
from distgnn.nn.models import GNN
from distgnn.optim.optimizers import Sgd, build_optimizer

TORCHS = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": lambda parameters, **options: torch.optim.SGD(parameters, momentum=0.9, **options),
}
SETTINGS = {"lr": 0.25, "weight_decay": 0.125}


def model_of():
    model = GNN(ModelConfig(hidden=5), 6, 3)
    model.reset_parameters(torch.Generator().manual_seed(3))
    return model


def steps(optimizer, model, first, last, *, has_gap=True):
    """Some steps; with a gap, the first weight has no gradient in the first of them."""
    for number in range(first, last):
        generator = torch.Generator().manual_seed(number)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        if number == 0 and has_gap:
            next(model.parameters()).grad = None
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


@pytest.mark.parametrize("name", TORCHS)
def test_steps_have_the_bits_of_torchs(name):
    ours, theirs = model_of(), model_of()
    optimizer = build_optimizer(name, ours.parameters(), **SETTINGS)
    their_optimizer = TORCHS[name](theirs.parameters(), fused=True, **SETTINGS)
    # torch's fused SGD cannot take a gradient that comes later than others.
    has_gap = name != "sgd"
    expected = steps(their_optimizer, theirs, 0, 5, has_gap=has_gap)
    check_same_values(steps(optimizer, ours, 0, 5, has_gap=has_gap), expected)
    assert all(parameter.grad is None for parameter in ours.parameters())


@pytest.mark.parametrize("name", TORCHS)
def test_a_state_that_is_loaded_goes_on_as_if_nothing_had_been(name):
    def optimizer_of(model):
        return build_optimizer(name, model.parameters(), **SETTINGS)

    straight = steps(optimizer_of(model := model_of()), model, 0, 6)
    model = model_of()
    optimizer = optimizer_of(model)
    assert optimizer.state_dict() == {}
    steps(optimizer, model, 0, 3)
    again = optimizer_of(model)
    again.load_state_dict(optimizer.state_dict())
    check_same_values(steps(again, model, 3, 6), straight)


def test_nothing_is_stepped_without_gradients():
    model = model_of()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    build_optimizer("adam", model.parameters(), **SETTINGS).step()
    check_same_values(model.state_dict(), before)


def test_training_does_not_import_the_compiler(tmp_path):
    script = (
        "import sys; from distgnn.cli import main; "
        "words = ['--epochs', '2', '--quiet', '--run', sys.argv[1]]; "
        "main(['train', 'cora', *words]); "
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path / "run"], check=True)


def test_the_penalty_may_be_on_some_weights_alone():
    first, second = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer = Sgd([first, second], lr=0.1, weight_decay=0.5, decaying=[first])
    for parameter in (first, second):
        parameter.grad = torch.zeros(3)
    optimizer.step()
    assert first.tolist() == pytest.approx([0.95] * 3)
    assert second.tolist() == [1, 1, 1]
