"""The loss of classes, and its gradient, against torch's in double precision."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from distgnn import kernels, ops

DTYPES = [torch.float32, torch.float64]
CLASSES = [1, 2, 7, 15, 16, 17, 41, 64, 100]


def draw(num_rows, num_classes, dtype, *, scale=4.0):
    generator = torch.Generator().manual_seed(num_classes)
    scores = torch.randn(num_rows, num_classes, generator=generator, dtype=torch.float64) * scale
    label = torch.randint(num_classes, (num_rows,), generator=generator)
    return scores.to(dtype), label


def backward_of(loss, scores, label, factor):
    scores = scores.detach().requires_grad_()
    each = loss(scores, label)
    (each * factor).sum().backward()
    return each.detach(), scores.grad


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_classes", CLASSES)
def test_the_loss_and_its_gradient_are_those_of_the_definition(dtype, num_classes, num_threads):
    scores, label = draw(300, num_classes, dtype)
    factor = torch.linspace(0.5, 2, 300, dtype=dtype)
    got = backward_of(ops.cross_entropy, scores, label, factor)
    exact = backward_of(
        lambda x, y: functional.cross_entropy(x, y, reduction="none"),
        scores.double(),
        label,
        factor.double(),
    )
    rounding = torch.finfo(dtype).eps
    for mine, expected in zip(got, exact, strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine.double(), expected, rtol=0, atol=16 * rounding)


@pytest.mark.parametrize("num_classes", CLASSES)
def test_threads_neighbours_and_the_gradient_change_no_bit(num_classes, num_threads):
    scores, label = draw(1000, num_classes, torch.float32)
    loss, gradient = torch.empty(1000), torch.empty_like(scores)
    kernels.cross_entropy(scores, label, loss, gradient)
    alone = torch.empty(1000)
    kernels.cross_entropy(scores, label, alone, None)
    assert torch.equal(loss, alone)
    row_loss, row_gradient = torch.empty(1), torch.empty(1, num_classes)
    for row in (0, 500, 999):
        one = scores[row : row + 1].clone()
        kernels.cross_entropy(one, label[row : row + 1], row_loss, row_gradient)
        assert torch.equal(row_loss[0], loss[row])
        assert torch.equal(row_gradient[0], gradient[row])


@pytest.mark.parametrize("num_classes", [3, 16, 33])
def test_scores_far_apart_neither_overflow_nor_vanish(num_classes):
    scores = torch.zeros(3, num_classes)
    scores[0, 1], scores[1, 1], scores[2] = 1e4, -1e4, 3e38
    label = torch.tensor([1, 1, 0])
    loss = ops.cross_entropy(scores, label)
    count = torch.tensor(float(num_classes))
    expected = torch.stack([torch.tensor(0.0), 1e4 + (count - 1).log(), count.log()])
    torch.testing.assert_close(loss, expected)


def test_what_is_no_number_stays_in_its_row():
    scores, label = draw(40, 20, torch.float32)
    scores[3, 5], scores[7, 2] = torch.nan, torch.inf
    loss, gradient = torch.empty(40), torch.empty_like(scores)
    kernels.cross_entropy(scores, label, loss, gradient)
    lost = torch.zeros(40, dtype=torch.bool)
    lost[[3, 7]] = True
    assert torch.equal(loss.isnan(), lost)
    assert torch.equal(gradient.isnan().any(dim=1), lost)


def test_no_rows_have_no_loss():
    scores = torch.empty(0, 5, requires_grad=True)
    loss = ops.cross_entropy(scores, torch.empty(0, dtype=torch.int64))
    loss.sum().backward()
    assert loss.shape == (0,)
    assert scores.grad.shape == (0, 5)


@pytest.mark.parametrize("label", [-1, 5])
def test_a_label_that_is_no_class_is_refused(label):
    message = f"label is no class: got {label}, expected 0 or more and less than 5"
    with pytest.raises(ValueError, match=message):
        ops.cross_entropy(torch.zeros(2, 5), torch.tensor([0, label]))


def test_shapes_that_do_not_fit_are_refused():
    scores, label = draw(4, 3, torch.float32)
    loss, gradient = torch.empty(4), torch.empty(4, 3)
    with pytest.raises(ValueError, match="label has the wrong length, got 3, expected 4"):
        kernels.cross_entropy(scores, label[:3], loss, gradient)
    with pytest.raises(ValueError, match="loss has the wrong length, got 3, expected 4"):
        kernels.cross_entropy(scores, label, loss[:3], gradient)
    with pytest.raises(ValueError, match="gradient has the wrong width, got 2, expected 3"):
        kernels.cross_entropy(scores, label, loss, torch.empty(4, 2))


def test_the_backward_pass_runs_once_only():
    scores, label = draw(4, 3, torch.float32)
    loss = ops.cross_entropy(scores.requires_grad_(), label).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="cross-entropy runs once only"):
        loss.backward()
