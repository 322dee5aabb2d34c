"""QAdam: Adam whose second moment rests after some steps, so that its first can be coded."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from distgnn.optim.optimizers import Adam

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from distgnn.optim.optimizers import Moments


class QAdam(Adam):
    """Adam for some steps; then steps by first moments that ranks add up, over a fixed second one.

    With N steps of warm-up, and gradients g_p of shares of the loss on P ranks::

        step t <= N    Adam
        step t > N     m <- sum of (b1 m / P + (1 - b1) g_p), in a code
                       w <- w - lr (m / (1 - b1^t)) / (sqrt(v_N / (1 - b2^N)) + eps)

    The correction of v rests with it. A weight that had no gradient in the warm-up stays where it
    is, as its v is 0. `moment` makes what is added up of a gradient, and a step takes the sum of it
    in the gradient's place.

    Args:
        parameters: Weights that it steps.
        lr: Length of a step.
        weight_decay: Weight of the L2 penalty.
        decaying: Weights that the penalty is on; all if None.
        warm_up_steps: Steps of Adam, at least 1.

    References:
        Gan et al., "BAGUA: Scaling up Distributed Learning with System Relaxations", VLDB 2021.
        Tang et al., "1-bit Adam: Communication Efficient Large-Scale Training with Adam's
        Convergence Speed", ICML 2021.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        lr: float,
        weight_decay: float,
        decaying: Iterable[Tensor] | None = None,
        warm_up_steps: int,
    ) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay, decaying=decaying)
        assert warm_up_steps > 0, "a second moment of no step is zero"
        self._warm_up_steps = warm_up_steps

    @property
    def is_resting(self) -> bool:
        """Whether the next step takes moments, not gradients."""
        return any(self._rests(each) for each in self._moments.values())

    def _rests(self, moments: Moments) -> bool:
        return int(moments["step"]) >= self._warm_up_steps

    def moment(self, parameter: Tensor, rows: Tensor | None, num_ranks: int) -> Tensor:
        """Return this rank's part of the next first moment of a parameter.

        Args:
            parameter: The weight, with the gradient of this rank's share of the loss.
            rows: Rows that are added up over ranks; None for all. Others have no gradient.
            num_ranks: Number of ranks.

        Returns:
            Values of the shape of the weight; of other rows the whole moment.
        """
        assert parameter.grad is not None, "missing gradients are zeros"
        number = next(n for n, each in enumerate(self._parameters) if each is parameter)
        kept = self.beta1 * self._moments[number]["exp_avg"]
        if rows is None:
            kept /= num_ranks
        else:
            kept[rows] /= num_ranks
        return kept + (1 - self.beta1) * parameter.grad

    def _step(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        moments: list[Moments],
        weight_decay: float,
    ) -> None:
        if not self._rests(moments[0]):
            super()._step(parameters, gradients, moments, weight_decay)
            return
        is_l2 = weight_decay and not self.is_decoupled
        correction = 1 - self.beta2**self._warm_up_steps
        for weight, total, each in zip(parameters, gradients, moments, strict=True):
            each["step"] += 1
            mean, square = each["exp_avg"], each["exp_avg_sq"]
            mean.copy_(total)
            if is_l2:
                mean.add_(weight, alpha=(1 - self.beta1) * weight_decay)
            elif weight_decay:
                weight.mul_(1 - self.lr * weight_decay)
            # Codes of what is zero are not: divided by eps alone they would be huge.
            mean.masked_fill_(square == 0, 0.0)
            way = mean / ((square / correction).sqrt_() + self.eps)
            weight.sub_(way * (self.lr / (1 - self.beta1 ** int(each["step"]))))


class QAdamW(QAdam):
    """QAdam with decoupled weight decay."""

    is_decoupled: ClassVar[bool] = True
