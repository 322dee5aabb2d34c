"""Models of a ring of ranks, each mixed with those of its neighbors, which are told in a code."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from distgnn.exchange.coder import Coder
from distgnn.exchange.tags import WEIGHTS_TAG
from distgnn.kernels.seeds import MaskSeeds
from distgnn.ops.buffers import Buffers
from distgnn.weights.layout import Layout
from distgnn.weights.local_models import LocalModels
from distgnn.weights.own_models import trained

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from distgnn.comm.group import Group
    from distgnn.exchange.clock import Clock
    from distgnn.weights.own_models import HasMoments
    from distgnn.weights.rule import WeightRule

# Numbers of these messages begin here, where neither rows nor sums of gradients come.
_FIRST_MESSAGE = 1 << 49
_OWN = "own"
_SIDES = ("left", "right")


class _Told(NamedTuple):
    """Message of a rank: values as they are, and codes of the others."""

    exact: Tensor
    codes: Tensor


class TrackedRing(LocalModels):
    """Each rank steps by itself, and mixes its model with those of its two neighbors in a ring.

    Every rank keeps a copy of its neighbors' models, and of what they know of its own. It tells
    them by how much that changes, in a code c, and does what they do::

        w_p <- w_p - u(P g_p)
        d_p  = w_p + (x_(p-1) + x_(p+1)) / 3 - 5/3 x_p        x_p: p's model as neighbors know it
        x_p <- x_p + c(d_p),  on p and on both neighbors      w_p <- x_p

    With a lossless code this is the plain ring, w_p <- (x_(p-1) + x_p + x_(p+1)) / 3 less the step.
    The sum of all models stays but for errors of the code. Without steps the distance from their
    mean shrinks by (1 + 2 cos(2 pi / P)) / 3 in each merge, the second eigenvalue of the ring. Of
    two ranks each is both neighbors of the other. Moments of the optimizer stay a rank's own.

    Args:
        group: All ranks.
        clock: Gets the time of merges.
        optimizer: Optimizer of the model.
        rule: Rule of merges: when, and the code of large matrices.
        seeds: Seeds of the code's random rounding, which know the epoch; of no run if None.
        buffers: Memory for codes; its own if None.

    References:
        Gan et al., "BAGUA: Scaling up Distributed Learning with System Relaxations", VLDB 2021
        (decentralized, low precision).
        Tang et al., "Communication Compression for Decentralized Training", NeurIPS 2018.
    """

    def __init__(
        self,
        group: Group,
        clock: Clock,
        *,
        optimizer: HasMoments,
        rule: WeightRule,
        seeds: MaskSeeds | None = None,
        buffers: Buffers | None = None,
    ) -> None:
        super().__init__(group, clock, optimizer=optimizer, rule=rule)
        self._codec = rule.codec
        self._seeds = seeds or MaskSeeds()
        self._buffers = buffers or Buffers(group.device)
        self._copies: dict[str, dict[str, Tensor]] = {}
        neighbors = ((group.rank - 1) % group.size, (group.rank + 1) % group.size)
        self._peer_of = dict(zip(_SIDES, neighbors, strict=True))

    def after_backward(self, model: nn.Module) -> None:
        """Scale the gradient; before the first step the models of all ranks are one."""
        super().after_backward(model)
        if not self._copies and self.group.size > 1:
            weights = trained(model)
            for whose in (_OWN, *_SIDES):
                self._copies[whose] = {k: each.detach().clone() for k, each in weights.items()}

    @torch.no_grad()
    def _merge(self, model: nn.Module) -> None:
        weights = trained(model)
        with self.clock.timed("weight_sync"):
            for dtype in dict.fromkeys(each.dtype for each in weights.values()):
                self._mix({k: each for k, each in weights.items() if each.dtype == dtype})

    def _mix(self, weights: Mapping[str, nn.Parameter]) -> None:
        """Mix the weights of one dtype."""
        own, left, right = (self._copies[whose] for whose in (_OWN, *_SIDES))
        changes = [
            each + (left[name].to(each) + right[name].to(each)) / 3 - own[name].to(each) * (5 / 3)
            for name, each in weights.items()
        ]
        layout = Layout.of([tuple(c.shape) for c in changes], self._codec, changes[0].itemsize)
        pairs = zip(changes, layout.is_coded, strict=True)
        plain = [each.reshape(-1) for each, is_coded in pairs if not is_coded]
        exact = torch.cat([changes[0].new_empty(0), *plain])
        rows = layout.rows(changes, self._buffers)
        coder = Coder(self._codec, rows, 0, self._buffers)
        seed = self._seeds.wire_seed(_FIRST_MESSAGE + self.group.rank)
        told = _Told(exact, coder.pack(rows, None, len(rows), seed) if len(rows) else rows)
        arrived = self._tell(told)
        for whose in (_OWN, *_SIDES):
            message = told if whose == _OWN else arrived[self._peer_of[whose]]
            decoded = coder.unpack(message.codes) if len(rows) else rows
            for name, change in zip(weights, layout.split(message.exact, decoded), strict=True):
                self._copies[whose][name] = self._copies[whose][name].to(change) + change
        for name, each in weights.items():
            each.copy_(self._copies[_OWN][name])

    def _tell(self, told: _Told) -> dict[int, _Told]:
        """Tell both neighbors a message; return those of theirs, by rank."""
        peers = list(dict.fromkeys(self._peer_of.values()))
        arrived = {peer: _Told(*map(torch.empty_like, told)) for peer in peers}
        incoming = [(each, peer) for peer, message in arrived.items() for each in message]
        outgoing = [(each, peer) for peer in peers for each in told]
        works = self.group.transfer(
            [(each, peer) for each, peer in incoming if len(each)],
            [(each, peer) for each, peer in outgoing if len(each)],
            WEIGHTS_TAG,
        )
        for work in works:
            work.wait()
        self.bytes_sent += sum(each.nbytes for each, _ in outgoing)
        return arrived

    def _others(self) -> dict[str, Tensor]:
        copies = self._copies.items()
        own = {f"{whose}.{name}": each for whose, all_of in copies for name, each in all_of.items()}
        return super()._others() | own

    def _load_others(self, others: dict[str, Tensor], num_steps: int, *, is_one: bool) -> None:
        self._copies = {}
        rest = dict(others)
        for key in others:
            whose, _, name = key.partition(".")
            if whose in (_OWN, *_SIDES):
                self._copies.setdefault(whose, {})[name] = rest.pop(key)
        super()._load_others(rest, num_steps, is_one=is_one)
