"""Graphs that walk orders reorder, cut by blocks of sources, or divide the heads of a row of."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from fronts import Fronts

from distgnn import kernels
from distgnn.kernels import attention

attention = Fronts(attention)

# (heads, columns of a head): 19 heads are more than are worked on at a time.
SHAPES = [(1, 3), (4, 4), (4, 7), (2, 33), (19, 2)]


def clustered_graph():
    rng = np.random.default_rng(1)
    rows = np.repeat(np.arange(30_000), 6)
    inside = rows // 100 * 100 + rng.integers(0, 100, rows.size)
    sources = np.where(rng.random(rows.size) < 0.9, inside, rng.integers(0, 30_000, rows.size))
    new_id = rng.permutation(30_000)
    return reference.csr_of(new_id[sources], new_id[rows], 30_000)


def cut_graph():
    rng = np.random.default_rng(2)
    rows = np.repeat(np.arange(4999), 20)
    return reference.csr_of(rng.integers(0, 5000, rows.size), rows, 5000)


def hub_graph():
    """Row 7 has half of all edges, and some rows have none."""
    rng = np.random.default_rng(3)
    rows = np.concatenate([np.full(40_000, 7), rng.integers(0, 900, 40_000)])
    return reference.csr_of(rng.integers(0, 1000, rows.size), rows, 1000)


GRAPHS = {"clustered": clustered_graph, "cut": cut_graph, "hub": hub_graph}
FOUND = {"clustered": "is_clustered", "cut": "is_cut", "hub": "num_long"}


@pytest.fixture(scope="module", params=GRAPHS)
def ordered(request):
    """A graph, its transpose, and the walk orders of both."""
    graph = GRAPHS[request.param]()
    num_rows = graph.indptr.size - 1
    both = graph, reference.transpose(graph, num_rows)
    walks = [
        kernels.WalkOrder(
            torch.from_numpy(part.indptr), torch.from_numpy(part.indices), num_sources=num_rows
        )
        for part in both
    ]
    assert walks[0].describe()[FOUND[request.param]]
    return *both, *walks


def outputs(
    ordered, num_heads, width, dtype, *, is_ordered, accumulate, has_own=False, stored=None
):
    """All that attention writes; rows are stored as such types: x, grad and grad_x."""
    graph, transposed, walk, t_walk = ordered
    num_rows = graph.indptr.size - 1
    generator = torch.Generator().manual_seed(4)
    score = torch.randn(5, num_rows, num_heads, generator=generator, dtype=dtype)
    x, grad, out, grad_x = torch.randn(
        4, num_rows, num_heads * width, generator=generator, dtype=dtype
    )
    if stored is not None:
        rows = x.bfloat16(), grad.bfloat16(), grad_x.bfloat16()
        x, grad, grad_x = (row.to(kind) for row, kind in zip(rows, stored, strict=True))
    maximum, denominator = score[2].clone(), score[3].abs()
    own = {}
    if has_own:
        shape = graph.indices.size, num_heads
        own["edge_score"] = torch.randn(shape, generator=generator, dtype=dtype)
        own["mask"] = attention.EdgeMask(torch.arange(shape[0]) // 2, 6, 0.4)
    attention.attend(
        torch.from_numpy(graph.indptr),
        torch.from_numpy(graph.indices),
        score[0],
        score[1],
        x,
        out=out,
        maximum=maximum,
        denominator=denominator,
        slope=0.1,
        accumulate=accumulate,
        order=walk if is_ordered else None,
        **own,
    )
    attention.finish_attention(out, maximum, denominator)
    grad_source = score[2].clone()
    edge_grad = torch.empty(graph.indices.size, num_heads, dtype=dtype)
    attention.attend_backward(
        torch.from_numpy(transposed.indptr),
        torch.from_numpy(transposed.indices),
        torch.from_numpy(transposed.position),
        score[0],
        score[1],
        log_sum=maximum,
        x=x,
        grad=grad,
        delta=score[4],
        grad_x=grad_x,
        grad_source=grad_source,
        edge_grad=edge_grad,
        slope=0.1,
        accumulate=accumulate,
        order=t_walk if is_ordered else None,
        **own,
    )
    return [out, maximum, denominator, grad_x, grad_source, edge_grad]


@pytest.mark.parametrize(
    ("dtype", "accumulate", "has_own"),
    [(torch.float32, True, False), (torch.float64, False, False), (torch.float32, True, True)],
)
def test_walk_orders_and_threads_change_no_bit_of_attention(ordered, dtype, accumulate, has_own):
    before = torch.get_num_threads()
    options = {"accumulate": accumulate, "has_own": has_own}
    for num_heads, width in SHAPES if dtype == torch.float32 else SHAPES[-1:]:
        found = []
        for num_threads, is_ordered in ((1, False), (1, True), (3, True)):
            torch.set_num_threads(num_threads)
            shape = (num_heads, width, dtype)
            found.append(outputs(ordered, *shape, is_ordered=is_ordered, **options))
            torch.set_num_threads(before)
        for other in found[1:]:
            assert all(map(torch.equal, found[0], other)), (num_heads, width)
            assert all(part.isfinite().all() for part in other)


WIDE, NARROW = torch.float32, torch.bfloat16


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(
    "stored",
    [
        (NARROW, NARROW, NARROW),
        (NARROW, WIDE, WIDE),
        (WIDE, NARROW, NARROW),
        (NARROW, NARROW, WIDE),
    ],
)
@pytest.mark.slow
def test_rows_of_bfloat16_give_the_bits_of_the_same_rows_in_float32(ordered, stored, accumulate):
    before = torch.get_num_threads()
    for num_heads, width in [*SHAPES, (1, 16), (8, 8), (3, 20)]:
        shape = (num_heads, width, torch.float32)
        options = {"accumulate": accumulate, "is_ordered": False}
        expected = outputs(ordered, *shape, **options, stored=(WIDE, WIDE, WIDE))
        expected[3] = expected[3].to(stored[2])
        for num_threads, is_ordered in ((1, False), (1, True), (3, True)):
            torch.set_num_threads(num_threads)
            options["is_ordered"] = is_ordered
            found = outputs(ordered, *shape, **options, stored=stored)
            torch.set_num_threads(before)
            for part, wanted in zip(found, expected, strict=True):
                assert torch.equal(part, wanted), (num_heads, width)
