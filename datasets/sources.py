"""Loading of graphs: from a name, a file or a folder that a user writes."""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets import cleaning, synthetic
from distgnn.datasets.array_folder import is_array_folder, read_array_folder
from distgnn.datasets.bundled import LICENCES, load_bundled
from distgnn.datasets.columns import NO_COLUMNS, Columns
from distgnn.datasets.edge_list import read_edge_list, read_folder
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.datasets.held_out import hold_out_links
from distgnn.datasets.layouts import NAMED, describe_named, locate, reader_of
from distgnn.datasets.matrix_market import MATRIX_SUFFIXES
from distgnn.datasets.named_twins import TWIN_NAMES, describe_twin, is_twin, load_twin
from distgnn.datasets.npz import read_npz
from distgnn.datasets.ogb import CATALOGUE, located
from distgnn.datasets.one_hot import add_one_hot
from distgnn.datasets.rdf import RDF_SUFFIXES
from distgnn.datasets.splits import parse_fractions, random_split
from distgnn.datasets.tables import TABLE_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_SHOWN = ("name", "num_vertices", "num_edges", "num_features", "num_classes", "licence")
_FILES = (
    f".npz, {', '.join((*TABLE_SUFFIXES, *MATRIX_SUFFIXES, *RDF_SUFFIXES))}, or a folder with "
    "edges.csv, edge_index.npy or a published graph"
)


def names() -> list[str]:
    """Return the names that `load` takes: bundled graphs, then synthetic ones."""
    return [*LICENCES, *(f"{synthetic.PREFIX}{name}" for name in synthetic.GENERATORS)]


def load(
    source: str | Path,
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
    columns: Columns = NO_COLUMNS,
    progress: Callable[[str], None] | None = None,
) -> Graph:
    """Load a graph.

    Args:
        source: One of these. A name of `names` wins over a file of that name (write "./cora" for
            the file). A file or folder wins over a name that is looked up below the root.

            - a name of `names`
            - a synthetic graph with options, such as "synthetic:rmat,scale=14,seed=1"
            - a twin, such as "synthetic:reddit@1/16"
            - an `.npz` file or an edge list
            - a folder with an edge list or with arrays
            - a file or folder in a published layout, such as OGB's
            - the name of a graph that lies below the root
        vertices: The vertex table of an edge list.
        deduplicate: Keep one of several edges with the same ends and type, as `deduplicate`.
        drop_self_loops: Leave out edges from a vertex to itself.
        undirected: Add the reverse of every edge that has none.
        inverse_relations: Add every edge of a typed graph reversed, as `add_inverse_relations`.
        one_hot: Give each vertex without features a column of its own, as `add_one_hot`.
        split: Shares of train, val and test, such as "0.6/0.2/0.2"; replaces the masks of the
            source by one random split of its labelled vertices.
        edge_split: Shares of the links for training, validation and test, such as
            "0.9/0.05/0.05"; edges of the last two are held out, as `hold_out_links`.
        seed: Determines both random splits.
        root: Where graphs that are named lie; None for `DISTGNN_DATASETS` or ./dataset.
        columns: Names of columns in an edge list and its vertex table, where the known ones do not
            apply.
        progress: Called with one line a table that says which columns became what.

    Raises:
        InputError: If the source is unknown, cannot be read, or contradicts itself or the options.
    """
    if split is not None:
        parse_fractions(split)  # A mistake is found before the graph is read.
    try:
        found = find(source, root)
        found = str(located(found, root, is_reversed=undirected or inverse_relations))
        graph = _read(found, vertices, columns, progress)
    except OSError as error:
        raise InputError(
            f"{str(source)!r} cannot be read ({error.strerror}); check the path and its permissions"
        ) from error
    options = {
        "deduplicate": deduplicate,
        "drop_self_loops": drop_self_loops,
        "undirected": undirected,
        "inverse_relations": inverse_relations,
    }
    return changed(
        graph,
        **options,
        one_hot=one_hot,
        label_values=bool(columns.label_values),
        split=split,
        edge_split=edge_split,
        seed=seed,
    )


def changed(
    graph: Graph,
    *,
    deduplicate: bool = False,
    drop_self_loops: bool = False,
    undirected: bool = False,
    inverse_relations: bool = False,
    one_hot: bool = False,
    label_values: bool = False,
    split: str | None = None,
    edge_split: str | None = None,
    seed: int = 0,
) -> Graph:
    """Apply the options of `load` to a graph in memory.

    Args:
        graph: Graph, which stays as it is.
        deduplicate: Whether to keep one of several edges with the same ends and type.
        drop_self_loops: Whether to leave out edges from a vertex to itself.
        undirected: Whether to add the reverse of every edge that has none.
        inverse_relations: Whether to add every edge of a typed graph reversed.
        one_hot: Whether to give each vertex without features a column of its own.
        label_values: Whether to take classes as values to be learned.
        split: Shares of train, val and test; None to keep the masks.
        edge_split: Shares of the links; None to hold out none.
        seed: Seed of both random splits.

    Returns:
        The graph with its changes.

    Raises:
        InputError: If an option contradicts the graph.
    """
    fractions = None if split is None else parse_fractions(split)
    if drop_self_loops:
        graph = cleaning.drop_self_loops(graph)
    if deduplicate:
        graph = cleaning.deduplicate(graph)
    if undirected:
        graph = add_reverse_edges(graph)
    if inverse_relations:
        graph = add_inverse_relations(graph)
    if one_hot:
        graph = add_one_hot(graph)
    if label_values:
        graph = cleaning.labels_as_values(graph)
    if edge_split is not None:
        graph = hold_out_links(graph, edge_split, seed=seed)
    return graph if fractions is None else random_split(graph, fractions, seed=seed)


def find(source: str | Path, root: str | Path | None = None) -> str:
    """Return the path of a graph that lies below the root under its name; else the source.

    Args:
        source: A name or a path, as for `load`.
        root: Where named graphs lie, as for `load`.

    Raises:
        InputError: If the name is that of a published graph whose files are not there.
    """
    is_found_elsewhere = _is_own_name(str(source)) or str(source) in CATALOGUE
    return str(source) if is_found_elsewhere else locate(str(source), root)


def _is_own_name(source: str) -> bool:
    """Return whether a source is a bundled or a synthetic graph, whatever files there are."""
    return source.startswith(synthetic.PREFIX) or source in LICENCES


def describe(name: str) -> dict[str, Any]:
    """Describe a name for `distgnn datasets`: counts, licence, and options if synthetic.

    The counts of a twin are those of its original at its scale. Those of data sets of OGB are as
    published; the data sets need not be there. Those of graphs that users bring are None; `path`
    says where they lie, if they do, and `bring` which files to put where.

    Raises:
        InputError: If the name is unknown.
    """
    if is_twin(name):
        return describe_twin(name)
    if name in CATALOGUE:
        published = CATALOGUE[name]
        return {**{key: getattr(published, key) for key in _SHOWN}, "num_splits": 1, "options": {}}
    if name in NAMED:
        unknown = dict.fromkeys((*_SHOWN, "num_splits"))
        return {**unknown, "name": name, "options": {}, **describe_named(name)}
    if name not in names():
        raise InputError(_unknown(name))
    graph = load(name)
    is_synthetic = name.startswith(synthetic.PREFIX)
    generator = name.removeprefix(synthetic.PREFIX)
    return {
        "name": name,
        "num_vertices": graph.num_vertices,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
        "num_classes": graph.num_classes,
        "num_splits": graph.num_splits,
        "licence": None if is_synthetic else LICENCES[name],
        "options": synthetic.options(generator) if is_synthetic else {},
    }


def add_reverse_edges(graph: Graph) -> Graph:
    """Return the graph with the reverse of every edge whose reverse it lacks.

    The reverse has the weight, the features and the type of its edge. A graph that has both
    directions already is returned with the same edges, and self-loops, which are their own reverse,
    are not doubled.
    """
    num_relations = max(graph.num_relations, 1)
    kind = 0 if graph.edge_type is None else graph.edge_type
    key = (graph.src * graph.num_vertices + graph.dst) * num_relations + kind
    reverse = (graph.dst * graph.num_vertices + graph.src) * num_relations + kind
    is_missing = ~np.isin(reverse, key)
    return replace(
        graph,
        src=np.concatenate([graph.src, graph.dst[is_missing]]),
        dst=np.concatenate([graph.dst, graph.src[is_missing]]),
        edge_weight=_and_again(graph.edge_weight, is_missing),
        edge_features=_and_again(graph.edge_features, is_missing),
        edge_type=_and_again(graph.edge_type, is_missing),
    )


def _and_again(values: NDArray[Any] | None, is_repeated: NDArray[np.bool_]) -> Any:
    """Return the values of edges, then again those of the edges that got a reverse."""
    return None if values is None else np.concatenate([values, values[is_repeated]])


def add_inverse_relations(graph: Graph) -> Graph:
    """Return the graph with every edge once more, reversed, under a relation of its own.

    Relation r gets the inverse r + num_relations, named "inverse of NAME", so that messages flow
    both ways and a layer can tell the two apart. Self-loops get an inverse, too.

    Args:
        graph: A typed graph.

    Raises:
        InputError: If its edges have no types.

    References:
        Schlichtkrull et al., "Modeling Relational Data with Graph Convolutional Networks", ESWC
        2018, section 2.1.
    """
    if graph.edge_type is None:
        raise InputError(
            f"{graph.name!r} has no edge_type, so it has no relations to invert; use --undirected "
            "to add reverse edges"
        )
    names = graph.relation_names
    is_repeated = np.ones(graph.num_edges, bool)
    return replace(
        graph,
        src=np.concatenate([graph.src, graph.dst]),
        dst=np.concatenate([graph.dst, graph.src]),
        edge_weight=_and_again(graph.edge_weight, is_repeated),
        edge_features=_and_again(graph.edge_features, is_repeated),
        edge_type=np.concatenate([graph.edge_type, graph.edge_type + graph.num_relations]),
        relation_names=None if names is None else (*names, *(f"inverse of {n}" for n in names)),
    )


def _read(
    source: str,
    vertices: str | Path | None,
    columns: Columns,
    progress: Callable[[str], None] | None,
) -> Graph:
    path = Path(source)
    if path.name.endswith(TABLE_SUFFIXES):
        return read_edge_list(path, vertices=vertices, columns=columns, progress=progress)
    is_name = _is_own_name(source)
    reader = None if is_name else reader_of(path)
    if path.is_dir() and not is_name:
        if (path / "manifest.json").is_file():
            raise InputError(
                f"{path} is a partition directory, which is already cut; pass it to distgnn train"
            )
        if reader is None and not is_array_folder(path):
            return read_folder(path, vertices=vertices, columns=columns, progress=progress)
    if vertices is not None:
        raise InputError(
            f"{source!r} takes no vertex table, only edge lists do; leave out {vertices}"
        )
    columns.check_unused(source)
    if is_twin(source):
        return load_twin(source)
    if source.startswith(synthetic.PREFIX):
        return synthetic.make(source)
    if is_name:
        return load_bundled(source)
    if reader is not None:
        return reader(path)
    if path.is_dir():
        return read_array_folder(path)
    if path.suffix == ".npz":
        return read_npz(path)
    if path.is_file():
        raise InputError(
            f"file {source!r} has the unknown suffix {path.suffix!r}; convert it, or give a "
            f"file that ends in {_FILES}"
        )
    raise InputError(_unknown(source))


def _unknown(source: str) -> str:
    known = [*names(), *NAMED, *CATALOGUE, *synthetic.GENERATORS]
    close = difflib.get_close_matches(source, known, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    twins = [f"{synthetic.PREFIX}{name}" for name in TWIN_NAMES]
    return (
        f"there is no dataset, file or folder {source!r}{hint}; choose one of "
        f"{', '.join(names())}, a twin ({', '.join(twins)}), one to bring "
        f"({', '.join((*NAMED, *CATALOGUE))}), or give a file that ends in {_FILES}"
    )
