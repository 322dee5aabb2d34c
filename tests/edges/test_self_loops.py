"""Edges from vertices to themselves, added to the blocks of a part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import cut, make_graph

from distgnn.comm.threads import run_ranks
from distgnn.edges.blocks import plan_blocks
from distgnn.edges.self_loops import with_loops
from distgnn.exchange.base import Synchronous


def pairs(block):
    """(num_edges, 2): row and column of each edge, in the order of the block."""
    rows = np.repeat(np.arange(block.num_rows), block.indptr.diff().numpy())
    return np.stack([rows, block.indices.numpy()], axis=1)


def planned(kind, num_parts, **options):
    """Blocks of each part, before and after, with the loops that its roots have."""
    graph = make_graph("random" if kind == "undirected" else kind)
    if kind == "undirected":
        both = np.concatenate([graph.src, graph.dst]), np.concatenate([graph.dst, graph.src])
        graph = replace(graph, src=both[0], dst=both[1])
    parts = cut(graph, num_parts)

    def on_rank(group):
        part = parts[group.rank]
        loops = torch.from_numpy(np.array(part.self_loops))
        blocks = plan_blocks(part, group, **options)
        looped = with_loops(blocks, loops, torch.arange(part.num_roots), Synchronous(group))
        return blocks, looped, loops

    return run_ranks(num_parts, on_rank)


@pytest.mark.parametrize("num_parts", [1, 3])
@pytest.mark.parametrize("kind", ["random", "loops", "few-edges", "undirected"])
def test_roots_without_an_edge_to_themselves_get_one(kind, num_parts):
    for before, after, loops in planned(kind, num_parts):
        loopless = np.flatnonzero(loops == 0)
        added = np.stack([loopless, loopless], axis=1)
        for one, other in zip(before, after, strict=True):
            expected = np.concatenate([pairs(one.root_from_root), added])
            expected = expected[np.lexsort((expected[:, 1], expected[:, 0]))]
            np.testing.assert_array_equal(pairs(other.root_from_root), expected)
            assert other.root_from_leaf is one.root_from_leaf


@pytest.mark.parametrize("num_parts", [1, 3])
def test_new_edges_weigh_1_and_the_others_what_they_did(num_parts):
    for before, after, loops in planned("weighted", num_parts):
        for one, other in zip(before, after, strict=True):
            weights = {}
            for block in (one.root_from_root, other.root_from_root):
                order = np.lexsort((block.weight.numpy(), *pairs(block).T[::-1]))
                weights[len(weights)] = pairs(block)[order], block.weight.numpy()[order]
            is_new = np.zeros(len(weights[1][0]), dtype=bool)
            row, column = weights[1][0].T
            is_new[(row == column) & (loops.numpy()[row] == 0)] = True
            np.testing.assert_array_equal(weights[1][1][~is_new], weights[0][1])
            assert (weights[1][1][is_new] == 1).all()
            assert is_new.sum() == (loops == 0).sum() > 0


@pytest.mark.parametrize("kind", ["random", "loops", "few-edges", "undirected"])
def test_positions_count_the_new_edges(kind):
    for _, (forward, backward), _ in planned(kind, 2):
        position = backward.root_from_root.position.numpy()
        there, back = pairs(forward.root_from_root), pairs(backward.root_from_root)
        np.testing.assert_array_equal(there[position][:, ::-1], back)
        assert len(np.unique(position)) == len(there)


@pytest.mark.parametrize("has_positions", [False, True])
def test_an_undirected_graph_is_held_once(has_positions):
    ((before, (forward, backward), _),) = planned("undirected", 1, has_positions=has_positions)
    assert before.forward.root_from_root.indices is before.backward.root_from_root.indices
    assert forward.root_from_root.indices is backward.root_from_root.indices
    assert forward.root_from_root.indptr is backward.root_from_root.indptr


def test_blocks_without_positions_stay_so():
    for _, (_, backward), _ in planned("random", 2, has_positions=False):
        assert backward.root_from_root.position is None
