"""Blocks of parts whose roots are in any order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import make_graph

from distgnn import kernels
from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import Graph
from distgnn.edges.blocks import Csr, plan_blocks, transposed
from distgnn.edges.subgraph import keep_edges_into, restricted_blocks, sources_of
from distgnn.exchange.base import Synchronous
from distgnn.partition.assignment import Assignment
from distgnn.partition.build import build_parts


def parts_in_any_order(num_parts, *, seed=0):
    graph = make_graph(num_vertices=200, seed=seed)
    rng = np.random.default_rng(seed)
    root_part, edge_part = (
        rng.integers(0, num_parts, size).astype(np.int32)
        for size in (graph.num_vertices, graph.num_edges)
    )
    order = rng.permutation(graph.num_vertices)
    return list(build_parts(graph, Assignment(num_parts, edge_part, root_part), order=order))


def blocks_of(directions):
    return [b for direction in directions for b in vars(direction).values() if isinstance(b, Csr)]


def is_by_column_id(block):
    ids = torch.arange(block.num_columns) if block.column_id is None else block.column_id
    assert len(ids) == block.num_columns
    rows = torch.arange(block.num_rows).repeat_interleave(block.indptr.diff())
    key = rows * 1000 + ids[block.indices.long()]
    return bool((key.diff() >= 0).all())


@pytest.mark.parametrize("num_parts", [1, 4])
def test_edges_of_a_row_come_by_the_id_of_their_columns(num_parts):
    parts = parts_in_any_order(num_parts)

    def on_rank(group):
        part = parts[group.rank]
        blocks = plan_blocks(part, group)
        targets = part.global_id[: part.num_roots] % 3 == 0
        kept = keep_edges_into(part, Synchronous(group), targets)
        sources = sources_of(kept)
        setup = Synchronous(group)
        some = restricted_blocks(kept, setup, sources=sources, targets=targets, like=blocks)
        return [*blocks_of(blocks), *blocks_of(some)]

    for found in run_ranks(num_parts, on_rank):
        assert len(found) == 16
        assert all(is_by_column_id(block) for block in found)
        assert sum(block.num_edges for block in found) > 0


def dense_part(order):
    """Enough edges per row that sums go by blocks of sources."""
    rng = np.random.default_rng(1)
    dst = np.repeat(np.arange(5000), 130)
    graph = Graph(name="dense", num_vertices=5000, src=rng.integers(0, 5000, dst.size), dst=dst)
    whole = Assignment(1, np.zeros(dst.size, np.int32), np.zeros(5000, np.int32))
    return next(iter(build_parts(graph, whole, order=order)))


def test_dense_rows_are_cut_whatever_the_order_with_the_same_bits():
    order = np.random.default_rng(2).permutation(5000)
    x = torch.rand(5000, 24)

    def total(part):
        def on_rank(group):
            block = plan_blocks(part, group).forward.root_from_root
            assert block.order.describe()["is_cut"]
            out, rows = torch.empty(5000, 24), x[part.global_id].contiguous()
            kernels.spmm_sum(block, None, rows, out, accumulate=False)
            return out

        return run_ranks(1, on_rank)[0]

    assert torch.equal(total(dense_part(order)), total(dense_part(None))[torch.from_numpy(order)])


@pytest.mark.parametrize("is_undirected", [False, True])
def test_an_undirected_graph_is_held_once(is_undirected):
    graph = make_graph("random")
    if is_undirected:
        src, dst = np.concatenate([graph.src, graph.dst]), np.concatenate([graph.dst, graph.src])
        graph = replace(graph, src=src, dst=dst)
    (part,) = build_parts(graph, Assignment(1, np.zeros_like(graph.src, np.int32), roots_of(graph)))
    forward, backward = plan_blocks(part, SingleGroup())
    one, other = forward.root_from_root, backward.root_from_root
    for name in ("indptr", "indices"):
        pointers = {getattr(block, name).data_ptr() for block in (one, other)}
        assert len(pointers) == (1 if is_undirected else 2)


def roots_of(graph):
    return np.zeros(graph.num_vertices, np.int32)


def test_the_other_direction_has_the_same_edges_from_their_other_end():
    assert transposed("leaf_from_root") == "root_from_leaf"
    assert transposed("root_from_root") == "root_from_root"
    parts = parts_in_any_order(3)
    for blocks in run_ranks(3, lambda group: plan_blocks(parts[group.rank], group)):
        for name in ("root_from_root", "leaf_from_root", "root_from_leaf", "leaf_from_leaf"):
            block, other = getattr(blocks.forward, name), getattr(blocks.backward, transposed(name))
            assert torch.equal(block.indices[other.position], other.row_of_edge)
            assert torch.equal(block.row_of_edge[other.position], other.indices)
