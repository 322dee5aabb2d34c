from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from fronts import Fronts
from ordered_graphs import GRAPHS, dense_graph, hub_graph, planted, tensors, walk_order_of

from distgnn import kernels
from distgnn.kernels import maxima

kernels = Fronts(kernels)
maxima = Fronts(maxima)

WIDTHS = [1, 3, 7, 16, 33, 100, 602]


FOUND = {
    "clustered": {"is_clustered": True, "is_cut": False, "num_long": 0},
    "cut": {"is_clustered": False, "is_cut": True, "num_long": 0},
    "hub": {"is_cut": False, "num_long": 1},
    "random": {"is_clustered": False, "is_cut": False, "num_long": 0},
}


@pytest.mark.parametrize("case", FOUND)
def test_a_walk_order_finds_what_the_graph_has(case):
    found = walk_order_of(GRAPHS[case]()).describe()
    assert {name: found[name] for name in FOUND[case]} == FOUND[case]


def test_clusters_lower_the_number_of_sources_per_stretch():
    found = walk_order_of(planted(200, 400, 20, seed=6)).describe()
    assert found["ordered_sources_per_edge"] < 0.5 * found["sources_per_edge"]


def test_a_walk_order_is_the_same_every_time():
    graph = planted(300, 100, 6, seed=3)
    assert walk_order_of(graph).describe() == walk_order_of(graph).describe()


@pytest.mark.parametrize("case", GRAPHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_ordered_sum_has_the_bits_of_an_unordered_one(case, dtype, num_threads):
    graph = GRAPHS[case]()
    walk, num_rows = walk_order_of(graph), graph.indptr.size - 1
    generator = torch.Generator().manual_seed(7)
    weight = torch.randn(graph.indices.size, generator=generator, dtype=dtype)
    factor = torch.randn(num_rows, generator=generator, dtype=dtype)
    for width in WIDTHS if num_rows < 2000 else [7, 33]:
        x = torch.randn(num_rows, width, generator=generator, dtype=dtype)
        start = torch.randn(num_rows, width, generator=generator, dtype=dtype)
        for edge, row, accumulate in (
            (None, None, False),
            (weight, None, True),
            (None, factor, False),
        ):
            plain, ordered = start.clone(), start.clone()
            for out, chosen in ((plain, None), (ordered, walk)):
                kernels.spmm_sum(
                    *tensors(graph),
                    edge,
                    x,
                    out,
                    accumulate=accumulate,
                    row_factor=row,
                    order=chosen,
                )
            assert torch.equal(plain, ordered), (width, accumulate)


@pytest.mark.parametrize("case", GRAPHS)
@pytest.mark.parametrize("is_max", [True, False])
def test_a_ordered_extreme_has_the_bits_of_an_unordered_one(case, is_max, num_threads):
    graph = GRAPHS[case]()
    walk, num_rows = walk_order_of(graph), graph.indptr.size - 1
    for width in WIDTHS if num_rows < 2000 else [7, 33]:
        x = torch.randn(num_rows, width, generator=torch.Generator().manual_seed(8))
        states = []
        for chosen in (None, walk):
            out, source = torch.empty_like(x), torch.empty(x.shape, dtype=torch.int32)
            maxima.spmm_extreme(*tensors(graph), x, out, source=source, is_max=is_max, order=chosen)
            states.append((out, source))
        assert torch.equal(states[0][0], states[1][0])
        assert torch.equal(states[0][1], states[1][1])


@pytest.mark.parametrize("width", WIDTHS)
def test_a_hub_row_with_half_of_all_edges_has_the_sum_of_the_reference(width, num_threads):
    graph = hub_graph()
    x = np.random.default_rng(9).standard_normal((1000, width)).astype(np.float32)
    out = torch.empty(1000, width)
    kernels.spmm_sum(
        *tensors(graph),
        None,
        torch.from_numpy(x),
        out,
        accumulate=False,
        order=walk_order_of(graph),
    )
    hub = x[graph.indices[graph.indptr[7] : graph.indptr[8]]]
    np.testing.assert_array_equal(out[7].numpy(), np.add.accumulate(hub, axis=0)[-1])


def test_a_walk_order_of_fewer_rows_than_sources_only_divides_the_work():
    graph = reference.random_csr(30, 500, 900, seed=10)
    walk = kernels.WalkOrder(*tensors(graph), num_sources=500)
    assert not walk.describe()["is_clustered"]
    x = torch.randn(500, 20, generator=torch.Generator().manual_seed(11))
    plain, ordered = torch.empty(30, 20), torch.empty(30, 20)
    kernels.spmm_sum(*tensors(graph), None, x, plain, accumulate=False)
    kernels.spmm_sum(*tensors(graph), None, x, ordered, accumulate=False, order=walk)
    assert torch.equal(plain, ordered)


def test_rows_that_ascend_by_other_ids_are_cut_by_them():
    graph = dense_graph()
    number = np.random.default_rng(5).permutation(5000).astype(np.int32)
    indptr, indices = torch.from_numpy(graph.indptr), torch.from_numpy(number[graph.indices])
    source_id = torch.from_numpy(np.argsort(number) * 10)
    assert not kernels.WalkOrder(indptr, indices, num_sources=5000).describe()["is_cut"]
    walk = kernels.WalkOrder(indptr, indices, num_sources=5000, source_id=source_id)
    assert walk.describe() | {"sources_per_edge": 0} == walk_order_of(graph).describe() | {
        "sources_per_edge": 0
    }
    x = torch.rand(5000, 33)
    plain, ordered = torch.empty(5000, 33), torch.empty(5000, 33)
    kernels.spmm_sum(indptr, indices, None, x, plain, accumulate=False)
    kernels.spmm_sum(indptr, indices, None, x, ordered, accumulate=False, order=walk)
    assert torch.equal(plain, ordered)


def test_a_walk_order_refuses_ids_of_other_sources():
    graph = dense_graph()
    with pytest.raises(
        ValueError, match="rank has the wrong number of sources, got 4999, expected"
    ):
        kernels.WalkOrder(*tensors(graph), num_sources=5000, source_id=torch.arange(4999))
    with pytest.raises(TypeError, match=r"source_id must be torch\.int64, got torch\.int32"):
        kernels.WalkOrder(*tensors(graph), num_sources=5000, source_id=torch.arange(5000).int())


def test_a_walk_order_of_another_graph_is_refused():
    graph, other = GRAPHS["random"](), reference.random_csr(300, 300, 1999, seed=4)
    out = torch.empty(300, 4)
    with pytest.raises(ValueError, match="is of another graph: edges, got 1999, expected 2000"):
        kernels.spmm_sum(
            *tensors(graph), None, out, out.clone(), accumulate=False, order=walk_order_of(other)
        )
    smaller = reference.random_csr(299, 299, 2000, seed=4)
    with pytest.raises(ValueError, match="is of another graph: rows, got 299, expected 300"):
        kernels.spmm_sum(
            *tensors(graph), None, out, out.clone(), accumulate=False, order=walk_order_of(smaller)
        )


def test_a_walk_order_refuses_an_index_beyond_the_sources():
    indptr, indices = torch.tensor([0, 1]), torch.tensor([3], dtype=torch.int32)
    with pytest.raises(ValueError, match="indices must be below num_sources, got 3, expected less"):
        kernels.WalkOrder(indptr, indices, num_sources=3)


def test_the_roof_reads_every_row_once_per_edge():
    graph = GRAPHS["random"]()
    x, out = torch.ones(300, 40), torch.zeros(300, 16)
    kernels.gather_roof(*tensors(graph), x, out, order=walk_order_of(graph))
    # 40 columns are three vectors of 16, the last of which overlaps its neighbour.
    assert out.sum().item() == 2000 * 48


def test_the_roof_refuses_arrays_that_do_not_fit():
    graph = tensors(GRAPHS["random"]())
    with pytest.raises(ValueError, match="the width must be at least 16"):
        kernels.gather_roof(*graph, torch.ones(300, 4), torch.zeros(300, 16))
    with pytest.raises(ValueError, match="out has the wrong width, got 4, expected 16"):
        kernels.gather_roof(*graph, torch.ones(300, 16), torch.zeros(300, 4))
    with pytest.raises(ValueError, match="out has the wrong number of rows, got 2, expected 300"):
        kernels.gather_roof(*graph, torch.ones(300, 16), torch.zeros(2, 16))
    with pytest.raises(ValueError, match="the edges read from no rows"):
        kernels.gather_roof(*graph, torch.ones(0, 16), torch.zeros(300, 16))


def test_indices_below_zero_are_refused():
    indptr, indices = torch.tensor([0, 2]), torch.tensor([0, -1], dtype=torch.int32)
    with pytest.raises(ValueError, match="below num_sources, got -1, expected at least 0"):
        kernels.WalkOrder(indptr, indices, num_sources=2)
