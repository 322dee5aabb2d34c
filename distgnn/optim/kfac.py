"""K-FAC: gradients of dense maps, times the inverse of a Kronecker-factored Fisher matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch

from distgnn.datasets.errors import InputError
from distgnn.exchange.base import all_reduce_bytes
from distgnn.exchange.clock import Clock
from distgnn.exchange.tags import WEIGHTS_TAG
from distgnn.kernels.dense import Factor, is_fast, multiply
from distgnn.nn.decoders import MlpDecoder
from distgnn.nn.gat import AttentionConvolution
from distgnn.nn.linear import Linear
from distgnn.nn.relational import RGCNConv
from distgnn.optim.factors import (
    CHUNK_BYTES,
    PRECONDITIONER,
    Factors,
    Key,
    Reader,
    connected,
)
from distgnn.optim.optimizers import Adam, Sgd
from distgnn.optim.sharing import Grid, shares
from distgnn.settings.kfac import KfacOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from distgnn.comm.group import Group
    from distgnn.optim.optimizers import Moments

ADAM_SHARE = 0.1
"""Adam's step as a share of that of K-FAC: 0.01 beside 0.1."""
_JITTERS = (0.0, 1e-6, 1e-5, 1e-4)
"""Shares of the mean eigenvalue that are added in turn until a factor can be decomposed."""
_FAILED = len(_JITTERS)


class Whole(Protocol):
    """The whole that a rank's gradients are a share of.

    Attributes:
        group: All ranks.
        num_terms: Number of terms that the loss of the last pass is the mean of.
    """

    @property
    def group(self) -> Group:
        """All ranks."""

    @property
    def num_terms(self) -> float:
        """Number of terms that the loss of the last pass is the mean of."""


class Basis(NamedTuple):
    """A factor as Q diag(values) Q^T.

    Attributes:
        vectors: (width, width) Q; None for the identity.
        values: (width,), none below 0.
    """

    vectors: Tensor | None
    values: Tensor


class Kfac(Sgd):
    """Preconditions the gradients of dense maps, steps them by SGD, and all else by Adam.

    With the factors A and G of a map, see `distgnn.optim.factors`, and damping gamma::

        step = nu (G kron A + gamma I)^-1 gradient,  computed in the bases of A and G
        nu   = min(1, sqrt(clip / |sum of <step, gradient> lr^2|)) over all maps
        v    = 0.9 v + step + weight_decay w;  w = w - lr v

    A bias shares G with its map and has A = 1. Maps of `distgnn.nn.Linear` and of R-GCN are
    preconditioned. Parameters that no such map holds are stepped by Adam with 0.1 lr: vectors of
    attention, learned rows, norms, decoders of links and layers of torch.

    Args:
        model: Module with layers of distgnn.nn, whose parameters it steps.
        whole: Ranks, and the number of terms of the loss; `Data` of `distgnn.init` is one.
        lr: Length of a step.
        weight_decay: Weight of the L2 penalty.
        decaying: Weights that the penalty is on; all if None.
        options: How to precondition; None for what `KfacOptions` has by default.
        finds_constants: Whether to look for maps that multiply the same rows in every step.

    Raises:
        InputError: If the model has no map to precondition, or this processor lacks the kernels
            that read the factors.

    References:
        Martens and Grosse, "Optimizing Neural Networks with Kronecker-factored Approximate
        Curvature", ICML 2015; Pauloski et al., "Convolutional Neural Network Training with
        Distributed K-FAC", SC 2020, for the clip; Izadi et al., "Optimization of Graph Neural
        Networks with Natural Gradient Descent", 2020.
    """

    def __init__(
        self,
        model: nn.Module,
        whole: Whole,
        *,
        lr: float = 0.1,
        weight_decay: float = 0.0,
        decaying: Iterable[Tensor] | None = None,
        options: KfacOptions | None = None,
        finds_constants: bool = True,
    ) -> None:
        parameters = [each for each in model.parameters() if each.requires_grad]
        decaying = None if decaying is None else list(decaying)
        super().__init__(parameters, lr=lr, weight_decay=weight_decay, decaying=decaying)
        self._adam = Adam(parameters, lr=lr, weight_decay=weight_decay, decaying=decaying)
        self.options = options or KfacOptions()
        self._whole, self._group, self._size = whole, whole.group, whole.group.size
        self._numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
        self._names = {
            self._numbers[id(each)]: name
            for name, each in model.named_parameters()
            if each.requires_grad
        }
        self._clock = Clock(phases=(PRECONDITIONER,))
        self._reader = Reader(
            self._numbers,
            self.options.widest,
            clock=self._clock,
            finds_constants=finds_constants,
        )
        self._map_of_bias = dict(self._biases(model))
        self._watch(model)
        self._factors = Factors(self._reader, self._group, self.options.decay)
        self._grid = Grid(self._group.size, self.options.num_workers(self._group.size))
        self._decomposed: dict[Key, Tensor] = {}
        self._bases: dict[Key, Basis] = {}
        self._current: set[Key] = set()
        self._known_groups: list[tuple[int, list[Key]]] = []
        self._num_steps = 0
        self._bytes_sent = 0
        self._notes: list[str] = []

    def _watch(self, model: nn.Module) -> None:
        # Decoders of links compute their gradients in forward, before the loss is divided.
        decoders = (each for each in model.modules() if isinstance(each, MlpDecoder))
        left_out = {id(inner) for each in decoders for inner in each.modules()}
        maps = [
            each
            for each in model.modules()
            if isinstance(each, Linear | RGCNConv) and id(each) not in left_out
        ]
        if not maps:
            raise InputError(
                f"kfac finds no dense map of distgnn.nn in {type(model).__name__}; use adam"
            )
        if not is_fast():
            raise InputError("kfac reads factors from kernels that this processor lacks; use adam")
        for each in maps:
            each.observer = self._reader

    def _biases(self, model: nn.Module) -> Iterator[tuple[int, int]]:
        """Yield each bias with the map whose G it shares, both as numbers of parameters."""
        for module in model.modules():
            bias = getattr(module, "bias", None)
            owner: nn.Module = module
            if not isinstance(module, Linear | RGCNConv):
                # Convolutions add biases behind the sum of what their map made.
                owner = getattr(module, "linear", None) or getattr(module, "source", None)  # type: ignore[assignment]
            weight = owner.own if isinstance(owner, RGCNConv) else getattr(owner, "weight", None)
            if isinstance(module, AttentionConvolution) and not module.concat:
                continue  # It is as wide as the mean of the heads.
            if id(bias) in self._numbers and id(weight) in self._numbers:
                yield self._numbers[id(bias)], self._numbers[id(weight)]

    @torch.no_grad()
    def step(self) -> None:
        """Step all parameters that have a gradient; collective."""
        with self._clock.timed(PRECONDITIONER):
            steps = self._curved()
        self._step_all(steps)
        self._num_steps += 1
        self._reader.is_open = self.options.is_read(self._num_steps)

    def _curved(self) -> dict[int, Tensor]:
        """Return the steps of what has factors, by number of the parameter; collective."""
        values = self._factors.values
        if self._reader.is_open:
            self._factors.update(self._whole.num_terms)
        is_due = self.options.is_decomposed(self._num_steps)
        # After a checkpoint was loaded the last decompositions are done again.
        wanted = {
            key: value if is_due else self._decomposed.get(key, value)
            for key, value in values.items()
        }
        self._decompose(wanted)
        steps = self._preconditioned()
        self._clip(steps)
        return steps

    def _step_all(self, steps: dict[int, Tensor]) -> None:
        for number in steps:
            if number not in self._moments:
                self._moments[number] = self._begin(self._parameters[number])
        for decay, is_wanted in ((self.weight_decay, True), (0.0, False)):
            own = [n for n in steps if (id(self._parameters[n]) in self._decaying) == is_wanted]
            if own:
                parameters = [self._parameters[number] for number in own]
                moments = [self._moments[number] for number in own]
                self._step(parameters, [steps[number] for number in own], moments, decay)
        self._adam.lr = float(self.lr) * ADAM_SHARE
        self._adam.weight_decay = self.weight_decay
        self._adam.step_only(
            number
            for number, each in enumerate(self._parameters)
            if each.grad is not None and number not in steps
        )

    # Bases: each group of factors is decomposed by its owner and given to the workers.

    def _groups(self) -> list[tuple[int, list[Key]]]:
        """Return the factors that maps connect, each group with the rank that decomposes it."""
        values = self._factors.values
        pairs = [pair for pair in self._reader.pairs.values() if set(pair) <= values.keys()]
        groups = connected(pairs)
        owners = shares([sum(_cost(values[key]) for key in group) for group in groups], self._size)
        found = list(zip(owners, groups, strict=True))
        if found != self._known_groups:
            # Bases may belong to other ranks now.
            self._known_groups = found
            self._bases.clear()
            self._current.clear()
        return found

    def _decompose(self, wanted: Mapping[Key, Tensor]) -> None:
        """Decompose the factors that changed; collective."""
        groups = self._groups()
        due = [
            (owner, key)
            for owner, group in groups
            for key in group
            if key not in self._current or self._decomposed[key] is not wanted[key]
        ]
        if not due:
            return
        levels = torch.zeros(len(due), dtype=torch.int8)
        for place, (owner, key) in enumerate(due):
            if owner == self._group.rank:
                levels[place] = self._decompose_one(key, wanted[key])
        if self._size > 1:
            self._group.all_reduce(levels, "max")
            self._bytes_sent += all_reduce_bytes(levels.nbytes, self._size)
        fresh: dict[int, list[Key]] = {}
        for (owner, key), level in zip(due, levels.tolist(), strict=True):
            before = self._decomposed.get(key)
            if level < _FAILED:
                self._decomposed[key] = _with_jitter(wanted[key], _JITTERS[level])
            elif before is None or key not in self._current:
                self._decomposed[key] = _diagonal(wanted[key])
            if level:
                self._note_failure(key, level, has_older=key in self._current)
            if level < _FAILED or key not in self._current:
                fresh.setdefault(owner, []).append(key)
            self._current.add(key)
        self._give_bases(fresh)

    def _decompose_one(self, key: Key, value: Tensor) -> int:
        """Decompose one factor; return how much was added, and `_FAILED` if all was in vain."""
        for level, jitter in enumerate(_JITTERS):
            basis = _decomposition(_with_jitter(value, jitter))
            if basis is not None:
                self._bases[key] = basis
                return level
        if key not in self._current:
            self._bases[key] = Basis(None, _diagonal(value))
        return _FAILED

    def _note_failure(self, key: Key, level: int, *, has_older: bool) -> None:
        name = f"the factor {'G' if key.is_output else 'A'} of {self._names[key.parameter]}"
        if level < _FAILED:
            outcome = f"was decomposed with {_JITTERS[level]:g} of its mean eigenvalue added"
        elif has_older:
            outcome = "could not be decomposed; the older decomposition stays"
        else:
            outcome = "could not be decomposed; its diagonal takes its place"
        self._notes.append(f"kfac, step {self._num_steps}: {name} {outcome}")

    def _give_bases(self, fresh: dict[int, list[Key]]) -> None:
        """Give new bases to the ranks that precondition with them."""
        rank, device = self._group.rank, self._group.device
        incoming, outgoing = [], []
        for owner, keys in fresh.items():
            workers = self._grid.workers(owner)
            if rank not in workers or len(workers) == 1:
                continue
            shapes = [self._decomposed[key] for key in keys]
            if rank == owner:
                flat = torch.cat([_flat(self._bases[key]) for key in keys])
                outgoing += [(flat, other) for other in workers if other != rank]
            else:
                dtype = torch.promote_types(torch.float32, shapes[0].dtype)
                size = sum(len(value) * (1 + len(value) * (value.ndim == 2)) for value in shapes)
                incoming.append((torch.empty(size, dtype=dtype), owner))
        self._transfer(incoming, outgoing)
        for flat, owner in incoming:
            self._bases.update(_bases_of(flat, fresh[owner], self._decomposed))
        for keys in fresh.values():
            for key in keys:
                if key in self._bases:
                    basis = self._bases[key]
                    vectors = None if basis.vectors is None else basis.vectors.to(device)
                    self._bases[key] = Basis(vectors, basis.values.to(device))

    def _transfer(
        self, incoming: list[tuple[Tensor, int]], outgoing: list[tuple[Tensor, int]]
    ) -> None:
        for work in self._group.transfer(incoming, outgoing, WEIGHTS_TAG):
            work.wait()
        self._bytes_sent += sum(sent.numel() * sent.element_size() for sent, _ in outgoing)

    # Steps: computed by the workers of a group, given to all others.

    def _preconditioned(self) -> dict[int, Tensor]:
        """Return the preconditioned gradient of each parameter whose maps all have factors."""
        pieces = self._pieces()
        steps = {
            piece.number: torch.empty_like(self._parameters[piece.number])
            for group in pieces.values()
            for piece in group
        }
        rank = self._group.rank
        incoming, outgoing = [], []
        for owner, own in pieces.items():
            source = self._grid.source(owner, rank)
            places = [piece.of(steps[piece.number]) for piece in own]
            if source == rank:
                for piece, place in zip(own, places, strict=True):
                    grad = self._parameters[piece.number].grad
                    assert grad is not None, "pieces have gradients"
                    self._precondition(piece, piece.of(grad), place)
                takers = self._grid.takers(owner, rank)
                if takers:
                    flat = torch.cat([place.reshape(-1) for place in places])
                    outgoing += [(flat, other) for other in takers]
            else:
                size = sum(place.numel() for place in places)
                incoming.append((places[0].new_empty(size), source, places))
        self._transfer([(flat, source) for flat, source, _ in incoming], outgoing)
        for flat, _, places in incoming:
            for place, part in zip(
                places, torch.split(flat, [place.numel() for place in places]), strict=True
            ):
                place.copy_(part.view(place.shape))
        return steps

    def _pieces(self) -> dict[int, list[Piece]]:
        """Return the maps and biases that are preconditioned, by the owner of their factors."""
        owner_of = {key: owner for owner, group in self._known_groups for key in group}
        found: dict[int, list[Piece]] = {}
        numbers: dict[int, int] = {}
        for (number, place), (a, g) in sorted(self._reader.pairs.items()):
            if a not in owner_of or g not in owner_of:
                continue
            biases = [bias for bias, of in self._map_of_bias.items() if of == number]
            for each, factor in ((number, a), *((bias, None) for bias in biases)):
                if self._parameters[each].grad is not None:
                    numbers[each] = numbers.get(each, 0) + 1
                    found.setdefault(owner_of[g], []).append(Piece(each, place, factor, g))
        # A parameter that holds several maps is stepped once all of them have factors.
        missing = {
            each
            for each, count in numbers.items()
            if self._has_several(each) and count < len(self._parameters[each])
        }
        whole = {
            owner: [piece for piece in pieces if piece.number not in missing]
            for owner, pieces in sorted(found.items())
        }
        return {owner: pieces for owner, pieces in whole.items() if pieces}

    def _has_several(self, number: int) -> bool:
        """Return whether a parameter's maps have factors of their own."""
        number = self._map_of_bias.get(number, number)
        return (number, -1) not in self._reader.pairs

    def _precondition(self, piece: Piece, grad: Tensor, out: Tensor) -> None:
        a = None if piece.a is None else self._bases[piece.a]
        g, damping = self._bases[piece.g], self.options.damping
        if piece.a is None:
            out.copy_(preconditioned(grad[:, None], None, g, damping)[:, 0])
        elif self._parameters[piece.number].ndim == 2:
            out.copy_(preconditioned(grad, a, g, damping))
        else:  # Maps of typed edges have their inputs first.
            maps, outs = grad.view(-1, *grad.shape[-2:]), out.view(-1, *grad.shape[-2:])
            size = max(1, CHUNK_BYTES // (maps[0].numel() * maps.element_size()))
            chunks = zip(torch.split(maps, size), torch.split(outs, size), strict=True)
            for some, place in chunks:
                place.copy_(preconditioned(some.mT, a, g, damping).mT)

    def _clip(self, steps: dict[int, Tensor]) -> None:
        """Shorten all steps where the quadratic form of them is long."""
        if not self.options.clip or not steps:
            return
        total = 0.0
        for number, step in steps.items():
            grad = self._parameters[number].grad
            assert grad is not None, "what is stepped has a gradient"
            # Not by torch, whose sums depend on the number of threads: ranks may have different
            # ones, and would scale their steps differently.
            total += float(np.sum((step * grad).double().numpy(force=True)))
        form = abs(total) * float(self.lr) ** 2
        if form > self.options.clip:
            for step in steps.values():
                step *= (self.options.clip / form) ** 0.5

    # What the base class has besides.

    def take_bytes(self) -> int:
        """Return the payload bytes that this rank sent since the last call."""
        sent = self._bytes_sent + self._factors.bytes_sent
        self._bytes_sent = self._factors.bytes_sent = 0
        return sent

    def take_preconditioner_s(self) -> float:
        """Return the seconds of factors, decompositions and their use since the last call.

        On a device they are those that the processor spends and waits.
        """
        return self._clock.take()[PRECONDITIONER]

    def take_note(self) -> str | None:
        """Return lines for the log about steps since the last call, or None."""
        notes, self._notes = self._notes, []
        return "\n".join(notes) or None

    def state_dict(self) -> dict[int, Moments]:
        """Return moments and factors by number of the parameter; the same on every rank."""
        state = {**self._adam.state_dict(), **super().state_dict()}
        for key, value in self._factors.values.items():
            of = state.setdefault(key.parameter, {})
            of[_name(_FACTOR, key)] = value
            last = self._decomposed.get(key)
            if last is not None and last is not value:
                of[_name(_DECOMPOSED, key)] = last
        if state:
            steps = torch.tensor(self._num_steps, dtype=torch.int64)
            state.setdefault(min(state), {})[_STEPS] = steps
        return state

    def load_state_dict(self, state: Mapping[int, Moments]) -> None:
        """Restore what `state_dict` returned; copied."""
        sgd: dict[int, Moments] = {}
        adam: dict[int, Moments] = {}
        self._factors.values.clear()
        self._decomposed.clear()
        self._bases.clear()
        self._current.clear()
        self._reader.forget()
        self._num_steps = 0
        for number, moments in state.items():
            device = self._parameters[number].device
            for name, value in moments.items():
                kind, _, place = name.partition("-")
                if name == _STEPS:
                    self._num_steps = int(value)
                elif kind == _FACTOR:
                    key = Key(number, int(place[1:]), is_output=place[0] == "g")
                    self._factors.values[key] = value.to(device, copy=True)
                elif kind != _DECOMPOSED:
                    of = sgd if name == "momentum_buffer" else adam
                    of.setdefault(number, {})[name] = value
        for key, value in self._factors.values.items():
            last = state[key.parameter].get(_name(_DECOMPOSED, key))
            self._decomposed[key] = value if last is None else last.to(value.device, copy=True)
        super().load_state_dict(sgd)
        self._adam.load_state_dict(adam)
        self._reader.is_open = self.options.is_read(self._num_steps)


class Piece(NamedTuple):
    """A map or a bias that is preconditioned.

    Attributes:
        number: Number of the parameter.
        place: Number of the map in the parameter; -1 for all of it.
        a: Key of its A; None for a bias, whose A is 1.
        g: Key of its G.
    """

    number: int
    place: int
    a: Key | None
    g: Key

    def of(self, tensor: Tensor) -> Tensor:
        """Return its share of a tensor of the parameter's shape."""
        return tensor if self.place < 0 else tensor[self.place]


def preconditioned(grad: Tensor, a: Basis | None, g: Basis, damping: float) -> Tensor:
    """Return (G kron A + damping I)^-1 times a gradient, with the same bits on any processor.

    Args:
        grad: (..., out_width, in_width): of one map, or of several that share the factors.
        a: Factor of the inputs; None for 1.
        g: Factor of the outputs.
        damping: Number that is added to each product of eigenvalues.

    Returns:
        A tensor of the shape of the gradient.
    """
    inner = grad if a is None else _times(grad, a.vectors)
    rotated = _times(inner.mT, g.vectors)  # (..., in_width, out_width)
    values = g.values[None] if a is None else a.values[:, None] * g.values[None]
    rotated = rotated / (values + damping)
    back = _times(rotated, None if g.vectors is None else g.vectors.t()).mT
    return back if a is None else _times(back, None if a.vectors is None else a.vectors.t())


def _times(rows: Tensor, matrix: Tensor | None) -> Tensor:
    rows = rows.contiguous()
    if matrix is None:
        return rows
    out = torch.empty_like(rows)
    width = rows.shape[-1]
    multiply([Factor(rows.view(-1, width), matrix)], out.view(-1, width))
    return out


def _decomposition(value: Tensor) -> Basis | None:
    """Decompose a factor in float64 on the processor; None if that fails."""
    if value.ndim == 1:
        return Basis(None, value.clamp(min=0)) if bool(value.isfinite().all()) else None
    try:
        values, vectors = torch.linalg.eigh(value.double().cpu(), UPLO="U")
    except RuntimeError:  # It does not converge, or finds no numbers.
        return None
    if not (bool(values.isfinite().all()) and bool(vectors.isfinite().all())):
        return None
    return Basis(vectors.to(value.dtype).contiguous(), values.clamp(min=0).to(value.dtype))


def _with_jitter(value: Tensor, share: float) -> Tensor:
    """Return a factor with a share of its mean eigenvalue added; itself for none."""
    if not share:
        return value
    if value.ndim == 1:
        return value + share * value.mean()
    diagonal = value.diagonal()
    return value + torch.diag(torch.full_like(diagonal, share * float(diagonal.mean())))


def _diagonal(value: Tensor) -> Tensor:
    diagonal = value if value.ndim == 1 else value.diagonal()
    return diagonal.nan_to_num(0.0, posinf=0.0, neginf=0.0).clamp(min=0)


def _cost(value: Tensor) -> float:
    """Return the relative time of a decomposition."""
    return float(len(value)) ** (3 if value.ndim == 2 else 1)


def _flat(basis: Basis) -> Tensor:
    """Return a basis as one row of numbers, on the processor."""
    parts = (basis.values, basis.vectors)
    return torch.cat([part.cpu().reshape(-1) for part in parts if part is not None])


def _bases_of(
    flat: Tensor, keys: Sequence[Key], values: Mapping[Key, Tensor]
) -> Iterator[tuple[Key, Basis]]:
    """Yield the bases that `_flat` packed one after the other."""
    start = 0
    for key in keys:
        width = len(values[key])
        own = flat[start : start + width]
        start += width
        vectors = None
        if values[key].ndim == 2:
            vectors = flat[start : start + width * width].view(width, width)
            start += width * width
        yield key, Basis(vectors, own)


_FACTOR, _DECOMPOSED, _STEPS = "kfac", "kfac_decomposed", "kfac_steps"
"""Names of what a checkpoint holds besides moments; the first two go with a place such as -a0."""


def _name(kind: str, key: Key) -> str:
    return f"{kind}-{'g' if key.is_output else 'a'}{key.number}"
