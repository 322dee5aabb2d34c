"""Kronecker factors of the gradients of dense maps: read in backward, summed over ranks.

A map z = W x is applied once for each row of the whole graph. The loss L is the mean of N terms.
The gradient of W is the sum over rows of delta x^T, with delta = dL / dz. Its two factors are

    A = (1 / n) sum of x x^T        G = N sum of delta delta^T

over all n rows of all ranks. Each row is at one root, so both sums are those of one process. Each
delta holds 1 / N, so G needs the N: without it G is N times too small, damping outweighs it, and
the step is that of plain gradient descent.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from distgnn import kernels
from distgnn.exchange.base import all_reduce_bytes
from distgnn.kernels.dense import GradientFactor, multiply_transposed
from distgnn.ops.host_rows import HostRows
from distgnn.ops.rows import is_tensor
from distgnn.ops.sparse_rows import SparseRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch import Tensor

    from distgnn.comm.group import Group
    from distgnn.exchange.clock import Clock
    from distgnn.nn.observe import SeenMap
    from distgnn.ops.rows import Rows

PRECONDITIONER = "preconditioner"
"""Phase of a clock: factors, their decompositions, and products with these."""
CHUNK_BYTES = 1 << 24
"""Bytes of a parameter's maps that are preconditioned at once; a few copies of them are made."""

# Rows that are copied at a time, and columns of sparse rows that are dense at a time.
_COPIED_ROWS = 4096
_DENSE_COLUMNS = 32


class Key(NamedTuple):
    """Name of a factor: that of the first map that has it.

    Attributes:
        parameter: Number of the parameter.
        number: Number of the map in a parameter that holds several; 0 otherwise.
        is_output: Whether this is G; else A.
    """

    parameter: int
    number: int
    is_output: bool


class Pair(NamedTuple):
    """The factors of the gradient of a map.

    Attributes:
        a: Key of A.
        g: Key of G.
    """

    a: Key
    g: Key


class _Seen(NamedTuple):
    """Rows that a map multiplied, without keeping them alive.

    Attributes:
        rows: The rows.
        version: How often they had been changed in place.
        picked: Numbers of those that count; None for all.
    """

    rows: weakref.ref[Any]
    version: int
    picked: weakref.ref[Tensor] | None

    def is_of(self, rows: Rows, picked: Tensor | None) -> bool:
        """Return whether these are the very same, and unchanged."""
        # Not by ==, which weak references hand on to what they refer to.
        if self.rows() is not rows or self.version != _version(rows):
            return False
        if self.picked is None or picked is None:
            return self.picked is None and picked is None
        return self.picked() is picked


class _Read:
    """Sum that one rank has read of a factor since the last step.

    Attributes:
        total: (width, width) or, of a diagonal, (width,); None if it is what it was.
        count: Rows.
        is_same: Whether the rows are those of the reading before.
    """

    def __init__(self) -> None:
        self.total: Tensor | None = None
        self.count = 0
        self.is_same = True


class Reader:
    """Observer of layers that sums outer products of what they show.

    Args:
        numbers: Number of each parameter by its id.
        widest: Factors of more columns are diagonals.
        clock: Takes the time of reading as its phase `PRECONDITIONER`.
        finds_constants: Whether to look for rows that stay the same.

    Attributes:
        is_open: Whether it reads; else layers show in vain, which costs nothing.
        pairs: Factors of each map, by the numbers of its parameter and of the map; -1 for all maps
            of a parameter. They are known once backward has run.
        constants: Factors that all ranks found to be what they were; they are not summed again.
    """

    def __init__(
        self,
        numbers: Mapping[int, int],
        widest: int,
        *,
        clock: Clock,
        finds_constants: bool = True,
    ) -> None:
        self._numbers = numbers
        self._clock = clock
        self._finds_constants = finds_constants
        self._widest = widest
        self.is_open = True
        self.pairs: dict[tuple[int, int], Pair] = {}
        self.constants: set[Key] = set()
        self._read: dict[Key, _Read] = {}
        self._seen: dict[Key, _Seen] = {}

    def see(self, grad: Tensor, *maps: SeenMap) -> None:
        """Add the outer products of maps whose results were added up; see `Observer`."""
        output: Key | None = None
        for seen in maps:
            targets = [self._numbers[id(w)] for w in seen.weights if id(w) in self._numbers]
            if not targets:
                continue
            place = 0 if seen.number is None else seen.number
            several = -1 if seen.number is None else seen.number
            a = Key(targets[0], place, is_output=False)
            output = output or a._replace(is_output=True)
            for target in targets:
                self.pairs[target, several] = Pair(a, output)
            if self.is_open:
                self._add(a, seen.rows, seen.picked)
        if self.is_open and output is not None:
            self._add(output, grad.contiguous(), None)

    def _add(self, key: Key, rows: Rows, picked: Tensor | None) -> None:
        with self._clock.timed(PRECONDITIONER):
            self._read_one(key, rows, picked)

    def _read_one(self, key: Key, rows: Rows, picked: Tensor | None) -> None:
        is_new = key not in self._read
        read = self._read.setdefault(key, _Read())
        may_stay = is_new and not key.is_output and self._finds_constants
        read.is_same &= may_stay and self._is_same(key, rows, picked)
        if read.is_same and key in self.constants:
            return
        read.count += rows.shape[0] if picked is None else len(picked)
        total = outer_products(rows, picked, is_diagonal=rows.shape[1] > self._widest)
        read.total = total if read.total is None else read.total + total

    def _is_same(self, key: Key, rows: Rows, picked: Tensor | None) -> bool:
        """Return whether a map multiplies the very rows of the last reading, and remember them."""
        is_fixed = not is_tensor(rows) or not rows.requires_grad
        before = self._seen.get(key)
        self._seen[key] = _Seen(
            weakref.ref(rows), _version(rows), None if picked is None else weakref.ref(picked)
        )
        return is_fixed and before is not None and before.is_of(rows, picked)

    def forget(self) -> None:
        """Forget what was read, as a checkpoint brings other factors."""
        self.constants.clear()
        self._read.clear()
        self._seen.clear()

    def take(self) -> dict[Key, _Read]:
        """Return what was read since the last call, in an order that all ranks share."""
        read, self._read = self._read, {}
        return dict(sorted(read.items()))


def _version(rows: Rows) -> int:
    values = rows.values if isinstance(rows, SparseRows) else rows
    return values._version if isinstance(values, torch.Tensor) else 0


def outer_products(rows: Rows, picked: Tensor | None, *, is_diagonal: bool) -> Tensor:
    """Return the sum of x x^T over rows, with the same bits for any number of threads.

    Args:
        rows: (num_rows, width).
        picked: (num_picked,) int32. Rows that count; None for all.
        is_diagonal: Whether only the diagonal is wanted.

    Returns:
        (width, width), or (width,) of a diagonal; float64 for rows in float64, else float32.
    """
    if isinstance(rows, SparseRows):
        assert picked is None, "sparse rows are picked after they were mapped"
        return _of_sparse(rows, is_diagonal=is_diagonal)
    width = rows.shape[1]
    dtype = torch.float64 if rows.dtype == torch.float64 else torch.float32
    shape = (width,) if is_diagonal else (width, width)
    total = torch.zeros(shape, dtype=dtype, device=rows.device)
    for part in _parts(rows, picked, is_copied=is_diagonal):
        share = torch.empty_like(total)
        if is_diagonal:
            multiply_transposed([], part.to(dtype).square(), bias_gradient=share)
        else:
            multiply_transposed([GradientFactor(part, share)], part)
        total += share
    return total


def _parts(rows: Rows, picked: Tensor | None, *, is_copied: bool) -> Iterator[Tensor]:
    """Yield the rows that count, some at a time where they have to be copied."""
    if isinstance(rows, HostRows):
        assert picked is None, "rows in host memory are picked once"
        for _, part in rows.on_device():
            yield part
        return
    assert is_tensor(rows), "these are the kinds of rows"
    if picked is None:
        whole = rows.contiguous()
        yield from torch.split(whole, _COPIED_ROWS) if is_copied else (whole,)
        return
    for numbers in torch.split(picked, _COPIED_ROWS):
        part = rows.new_empty((len(numbers), rows.shape[1]))
        kernels.gather_rows(rows.contiguous(), numbers, part)
        yield part


def _of_sparse(rows: SparseRows, *, is_diagonal: bool) -> Tensor:
    """Return X^T X as weighted sums of a few dense columns of X at a time."""
    num_rows, width = rows.shape
    if is_diagonal:
        total = rows.values.new_zeros((width, 1))
        squares, ones = rows.t_values.square(), rows.values.new_ones((num_rows, 1))
        kernels.spmm_sum(rows.t_entries, squares, ones, total, accumulate=False)
        return total[:, 0]
    total = rows.values.new_zeros((width, width))
    for start in range(0, width, _DENSE_COLUMNS):
        stop = min(start + _DENSE_COLUMNS, width)
        first, last = int(rows.t_indptr[start]), int(rows.t_indptr[stop])
        column = torch.repeat_interleave(
            torch.arange(stop - start, device=rows.device), rows.t_indptr[start : stop + 1].diff()
        )
        dense = rows.values.new_zeros((num_rows, stop - start))
        dense.index_put_((rows.t_rows[first:last].long(), column), rows.t_values[first:last])
        made = dense.new_empty((width, stop - start))
        kernels.spmm_sum(rows.t_entries, rows.t_values, dense, made, accumulate=False)
        total[:, start:stop] = made
    return total


class Factors:
    """The factors of all maps, the same on every rank.

    Args:
        reader: Observer of the layers.
        group: All ranks.
        decay: Share of an older factor that stays when a new one is read.

    Attributes:
        values: Each factor: (width, width), of which the upper triangle counts; or (width,).
        bytes_sent: Payload bytes that this rank sent.
    """

    def __init__(self, reader: Reader, group: Group, decay: float) -> None:
        self._reader = reader
        self._group = group
        self._decay = decay
        self.values: dict[Key, Tensor] = {}
        self.bytes_sent = 0

    def update(self, num_terms: float) -> None:
        """Sum what all ranks have read and take it in; collective.

        Each factor is summed alone. The order in which a sum adds up its elements depends on where
        they lie in it, and a run that goes on reads those again that were constant before.

        Args:
            num_terms: N, the number of terms that the loss is the mean of.
        """
        read = self._reader.take()
        if not read:
            return
        constants = self._reader.constants
        changed = self._sum(read, [key for key in read if key not in constants], num_terms)
        # One that is constant no more was not sent; its older value serves until the next reading.
        constants -= changed
        constants.update(key for key in read if key not in changed)

    def _sum(self, read: dict[Key, _Read], keys: list[Key], num_terms: float) -> set[Key]:
        """Take in some factors; return those whose rows changed on any rank."""
        totals = [_packed(total) for key in keys if (total := read[key].total) is not None]
        assert len(totals) == len(keys), "what is not constant was read"
        about = [[each.count, not each.is_same] for each in read.values()]
        table = torch.tensor(about, dtype=torch.float32, device=self._group.device)
        if self._group.size > 1:
            for each in (table, *totals):
                self._group.all_reduce(each)
            num_bytes = sum(each.nbytes for each in (table, *totals))
            self.bytes_sent += all_reduce_bytes(num_bytes, self._group.size)
        rows = dict(zip(read, table.tolist(), strict=True))
        for key, total in zip(keys, totals, strict=True):
            scale = num_terms if key.is_output else 1 / max(rows[key][0], 1.0)
            own = read[key].total
            assert own is not None, "it was packed above"
            self._take(key, _unpacked(total, own.shape).mul_(scale))
        return {key for key, (_, is_changed) in rows.items() if is_changed}

    def _take(self, key: Key, new: Tensor) -> None:
        old = self.values.get(key)
        if old is None or old.shape != new.shape:
            self.values[key] = new
        elif not torch.equal(old, new):  # A constant keeps its bits, and its decomposition.
            self.values[key] = torch.lerp(new, old, self._decay) if self._decay else new


def _packed(total: Tensor) -> Tensor:
    """Return the upper triangle of a symmetric matrix, or a diagonal as it is."""
    return total if total.ndim == 1 else total[_upper(len(total), total.device)]


def _unpacked(flat: Tensor, shape: torch.Size) -> Tensor:
    if len(shape) == 1:
        return flat.clone()
    matrix = flat.new_zeros(shape)
    matrix[_upper(shape[0], flat.device)] = flat
    return matrix


def _upper(width: int, device: torch.device) -> Tensor:
    return torch.ones((width, width), dtype=torch.bool, device=device).triu_()


def num_values(width: int, widest: int) -> int:
    """Return how many values of a factor travel.

    Args:
        width: Columns.
        widest: Factors of more columns are diagonals.
    """
    return width if width > widest else width * (width + 1) // 2


def connected(pairs: Iterable[Pair]) -> list[list[Key]]:
    """Divide factors into groups that no map connects.

    Args:
        pairs: Factors of each map.

    Returns:
        The groups, each in order, and in the order of their first factors.
    """
    group_of: dict[Key, list[Key]] = {}
    for a, g in sorted(pairs):
        merged = sorted({a, g, *group_of.get(a, ()), *group_of.get(g, ())})
        for key in merged:
            group_of[key] = merged
    found: dict[Key, list[Key]] = {group[0]: group for group in group_of.values()}
    return [found[key] for key in sorted(found)]
