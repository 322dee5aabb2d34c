"""Graphs in which a walk order finds something of each kind."""

from __future__ import annotations

import numpy as np
import reference
import torch

from distgnn import kernels


def planted(num_clusters, size, degree, *, seed):
    """Communities under shuffled ids: what a walk order should find."""
    rng = np.random.default_rng(seed)
    num_rows = num_clusters * size
    rows = np.repeat(np.arange(num_rows), degree)
    inside = rows // size * size + rng.integers(0, size, rows.size)
    anywhere = rng.integers(0, num_rows, rows.size)
    sources = np.where(rng.random(rows.size) < 0.9, inside, anywhere)
    new_id = rng.permutation(num_rows)
    return reference.csr_of(new_id[sources], new_id[rows], num_rows)


def dense_graph():
    """Enough edges per row that the walk order cuts rows, and a row without any."""
    rng = np.random.default_rng(1)
    rows = np.repeat(np.arange(4999), 40)
    return reference.csr_of(rng.integers(0, 5000, rows.size), rows, 5000)


def hub_graph():
    """Row 7 has half of all edges."""
    rng = np.random.default_rng(2)
    rows = np.concatenate([np.full(60_000, 7), rng.integers(0, 900, 60_000)])
    return reference.csr_of(rng.integers(0, 1000, rows.size), rows, 1000)


GRAPHS = {
    "clustered": lambda: planted(300, 100, 6, seed=3),
    "cut": dense_graph,
    "hub": hub_graph,
    "random": lambda: reference.random_csr(300, 300, 2000, seed=4),
    "no edges": lambda: reference.random_csr(5, 5, 0, seed=5),
    "no rows": lambda: reference.csr_of(np.empty(0, np.int64), np.empty(0, np.int64), 0),
}


def tensors(graph):
    return torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices)


def walk_order_of(graph):
    return kernels.WalkOrder(*tensors(graph), num_sources=graph.indptr.size - 1)
