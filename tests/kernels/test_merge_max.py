from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from fronts import Fronts

from distgnn.kernels import maxima

maxima = Fronts(maxima)

WIDTHS = [1, 3, 7, 16, 33, 100, 602]
NUM_ROOTS, NUM_LEAVES, NUM_ROWS = 20, 12, 40


def values_with_ties(rng, shape, dtype):
    """Few distinct values, among them NaN and both infinities."""
    return rng.choice(np.array([-np.inf, -1, 0, 0, 2, np.inf, np.nan], dtype), shape)


def extreme_of(graph, x):
    shape = (graph.indptr.size - 1, x.shape[1])
    out, source = np.full(shape, 7, x.dtype), np.full(shape, 7, np.int32)
    arrays = (graph.indptr, graph.indices, x, out)
    maxima.spmm_extreme(
        *(torch.from_numpy(part) for part in arrays), source=torch.from_numpy(source), is_max=True
    )
    return out, source


def joined(blocks, offsets, order):
    """The edges of several blocks in one graph, its sources numbered by ascending id."""
    number = np.argsort(order)
    rows = [np.repeat(np.arange(NUM_ROWS), np.diff(block.indptr)) for block in blocks]
    sources = [block.indices + offset for block, offset in zip(blocks, offsets, strict=True)]
    return reference.csr_of(number[np.concatenate(sources)], np.concatenate(rows), NUM_ROWS)


def block_by_id(ids, num_edges, seed):
    """A random block whose sources ascend by id in a row, as the winner's rule wants them."""
    block = reference.random_csr(NUM_ROWS, len(ids), num_edges, seed=seed)
    rank = np.argsort(np.argsort(ids))
    rows = np.repeat(np.arange(NUM_ROWS), np.diff(block.indptr))
    order = np.lexsort((rank[block.indices], rows))
    return block._replace(indices=block.indices[order])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", WIDTHS)
def test_merged_blocks_have_the_winners_of_all_their_edges(width, dtype, num_threads):
    rng = np.random.default_rng(width)
    ids = rng.permutation(1000)[: NUM_ROOTS + NUM_LEAVES].astype(np.int64)
    blocks = [
        block_by_id(ids[:NUM_ROOTS], 90, seed=1),
        block_by_id(ids[NUM_ROOTS:], 60, seed=2),
    ]
    x = values_with_ties(rng, (ids.size, width), dtype)
    out, source = extreme_of(blocks[0], x[:NUM_ROOTS])
    other, other_source = extreme_of(blocks[1], np.ascontiguousarray(x[NUM_ROOTS:]))
    maxima.merge_max(
        *(torch.from_numpy(part) for part in (out, source, other, other_source)),
        source_id=torch.from_numpy(ids),
        first_source=NUM_ROOTS,
    )
    order = np.argsort(ids)
    whole = joined(blocks, (0, NUM_ROOTS), order)
    expected, expected_source = reference.spmm_extreme(whole, x[order], is_max=True)
    np.testing.assert_array_equal(out, expected)
    has_edge = expected_source >= 0
    np.testing.assert_array_equal(source[has_edge], order[expected_source[has_edge]])
    assert (source[~has_edge] == -1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", WIDTHS)
def test_received_rows_win_by_value_and_then_by_id(width, dtype, num_threads):
    rng = np.random.default_rng(width)
    num_received = 300
    shape = (NUM_ROWS, width)
    out = values_with_ties(rng, shape, dtype)
    source = rng.integers(0, NUM_ROOTS, shape).astype(np.int32)
    out[3], source[3] = 0, -1
    ids = 2 * rng.permutation(NUM_ROOTS)
    rows = rng.integers(0, NUM_ROWS, num_received).astype(np.int32)
    received = values_with_ties(rng, (num_received, width), dtype)
    received_id = rng.integers(0, 2 * NUM_ROOTS, received.shape)
    candidates = [
        [(out[v, j], ids[source[v, j]], source[v, j])] if source[v, j] >= 0 else []
        for v, j in np.ndindex(shape)
    ]
    for k, j in np.ndindex(received.shape):
        if received_id[k, j]:
            given = (received[k, j], received_id[k, j] - 1, -2 - k)
            candidates[rows[k] * width + j].append(given)
    maxima.merge_received_max(
        *(torch.from_numpy(part) for part in (out, source, rows, received, received_id)),
        source_id=torch.from_numpy(ids),
    )
    for (v, j), found in zip(np.ndindex(shape), candidates, strict=True):
        best = (0.0, 0, -1)
        if found:
            # Of equal values and ids the first one stays.
            best = min(found, key=lambda c: (not np.isnan(c[0]), -np.nan_to_num(c[0]), c[1]))
        np.testing.assert_array_equal(out[v, j], best[0])
        assert source[v, j] == best[2], (v, j, found)


def test_backward_gives_the_gradients_of_a_range_of_sources_to_its_rows(num_threads):
    rng = np.random.default_rng(3)
    for num_edges in (100, 4000):
        block = reference.random_csr(NUM_ROWS, NUM_LEAVES, num_edges, seed=4)
        transposed = reference.transpose(block, NUM_LEAVES)
        for width in WIDTHS:
            grad = rng.standard_normal((NUM_ROWS, width)).astype(np.float32)
            _, source = extreme_of(block, rng.standard_normal((NUM_LEAVES, width)))
            shifted = np.where(source >= 0, source + NUM_ROOTS, source)
            other = rng.integers(-9, NUM_ROOTS, source.shape).astype(np.int32)
            is_other = rng.random(source.shape) < 0.3
            mixed = np.where(is_other, other, shifted).astype(np.int32)
            out = np.full((NUM_LEAVES, width), 7, np.float32)
            arrays = (transposed.indptr, transposed.indices, mixed, grad)
            maxima.spmm_extreme_backward(
                *(torch.from_numpy(part) for part in arrays),
                out=torch.from_numpy(out),
                accumulate=False,
                first_source=NUM_ROOTS,
            )
            kept = np.where(is_other, -1, source)
            expected = reference.spmm_extreme_backward(kept, grad, np.zeros_like(out))
            np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": torch.zeros(3, 2).int()}, "source has the wrong number of rows, got 3"),
        ({"other": torch.zeros(2, 3)}, "other has the wrong width, got 3, expected 2"),
        ({"other_source": torch.zeros(3, 2).int()}, "other_source has the wrong number of rows"),
    ],
)
def test_merging_blocks_that_do_not_fit_is_refused(changes, message):
    given = {
        "out": torch.zeros(2, 2),
        "source": torch.zeros(2, 2).int(),
        "other": torch.zeros(2, 2),
        "other_source": torch.zeros(2, 2).int(),
        "source_id": torch.zeros(2).long(),
        "first_source": 0,
    }
    with pytest.raises(ValueError, match=message):
        maxima.merge_max(**(given | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": torch.zeros(3, 2).int()}, "source has the wrong number of rows, got 3"),
        ({"rows": torch.zeros(3).int()}, "rows has the wrong length, got 3, expected 4"),
        ({"received": torch.zeros(4, 3)}, "received has the wrong width, got 3, expected 2"),
        ({"received_id": torch.zeros(4, 3).long()}, "received_id has the wrong width, got 3"),
        (
            {"out": torch.zeros(0, 2), "source": torch.zeros(0, 2).int()},
            "the rows received go to no rows",
        ),
    ],
)
def test_merging_received_rows_that_do_not_fit_is_refused(changes, message):
    given = {
        "out": torch.zeros(2, 2),
        "source": torch.zeros(2, 2).int(),
        "rows": torch.zeros(4).int(),
        "received": torch.zeros(4, 2),
        "received_id": torch.zeros(4, 2).long(),
        "source_id": torch.zeros(2).long(),
    }
    with pytest.raises(ValueError, match=message):
        maxima.merge_received_max(**(given | changes))
