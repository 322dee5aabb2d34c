"""Parts written from disk, for any assignment, and compared with those that are built in memory."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from large_graphs import open_folder

from distgnn.datasets import Graph, load
from distgnn.partition.assignment import Assignment
from distgnn.partition.directory.store import write
from distgnn.partition.large.clock import StageProgress
from distgnn.partition.large.counts import count, save_counts
from distgnn.partition.large.crew import Crew
from distgnn.partition.large.dealing import Dealt
from distgnn.partition.large.ordering import arrange
from distgnn.partition.large.piles import Piles, record_of
from distgnn.partition.large.relations import relate, relation_degree
from distgnn.partition.large.source import GraphOnDisk
from distgnn.partition.large.work import WorkFolder
from distgnn.partition.large.writing import Writer, Written, tables_of
from distgnn.partition.orders import arrange as arrange_in_memory
from distgnn.partition.quality import measure

NUM_PARTS = 3

# How names of files begin and end that writing leaves behind where it is killed.
_KILLED = (("", ""), (".", ".123"))


def any_assignment(graph: Graph, seed: int = 0) -> Assignment:
    """Edges anywhere, and no root on the last part."""
    rng = np.random.default_rng(seed)
    return Assignment(
        NUM_PARTS,
        rng.integers(0, NUM_PARTS, graph.num_edges).astype(np.int32),
        rng.integers(0, NUM_PARTS - 1, graph.num_vertices).astype(np.int32),
    )


def piles_of(source: GraphOnDisk, assignment: Assignment, folder: Path) -> tuple[Piles, Piles]:
    """Put the edges where the assignment says: between roots of a part, and all others."""
    edges = source.edges
    dtype = record_of(edges.num_vertices, has_position=source.has_edge_values)
    inner, placed = Piles(folder, "pile", dtype), Piles(folder, "placed", dtype)
    records = np.empty(edges.num_edges, dtype)
    records["src"], records["dst"] = (
        edges.src.read(0, edges.num_edges),
        edges.dst.read(0, edges.num_edges),
    )
    if source.has_edge_values:
        records["edge"] = np.arange(edges.num_edges)
    part = assignment.edge_part
    is_inner = (assignment.root_part[records["src"]] == part) & (
        assignment.root_part[records["dst"]] == part
    )
    inner.scatter(part[is_inner], records[is_inner], range(assignment.num_parts))
    # Refinement leaves them in any order.
    rest = np.random.default_rng(1).permutation(np.flatnonzero(~is_inner))
    placed.scatter(part[rest], records[rest], range(assignment.num_parts))
    return inner, placed


def write_from_disk(
    folder: Path, assignment: Assignment, tmp_path: Path, order_name: str
) -> tuple[Writer, list[Written]]:
    source = open_folder(folder)
    work = WorkFolder(tmp_path / "work", {})
    inner, placed = piles_of(source, assignment, work.folder)
    root_part = assignment.root_part
    work.save("root-part", root_part)
    save_counts(
        work, count(source.edges, root_part, assignment.num_parts, chunk_edges=7, progress=None)
    )
    order = arrange(order_name, root_part, assignment.num_parts, inner, seed=0, progress=None)
    work.save("order", order)
    parts = tmp_path / "streamed"
    parts.mkdir()
    tables = tables_of(work)
    dealt = None if source.features is None else Dealt(source.features, tables, work.folder)
    if dealt is not None:
        dealt.deal(0, None)
    degree = None
    if source.edge_type is not None:
        # Memory for the counts of seven vertices.
        memory_bytes = 7 * 8 * source.num_relations
        left = [work.path(f"{start}relation-degree.new.npy{end}") for start, end in _KILLED]
        for path in left:
            path.write_bytes(b"of a run that was killed")
        relate(source, work, memory_bytes=memory_bytes, chunk_edges=7, progress=None)
        assert not any(path.exists() for path in left)
        degree = relation_degree(work, source.edges.num_edges)
    writer = Writer(source, tables, parts, work, dealt, degree)
    clock = StageProgress("writing", "edges", source.edges.num_edges, None)
    writer.write_parts(inner, placed, list(range(assignment.num_parts)), Crew(work.folder), clock)
    return writer, writer.write_exchange(None)


def compare(folder: Path, tmp_path: Path, order_name: str) -> None:
    graph = load(folder)
    assignment = any_assignment(graph)
    manifest = write(
        tmp_path / "memory",
        graph,
        assignment,
        method="random",
        options={},
        seed=0,
        quality=measure(graph, assignment),
        order=arrange_in_memory(order_name, graph, assignment),
    )
    _, written = write_from_disk(folder, assignment, tmp_path, order_name)
    assert tuple(one.counts for one in written) == manifest.parts
    files: dict[str, Any] = {}
    for one in written:
        files |= one.files
    assert list(files) == list(manifest.files)
    assert files == manifest.files
    for name, record in files.items():
        content = (tmp_path / "streamed" / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == record.sha256
    assert not list((tmp_path / "work").glob("features-*"))
