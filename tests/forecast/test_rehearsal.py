"""Samples of small graphs, which have more rows than the graphs themselves."""

from __future__ import annotations

import math

import numpy as np
from graphs import cut, make_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from training import make_config

from distgnn.datasets import Graph
from distgnn.forecast.rehearsal import _mean_seconds, on_sample
from distgnn.partition.directory.store import whole_part
from distgnn.training.data.info import DataInfo


@st.composite
def typed_graphs(draw: st.DrawFn) -> Graph:
    """Draw a small graph with types and without features."""
    num_vertices = draw(st.integers(3, 30))
    num_relations = draw(st.integers(1, 4))
    num_edges = draw(st.integers(1, 3 * num_vertices))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    src, dst = rng.integers(0, num_vertices, (2, num_edges))
    vertex = np.arange(num_vertices)
    return Graph(
        name="typed",
        num_vertices=num_vertices,
        src=src,
        dst=dst,
        edge_type=np.append(rng.integers(0, num_relations, num_edges - 1), num_relations - 1),
        labels=vertex % 2,
        train_mask=vertex % 3 == 0,
        val_mask=vertex % 3 == 1,
        test_mask=vertex % 3 == 2,
    )


@settings(max_examples=80)
@given(
    typed_graphs(),
    st.sampled_from(["rgcn", "rsage"]),
    st.integers(1, 4),
    st.booleans(),
    st.integers(1, 2),
    st.sampled_from([0, 5, 1 << 20]),
)
def test_a_sample_of_a_graph_with_learned_rows_trains(
    graph: Graph, model: str, layers: int, is_wide: bool, num_parts: int, max_edges: int
) -> None:
    config = make_config(model=model, layers=layers, receptive_field=not is_wide)
    parts = cut(graph, num_parts) if num_parts > 1 else [whole_part(graph)]
    for part in parts:
        if part.num_roots and part.num_edges:
            sample = on_sample(part, DataInfo.of(graph), config, max_edges)
            assert all(math.isfinite(sample.train_epoch()) for _ in range(2))


def test_epochs_that_read_factors_count_by_their_share_and_those_at_the_start_for_nothing():
    graph = make_graph("random")
    config = make_config(optimizer="kfac", kfac="factors=2,inverses=4,first=30")
    sample = on_sample(cut(graph, 1)[0], DataInfo.of(graph), config, 1 << 20)
    assert sample.config.kfac == "factors=2,inverses=4,first=1"
    assert _mean_seconds([9.0, 9.0, 2.0, 1.0, 4.0, 1.0, 2.0], sample.config) == 2.0
    assert _mean_seconds([9.0, 9.0, 2.0, 1.0, 1.0], make_config()) == 1.0
