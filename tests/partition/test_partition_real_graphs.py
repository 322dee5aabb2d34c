from __future__ import annotations

from pathlib import Path

import pytest

from distgnn.datasets import Graph, load
from distgnn.partition import assign
from distgnn.partition.quality import measure

NAMES = ["cora", "coauthor-physics", "amazon-computers", "facebook-pages", "minesweeper"]


@pytest.fixture(scope="module", params=NAMES)
def real_graph(request: pytest.FixtureRequest, data_dir: Path) -> Graph:
    return load(str(data_dir / f"{request.param}.npz"))


@pytest.mark.slow
@pytest.mark.parametrize("num_parts", [2, 4, 8])
def test_metis_beats_libra_beats_random(real_graph: Graph, num_parts: int) -> None:
    metis, libra, random = (
        measure(real_graph, assign(method, real_graph, num_parts))
        for method in ("metis", "libra", "random")
    )
    assert metis.halo_rows <= libra.halo_rows <= random.halo_rows
    assert metis.halo_rows <= metis.halo_rows_at_destination
    assert metis.edge_balance <= 1.105
    assert metis.vertex_balance <= 1.255
    assert libra.edge_balance <= 1.05


def test_leaves_leave_parts_with_too_many_clones(data_dir: Path) -> None:
    graph = load(str(data_dir / "facebook-pages.npz"))
    quality = measure(graph, assign("metis", graph, 64))
    assert quality.clone_balance <= 1.5
    assert quality.edge_balance <= 1.051


def test_stars_of_a_knowledge_graph_stay_whole(data_dir: Path) -> None:
    # With roots and edges in balance, thousands of rows travelled to balance edges.
    graph = load(str(data_dir / "am-kg.npz"))
    quality = measure(graph, assign("metis", graph, 4))
    assert quality.halo_rows < 200
    assert quality.edge_balance <= 1.051
