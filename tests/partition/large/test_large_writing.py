from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graphs import EDGE_KIND, KINDS, make_graph
from large_graphs import open_folder, write_folder
from large_parts import NUM_PARTS, any_assignment, compare, write_from_disk

from distgnn.datasets import InputError, load
from distgnn.partition.directory.layout import MASKS
from distgnn.partition.large.writing import leaf_counts
from distgnn.partition.orders import ORDERS
from distgnn.partition.quality import measure


@pytest.mark.parametrize("kind", [*KINDS, EDGE_KIND])
def test_parts_written_from_disk_have_the_bytes_of_parts_built_in_memory(
    kind: str, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / kind, make_graph(kind))
    compare(folder, tmp_path, "source")


def test_ids_and_types_of_vertices_are_written_from_disk_too(tmp_path: Path) -> None:
    graph = make_graph("random")
    names = np.array([f"v{vertex}" for vertex in range(graph.num_vertices)])
    typed = replace(graph, vertex_id=names, vertex_type=np.arange(graph.num_vertices) % 3)
    compare(write_folder(tmp_path / "graph", typed), tmp_path, "source")
    files = {path.stem for path in (tmp_path / "streamed" / "part-0000").iterdir()}
    assert {"features", "labels", "vertex_id", "vertex_type", *MASKS} <= files


@pytest.mark.parametrize("names", [None, ("cites", "likes", "writes", "unused")])
@pytest.mark.parametrize("kind", KINDS)
def test_types_of_edges_are_written_from_disk_with_their_degrees(
    kind: str, names: tuple[str, ...] | None, tmp_path: Path
) -> None:
    graph = make_graph(kind)
    types = np.random.default_rng(0).integers(0, 3, graph.num_edges)
    typed = replace(graph, edge_type=types, relation_names=names)
    compare(write_folder(tmp_path / "graph", typed), tmp_path, "source")
    files = {path.stem for path in (tmp_path / "streamed" / "part-0000").iterdir()}
    assert {"edge_type", "relation_degree"} <= files


@pytest.mark.parametrize("order_name", [name for name in ORDERS if name != "source"])
def test_orders_found_from_disk_are_those_found_in_memory(order_name: str, tmp_path: Path) -> None:
    graph = make_graph("loops", num_vertices=120)
    compare(write_folder(tmp_path / "loops", graph), tmp_path, order_name)


def test_leaves_on_disk_are_counted_as_the_measure_counts_them(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "graph", make_graph("random"))
    assignment = any_assignment(load(folder))
    writer, _ = write_from_disk(folder, assignment, tmp_path, "source")
    counts = np.stack(list(leaf_counts(writer.work, NUM_PARTS)))
    quality = measure(load(folder), assignment)
    assert np.array_equal(counts[:, 0].sum(axis=1), quality.num_leaves)
    assert np.array_equal(counts[:, 1].T, quality.read_rows)
    assert np.array_equal(counts[:, 2], quality.write_rows)


def test_features_that_are_not_finite_are_an_input_error(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "graph", make_graph("random"))
    features = np.load(folder / "features.npy")
    features[17, 2] = np.nan
    np.save(folder / "features.npy", features)
    table = open_folder(folder).features
    assert table is not None
    assert np.array_equal(table.read(np.array([3, 0])), features[[3, 0]])
    with pytest.raises(InputError, match=r"features\.npy: row 17 has values that are NaN or inf"):
        table.read(np.array([20, 17, 3]))
