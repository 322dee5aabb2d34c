"""Kernels once more: plain numpy, one row after the other, slow and obviously right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Csr(NamedTuple):
    """Row v lists indices[indptr[v] : indptr[v + 1]]; position[k] is edge k in another order."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    position: NDArray[np.int64]


def random_csr(num_rows: int, num_sources: int, num_edges: int, *, seed: int) -> Csr:
    """A graph with duplicate edges, sources ascending in a row, and no edge into the last row."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, max(num_rows - 1, 1), num_edges)
    sources = rng.integers(0, num_sources, num_edges) if num_edges else np.empty(0, np.int64)
    return csr_of(sources, rows, num_rows)


def csr_of(sources: NDArray[Any], rows: NDArray[Any], num_rows: int) -> Csr:
    order = np.lexsort((sources, rows))
    counts = np.bincount(rows, minlength=num_rows)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Csr(indptr, sources[order].astype(np.int32), order.astype(np.int64))


def transpose(graph: Csr, num_sources: int) -> Csr:
    rows = np.repeat(np.arange(graph.indptr.size - 1), np.diff(graph.indptr))
    return csr_of(rows, graph.indices.astype(np.int64), num_sources)


def spmm_sum(
    graph: Csr, weight: NDArray[Any] | None, x: NDArray[Any], start: NDArray[Any]
) -> NDArray[Any]:
    out = start.copy()
    for row in range(out.shape[0]):
        for k in range(graph.indptr[row], graph.indptr[row + 1]):
            term = x[graph.indices[k]]
            out[row] += term if weight is None else weight[k] * term
    return out


def scatter_add_rows(x: NDArray[Any], rows: NDArray[Any], start: NDArray[Any]) -> NDArray[Any]:
    out = start.copy()
    for k in range(x.shape[0]):
        out[rows[k]] += x[k]
    return out


_WORD = 2**64 - 1


def _mix64(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return z ^ (z >> 31)


def dropout_hash(seed: int, row_key: int, column: int) -> int:
    """The 32 bits that decide on an entry."""
    mixed = _mix64((seed + 0x9E3779B97F4A7C15) & _WORD)
    bits = _mix64((mixed + row_key * 0x9E3779B97F4A7C15) & _WORD)
    low, high = bits & 0xFFFFFFFF, bits >> 32
    h = (column * 0x9E3779B9 + low) & 0xFFFFFFFF
    h = ((h ^ (h >> 16)) * 0x21F0AAAD) & 0xFFFFFFFF
    h = (h + high) & 0xFFFFFFFF
    h = ((h ^ (h >> 15)) * 0x735A2D97) & 0xFFFFFFFF
    return h ^ (h >> 15)


def dropout(
    x: NDArray[Any], row_key: NDArray[Any], *, seed: int, probability: float
) -> NDArray[Any]:
    scale = x.dtype.type(1.0 / (1.0 - probability))
    out = np.zeros_like(x)
    for i, j in np.ndindex(x.shape):
        if dropout_hash(seed, int(row_key[i]), j) >= int(probability * 2**32):
            out[i, j] = x[i, j] * scale
    return out


def spmm_extreme(graph: Csr, x: NDArray[Any], *, is_max: bool) -> tuple[NDArray[Any], Any]:
    """Value and source row of the winner; the first of equal ones, a NaN before any number."""
    shape = (graph.indptr.size - 1, x.shape[1])
    value, source = np.zeros(shape, x.dtype), np.full(shape, -1, np.int32)
    for row, column in np.ndindex(shape):
        for k in range(graph.indptr[row], graph.indptr[row + 1]):
            new, old = x[graph.indices[k], column], value[row, column]
            is_better = np.isnan(new) or (new > old if is_max else new < old)
            if source[row, column] < 0 or (is_better and not np.isnan(old)):
                value[row, column], source[row, column] = new, graph.indices[k]
    return value, source


def spmm_extreme_backward(
    source: NDArray[Any], grad: NDArray[Any], start: NDArray[Any]
) -> NDArray[Any]:
    out = start.copy()
    for row, column in np.ndindex(grad.shape):
        if source[row, column] >= 0:
            out[source[row, column], column] += grad[row, column]
    return out


def round_to_bfloat16(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The nearest value with 8 significant bits, ties to even; finite numbers only."""
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16
    return rounded.astype(np.uint32).view(np.float32)


def encode_row(
    x: NDArray[np.float32], bits: int, *, row: int = 0, seed: int | None = None, exact: int = 0
) -> bytes:
    """A row on the wire; see csrc/codec.h. `row` is its number in the message."""
    coded, tail = x[: x.size - exact], x[x.size - exact :].tobytes()
    if bits == 16 or coded.size == 0:
        return _high_halves(round_to_bfloat16(coded)) + tail
    if bits == 1:
        lower, upper, is_above = _centroids(coded)
        return (
            _high_halves(round_to_bfloat16(np.array([lower, upper]))) + _packed(is_above, 1) + tail
        )
    low, unit = _grid(coded, bits)
    place = (coded - low) * (np.float32(1) / unit if unit else unit)
    whole = (place + _roundings(coded.size, bits, row, seed)).astype(np.int64)
    codes = np.minimum(whole, 2**bits - 1)
    return _high_halves(np.array([low, unit])) + _packed(codes, bits) + tail


def decode_row(code: bytes, width: int, bits: int, *, exact: int = 0) -> NDArray[np.float32]:
    """The row that arrives."""
    coded, split = width - exact, len(code) - 4 * exact
    tail = np.frombuffer(code[split:], np.float32)
    if bits == 16 or coded == 0:
        return np.concatenate([_widened(code[:split]), tail])
    first, second = _widened(code[:4])
    packed = np.frombuffer(code[4:split], np.uint8)
    parts = [(packed >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
    codes = np.concatenate(parts)[:coded].astype(np.float32)
    values = np.where(codes > 0, second, first) if bits == 1 else first + codes * second
    return np.concatenate([values, tail]).astype(np.float32)


def _high_halves(x: NDArray[np.float32]) -> bytes:
    return (x.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def _widened(halves: bytes) -> NDArray[np.float32]:
    return (np.frombuffer(halves, np.uint16).astype(np.uint32) << 16).view(np.float32)


def _packed(codes: NDArray[Any], bits: int) -> bytes:
    """Byte k holds codes k, B + k, 2 B + k, ... of B bytes, the first in the lowest bits."""
    planes = np.zeros(-(-codes.size * bits // 8) * (8 // bits), np.int64)
    planes[: codes.size] = codes
    planes = planes.reshape(8 // bits, -1) << np.arange(0, 8, bits)[:, None]
    return planes.sum(0).astype(np.uint8).tobytes()


def _grid(x: NDArray[np.float32], bits: int) -> tuple[np.float32, np.float32]:
    """The minimum rounded down to bfloat16, and a unit that reaches the maximum, rounded up."""
    levels = np.float32(2**bits - 1)
    low = -_up_to_bfloat16(-(x.min() + np.float32(0)))
    if low == x.max():
        return low, np.float32(0)
    unit = _up_to_bfloat16(max((x.max() - low) / levels, np.float32(2.0**-100)))
    if low + unit * levels < x.max():
        unit = (unit.view(np.uint32) + np.uint32(0x10000)).view(np.float32)
    return low, unit


def _up_to_bfloat16(x: np.float32) -> np.float32:
    cut = np.float32(x).view(np.uint32) & np.uint32(0xFFFF0000)
    if cut.view(np.float32) < x:
        cut += np.uint32(0x10000)
    return cut.view(np.float32)


def _roundings(num_codes: int, bits: int, row: int, seed: int | None) -> NDArray[np.float32]:
    if seed is None:
        return np.full(num_codes, 0.5, np.float32)
    shared, field = (4, 8) if bits == 2 else (2, 15)
    numbers = -(-num_codes // shared)
    hashes = np.array([dropout_hash(seed, row, number) for number in range(numbers)], np.int64)
    shifts = (0, 8, 16, 24) if bits == 2 else (0, 17)
    fields = np.concatenate([(hashes >> shift) & (2**field - 1) for shift in shifts])[:num_codes]
    return ((fields + 0.5) / 2**field).astype(np.float32)


def _centroids(x: NDArray[np.float32]) -> tuple[np.float32, np.float32, NDArray[np.bool_]]:
    """Means of the values up to the mean and above it, and which are above."""
    is_above = x > _lane_sum(x) / np.float32(x.size)
    means = [
        _lane_sum(np.where(side, x, np.float32(0))) / np.float32(max(side.sum(), 1))
        for side in (~is_above, is_above)
    ]
    lower, upper = means
    return (upper if is_above.all() else lower), (upper if is_above.any() else lower), is_above


def _lane_sum(x: NDArray[np.float32]) -> np.float32:
    """A sum in 16 lanes, which are added by halves at the end."""
    lanes = np.zeros(16, np.float32)
    for start in range(0, x.size, 16):
        lanes[: x[start : start + 16].size] += x[start : start + 16]
    for half in (8, 4, 2, 1):
        lanes = lanes[:half] + lanes[half:]
    return lanes[0]


class Attention(NamedTuple):
    """Sums (num_rows, num_heads * width), maxima and denominators (num_rows, num_heads)."""

    out: NDArray[Any]
    maximum: NDArray[Any]
    denominator: NDArray[Any]


def no_attention(num_rows: int, num_heads: int, width: int, dtype: Any) -> Attention:
    state = np.zeros((num_rows, num_heads), dtype)
    return Attention(np.zeros((num_rows, num_heads * width), dtype), state, state.copy())


def add_to_attention(state: Attention, row: int, e: Any, d: Any, x: NDArray[Any]) -> None:
    """Take one edge into the state of a row, or a state whose maxima are e: (num_heads,) each."""
    num_heads = state.maximum.shape[1]
    sums = state.out[row].reshape(num_heads, -1)
    for h in range(num_heads):
        if d[h] == 0:
            continue
        has_state = state.denominator[row, h] != 0
        largest = max(state.maximum[row, h], e[h]) if has_state else e[h]
        own = np.exp(state.maximum[row, h] - largest) if has_state else 0
        sums[h] = own * sums[h] + np.exp(e[h] - largest) * x.reshape(num_heads, -1)[h]
        state.denominator[row, h] = own * state.denominator[row, h] + np.exp(e[h] - largest) * d[h]
        state.maximum[row, h] = largest


class EdgeValues(NamedTuple):
    """Values of edges: a score for each head, and a mask of their weights."""

    score: NDArray[Any]
    key: NDArray[np.int64]
    seed: int
    probability: float

    @classmethod
    def random(cls, num_edges: int, num_heads: int, dtype: Any) -> EdgeValues:
        rng = np.random.default_rng(num_edges + num_heads)
        score = rng.standard_normal((num_edges, num_heads)).astype(dtype)
        return cls(score, rng.integers(-(2**40), 2**40, num_edges), 2**64 - 5, 0.3)

    @property
    def factor(self) -> NDArray[Any]:
        """(num_edges, num_heads). What weights are multiplied with."""
        ones = np.ones_like(self.score)
        return dropout(ones, self.key, seed=self.seed, probability=self.probability)


def attend(
    graph: Csr,
    s: NDArray[Any],
    t: NDArray[Any],
    x: NDArray[Any],
    start: Attention,
    slope: float,
    edges: EdgeValues | None = None,
) -> Attention:
    state = Attention(*(part.copy() for part in start))
    factor = None if edges is None else edges.factor
    for row in range(t.shape[0]):
        state.out[row].reshape(t.shape[1], -1)[state.denominator[row] == 0] = 0
        state.maximum[row, state.denominator[row] == 0] = 0
        for k in range(graph.indptr[row], graph.indptr[row + 1]):
            u = graph.indices[k]
            raw, carried = s[u] + t[row], x[u]
            if edges is not None:
                raw = raw + edges.score[k]
                carried = (carried.reshape(t.shape[1], -1) * factor[k, :, None]).ravel()
            e = np.where(raw > 0, raw, slope * raw)
            add_to_attention(state, row, e, np.ones_like(e), carried)
    return state


def crc32c(data: bytes) -> int:
    """CRC-32C, one bit after the other."""
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF
