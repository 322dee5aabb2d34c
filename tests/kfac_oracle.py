"""Dense K-FAC in numpy's terms, for tests: factors from plain operations, and a solve."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from distgnn.nn import convolution, linear
from distgnn.nn.linear import Linear


class Terms:
    """The whole of one rank, for an optimizer."""

    def __init__(self, group: Any, num_terms: float) -> None:
        self.group = group
        self.num_terms = num_terms


@contextmanager
def plain_maps(monkeypatch):
    """Let layers run as separate operations of torch; yields what each map multiplied and made."""
    seen: list[tuple[Linear, Tensor, Tensor]] = []

    def multiply(self, rows, buffers=None, dtype=None):
        del buffers, dtype
        dense = rows.to_dense().to(self.weight.dtype)
        made = dense @ self.weight.t()
        made.retain_grad()
        seen.append((self, dense.detach(), made))
        return made

    def forward(self, rows, buffers=None):
        made = multiply(self, rows)
        return made if self.bias is None else made + self.bias

    with monkeypatch.context() as patched:
        for module in (linear, convolution):
            patched.setattr(module, "is_multiplied_here", lambda rows, weight: False)
        patched.setattr(Linear, "multiply", multiply)
        patched.setattr(Linear, "forward", forward)
        yield seen


def factors_of(seen, num_terms: float) -> dict[Linear, tuple[Tensor, Tensor]]:
    """A and G of each map, from what backward left at its results."""
    return {
        module: (rows.t() @ rows / len(rows), num_terms * made.grad.t() @ made.grad)
        for module, rows, made in seen
    }


def solved(grad: Tensor, a: Tensor, g: Tensor, damping: float) -> Tensor:
    """(G kron A + damping I)^-1 times a gradient, (out, in) or (out,), by a dense solve."""
    matrix = torch.kron(g, a)
    matrix = matrix + damping * torch.eye(len(matrix), dtype=matrix.dtype)
    return torch.linalg.solve(matrix, grad.reshape(-1)).reshape(grad.shape)


def expected_steps(
    model: nn.Module, factors: dict[Linear, tuple[Tensor, Tensor]], damping: float
) -> dict[str, Tensor]:
    """Preconditioned gradients of maps and of their own biases, by name."""
    steps = {}
    for name, module in model.named_modules():
        if module not in factors:
            continue
        a, g = factors[module]
        steps[f"{name}.weight"] = solved(module.weight.grad, a, g, damping)
        if module.bias is not None:
            one = torch.ones(1, 1, dtype=a.dtype)
            steps[f"{name}.bias"] = solved(module.bias.grad, one, g, damping)
    return steps
