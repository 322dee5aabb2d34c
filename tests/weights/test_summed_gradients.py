"""The weight channel: one message whose result is the sum of all ranks' gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.exchange.clock import Clock
from distgnn.weights.summed_gradients import SummedGradients


def model_of(seed):
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 4, bias=False))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.randn(tensor.shape, generator=generator))
    return model


def set_grads(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_rank_gets_the_sum_in_the_shapes_of_the_parameters(size):
    def on_rank(group):
        model = model_of(0)
        set_grads(model, group.rank)
        SummedGradients(group, Clock()).after_backward(model)
        return [parameter.grad for parameter in model.parameters()]

    models = [model_of(0) for _ in range(size)]
    for rank, model in enumerate(models):
        set_grads(model, rank)
    results = run_ranks(size, on_rank)
    for number, parameters in enumerate(zip(*(m.parameters() for m in models), strict=True)):
        expected = sum(parameter.grad for parameter in parameters)
        for grads in results:
            assert grads[number].shape == expected.shape
            torch.testing.assert_close(grads[number], expected)
            assert torch.equal(grads[number], results[0][number])


def test_a_missing_gradient_counts_as_zeros():
    def on_rank(group):
        model = model_of(0)
        set_grads(model, group.rank)
        if group.rank == 1:
            model[2].weight.grad = None
        SummedGradients(group, Clock()).after_backward(model)
        return model[2].weight.grad

    expected = model_of(0)
    set_grads(expected, 0)
    for grad in run_ranks(2, on_rank):
        assert torch.equal(grad, expected[2].weight.grad)


def test_the_optimizer_steps_with_what_was_summed():
    def on_rank(group):
        model = model_of(0)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        set_grads(model, group.rank)
        SummedGradients(group, Clock()).after_backward(model)
        optimizer.step()
        return model.state_dict()

    states = run_ranks(3, on_rank)
    for name, tensor in states[0].items():
        assert torch.equal(tensor, states[2][name])


def test_broadcast_gives_every_rank_the_weights_and_buffers_of_rank_0():
    def on_rank(group):
        model = model_of(group.rank)
        SummedGradients(group, Clock()).broadcast(model)
        return model.state_dict()

    expected = model_of(0).state_dict()
    for state in run_ranks(3, on_rank):
        for name, tensor in expected.items():
            assert torch.equal(state[name], tensor)


@pytest.mark.parametrize("size", [2, 3])
def test_bytes_are_those_of_a_ring_and_time_goes_to_the_clock(size):
    def on_rank(group):
        model, clock = model_of(0), Clock()
        weights = SummedGradients(group, clock)
        for _ in range(2):
            set_grads(model, 0)
            weights.after_backward(model)
        return weights.take_bytes(), weights.take_bytes(), clock.take()["weight_sync"]

    num_bytes = 4 * sum(parameter.numel() for parameter in model_of(0).parameters())
    for sent, again, seconds in run_ranks(size, on_rank):
        assert sent == 2 * (2 * (size - 1) * num_bytes // size)
        assert again == 0
        assert seconds > 0


def test_one_rank_sends_nothing_and_keeps_its_gradients():
    model = model_of(0)
    set_grads(model, 1)
    before = [parameter.grad for parameter in model.parameters()]
    weights = SummedGradients(SingleGroup(), Clock())
    weights.after_backward(model)
    assert weights.take_bytes() == 0
    for parameter, grad in zip(model.parameters(), before, strict=True):
        assert parameter.grad is grad
