"""K-FAC's factors of a model, known before it runs: their widths, and what they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import nn

from distgnn.exchange.base import all_reduce_bytes
from distgnn.nn.convolution import FusedConvolution
from distgnn.nn.gat import AttentionConvolution
from distgnn.nn.gin import GINConv, GINEConv
from distgnn.nn.layers import MappedAtOnce, Recomputed
from distgnn.nn.linear import Linear
from distgnn.nn.relational import RGCNConv
from distgnn.nn.sage import SAGEConv
from distgnn.optim.factors import CHUNK_BYTES, num_values
from distgnn.settings.kfac import KfacOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distgnn.nn.models import GNN

_ITEM_BYTES = 4
# A factor, that of the last decomposition, its vectors, and what a rank has read of it; besides, in
# float64, the widest factor, its vectors, and the workspace of a decomposition.
_COPIES = 4
_WORK_BYTES = 8 * 4
# Of a map that is preconditioned: what it was multiplied with so far, in both layouts, the products
# of eigenvalues, and a result.
_PRODUCTS = 5


class Side(NamedTuple):
    """A factor.

    Attributes:
        width: Columns.
        is_constant: Whether it is of rows that are known to stay, so that it is sent no more.
        is_repeated: Whether it has the same bits in every epoch, so that it is decomposed once.
    """

    width: int
    is_constant: bool = False
    is_repeated: bool = False


class FactorGroup(NamedTuple):
    """Factors that maps connect, which one rank decomposes.

    Attributes:
        sides: The factors.
        num_weights: Values of the maps and biases that they precondition.
    """

    sides: tuple[Side, ...]
    num_weights: int

    @property
    def most_bytes(self) -> int:
        """Bytes of the maps that are preconditioned at once."""
        *inputs, output = (side.width for side in self.sides)
        one = _ITEM_BYTES * max(inputs) * output
        return max(one, min(_ITEM_BYTES * self.num_weights, CHUNK_BYTES))


class FactorTraffic(NamedTuple):
    """Factors of a model, and the memory and bytes that they cost.

    Attributes:
        groups: Its factors.
        options: Its settings.
    """

    groups: tuple[FactorGroup, ...]
    options: KfacOptions

    def bytes_in_epoch(self, num_ranks: int, epoch: int) -> int:
        """Return the bytes that all ranks send in an epoch of a run without a break.

        Args:
            num_ranks: Number of ranks.
            epoch: From 0.
        """
        options, num_workers = self.options, self.options.num_workers(num_ranks)
        sides = [side for group in self.groups for side in group.sides]
        total = 0
        if options.is_read(epoch):
            # Rows are known to stay once they were read twice.
            second = 1 if options.first > 1 else options.factors
            sent = [s for s in sides if not s.is_constant or epoch <= second]
            count = 2 * len(sides) + sum(num_values(s.width, options.widest) for s in sent)
            total += num_ranks * all_reduce_bytes(_ITEM_BYTES * count, num_ranks)
        due = sides if epoch == 0 else [side for side in sides if not side.is_repeated]
        if self._is_decomposed(epoch) and due:
            total += num_ranks * all_reduce_bytes(len(due), num_ranks)
            count = sum(_decomposed_values(side.width, options.widest) for side in due)
            total += _ITEM_BYTES * count * (num_workers - 1)
        weights = sum(group.num_weights for group in self.groups)
        return total + _ITEM_BYTES * weights * (num_ranks - num_workers)

    def _is_decomposed(self, epoch: int) -> bool:
        """Whether factors were read since the decomposition before."""
        options = self.options
        if not options.is_decomposed(epoch):
            return False
        before = next((e for e in range(epoch - 1, -1, -1) if options.is_decomposed(e)), -1)
        return any(options.is_read(each) for each in range(before + 1, epoch + 1))

    def mean_bytes(self, num_ranks: int) -> int:
        """Return the mean bytes that all ranks send in an epoch, once rows are known to stay.

        Args:
            num_ranks: Number of ranks.
        """
        period = self.options.factors * self.options.inverses
        start = max(2, -(-self.options.first // period)) * period
        epochs = range(start, start + period)
        return sum(self.bytes_in_epoch(num_ranks, epoch) for epoch in epochs) // period

    @property
    def num_bytes(self) -> int:
        """Bytes that a rank keeps, at most, and works on, besides gradients and two moments.

        It works on a decomposition, and then on the steps of all maps, of which the largest needs
        some copies. Momentum of the maps, and Adam's moments of all else, are two moments at most.
        """
        widest = self.options.widest
        sides = [side.width for group in self.groups for side in group.sides]
        kept = sum(width if width > widest else width**2 for width in sides)
        work = max((width**2 for width in sides if width <= widest), default=0)
        steps = _ITEM_BYTES * sum(group.num_weights for group in self.groups)
        largest = max((group.most_bytes for group in self.groups), default=0)
        return _COPIES * _ITEM_BYTES * kept + max(_WORK_BYTES * work, steps + _PRODUCTS * largest)


def _decomposed_values(width: int, widest: int) -> int:
    return width if width > widest else width * (width + 1)


class _Input(NamedTuple):
    """Facts about what a layer reads.

    Attributes:
        is_sparse: Whether it is mapped before it is aggregated.
        is_static: Whether its aggregate is there already.
        is_fixed: Whether the reader knows it from the epoch before.
        is_repeated: Whether it is the same in every epoch.
    """

    is_sparse: bool = False
    is_static: bool = False
    is_fixed: bool = False
    is_repeated: bool = False


_HIDDEN = _Input()


def describe_factors(
    model: GNN,
    options: KfacOptions,
    *,
    is_sparse: bool,
    is_static: bool,
    is_fixed: bool,
    is_repeated: bool,
) -> FactorTraffic:
    """Say which factors the gradients of a model will have.

    Args:
        model: Model to train.
        options: Settings of K-FAC.
        is_sparse: Whether input is, or is streamed: it is mapped before it is aggregated.
        is_static: Whether the aggregate of the input is there already.
        is_fixed: Whether K-FAC looks for rows that stay the same.
        is_repeated: Whether the same input is read in every epoch, and sums of it are exact.
    """
    groups: list[FactorGroup] = []
    given = _Input(is_sparse, is_static, is_fixed, is_repeated)
    if model.typed_input is not None:
        groups += _of_linear(model.typed_input, given)
        given = _HIDDEN
    for number, conv in enumerate((*model.hidden, model.last)):
        residual = model.residuals[number] if number < len(model.hidden) else None
        residual = residual if isinstance(residual, Linear) else None
        if isinstance(conv, FusedConvolution) and _is_fused(conv, given):
            joins = number < len(model.hidden) and _joins_residual(model, number)
            groups += _of_fused(conv, residual if joins else None, given)
            residual = None if joins else residual
        else:
            groups += _of_separate(conv, given)
        if residual is not None:
            groups += _of_linear(residual, given)
        given = _HIDDEN
    return FactorTraffic(tuple(groups), options)


def _is_fused(conv: FusedConvolution, given: _Input) -> bool:
    return not given.is_sparse and conv.is_one_operation(conv.sum_map.weight)


def _joins_residual(model: GNN, number: int) -> bool:
    """Whether a residual map is a part of the layer's one operation."""
    layer = model.layer(number)
    layer = layer.inner if isinstance(layer, Recomputed) else layer
    return isinstance(layer, MappedAtOnce)


def _of_fused(
    conv: FusedConvolution, residual: Linear | None, given: _Input
) -> Iterator[FactorGroup]:
    width, out = conv.sum_map.in_channels, conv.sum_map.out_channels
    bias = conv.maps.bias
    weights = conv.sum_map.weight.numel() + bias.numel() * isinstance(bias, nn.Parameter)
    num_root = sum(part.numel() for part in conv.maps.root_parts)
    if residual is not None:
        num_root += sum(each.numel() for each in residual.parameters())
    own = Side(width, given.is_fixed, given.is_repeated)
    sums = Side(width, given.is_fixed and given.is_static, given.is_repeated)
    if not given.is_static and out <= width:
        # Sums have the factors of what is passed back; a vertex's own row those of the result.
        if num_root:
            yield FactorGroup((own, Side(out)), num_root)
        yield FactorGroup((own, Side(out)), weights)
    elif num_root:
        yield FactorGroup((own, sums, Side(out)), num_root + weights)
    else:
        yield FactorGroup((sums, Side(out)), weights)


def _of_separate(conv: nn.Module, given: _Input) -> Iterator[FactorGroup]:
    if isinstance(conv, RGCNConv):
        sides = (Side(conv.in_channels), Side(conv.out_channels))
        yield FactorGroup(sides, conv.bases.numel())
        for own, bias in zip(conv.own, conv.bias, strict=True):
            yield FactorGroup(sides, own.numel() + bias.numel())
        return
    if isinstance(conv, Linear):
        yield from _of_linear(conv, given)
        return
    bias = getattr(conv, "bias", None)
    num_more = bias.numel() if isinstance(bias, nn.Parameter) else 0
    if isinstance(conv, AttentionConvolution) and not conv.concat:
        num_more = 0
    for name, each in conv.named_children():
        # The weight of features of edges is read by other operations, and stepped by Adam.
        if isinstance(each, Linear) and name != "edge_linear":
            read = _read_by(conv, name, given)
            more = num_more if name in ("linear", "source") else 0
            yield from _of_linear(each, read, num_more=more)


def _read_by(conv: nn.Module, name: str, given: _Input) -> _Input:
    """Return the facts about the rows that a map of a layer multiplies."""
    if isinstance(conv, GINConv):
        weighs_itself = not given.is_sparse and isinstance(conv.eps, nn.Parameter)
        if name != "first" or isinstance(conv, GINEConv) or weighs_itself:
            return _HIDDEN
        return given._replace(is_fixed=given.is_fixed and given.is_sparse)
    if isinstance(conv, SAGEConv) and name == "neighbour":
        if conv.aggr == "pool":
            return _HIDDEN
        if conv.aggr == "max":
            return given._replace(is_fixed=given.is_fixed and not given.is_sparse)
    return given


def _of_linear(linear: Linear, given: _Input, *, num_more: int = 0) -> Iterator[FactorGroup]:
    count = sum(each.numel() for each in linear.parameters()) + num_more
    first = Side(linear.in_channels, given.is_fixed, given.is_repeated)
    yield FactorGroup((first, Side(linear.out_channels)), count)
