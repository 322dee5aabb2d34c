from __future__ import annotations

import hashlib

import pytest
import torch
from fronts import Fronts
from ordered_graphs import GRAPHS, tensors, walk_order_of

from distgnn import kernels
from distgnn.kernels.walk_order import WALK_ORDER_VERSION, WalkOrder, WalkOrderLayout

kernels = Fronts(kernels)


def sum_with(graph, walk):
    num_rows = graph.indptr.size - 1
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(num_rows, 20, generator=generator)
    weight = torch.randn(graph.indices.size, generator=generator)
    factor = torch.randn(num_rows, generator=generator)
    out = torch.empty_like(x)
    kernels.spmm_sum(
        *tensors(graph), weight, x, out, accumulate=False, row_factor=factor, order=walk
    )
    return out


def same(left: WalkOrderLayout, right: WalkOrderLayout) -> bool:
    arrays = all(torch.equal(a, b) for a, b in zip(left[:3], right[:3], strict=True))
    return arrays and left[3:] == right[3:]


@pytest.mark.parametrize("case", GRAPHS)
def test_a_restored_walk_order_is_the_walk_order_that_was_kept(case):
    graph = GRAPHS[case]()
    walk = walk_order_of(graph)
    restored = WalkOrder.restore(*tensors(graph), walk.layout())
    assert same(restored.layout(), walk.layout())
    assert restored.describe() == walk.describe()
    assert torch.equal(sum_with(graph, restored), sum_with(graph, walk))


@pytest.mark.parametrize("clusters", [True, False])
@pytest.mark.parametrize("blocks", [True, False])
def test_a_walk_order_does_what_it_is_told_and_changes_no_bit(clusters, blocks):
    graph = GRAPHS["cut"]()
    walk = WalkOrder(*tensors(graph), num_sources=5000, clusters=clusters, blocks=blocks)
    found = walk.describe()
    assert (found["is_clustered"], found["is_cut"]) == (clusters, blocks)
    assert torch.equal(sum_with(graph, walk), sum_with(graph, None))
    assert same(WalkOrder.restore(*tensors(graph), walk.layout()).layout(), walk.layout())


def altered(layout, name, position, value):
    values = getattr(layout, name).clone()
    values[position] = value
    return layout._replace(**{name: values})


def swapped(layout, left, right):
    """Two segments change places with their lengths, across tasks."""
    row, length = layout.row.clone(), layout.begin.diff()
    row[[left, right]] = row[[right, left]]
    length[[left, right]] = length[[right, left]]
    begin = torch.cat([layout.begin[:1], length.cumsum(0)])
    return layout._replace(row=row, begin=begin)


BIG = 2**62
DAMAGES = {
    "a row beyond the graph": (lambda kept: altered(kept, "row", 0, 5000), "names a row"),
    "a negative row": (lambda kept: altered(kept, "row", 0, -1), "names a row"),
    "a row twice": (lambda kept: altered(kept, "row", 1, int(kept.row[0])), "not the edges of"),
    "a row in two tasks": (lambda kept: swapped(kept, 0, -1), "its tasks share a row"),
    "segments that overlap": (lambda kept: altered(kept, "begin", 3, BIG), "its segments overlap"),
    "a negative length": (lambda kept: altered(kept, "begin", 3, -BIG), "its segments overlap"),
    "edges left out": (lambda kept: altered(kept, "begin", -1, 5), "it leaves edges out"),
    "a late start": (lambda kept: altered(kept, "begin", 0, 1), "it leaves edges out"),
    "tasks that overlap": (lambda kept: altered(kept, "task", 1, BIG), "its tasks overlap"),
    "a segment in no task": (lambda kept: altered(kept, "task", -1, 4), "leave segments out"),
    "too many long rows": (lambda kept: kept._replace(num_long=BIG), "long rows are no tasks"),
    "negative long rows": (lambda kept: kept._replace(num_long=-1), "long rows are no tasks"),
    "no tasks at all": (lambda kept: kept._replace(task=kept.task[:0]), "task is empty"),
    "a start too many": (
        lambda kept: kept._replace(begin=torch.cat([kept.begin, kept.begin[-1:]])),
        "begin has the wrong length",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_layout_that_is_not_of_the_graph_is_refused(damage):
    graph = GRAPHS["cut"]()
    change, message = DAMAGES[damage]
    with pytest.raises(ValueError, match=message):
        WalkOrder.restore(*tensors(graph), change(walk_order_of(graph).layout()))


def test_a_layout_without_a_segment_for_an_empty_row_is_refused():
    """The row's sum would never be written."""
    graph = GRAPHS["cut"]()
    kept = walk_order_of(graph).layout()
    empty = int((kept.begin.diff() == 0).nonzero()[0])
    keep = torch.arange(len(kept.row)) != empty
    task = torch.where(kept.task > empty, kept.task - 1, kept.task)
    begin = torch.cat([kept.begin[:1], kept.begin.diff()[keep].cumsum(0)])
    with pytest.raises(ValueError, match="the layout is not of this graph: it leaves edges out"):
        WalkOrder.restore(
            *tensors(graph), kept._replace(row=kept.row[keep], begin=begin, task=task)
        )


def test_a_layout_of_another_graph_is_refused():
    graph, other = GRAPHS["clustered"](), GRAPHS["hub"]()
    with pytest.raises(ValueError, match="the layout is not of this graph"):
        WalkOrder.restore(*tensors(other), walk_order_of(graph).layout())


def test_walk_orders_change_only_together_with_their_version():
    """Those on disk are named by the version: under the same one they would be kept for ever."""
    digest = hashlib.sha256()
    for case in GRAPHS:
        layout = walk_order_of(GRAPHS[case]()).layout()
        for values in layout[:3]:
            digest.update(values.numpy().tobytes())
    known = {1: "c1bd589ee3f21e97"}
    assert known.get(WALK_ORDER_VERSION) == digest.hexdigest()[:16], (
        "raise WALK_ORDER_VERSION and note it here"
    )
