from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import maximum_bipartite_matching

from distgnn.partition.jit import compiled
from distgnn.partition.methods.matching import (
    UNMATCHED,
    Bipartite,
    alternating_reach,
    maximum_matching,
)


def random_bipartite(seed: int, num_left: int, num_right: int, density: float) -> sp.csr_matrix:
    generator = np.random.default_rng(seed)
    return sp.csr_matrix(generator.random((num_left, num_right)) < density)


def as_bipartite(matrix: sp.csr_matrix) -> Bipartite:
    return Bipartite(
        matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.shape[1]
    )


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("num_left", "num_right"), [(40, 40), (15, 60), (60, 15)])
def test_matching_is_as_large_as_the_reference(seed: int, num_left: int, num_right: int) -> None:
    matrix = random_bipartite(seed, num_left, num_right, 0.06)
    matching = maximum_matching(as_bipartite(matrix))
    matched = np.flatnonzero(matching.left != UNMATCHED)
    assert np.array_equal(matching.right[matching.left[matched]], matched)
    assert all(matrix[left, matching.left[left]] for left in matched)
    reference = maximum_bipartite_matching(matrix)
    assert matched.size == np.count_nonzero(reference >= 0)


def test_a_long_augmenting_path_needs_no_recursion() -> None:
    length = 20_000
    # Left v meets right v and v + 1, and the last left vertex meets right 0 only.
    left = np.concatenate([np.repeat(np.arange(length), 2), [length]])
    right = np.concatenate([np.arange(2 * length) // 2 + np.arange(2 * length) % 2, [0]])
    matrix = sp.csr_matrix((np.ones(left.size), (left, right)))
    matching = maximum_matching(as_bipartite(matrix))
    assert np.count_nonzero(matching.left != UNMATCHED) == length + 1


@pytest.mark.parametrize("seed", range(20))
def test_reach_gives_a_cover_as_small_as_brute_force(seed: int) -> None:
    matrix = random_bipartite(seed, 5, 5, 0.3)
    graph = as_bipartite(matrix)
    matching = maximum_matching(graph)
    left_out, right_in = alternating_reach(graph, matching)
    cover = {("l", u) for u in np.flatnonzero(~left_out)}
    cover |= {("r", v) for v in np.flatnonzero(right_in)}
    edges = list(zip(*matrix.nonzero(), strict=True))
    # Left vertices without edges are unmatched and reached, so they are in no cover.
    assert all(("l", u) in cover or ("r", v) in cover for u, v in edges)
    ends = sorted({("l", u) for u, _ in edges} | {("r", v) for _, v in edges})
    smallest = next(
        size
        for size in range(len(ends) + 1)
        for chosen in combinations(ends, size)
        if all(("l", u) in chosen or ("r", v) in chosen for u, v in edges)
    )
    assert len(cover) == smallest == np.count_nonzero(matching.left != UNMATCHED)


def test_an_empty_graph_has_an_empty_matching() -> None:
    graph = Bipartite(np.zeros(1, np.int64), np.zeros(0, np.int32), 0)
    matching = maximum_matching(graph)
    assert matching.left.size == matching.right.size == 0


def test_functions_compile_where_no_cache_can_be_written() -> None:
    # Code without a source file is what numba finds no cache folder for.
    namespace: dict[str, Any] = {}
    exec("def double(x):\n    return 2 * x", namespace)
    assert compiled(namespace["double"])(21) == 42
