"""Models of own loops that ranks train by themselves, or whose gradients they code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from distgnn.api.settings import naming_arguments
from distgnn.datasets.errors import InputError
from distgnn.exchange.clock import Clock
from distgnn.kernels.seeds import MaskSeeds
from distgnn.ops.buffers import Buffers
from distgnn.training.config.codecs import parse_weights
from distgnn.training.loop.weights import build_local
from distgnn.weights.own_models import trained
from distgnn.weights.summed_gradients import SummedGradients

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from distgnn.comm.group import Group
    from distgnn.weights.strategy import WeightStrategy

_TINY = 1e-30
_KNOWN = ("SGD", "Adam", "AdamW")
"""Optimizers of torch of which it is known by how much a gradient moves a weight."""


class TorchOptimizer:
    """Optimizer of torch as strategies of weights read it.

    Args:
        model: Model that it steps.

    Attributes:
        optimizer: The optimizer; None before its first step.
        lr: 1, as groups of parameters may have steps of their own; see `divisor`.
    """

    lr: float = 1.0

    def __init__(self, model: nn.Module) -> None:
        self._parameters = list(trained(model).values())
        self.optimizer: Any = None

    def betas(self, number: int) -> tuple[float, float] | None:
        """Return the shares of both moments that a step keeps; None for other rules than Adam's.

        Args:
            number: Number of the parameter.
        """
        betas = self._group_of(self._parameters[number]).get("betas", ())
        return (float(betas[0]), float(betas[1])) if len(betas) == 2 else None

    def _group_of(self, parameter: Tensor) -> dict[str, Any]:
        """Return the group of the optimizer that a parameter is in; empty without one."""
        groups: list[dict[str, Any]] = [] if self.optimizer is None else self.optimizer.param_groups
        for group in groups:
            if any(each is parameter for each in group["params"]):
                return group
        return {}

    def state_dict(self) -> dict[int, dict[str, Tensor]]:
        """Return the moments of each parameter by its number, themselves and no copies."""
        if self.optimizer is None:
            return {}
        states = [self.optimizer.state.get(each, {}) for each in self._parameters]
        return {
            number: {name: each for name, each in state.items() if isinstance(each, torch.Tensor)}
            for number, state in enumerate(states)
        }

    def divisor(self, parameter: Tensor) -> Tensor | float:
        """Return by what a gradient is divided for what it moves a weight by in the end.

        Args:
            parameter: The weight.

        Returns:
            Number, or values of the shape of the weight; 0 where that is not known yet.
        """
        group = self._group_of(parameter)
        if not group:
            return 0.0
        lr = max(float(group["lr"]), _TINY)
        if "momentum" in group:
            return (1 - float(group["momentum"])) / lr
        moments = self.optimizer.state.get(parameter, {})
        if "exp_avg_sq" in moments:
            square: Tensor = moments["exp_avg_sq"]
            kept: float = float(group["betas"][1]) ** float(moments["step"])
            size: Tensor = (square / (1 - kept)).sqrt() + float(group["eps"])
            return size / lr
        return 0.0


class SharedModel:
    """A replicated model whose weights follow words of --weights.

    Args:
        model: The model.
        words: The words.
        group: All ranks.
        seed: Seed of random rounding, and of groups of ranks.

    Attributes:
        model: The same.
        is_local: Whether each rank has a model of its own.

    Raises:
        InputError: If the words are no strategy.
    """

    def __init__(self, model: nn.Module, words: str, group: Group, seed: int) -> None:
        with naming_arguments({"weights"}):
            rule = parse_weights(words)
        if rule.warm_up_steps:
            raise InputError(
                f"weights={words!r} lets the second moment of the optimizer rest, which those of "
                "torch do not do; use a code alone, such as int8"
            )
        if rule.is_chosen or rule.later:
            raise InputError(
                f"weights={rule.text!r} changes the code of gradients in some epochs, which a loop "
                "of your own does not count; use one code, such as int8"
            )
        if rule.travel is not None:
            raise InputError(
                f"weights={rule.text!r} lets models travel between evaluations, which a loop of "
                "your own does by itself; drop travel, or use distgnn.train(..., model=Net)"
            )
        self.model = model
        self.is_local = rule.is_local
        self._words = rule.text
        self._needs_rule = rule.significance is not None
        self._codes_models = rule.codes_models and not rule.keeps_moments
        self._optimizer = TorchOptimizer(model)
        self._seeds = MaskSeeds()
        self._seeds.seed = seed
        self._strategy: WeightStrategy
        buffers = Buffers(group.device)
        if rule.is_local:
            self._strategy = build_local(
                rule,
                group,
                Clock(),
                optimizer=self._optimizer,
                seeds=self._seeds,
                buffers=buffers,
            )
        else:
            self._strategy = SummedGradients(
                group,
                Clock(),
                codec=rule.codec,
                machine_size=rule.machine_size,
                seeds=self._seeds,
                buffers=buffers,
            )
        self._ids = {id(each) for each in trained(model).values()}
        self._waits = False

    def holds(self, parameter: Tensor) -> bool:
        """Return whether a parameter is trained here."""
        return id(parameter) in self._ids

    def after_backward(self) -> None:
        """Act on the gradients of a loss; collective.

        Raises:
            InputError: If the model was not stepped since the last one.
        """
        if self.is_local and self._waits:
            raise InputError(
                f"ranks.backward was called twice for a model with weights={self._words!r}, and no "
                "optimizer of torch.optim stepped it in between; call optimizer.step() after each, "
                "and add losses up before ranks.backward"
            )
        self._waits = True
        self._strategy.after_backward(self.model)
        self._seeds.end_epoch()

    def before_step(self, optimizer: Any) -> None:
        """Check an optimizer of torch that is about to step, and remember it.

        Raises:
            InputError: If its steps cannot be those of one rank's model.
        """
        held = {id(each) for group in optimizer.param_groups for each in group["params"]}
        if not self.is_local or not self._ids & held:
            return
        name = type(optimizer).__name__
        if not self._ids <= held:
            raise InputError(
                f"the optimizer holds some weights of a model with weights={self._words!r}, whose "
                "steps are those of one optimizer; build it from all of model.parameters()"
            )
        if name == "LBFGS" or (self._needs_rule and name not in _KNOWN):
            raise InputError(
                f"weights={self._words!r} does not go with {name}, whose steps are not known to "
                f"follow one gradient; use {', '.join(_KNOWN[:-1])} or {_KNOWN[-1]}"
            )
        if self._codes_models and any(group.get("centered") for group in optimizer.param_groups):
            raise InputError(
                f"weights={self._words!r} does not go with {name}(centered=True), whose steps are "
                "divided by a difference that a code takes for zero; use centered=False, or drop "
                "the code"
            )
        self._optimizer.optimizer = optimizer

    def after_step(self, optimizer: Any) -> None:
        """Merge models where it is time, after an optimizer of torch stepped; collective.

        Raises:
            InputError: If it stepped by gradients that are not those of `after_backward`.
        """
        if not self.is_local or optimizer is not self._optimizer.optimizer:
            return
        if self._waits:
            self._waits = False
            self._strategy.after_step(self.model)
        elif any(each.grad is not None for each in trained(self.model).values()):
            # Only here is it known, as a closure may call ranks.backward in the step.
            raise InputError(
                f"optimizer.step() was called for a model with weights={self._words!r}, but "
                "ranks.backward was not since its last step; call ranks.backward(loss) once before "
                "each step, in place of loss.backward()"
            )

    def settle(self) -> None:
        """Wait for messages that are on their way; collective."""
        self._strategy.state(self.model)

    def consensus(self) -> AbstractContextManager[None]:
        """Return a block in which the model is the mean of those of all ranks."""
        return self._strategy.consensus(self.model)

    def take_bytes(self) -> int:
        """Return the payload bytes that this rank sent since the last call."""
        return self._strategy.take_bytes()
