"""Models that move towards a center which ranks find some steps before, while they go on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from distgnn.exchange.sliced import slice_bytes
from distgnn.exchange.tags import WEIGHTS_TAG
from distgnn.weights.groups import slices_of
from distgnn.weights.local_models import LocalModels
from distgnn.weights.own_models import bound_squares, is_never_negative

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

    from distgnn.comm.group import Group, Work
    from distgnn.exchange.clock import Clock
    from distgnn.weights.own_models import HasMoments
    from distgnn.weights.rule import Background, WeightRule


class BackgroundModels(LocalModels):
    """Each rank steps by itself; models move towards a center that messages find meanwhile.

    A round begins after every K-th step, and ends L steps later, with the share A::

        step t        s_p <- w_p;  slices of s_p leave for the ranks that own them
        L / 2 later   owners find the center of their slices, and tell it
        L later       w_p <- w_p - A (s_p - c_p), or, with lerp and momentum, w_p - A (w_p - c_p)

    The center is the mean of all s_p. With momentum E and rate Z it is g, which moves in each
    round. With elastic it is g, which meets one rank after another, so that the sum of g and of all
    models stays::

        momentum    D <- E D + Z (mean - g);  g <- g + D;  c_p = g
        elastic     c_p = g;  g <- g + A (s_p - g)      for p = 0, 1, ...

    All steps count the same on every rank, so that a run has the same bits each time. With L = 0 a
    round ends in the step in which it begins. With L = 1 the second half is waited for. Messages of
    a round are finished before a checkpoint, which changes no number. Moments of the optimizer move
    by A (s_p - c_p), with momentum towards their plain mean, unless they stay a rank's own.

    Args:
        group: All ranks.
        clock: Gets the time of waiting.
        optimizer: Optimizer of the model.
        rule: Rule of merges: when, with whom, and how they are in the background.
        seed: Seed of the run, from which groups are drawn; the same on all ranks.

    References:
        Zheng et al., "ShadowSync: Performing Synchronization in the Background for Highly Scalable
        Distributed Training", arXiv:2003.03477.
        Gan et al., "BAGUA: Scaling up Distributed Learning with System Relaxations", VLDB 2021
        (asynchronous averaging).
        Zhang et al., "Deep Learning with Elastic Averaging SGD", NeurIPS 2015.
        Chen and Huo, "Scalable Training of Deep Learning Machines by Incremental Block Training
        with Intra-Block Parallel Optimization and Blockwise Model-Update Filtering", ICASSP 2016.
    """

    def __init__(
        self,
        group: Group,
        clock: Clock,
        *,
        optimizer: HasMoments,
        rule: WeightRule,
        seed: int = 0,
    ) -> None:
        super().__init__(group, clock, optimizer=optimizer, rule=rule, seed=seed)
        assert rule.background is not None, "merges are in the background"
        self._how = rule.background
        self._begun_at = 0
        self._rounds: dict[str, _Round] = {}
        self._centers: dict[str, _Center] = {}

    def after_backward(self, model: nn.Module) -> None:
        """Scale the gradient; before the first step the models of all ranks are one."""
        super().after_backward(model)
        if not self._moments(model):
            self._drop_moments()
        if not self._centers and self.group.size > 1:
            for name, parts in self._parts(model).items():
                self._centers[name] = self._center_at(name, _flat(parts))

    def _drop_moments(self) -> None:
        """Forget the moments of an optimizer that begins again, as after a head start."""
        for name in [name for name in self._rounds if name.startswith(_MOMENTS)]:
            self._rounds[name].tell()
            self._rounds.pop(name).finish()
        self._centers = {
            name: center for name, center in self._centers.items() if not name.startswith(_MOMENTS)
        }

    def after_step(self, model: nn.Module) -> None:
        """Carry the round on, end it, and begin the next, where it is time."""
        self._carry_on(model, self._num_steps + 1)
        super().after_step(model)
        self._carry_on(model, self._num_steps)

    @torch.no_grad()
    def _merge(self, model: nn.Module) -> None:
        """Begin a round."""
        members = self._members
        self._begun_at = self._num_steps
        for name, parts in self._parts(model).items():
            flat = _flat(parts)
            if name not in self._centers:
                assert name.startswith(_MOMENTS), "weights have a center from the first gradient on"
                # Moments are zeros before the first step.
                self._centers[name] = self._center_at(name, torch.zeros_like(flat))
            self._rounds[name] = _Round(self.group, members, flat, self._centers[name])
            size, place = len(members), members.index(self.group.rank)
            self.bytes_sent += slice_bytes(len(flat), place, size, flat.element_size())

    @torch.no_grad()
    def _carry_on(self, model: nn.Module, num_steps: int) -> None:
        """Do what is due of a round after some steps."""
        age, lag = num_steps - self._begun_at, self._how.lag
        moves_moments = False
        for name in list(self._rounds):
            if age >= -(-lag // 2):
                with self.clock.timed("weight_sync"):
                    self._rounds[name].tell()
            if age >= lag:
                with self.clock.timed("weight_sync"):
                    snapshot, center = self._rounds.pop(name).finish()
                self._move(model, name, snapshot, center)
                moves_moments |= name.startswith(_MOMENTS)
        # Means move as their squares do, in either order: only then is one bounded by the other.
        if moves_moments:
            bound_squares(self._optimizer)

    def _move(self, model: nn.Module, name: str, snapshot: Tensor, center: Tensor) -> None:
        """Move the weights of a dtype towards the center of a round."""
        tensors = self._parts(model)[name]
        now = _flat(tensors)
        # Moments of the steps since are kept: without them they would never learn of a gradient.
        keeps = self._how.is_corrected or name.startswith(_MOMENTS)
        moved = now - self._how.share * ((snapshot if keeps else now) - center)
        if name.startswith(_SQUARES):
            moved.clamp_(min=0)
        for each, part in zip(
            tensors, torch.split(moved, [each.numel() for each in tensors]), strict=True
        ):
            each.copy_(part.view_as(each))

    def _center_at(self, name: str, flat: Tensor) -> _Center:
        """Return this rank's slice of a center, which is kept as it is found."""
        own = slices_of(flat, list(range(self.group.size)))[self.group.rank]
        return _Center(self._how_of(name), own.clone(), torch.zeros_like(own))

    def _how_of(self, name: str) -> Background:
        """Return how a center is found; a mean that moves on might leave squares below 0."""
        is_plain = name.startswith(_MOMENTS) and self._how.center == "momentum"
        return replace(self._how, center="mean") if is_plain else self._how

    def _parts(self, model: nn.Module) -> dict[str, list[Tensor]]:
        """Return what moves together: weights, moments and squares of each dtype, by name."""
        parts: dict[str, list[Tensor]] = {}
        for each in self._weights(model).values():
            parts.setdefault(str(each.dtype), []).append(each)
        moments = {} if self._rule.keeps_moments else self._moments(model)
        for name, each in moments.items():
            kind = _SQUARES if is_never_negative(name) else _MOMENTS
            parts.setdefault(f"{kind}.{each.dtype}", []).append(each)
        return parts

    def state(self, model: nn.Module) -> dict[str, Tensor]:
        """Return what this rank has, after all messages of a round have arrived; collective."""
        for each in self._rounds.values():
            each.tell()
        for each in self._rounds.values():
            each.finish()
        return super().state(model)

    def _others(self) -> dict[str, Tensor]:
        own = super()._others()
        for name, each in self._rounds.items():
            own[f"snapshot.{name}"], own[f"found.{name}"] = each.finish()
        if self._how.keeps_center:
            for name, center in self._centers.items():
                own |= {f"center.{name}": center.value, f"speed.{name}": center.speed}
        return own

    def _load_others(self, others: dict[str, Tensor], num_steps: int, *, is_one: bool) -> None:
        rest = dict(others)
        kept = {key: rest.pop(key) for key in others if key.partition(".")[0] in _KEPT}
        super()._load_others(rest, num_steps, is_one=is_one)
        self._begun_at = num_steps - num_steps % self._rule.merge_every
        device = self.group.device
        self._rounds, self._centers = {}, {}
        for key, value in kept.items():
            kind, _, name = key.partition(".")
            if kind == "center":
                speed = kept[f"speed.{name}"].to(device)
                self._centers[name] = _Center(self._how_of(name), value.to(device), speed)
            elif kind == "snapshot":
                found = kept[f"found.{name}"].to(device)
                self._rounds[name] = _Round.found(value.to(device), found)


_MOMENTS = "moments"
_SQUARES = "moments-squared"
_KEPT = ("snapshot", "found", "center", "speed")


class _Center:
    """A slice of the center, on the rank that owns it.

    Args:
        how: How the center is found.
        value: (num_values,) where it is.
        speed: (num_values,) by how much it moved in the last round.
    """

    def __init__(self, how: Background, value: Tensor, speed: Tensor) -> None:
        self._how = how
        self.value = value
        self.speed = speed

    def meet(self, snapshots: Sequence[Tensor]) -> list[Tensor]:
        """Move the center by the models of a round.

        Args:
            snapshots: Slices of the members' models, in rank order.

        Returns:
            For each member the slice of the center that it moves towards.
        """
        how = self._how
        if how.center == "elastic":
            told = []
            for each in snapshots:
                told.append(self.value)
                self.value = self.value + how.share * (each - self.value)
            return told
        total = torch.zeros_like(snapshots[0])
        for each in snapshots:
            total += each
        mean = total / len(snapshots)
        if how.center == "momentum":
            self.speed = how.momentum * self.speed + how.rate * (mean - self.value)
            mean = self.value = self.value + self.speed
        return [mean] * len(snapshots)


class _Round:
    """Messages by which some ranks find a center: slices to their owners, and what these find.

    Args:
        group: All ranks.
        members: Ranks of the round, ascending; this one is among them.
        snapshot: (num_values,) weights of this rank; kept.
        center: This rank's slice of the center.
    """

    def __init__(
        self, group: Group, members: list[int], snapshot: Tensor, center: _Center | None
    ) -> None:
        self._group = group
        self._members = members
        self._center = center
        self._is_told = False
        self._snapshot = snapshot
        self._found = torch.empty_like(snapshot)
        slices = slices_of(snapshot, members)
        own = slices[group.rank]
        self._arrived = {
            peer: own if peer == group.rank else torch.empty_like(own) for peer in members
        }
        self._works = self._transfer(self._arrived, slices)

    @classmethod
    def found(cls, snapshot: Tensor, found: Tensor) -> _Round:
        """Return a round whose messages have all arrived."""
        own = cls.__new__(cls)
        own._is_told, own._works = True, []
        own._snapshot, own._found = snapshot, found
        return own

    def tell(self) -> None:
        """Wait for slices, find their center and tell it, unless that was done."""
        if self._is_told:
            return
        self._wait()
        assert self._center is not None, "a round that was begun has a center"
        slices = [self._arrived[peer] for peer in self._members]
        told = dict(zip(self._members, self._center.meet(slices), strict=True))
        landing = slices_of(self._found, self._members)
        landing[self._group.rank].copy_(told[self._group.rank])
        # They stay here until they were sent.
        self._told = told
        self._works = self._transfer(landing, told)
        self._is_told = True

    def finish(self) -> tuple[Tensor, Tensor]:
        """Wait for the center; return the weights at the beginning, and the center."""
        self._wait()
        return self._snapshot, self._found

    def _wait(self) -> None:
        for work in self._works:
            work.wait()
        self._works = []

    def _transfer(
        self, incoming: Mapping[int, Tensor], outgoing: Mapping[int, Tensor]
    ) -> list[Work]:
        peers = [peer for peer in self._members if peer != self._group.rank]
        return self._group.transfer(
            [(incoming[peer], peer) for peer in peers if len(incoming[peer])],
            [(outgoing[peer], peer) for peer in peers if len(outgoing[peer])],
            WEIGHTS_TAG,
        )


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """Return a copy of tensors as a vector."""
    return torch.cat([each.reshape(-1) for each in tensors])
