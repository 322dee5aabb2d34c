"""Links that are held out of a graph, to be told from pairs of vertices that no edge joins."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from distgnn.datasets.distinct import distinct
from distgnn.datasets.errors import InputError
from distgnn.datasets.splits import parse_fractions

if TYPE_CHECKING:
    from distgnn.datasets.graph import Graph


def num_leaking(graph: Graph) -> int:
    """Count the links that a graph holds out and has edges of nevertheless, in either direction.

    Args:
        graph: A graph that holds links out.
    """
    assert graph.val_links is not None, "links are held out"
    assert graph.test_links is not None, "links are held out"
    key = np.minimum(graph.src, graph.dst) * graph.num_vertices
    key += np.maximum(graph.src, graph.dst)
    links = np.concatenate([graph.val_links, graph.test_links])
    held_out = distinct(links[:, 0] * graph.num_vertices + links[:, 1])
    # Few links beside many edges: these are looked up and not sorted.
    place = np.minimum(np.searchsorted(held_out, key), max(len(held_out) - 1, 0))
    leaking = place[held_out[place] == key] if len(held_out) else place[:0]
    return len(distinct(leaking))


def hold_out_links(graph: Graph, split: str, *, seed: int = 0) -> Graph:
    """Return the graph without the edges of random links, which it holds out.

    A link is a pair of different vertices that an edge joins, whatever its direction. All
    edges of a link that is held out go: parallel ones, those of other types, and reverse ones, for
    any of them would give it away. Self-loops stay.

    Args:
        graph: A graph that holds no links out yet.
        split: Shares of the links for training, validation and test, such as "0.9/0.05/0.05".
        seed: Seed of the choice.

    Raises:
        InputError: If the shares do not add up to 1, one selects no link, or links are held out.
    """
    fractions = parse_fractions(split)
    if not math.isclose(math.fsum(fractions), 1.0, abs_tol=1e-9):
        raise InputError(
            f"the shares of links must add up to 1, got {split!r}; write for example 0.9/0.05/0.05"
        )
    if graph.has_links:
        raise InputError(
            f"graph {graph.name!r} holds links out already; leave out its val_links and test_links "
            "or the split of edges"
        )
    low, high = np.minimum(graph.src, graph.dst), np.maximum(graph.src, graph.dst)
    key = low * graph.num_vertices + high
    links = distinct(key[low != high])
    bounds = [round(share * links.size) for share in np.cumsum(fractions)]
    if min(np.diff([0, *bounds])) < 1:
        raise InputError(
            f"the split {split} of the {links.size} links of graph {graph.name!r} leaves training, "
            "validation or test without any; give it a larger share"
        )
    order = np.random.default_rng(seed).permutation(links)
    is_kept = ~np.isin(key, order[bounds[0] :])
    held_out = np.stack(np.divmod(order, graph.num_vertices), axis=1)
    return dataclasses.replace(
        graph,
        src=graph.src[is_kept],
        dst=graph.dst[is_kept],
        edge_weight=None if graph.edge_weight is None else graph.edge_weight[is_kept],
        edge_features=None if graph.edge_features is None else graph.edge_features[is_kept],
        edge_type=None if graph.edge_type is None else graph.edge_type[is_kept],
        val_links=held_out[bounds[0] : bounds[1]],
        test_links=held_out[bounds[1] :],
    )
