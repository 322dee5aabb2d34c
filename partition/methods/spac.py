"""SPAC: a vertex-cut by METIS itself, on the graph whose vertices are split into paths."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from distgnn.datasets.graph import Graph
from distgnn.partition.arcs import Adjacency
from distgnn.partition.assignment import Assignment
from distgnn.partition.methods.hdrf import stream_rest
from distgnn.partition.methods.links import Neighbors, incidence_of, links_of
from distgnn.partition.methods.metis_library import part_graph
from distgnn.partition.roots import choose_roots
from distgnn.partition.stream import edge_cap, shuffled_links, spill

UNPLACED = -1


def assign(
    graph: Graph, num_parts: int, *, seed: int = 0, edge_balance: float = 1.05
) -> Assignment:
    """Partition the links by METIS, neighbours on the path that each vertex splits into.

    A vertex of degree d becomes a path of d vertices, one for each of its links. Links must not be
    cut, so the two ends of one merge, and what METIS cuts are paths: one cut is one clone more. It
    takes as many vertices as there are links, and twice as many edges. That is several times the
    memory and the time of METIS on the graph itself.

    Args:
        graph: The graph.
        num_parts: At least 1.
        seed: Seed of METIS.
        edge_balance: Largest part's edges over the mean, rounded up to whole edges. METIS aims at
            1.03; edges above the cap move to the least loaded parts.

    Returns:
        The assignment.

    Raises:
        InputError: If edge_balance is below 1.

    References:
        Li, Geda, Hayes, Chen, Chaudhari, Zhang and Szegedy, "A simple yet effective balanced edge
        partition model for parallel computing", SIGMETRICS 2017; Schlag, Schulz, Seemaier and
        Strash, "Scalable edge partitioning", ALENEX 2019.
    """
    cap = edge_cap(graph.num_edges, num_parts, edge_balance)
    links = links_of(graph)
    link_part = np.zeros(links.low.size, np.int32)
    if num_parts > 1 and links.low.size > 0:
        link_part = part_graph(
            _paths(links), num_parts, vertex_weight=links.weight, seed=seed, objective="cut"
        )
    # To METIS a self-loop is a vertex without edges, to be put anywhere.
    link_part[links.low == links.high] = UNPLACED
    edge_part = links.to_edges(link_part)
    is_placed = edge_part != UNPLACED
    order = shuffled_links(graph, seed)
    order = np.cumsum(is_placed)[order[is_placed[order]]] - 1
    edge_part[is_placed] = spill(edge_part[is_placed], order, num_parts, cap)
    stream_rest(graph, edge_part, num_parts, cap=cap, seed=seed)
    return Assignment(num_parts, edge_part, choose_roots(graph, edge_part, num_parts))


def _paths(links: Neighbors) -> Adjacency:
    """Join the links that follow each other in the list of a vertex."""
    incidence = incidence_of(links, np.ones(links.num_vertices, bool))
    is_last = np.zeros(incidence.link.size + 1, bool)
    is_last[incidence.start - 1] = True
    is_joined = np.flatnonzero(~is_last[:-1])
    one, other = incidence.link[is_joined], incidence.link[is_joined + 1]
    num_links = links.low.size
    one_way = sp.coo_matrix((np.ones(one.size, np.int64), (one, other)), shape=(num_links,) * 2)
    both_ways = (one_way + one_way.T).tocsr()
    both_ways.sort_indices()
    return Adjacency(
        both_ways.indptr.astype(np.int64), both_ways.indices.astype(np.int64), both_ways.data
    )
