from __future__ import annotations

import numpy as np
import pytest

from distgnn import _partitioner
from distgnn.datasets import Graph
from distgnn.partition.arcs import arcs_of
from distgnn.partition.refine import passes, refinement
from distgnn.partition.refine.passes import empty_slots, wander
from distgnn.partition.refine.placement import Limits, Placement, crowding, placement_of
from distgnn.partition.refine.scratch import Scratch, scratch_of

NUM_PARTS = 4
IMPOSSIBLE = 1 << 60


def placed(*, is_symmetric: bool, num_edges: int = 1500) -> Placement:
    generator = np.random.default_rng(0)
    one = generator.integers(0, 400, num_edges)
    near = (one + generator.integers(1, 20, num_edges)) % 400
    other = np.where(generator.random(num_edges) < 0.8, near, generator.integers(0, 400, num_edges))
    ends = [(one, other), (other, one)] if is_symmetric else [(one, other)]
    src, dst = np.concatenate(ends, axis=1)
    arcs = arcs_of(Graph(name="ring", num_vertices=400, src=src, dst=dst))
    roots = (np.arange(400) * NUM_PARTS // 400).astype(np.int32)
    source = arcs.sources()
    return placement_of(arcs, roots[np.maximum(source, arcs.head)], roots, NUM_PARTS)


def spread(placement: Placement) -> float:
    """Sum of the roots of the units of paid slots: less is easier to empty."""
    slots = zip(placement.first, placement.used, strict=False)
    return sum(np.sqrt(placement.slot_count[f + 1 : f + u]).sum() for f, u in slots)


@pytest.mark.parametrize("is_symmetric", [True, False])
def test_plans_know_what_they_add_to_the_roots_of_slots(*, is_symmetric: bool) -> None:
    placement = placed(is_symmetric=is_symmetric)
    scratch = scratch_of(placement)
    limits = Limits(load=int(1.3 * placement.load.mean()), clones=2.0, roots=0)
    num_moved = 0
    for node in range(placement.used.size):
        begin = placement.first[node]
        for part in placement.slot_part[begin + 1 : begin + placement.used[node]].tolist():
            _partitioner.list_by_part(placement, scratch, node)
            if _partitioner.plan_slot(placement, scratch, limits, node, part, 1) == IMPOSSIBLE:
                continue
            before = spread(placement)
            added = _partitioner.added_spread(placement, scratch, node, part)
            for i in range(scratch.begin[part], scratch.end[part]):
                _partitioner.move_unit(placement, node, scratch.entry[i], scratch.target[i])
            assert spread(placement) - before == pytest.approx(added, abs=1e-9)
            num_moved += 1
    assert num_moved > 100


@pytest.mark.parametrize("is_symmetric", [True, False])
def test_wandering_saves_rows_where_no_move_saves_any(*, is_symmetric: bool) -> None:
    placement = placed(is_symmetric=is_symmetric)
    scratch = scratch_of(placement)
    limits = Limits(load=int(1.1 * placement.load.mean()), clones=1.2, roots=0)
    while empty_slots(placement, scratch, limits):
        pass
    rows = [int(placement.totals[0])]
    generator = np.random.default_rng(0)
    for _ in range(6):
        wander(placement, scratch, limits, generator)
        rows.append(int(placement.totals[0]))
        assert placement.load.max() <= limits.load
        assert crowding(placement) <= limits.clones
    assert rows == sorted(rows, reverse=True)
    assert rows[-1] < rows[0]


@pytest.mark.parametrize("num_nodes", [0, 5, 8, 30])
def test_nodes_near_each_other_are_taken_one_after_another_in_random_order(
    monkeypatch: pytest.MonkeyPatch, num_nodes: int
) -> None:
    monkeypatch.setattr(passes, "_SHUFFLED", 8)
    nodes = 3 * np.arange(num_nodes)
    orders = [passes._shuffled(nodes, np.random.default_rng(seed)) for seed in range(20)]
    for order in orders:
        assert sorted(order.tolist()) == nodes.tolist()
        for begin in range(0, num_nodes - 7, 8):
            block = np.sort(order[begin : begin + 8]) // 3
            assert block[0] % 8 == 0
            assert block.tolist() == list(range(block[0], block[0] + 8))
    if num_nodes:
        # Each place has several nodes, and each block several orders.
        assert min(len(set(place)) for place in np.stack(orders, axis=1).tolist()) > 2
        assert any((np.diff(order[:5]) < 0).any() for order in orders)


@pytest.mark.parametrize("seed", [2, 9, 16])
def test_parts_that_stay_overfull_cost_no_rows_once_passes_wander(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    src, dst = generator.integers(0, 100, (2, 300))
    # Copies of an edge that move together leave no way to get every part near the mean.
    copies = np.where(np.arange(300) < 6, 100, 1)
    graph = Graph(name="heavy", num_vertices=100, src=src.repeat(copies), dst=dst.repeat(copies))
    roots = (np.arange(100) * 8 // 100).astype(np.int32)
    arcs = arcs_of(graph)
    placement = placement_of(arcs, roots[arcs.head], roots, 8)
    limits = Limits(load=int(1.05 * placement.load.mean()), clones=1.5, roots=0)
    rows: list[int] = []

    def counted(placement: Placement, scratch: Scratch, limits: Limits) -> None:
        empty_slots(placement, scratch, limits)
        rows.append(int(placement.totals[0]))

    monkeypatch.setattr(refinement, "empty_slots", counted)
    monkeypatch.setattr(refinement, "wander", lambda *_, generator: None)
    refinement.improve(placement, limits, int(placement.totals[0]) + 200)
    assert placement.load.max() > limits.load
    assert placement.totals[0] <= rows[-1]
