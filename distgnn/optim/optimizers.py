"""Adam, AdamW and SGD: the kernels of `torch.optim` without what it imports.

`torch.optim.Optimizer` loads torch's compiler. That takes seconds to start and 70 MB of memory on
every rank, and is not used here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch import Tensor

    from distgnn.settings.names import OptimizerName

Moments = dict[str, "Tensor"]

NUM_MOMENTS: Mapping[OptimizerName, int] = {
    "adam": 2,
    "adamw": 2,
    "sgd": 1,
    "kfac": 2,
    "lbfgs": 26,
}
"""Moments of a weight, at most; of L-BFGS its memory and its search, as copies of the weights."""


class Optimizer(ABC):
    """Steps parameters so that a loss falls.

    Args:
        parameters: Weights that it steps; one without a gradient stays as it is.
        lr: Length of a step.
        weight_decay: Weight of the L2 penalty.
        decaying: Weights that the penalty is on; all if None.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        lr: float,
        weight_decay: float,
        decaying: Iterable[Tensor] | None = None,
    ) -> None:
        self._parameters = list(parameters)
        decaying = self._parameters if decaying is None else list(decaying)
        self._decaying = {id(parameter) for parameter in decaying}
        self.lr: float | Tensor = lr
        self.weight_decay = weight_decay

    def set_lr(self, lr: float) -> None:
        """Change the length of a step.

        A CUDA graph repeats the numbers with which it was recorded. So a device reads a length
        that changes from its memory, always from the same place.

        Args:
            lr: Length of the steps from now on.
        """
        devices = {each.device for each in self._parameters} - {torch.device("cpu")}
        if isinstance(self.lr, torch.Tensor):
            self.lr.fill_(lr)
        elif devices:
            self.lr = torch.full((), lr, device=devices.pop())
        else:
            self.lr = lr

    @abstractmethod
    def take(self, evaluate: Callable[[], Tensor]) -> Tensor:
        """Step the parameters, and free their gradients.

        Args:
            evaluate: Computes this rank's share of the loss, and the gradients, summed over ranks,
                of the weights as they are. It may be called several times.

        Returns:
            This rank's share of the loss before the step.
        """

    def take_bytes(self) -> int:
        """Return the payload bytes that steps sent from this rank since the last call."""
        return 0

    def take_preconditioner_s(self) -> float:
        """Return the seconds spent on curvature since the last call; 0 for rules without it."""
        return 0.0

    def take_note(self) -> str | None:
        """Return lines for the log about steps since the last call, or None."""
        return None

    def zero_grad(self) -> None:
        """Free all gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def betas(self, number: int) -> tuple[float, float] | None:
        """Return the shares of both moments that a step of Adam keeps; None for other rules.

        Args:
            number: Number of the parameter.
        """
        del number
        return None

    @abstractmethod
    def state_dict(self) -> dict[int, Moments]:
        """Return what steps depend on by number of the parameter; the same on every rank."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[int, Moments]) -> None:
        """Restore what `state_dict` returned; empty to begin again.

        Args:
            state: Moments by number of the parameter; they are copied.
        """


class GradientRule(Optimizer):
    """Rule that steps parameters by one gradient; see `Optimizer` for its arguments."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        lr: float,
        weight_decay: float,
        decaying: Iterable[Tensor] | None = None,
    ) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay, decaying=decaying)
        self._moments: dict[int, Moments] = {}

    def take(self, evaluate: Callable[[], Tensor]) -> Tensor:
        """Step the parameters, and free their gradients; see `Optimizer`."""
        loss = evaluate()
        self.step()
        self.zero_grad()
        return loss

    @torch.no_grad()
    def step(self) -> None:
        """Step all parameters that have a gradient."""
        self.step_only(n for n, each in enumerate(self._parameters) if each.grad is not None)

    def step_only(self, numbers: Iterable[int]) -> None:
        """Step some parameters.

        Args:
            numbers: Numbers of parameters that have a gradient.
        """
        numbers = list(numbers)
        for number in numbers:
            if number not in self._moments:
                self._moments[number] = self._begin(self._parameters[number])
        for decay, is_wanted in ((self.weight_decay, True), (0.0, False)):
            own = [n for n in numbers if (id(self._parameters[n]) in self._decaying) == is_wanted]
            if own:
                self._step_some(own, decay)

    def _step_some(self, numbers: list[int], decay: float) -> None:
        parameters = [self._parameters[number] for number in numbers]
        gradients = [each.grad for each in parameters if each.grad is not None]
        moments = [self._moments[number] for number in numbers]
        self._step(parameters, gradients, moments, decay)

    def divisor(self, parameter: Tensor) -> Tensor | float:
        """Return by what a gradient times lr is divided for what it moves a weight by in the end.

        Args:
            parameter: The weight.

        Returns:
            Number, or values of the shape of the weight; 0 where that is not known yet.
        """
        number = next(n for n, each in enumerate(self._parameters) if each is parameter)
        return self._divisor(self._moments.get(number))

    @abstractmethod
    def _divisor(self, moments: Moments | None) -> Tensor | float:
        """Return the same, from the moments of a parameter; None before its first step."""

    @abstractmethod
    def _begin(self, parameter: Tensor) -> Moments:
        """Return the moments of a parameter before its first step."""

    @abstractmethod
    def _step(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        moments: list[Moments],
        weight_decay: float,
    ) -> None:
        """Step parameters in place."""

    def state_dict(self) -> dict[int, Moments]:
        """Return the moments of each parameter by its number; none before its first step."""
        return {number: dict(moments) for number, moments in self._moments.items()}

    def load_state_dict(self, state: Mapping[int, Moments]) -> None:
        """Restore the moments that `state_dict` returned.

        Args:
            state: Moments by number of the parameter; they are copied.
        """
        self._moments = {
            number: {
                name: value.to(self._parameters[number].device, copy=True)
                for name, value in moments.items()
            }
            for number, moments in state.items()
        }


class Adam(GradientRule):
    """Adam; see `Optimizer` for its arguments.

    Attributes:
        beta1: Share of the first moment that a step keeps.
        beta2: Share of the second moment that a step keeps.
        eps: Least divisor of a step.

    References:
        Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015.
    """

    beta1: ClassVar[float] = 0.9
    beta2: ClassVar[float] = 0.999
    eps: ClassVar[float] = 1e-8
    is_decoupled: ClassVar[bool] = False
    """Whether weights shrink directly instead of through their gradients."""

    def betas(self, number: int) -> tuple[float, float]:
        """Return the shares of both moments that a step keeps, of any parameter."""
        del number
        return self.beta1, self.beta2

    def _begin(self, parameter: Tensor) -> Moments:
        return {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }

    def _divisor(self, moments: Moments | None) -> Tensor | float:
        if moments is None:
            return 0.0
        return (moments["exp_avg_sq"] / (1 - self.beta2 ** moments["step"])).sqrt() + self.eps

    def _step(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        moments: list[Moments],
        weight_decay: float,
    ) -> None:
        steps, means, squares = (
            [each[name] for each in moments] for name in ("step", "exp_avg", "exp_avg_sq")
        )
        torch._foreach_add_(steps, 1)
        fused = torch._fused_adamw_ if self.is_decoupled else torch._fused_adam_
        fused(
            parameters,
            gradients,
            means,
            squares,
            [],
            steps,
            lr=self.lr,
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=weight_decay,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )


class AdamW(Adam):
    """Adam with decoupled weight decay.

    References:
        Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
    """

    is_decoupled: ClassVar[bool] = True


class Sgd(GradientRule):
    """Gradient descent with momentum.

    Attributes:
        momentum: Share of the last step that the next one takes again.
    """

    momentum: ClassVar[float] = 0.9

    def _begin(self, parameter: Tensor) -> Moments:
        return {"momentum_buffer": torch.zeros_like(parameter)}

    def _divisor(self, moments: Moments | None) -> Tensor | float:
        del moments
        return 1 - self.momentum

    def _step(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        moments: list[Moments],
        weight_decay: float,
    ) -> None:
        torch._fused_sgd_(
            parameters,
            gradients,
            [each["momentum_buffer"] for each in moments],
            weight_decay=weight_decay,
            momentum=self.momentum,
            lr=self.lr,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )


_RULES: dict[str, type[GradientRule]] = {"adam": Adam, "adamw": AdamW, "sgd": Sgd}


def build_optimizer(
    name: OptimizerName,
    parameters: Iterable[Tensor],
    *,
    lr: float,
    weight_decay: float,
    decaying: Iterable[Tensor] | None = None,
) -> GradientRule:
    """Build an optimizer by its name.

    Args:
        name: Name of the rule.
        parameters: Weights that it steps.
        lr: Length of a step.
        weight_decay: Weight of the L2 penalty.
        decaying: Weights that the penalty is on; all if None.

    Returns:
        The optimizer.
    """
    return _RULES[name](parameters, lr=lr, weight_decay=weight_decay, decaying=decaying)
