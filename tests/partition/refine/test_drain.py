"""Draining of overfull parts, also where no part has room, as in windows of parts."""

from __future__ import annotations

import numpy as np
import pytest
from partition_loops import install

from distgnn.datasets import Graph
from distgnn.partition.arcs import arcs_of
from distgnn.partition.refine import drain as steps
from distgnn.partition.refine.drain import drain
from distgnn.partition.refine.placement import Limits, Placement, placement_of
from distgnn.partition.refine.scratch import scratch_of

NUM_PARTS = 5


def window(seed: int, inner: list[int], *, is_symmetric: bool) -> Placement:
    """Edges among parts that also hold so many edges of their own, which cannot move."""
    generator = np.random.default_rng(seed)
    one, other = generator.integers(0, 60, (2, 160))
    ends = [(one, other), (other, one)] if is_symmetric else [(one, other)]
    src, dst = np.concatenate(ends, axis=1)
    graph = Graph(name="window", num_vertices=60, src=src, dst=dst)
    roots = (np.arange(60) * NUM_PARTS // 60).astype(np.int32)
    arcs = arcs_of(graph)
    placement = placement_of(arcs, roots[arcs.head], roots, NUM_PARTS)
    placement.load[:] += inner
    return placement


def state(placement: Placement) -> list[list[int]]:
    arrays = placement.part, placement.load, placement.clones, placement.totals, placement.is_due
    return [array.tolist() for array in arrays]


@pytest.mark.filterwarnings("ignore:overflow encountered in scalar")
@pytest.mark.parametrize("is_symmetric", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("inner", "load"),
    [
        ([0] * NUM_PARTS, 68),
        ([0] * NUM_PARTS, 34),
        ([0] * NUM_PARTS, 10),
        ([300, 0, 0, 0, 0], 80),
        ([300, 200, 100, 0, 40], 100),
        ([300, 300, 300, 300, 300], 290),
        ([90, 90, 90, 90, 0], 95),
    ],
)
def test_steps_that_can_move_nothing_are_left_out_and_no_others(
    monkeypatch: pytest.MonkeyPatch, inner: list[int], load: int, seed: int, *, is_symmetric: bool
) -> None:
    found = []
    for is_plain in (False, True):
        placement = window(seed, inner, is_symmetric=is_symmetric)
        scratch = scratch_of(placement)
        if is_plain:
            install(monkeypatch)
            monkeypatch.setattr(steps, "_may_move", lambda *_: True)
        for _ in range(2):
            drain(placement, scratch, Limits(load, 1.1, 0), int(placement.totals[0]) + 40)
        found.append(state(placement))
    assert found[0] == found[1]


def test_parts_without_room_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = window(0, [300] * NUM_PARTS, is_symmetric=False)
    before = state(placement)
    for name in ("drain_for_free", "drain_by_slots", "begin_elsewhere", "empty_crowded"):
        monkeypatch.delattr(f"distgnn._partitioner.{name}")
    drain(placement, scratch_of(placement), Limits(290, 1.0, 0), 10**6)
    assert state(placement) == before
