"""Static rows that are wide are propagated some columns at a time, with the same bits."""

from __future__ import annotations

import pytest
import torch
from graphs import cut, make_graph

from distgnn.comm.threads import run_ranks
from distgnn.exchange.base import all_reduce_bytes
from distgnn.graph import by_columns as module
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
def test_slices_have_the_bits_of_all_columns_at_once(function, dtype, num_parts):
    for found, expected, widths in propagated(num_parts, function, dtype):
        assert widths == [32, 32, 6]
        assert found.dtype == dtype
        assert torch.equal(found, expected)


def test_rows_of_few_columns_are_taken_at_once():
    for _, _, widths in propagated(2, normalised("in"), torch.float32, width=63):
        assert widths == [63]


def test_ranks_agree_where_the_cache_of_one_of_them_is_too_small(monkeypatch):
    sizes = [len(found) for found, *_ in propagated(3, normalised("in"), torch.float32)]
    assert min(sizes) < max(sizes)
    monkeypatch.setattr(module, "CACHE_BYTES", min(sizes) * 32 * 4)
    for found, expected, widths in propagated(3, normalised("in"), torch.float32):
        assert widths == [70]
        assert torch.equal(found, expected)


@pytest.mark.parametrize("num_parts", [1, 3])
def test_rows_in_half_the_bytes_travel_so_at_setup(num_parts):
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
