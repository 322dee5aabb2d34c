"""Graphs as array folders, and what was made of them, for tests of partitioning from disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets import Graph
from distgnn.datasets.npz import arrays_of
from distgnn.partition.arcs import undirected
from distgnn.partition.assignment import Assignment
from distgnn.partition.directory.store import read_manifest, read_part
from distgnn.partition.large.source import open_folder
from distgnn.partition.methods.metis import metis_roots
from distgnn.partition.refine.balance import Balance

if TYPE_CHECKING:
    from pathlib import Path

    from distgnn.datasets.edge_file import EdgeFile


def write_folder(folder: Path, graph: Graph) -> Path:
    """Write a graph as an array folder."""
    folder.mkdir()
    for name, array in arrays_of(graph).items():
        np.save(folder / f"{name}.npy", array)
    return folder


def roots_by_metis(
    edges: EdgeFile, num_parts: int, folder: Path, *, seed: int, **unused: Any
) -> np.ndarray:
    """Choose roots in memory."""
    del folder, unused
    ends = [array.read(0, edges.num_edges).astype(np.int64) for array in (edges.src, edges.dst)]
    graph = Graph(name="all", num_vertices=edges.num_vertices, src=ends[0], dst=ends[1])
    roots: np.ndarray = metis_roots(
        graph,
        num_parts,
        adjacency=undirected(graph),
        seed=seed,
        objective="cut",
        balance=Balance(1.1, 1.25),
    )
    return roots


def numbered(graph: Graph) -> Graph:
    """The same graph; the weight of an edge is its number, so that it is known again."""
    return Graph(
        name=graph.name,
        num_vertices=graph.num_vertices,
        src=graph.src,
        dst=graph.dst,
        edge_weight=np.arange(graph.num_edges, dtype=np.float32),
    )


def assignment_in(directory: Path) -> Assignment:
    """Read back who lives where, of a graph that was `numbered`."""
    manifest = read_manifest(directory)
    edge_part = np.full(manifest.num_edges, -1, np.int32)
    root_part = np.full(manifest.num_vertices, -1, np.int32)
    for number in range(manifest.num_parts):
        part = read_part(directory, number)
        assert part.edge_weight is not None
        edge_part[part.edge_weight.astype(np.int64)] = number
        root_part[part.global_id[: part.num_roots]] = number
    return Assignment(manifest.num_parts, edge_part, root_part)


__all__ = ["assignment_in", "numbered", "open_folder", "roots_by_metis", "write_folder"]
