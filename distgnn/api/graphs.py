"""Graphs at the door: what `load` takes, and what a rank of a session trains on."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from distgnn.api.columns import LABEL_TASKS, columns_of
from distgnn.api.settings import Keywords
from distgnn.datasets.columns import KEYWORDS as COLUMN_KEYWORDS
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition.directory.store import (
    is_partition_directory,
    read_manifest,
    read_part,
    whole_part,
)

if TYPE_CHECKING:
    from distgnn.partition.build import Part
    from distgnn.training.data.info import DataInfo

Source = Any
"""Sources that `load` takes: a name, a file, a directory, or a graph in memory."""


def load(
    source: Source,
    *,
    vertices: str | Path | None = None,
    deduplicate: bool = False,
    drop_self_loops: bool = False,
    undirected: bool = False,
    inverse_relations: bool = False,
    one_hot: bool = False,
    split: str | None = None,
    edge_split: str | None = None,
    seed: int = 0,
    root: str | Path | None = None,
    task: str | None = None,
    **columns: Any,
) -> Graph:
    """Load a whole graph into this process.

    Args:
        source: Name of a data set (`distgnn datasets` lists them), or path of a graph file or
            folder. The parts of a Partition or a partition directory are joined. A graph in memory
            is a Graph, PyG's Data or HeteroData, a DGLGraph, a networkx graph, a scipy adjacency
            matrix, or a (2, num_edges) numpy array of edges.
        vertices: Path of the vertex table of an edge list.
        deduplicate: Whether to keep one of several edges with the same ends and type.
        drop_self_loops: Whether to leave out edges from a vertex to itself.
        undirected: Whether to add the reverse of every edge that has none.
        inverse_relations: Whether to add every edge of a typed graph reversed.
        one_hot: Whether to give each vertex without features a column of its own.
        split: Shares of train, validation and test, such as "0.6/0.2/0.2".
        edge_split: Shares of links to learn and to hold out, such as "0.9/0.05/0.05".
        seed: Seed of both random splits.
        root: Folder of data sets that are named; None for DISTGNN_DATASETS or ./dataset.
        task: "regression" where labels that are whole numbers are values to learn; None where they
            are classes.
        columns: Choices about columns of tables, as the flags of `distgnn partition` with
            underscores for dashes: source_column, target_column, weight_column,
            edge_type_column, edge_feature_columns, id_column, label_column, feature_columns,
            one_hot_columns and impute. Several names are a list.

    Returns:
        The graph: numpy arrays, checked.

    Raises:
        InputError: If the source is unknown or damaged, or an option has no effect on it.
    """
    from distgnn import datasets
    from distgnn.datasets.sources import changed

    changes: dict[str, Any] = {
        "deduplicate": deduplicate,
        "drop_self_loops": drop_self_loops,
        "undirected": undirected,
        "inverse_relations": inverse_relations,
        "one_hot": one_hot,
        "split": split,
        "edge_split": edge_split,
    }
    words = Keywords("load", {**columns, "task": task})
    chosen = columns_of(words)
    words.refuse_others((*changes, "vertices", "seed", "root"))
    if task not in (None, *LABEL_TASKS):
        raise InputError(f"task must be {' or '.join(LABEL_TASKS)} here, got {task!r}")
    if isinstance(source, os.PathLike):  # a Partition, too
        source = Path(source)
    is_path = isinstance(source, (str, Path))
    if is_path and not is_partition_directory(source):
        return datasets.load(
            source, vertices=vertices, seed=seed, root=root, columns=chosen, **changes
        )
    if chosen.given:
        name = COLUMN_KEYWORDS[chosen.given[0]]
        raise InputError(f"{name} is about columns of a table, but this is none; leave it out")
    if vertices is not None:
        raise InputError(
            f"vertices={vertices!r} has an effect on an edge list only; leave it out, or build the "
            "graph with the arrays of its vertices"
        )
    graph = join_parts(source) if is_path else from_memory(source)
    return changed(graph, **changes, label_values=bool(chosen.label_values), seed=seed)


def from_memory(source: Source) -> Graph:
    """Turn a graph of any known library into ours.

    Args:
        source: Graph, PyG's Data or HeteroData, DGLGraph, networkx graph, scipy matrix, or a
            (2, num_edges) array.

    Returns:
        The graph; a Graph is returned as it is.

    Raises:
        InputError: If it is nothing of these.
    """
    from distgnn import interop

    if isinstance(source, Graph):
        return source
    if scipy.sparse.issparse(source):
        return interop.from_scipy(source)
    if isinstance(source, np.ndarray):
        return interop.from_numpy(source)
    if hasattr(source, "canonical_etypes"):
        return interop.from_dgl(source)
    if hasattr(source, "edge_index") or hasattr(source, "to_homogeneous"):
        return interop.from_pyg(source)
    if hasattr(source, "adj") and hasattr(source, "nodes"):
        return interop.from_networkx(source)
    raise InputError(
        f"a graph must be a name, a path, a distgnn.Graph, PyG's Data, a DGLGraph, a networkx "
        f"graph, a scipy matrix or a (2, num_edges) array, got a {type(source).__name__}; convert "
        "it with distgnn.interop"
    )


def join_parts(directory: str | Path) -> Graph:
    """Read a partition directory back as one graph, which this process then holds whole.

    Args:
        directory: Path of the partition directory.

    Returns:
        The graph that was cut, with its edges in another order.

    Raises:
        InputError: If a file of the directory is missing or altered.
    """
    manifest = read_manifest(directory)
    parts = [read_part(directory, n, manifest=manifest) for n in range(manifest.num_parts)]
    ids = [np.asarray(part.global_id) for part in parts]
    place = np.argsort(
        np.concatenate([own[: part.num_roots] for own, part in zip(ids, parts, strict=True)])
    )
    degrees = [np.diff(part.indptr) for part in parts]
    return Graph(
        name=manifest.name,
        num_vertices=manifest.num_vertices,
        src=np.concatenate([own[part.indices] for own, part in zip(ids, parts, strict=True)]),
        dst=np.concatenate([np.repeat(own, each) for own, each in zip(ids, degrees, strict=True)]),
        **{name: _joined(parts, name, place) for name in _OF_VERTICES},
        **{name: _joined(parts, name, None) for name in _OF_EDGES},
        class_names=manifest.class_names or None,
        relation_names=manifest.relation_names or None,
        metric=manifest.metric,
        source=manifest.source,
        checksum=manifest.source_checksum,
    )


_OF_VERTICES = (
    *("features", "labels", "train_mask", "val_mask", "test_mask", "vertex_id", "vertex_type"),
)
_OF_EDGES = ("edge_weight", "edge_features", "edge_type", "val_links", "test_links")


def _joined(parts: list[Part], name: str, place: Any) -> Any:
    """Put the rows of all parts one after the other, or where the vertices of the graph are."""
    arrays = [getattr(part, name) for part in parts]
    if arrays[0] is None:
        return None
    if name == "vertex_type":
        arrays = [array[: part.num_roots] for array, part in zip(arrays, parts, strict=True)]
    if scipy.sparse.issparse(arrays[0]):
        return scipy.sparse.vstack(arrays, format="csr")[place]
    if name.endswith("_mask"):
        return np.concatenate(arrays, axis=1)[:, place]
    joined = np.concatenate(arrays)
    return joined if place is None else joined[place]


@dataclass(frozen=True)
class Share:
    """A rank's part of a source, and what is known of the whole graph.

    Attributes:
        part: Part of this rank.
        info: Sizes and names of the whole graph.
        where: Description of the source, for people.
    """

    part: Part
    info: DataInfo
    where: str


def open_share(source: Source, rank: int, size: int) -> Share:
    """Open the part of a rank; one rank takes any source.

    Args:
        source: Source that `load` takes.
        rank: Number of this rank.
        size: Number of ranks.

    Returns:
        The part.

    Raises:
        InputError: If the source cannot be read or is not cut into as many parts.
    """
    from distgnn.training.data.info import DataInfo

    if isinstance(source, os.PathLike):  # such as a Partition
        source = Path(source)
    is_named = isinstance(source, (str, Path))
    if is_named and is_partition_directory(source):
        manifest = read_manifest(source)
        where = f"part {rank} of {size} of '{source}'"
        if manifest.num_parts == size:
            return Share(read_part(source, rank, manifest=manifest), DataInfo.of(manifest), where)
        if size > 1:
            raise InputError(
                f"partition directory '{source}' was made for {manifest.num_parts} "
                f"parts, but {size} ranks were started; run mpirun -n {manifest.num_parts}"
            )
    elif size > 1:
        name = f"'{source}'" if is_named else f"a {type(source).__name__} in memory"
        shown = source if is_named else "GRAPH"
        raise InputError(
            f"{size} ranks were started on {name}, which is not cut into parts; start one, or "
            f"distgnn partition {shown} --parts {size} --out DIR and load DIR"
        )
    graph = load(source)
    where = f"all of '{source}'" if is_named else "a graph in memory"
    return Share(whole_part(graph), replace(DataInfo.of(graph), has_links=False), where)
