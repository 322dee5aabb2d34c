"""Static rows that are wide are propagated some columns at a time, with the same bits."""

from __future__ import annotations

import pytest
import torch
from graphs import cut, make_graph

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.exchange.base import all_reduce_bytes
from distgnn.graph import column_slices as module
from distgnn.graph import local_graph
from distgnn.graph.local_graph import LocalGraph
from distgnn.nn.gcn import normalised
from distgnn.nn.propagation import SGConv


class Watched:
    """A propagation that notes the widths of what it gets."""

    def __init__(self, inner):
        self.inner, self.widths = inner, []

    def __call__(self, graph, rows):
        self.widths.append(rows.shape[1])
        return self.inner(graph, rows)


def sizes(num_parts):
    """Number of rows of each rank."""
    return [part.num_roots for part in cut(make_graph("random"), num_parts)]


def propagated(num_parts, function, dtype, width=70):
    """Rows of each rank, propagated as static ones and all columns at once, and the widths."""
    parts = cut(make_graph("random"), num_parts)

    def on_rank(group):
        graph = LocalGraph.exact(parts[group.rank], group)
        generator = torch.Generator().manual_seed(group.rank)
        rows = torch.randn(graph.num_rows, width, generator=generator).to(dtype)
        watched = Watched(function)
        graph.set_static(rows)
        found = graph.propagate(watched, rows)
        assert graph.propagate(watched, rows) is found
        return found, graph.at_setup(function, rows).to(dtype), watched.widths

    return run_ranks(num_parts, on_rank)


@pytest.fixture
def fits(monkeypatch):
    """Set how many rows of a slice fit in a cache, and that 3 edges a row are enough."""

    def set_to(num_rows, least_degree=3):
        monkeypatch.setattr(module, "CACHE_BYTES", num_rows * module.SLICE_BYTES)
        monkeypatch.setattr(module, "LEAST_DEGREE", least_degree)

    return set_to


@pytest.mark.parametrize("num_parts", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "function",
    [
        normalised("in"),
        lambda graph, rows: graph.aggregate(rows, "mean"),
        lambda graph, rows: graph.aggregate(rows, "max"),
    ],
)
def test_slices_have_the_bits_of_all_columns_at_once(function, dtype, num_parts, fits):
    fits(max(sizes(num_parts)))
    columns = 64 // dtype.itemsize
    for found, expected, widths in propagated(num_parts, function, dtype):
        assert widths == [columns] * (70 // columns) + [70 % columns]
        assert found.dtype == dtype
        assert torch.equal(found, expected)


def test_rows_of_few_columns_are_taken_at_once(fits):
    fits(max(sizes(2)))
    for _, _, widths in propagated(2, normalised("in"), torch.float32, width=31):
        assert widths == [31]


def test_ranks_agree_where_the_cache_of_one_of_them_is_too_small(fits):
    assert min(sizes(3)) < max(sizes(3))
    fits(min(sizes(3)))
    for found, expected, widths in propagated(3, normalised("in"), torch.float32):
        assert widths == [70]
        assert torch.equal(found, expected)


@pytest.mark.parametrize("num_parts", [1, 3])
def test_rows_that_a_cache_holds_whole_are_taken_at_once(num_parts, fits):
    fits(5 * max(sizes(num_parts)))
    for _, _, widths in propagated(num_parts, normalised("in"), torch.float32):
        assert widths == [70]


def test_a_rank_whose_rows_fit_whole_slices_with_one_whose_rows_do_not(fits):
    fits(10)

    def on_rank(group):
        rows = torch.randn([10, 4, 0][group.rank], 32)
        widths = []
        found = module.in_slices(
            lambda some: widths.append(some.shape[1]) or some, rows, 3 * len(rows), group
        )
        assert torch.equal(found, rows)
        return widths

    assert run_ranks(3, on_rank) == [[16, 16]] * 3


def test_rows_that_few_edges_read_are_taken_at_once(fits):
    # The graph has 160 edges and 40 vertices.
    fits(40, least_degree=5)
    for _, _, widths in propagated(1, normalised("in"), torch.float32):
        assert widths == [70]


@pytest.mark.parametrize(("degree", "widths"), [(24, [32]), (48, [16, 16])])
def test_slices_begin_where_they_were_measured_to_be_faster(degree, widths, monkeypatch):
    monkeypatch.setattr(module, "CACHE_BYTES", 40 * module.SLICE_BYTES)
    found, rows = [], torch.randn(40, 32)
    module.in_slices(
        lambda some: found.append(some.shape[1]) or some, rows, degree * len(rows), SingleGroup()
    )
    assert found == widths


def test_all_slices_share_one_exchange(fits, monkeypatch):
    fits(40)
    built = []
    inner = local_graph.Synchronous
    monkeypatch.setattr(
        local_graph, "Synchronous", lambda *given, **more: built.append(0) or inner(*given, **more)
    )
    ((_, _, widths),) = propagated(1, normalised("in"), torch.float32)
    assert len(widths) == 5
    assert len(built) == 4, "those of the graph, loops, static rows, and at_setup"


@pytest.mark.parametrize("num_parts", [1, 3])
def test_rows_in_half_the_bytes_travel_so_at_setup(num_parts, fits):
    fits(max(sizes(num_parts)))
    function = SGConv(70, 3, K=2)._hops
    parts = cut(make_graph("random"), num_parts)

    def on_rank(group):
        generator = torch.Generator().manual_seed(group.rank)
        rows = torch.randn(parts[group.rank].num_roots, 70, generator=generator)
        results = []
        for dtype in (torch.float32, torch.bfloat16):
            graph = LocalGraph.exact(parts[group.rank], group)
            own = rows.bfloat16().to(dtype)
            graph.set_static(own)
            before = graph.setup_bytes_sent
            results.append((graph.propagate(function, own), graph.setup_bytes_sent - before))
        return results

    for (expected, sent), (found, sent_of_half) in run_ranks(num_parts, on_rank):
        # Each of two hops rounds to 8 bits.
        torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.01)
        agreed = all_reduce_bytes(8, num_parts)
        assert sent - agreed == 2 * (sent_of_half - agreed)
        assert num_parts == 1 or sent > agreed
