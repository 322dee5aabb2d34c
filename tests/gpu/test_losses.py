"""The loss of classes as it runs on CUDA devices, against torch's."""

from __future__ import annotations

import torch
from torch.nn import functional

from distgnn import ops


def test_the_loss_and_its_gradient_are_those_of_torch(device):
    scores = torch.randn(30, 7, generator=torch.Generator().manual_seed(1)).to(device)
    label = torch.arange(30, device=device) % 7
    factor = torch.linspace(1, 2, 30, device=device)
    found = []
    for loss in (ops.cross_entropy, functional.cross_entropy):
        own = scores.clone().requires_grad_()
        each = loss(own, label, **({} if loss is ops.cross_entropy else {"reduction": "none"}))
        (each * factor).sum().backward()
        found.append((each.detach(), own.grad))
    torch.testing.assert_close(*found)
