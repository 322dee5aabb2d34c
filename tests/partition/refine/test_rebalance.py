from __future__ import annotations

import numpy as np

from distgnn.datasets import Graph
from distgnn.partition.arcs import undirected
from distgnn.partition.refine.rebalance import rebalance


def path(num_vertices: int) -> Graph:
    ends = np.arange(num_vertices - 1)
    return Graph(name="path", num_vertices=num_vertices, src=ends, dst=ends + 1)


def test_an_overfull_part_gives_up_the_vertices_at_its_border() -> None:
    part = np.repeat(np.array([0, 1], np.int32), [30, 10])
    size = np.ones((40, 1))
    balanced = rebalance(undirected(path(40)), part, size, np.array([22.0]), np.zeros((2, 1)))
    assert np.array_equal(balanced, np.repeat([0, 1], [22, 18]))


def test_parts_below_the_limits_are_left_alone() -> None:
    part = np.repeat(np.array([0, 1], np.int32), [22, 18])
    limits = np.array([22.0])
    same = rebalance(undirected(path(40)), part, np.ones((40, 1)), limits, np.zeros((2, 1)))
    assert np.array_equal(same, part)
    assert same is not part


def test_fixed_loads_count() -> None:
    part = np.repeat(np.array([0, 1], np.int32), [20, 20])
    fixed = np.array([[5.0], [-5.0]])
    moved = rebalance(undirected(path(40)), part, np.ones((40, 1)), np.array([21.0]), fixed)
    assert np.count_nonzero(moved == 0) == 16


def test_two_constraints_hold_at_once() -> None:
    generator = np.random.default_rng(0)
    src, dst = generator.integers(0, 300, (2, 1500))
    graph = Graph(name="g", num_vertices=300, src=src, dst=dst)
    size = np.stack([np.ones(300), generator.integers(1, 9, 300)], axis=1)
    limit = 1.1 * size.sum(axis=0) / 3
    part = np.minimum(generator.integers(0, 5, 300), 2).astype(np.int32)
    balanced = rebalance(undirected(graph), part, size, limit, np.zeros((3, 2)))
    loads = np.array([size[balanced == p].sum(axis=0) for p in range(3)])
    assert (loads <= limit).all()


def test_what_cannot_be_balanced_still_ends() -> None:
    part = np.zeros(3, np.int32)
    size = np.array([[10.0], [1.0], [1.0]])
    moved = rebalance(undirected(path(3)), part, size, np.array([6.0]), np.zeros((2, 1)))
    assert moved.shape == (3,)
