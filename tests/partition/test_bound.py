"""The fewest rows for given roots, against matchings that scipy finds pair by pair of parts."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import cut, make_graph
from scipy.sparse.csgraph import maximum_bipartite_matching

from distgnn.partition.bound import least_halo_rows


def by_matchings(graph, root_part, num_parts):
    """Koenig: as many vertices cover the edges of a bipartite graph as the largest matching has."""
    total = 0
    for one in range(num_parts):
        for other in range(num_parts):
            between = (root_part[graph.src] == one) & (root_part[graph.dst] == other)
            if one != other and between.any():
                links = (graph.src[between], graph.dst[between])
                shape = (graph.num_vertices, graph.num_vertices)
                table = sp.csr_matrix((np.ones(between.sum()), links), shape=shape)
                total += int((maximum_bipartite_matching(table) >= 0).sum())
    return total


@pytest.mark.parametrize("num_parts", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", ["random", "loops", "few-edges"])
def test_the_bound_is_that_of_matchings(kind, num_parts):
    graph = make_graph(kind, num_vertices=60)
    roots = np.random.default_rng(3).integers(0, num_parts, graph.num_vertices).astype(np.int32)
    expected = by_matchings(graph, roots, num_parts)
    for how in ("anywhere", "either-end", "destination"):
        assert least_halo_rows(cut(graph, num_parts, how=how, seed=3), num_parts) == expected
