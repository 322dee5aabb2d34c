"""OGB's layout with types, of ogbn-mag.

    raw/num-node-dict.csv.gz                            types of vertices, and the number of each
    raw/triplet-type-list.csv.gz                        source type,relation,destination type
    raw/relations/A___REL___B/{edge,num-edge-list}.csv.gz
    raw/node-feat/TYPE/node-feat.csv.gz                 of some types
    raw/nodetype-has-label.csv.gz                       types, and True or False of each
    raw/node-label/TYPE/node-label.csv.gz
    split/NAME/nodetype-has-split.csv.gz                likewise
    split/NAME/TYPE/{train,valid,test}.csv.gz

Vertices are numbered type by type, relations as they are: both sorted by name, as OGB's package
does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.datasets.flat_array import FlatWriter
from distgnn.datasets.ogb.arrays import (
    ENDS,
    FEATURES,
    LABELS,
    MASKS,
    Stage,
    classes,
    write_edges,
    write_masks,
    write_rows,
)
from distgnn.datasets.ogb.plain import stored_edges
from distgnn.datasets.ogb.rows import counted, named, one_number, texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from distgnn.datasets.ogb.arrays import Target
    from distgnn.datasets.ogb.catalogue import Published

_AT_ONCE = 1 << 16
_TYPES = ("edge_type.npy", "vertex_type.npy", "relation_names.npy")


@dataclass(frozen=True)
class Relation:
    """Edges of one type.

    Attributes:
        source: Type of the vertices that they leave.
        name: Name of the relation.
        destination: Type of the vertices that they enter.
        folder: With the table of them.
        num_edges: Number of edges of this type.
    """

    source: str
    name: str
    destination: str
    folder: Path
    num_edges: int


@dataclass(frozen=True)
class Types:
    """The types of a graph.

    Attributes:
        num_vertices: Number of vertices of each type, sorted by name.
        relations: Sorted by source, name and destination.
    """

    num_vertices: dict[str, int]
    relations: tuple[Relation, ...]

    @property
    def num_all(self) -> int:
        """Vertices of the graph."""
        return sum(self.num_vertices.values())

    @property
    def num_edges(self) -> int:
        """Edges of the graph."""
        return sum(relation.num_edges for relation in self.relations)

    @property
    def offsets(self) -> dict[str, int]:
        """The first vertex of each type."""
        starts = np.cumsum([0, *self.num_vertices.values()]).tolist()
        return dict(zip(self.num_vertices, starts, strict=False))


def read_types(raw: Path) -> Types:
    """Read the types and their numbers.

    Args:
        raw: The folder raw/.

    Returns:
        The types.

    Raises:
        InputError: If a file is missing or damaged, or a relation joins unknown types.
    """
    path = raw / "num-node-dict.csv.gz"
    counts = {name: _count(path, text) for name, text in sorted(named(path).items())}
    path = raw / "triplet-type-list.csv.gz"
    relations = []
    for source, name, destination in sorted(texts(path, 3)):
        for kind in (source, destination):
            if kind not in counts:
                raise InputError(
                    f"{path} has a relation of {kind!r}, but the types of vertices are "
                    f"{', '.join(counts)}; prepare the data set again"
                )
        folder = raw / "relations" / f"{source}___{name}___{destination}"
        num_edges = one_number(folder / "num-edge-list.csv.gz")
        relations.append(Relation(source, name, destination, folder, num_edges))
    return Types(counts, tuple(relations))


def _count(path: Path, text: str) -> int:
    if not text.isdecimal():
        raise InputError(
            f"{path} has {text!r} where the number of vertices of a type stands; prepare the data "
            "set again"
        )
    return int(text)


def stages(published: Published, folder: Path, target: Target) -> list[Stage]:
    """List the stages of this layout, as `arrays.Stages` says."""
    raw, split = folder / "raw", folder / "split" / published.split
    types = read_types(raw)
    num_all = types.num_all
    return [
        Stage(ENDS, lambda: write_edges(target, _ends(types), (num_all, types.num_edges))),
        Stage(_TYPES, lambda: _write_types(types, target.folder)),
        Stage((FEATURES,), lambda: write_rows(target, FEATURES, _features(raw, types), num_all)),
        Stage((LABELS,), lambda: write_rows(target, LABELS, _labels(raw, types), num_all)),
        Stage(MASKS, lambda: _write_masks(split, types, target.folder)),
    ]


def _ends(types: Types) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    for relation in types.relations:
        numbers = types.num_vertices
        both = max(numbers[relation.source], numbers[relation.destination])
        path = relation.folder / "edge.csv.gz"
        for src, dst in stored_edges(path, (both, relation.num_edges)):
            for ids, kind in ((src, relation.source), (dst, relation.destination)):
                if int(ids.max()) >= numbers[kind]:
                    raise InputError(
                        f"{path} has vertex {ids.max()} of type {kind!r}, which has {numbers[kind]}"
                        " vertices; the file is damaged, so prepare the data set again"
                    )
            yield src + types.offsets[relation.source], dst + types.offsets[relation.destination]


def _write_types(types: Types, folder: Path) -> None:
    numbers = [one.num_edges for one in types.relations], list(types.num_vertices.values())
    for file, counts in zip(_TYPES, numbers, strict=False):
        with FlatWriter(folder / file, np.dtype(np.int64)) as writer:
            for number, count in enumerate(counts):
                writer.append(np.full(count, number, np.int64))
    names = [f"{one.source} {one.name} {one.destination}" for one in types.relations]
    np.save(folder / _TYPES[2], np.array(names))


def _features(raw: Path, types: Types) -> Iterator[NDArray[Any]]:
    paths = {kind: raw / "node-feat" / kind / "node-feat.csv.gz" for kind in types.num_vertices}
    present = [kind for kind, path in paths.items() if path.is_file()]
    if not present:
        raise InputError(f"{raw / 'node-feat'} has no features; prepare the data set again")
    filled = next((kind for kind in present if types.num_vertices[kind]), None)
    if filled is None:
        raise InputError(
            f"{raw / 'node-feat'} has features of {', '.join(present)} only, of which there are no "
            "vertices; prepare the data set again"
        )
    first = next(counted(paths[filled], np.float32, types.num_vertices[filled]))
    width = first[1].shape[1]
    for kind, count in types.num_vertices.items():
        if kind in present:
            for _, block in counted(paths[kind], np.float32, count, num_columns=width):
                yield block
        else:
            for start in range(0, count, _AT_ONCE):
                yield np.zeros((min(_AT_ONCE, count - start), width), np.float32)


def _only(path: Path, types: Types) -> str:
    """Return the one type of vertices that a table of True and False names."""
    chosen = [kind for kind, text in named(path).items() if text == "True"]
    if len(chosen) != 1 or chosen[0] not in types.num_vertices:
        raise InputError(
            f"{path} must say True of one type of vertices, got {chosen}; only graphs with labels "
            "on one type are read"
        )
    return chosen[0]


def _labels(raw: Path, types: Types) -> Iterator[NDArray[np.int64]]:
    labelled = _only(raw / "nodetype-has-label.csv.gz", types)
    path = raw / "node-label" / labelled / "node-label.csv.gz"
    for kind, count in types.num_vertices.items():
        if kind == labelled:
            for row, block in counted(path, np.float64, count, num_columns=1):
                yield classes(block[:, 0], (path, row))
        else:
            yield np.full(count, -1, np.int64)


def _write_masks(split: Path, types: Types, folder: Path) -> None:
    kind = _only(split / "nodetype-has-split.csv.gz", types)
    count, offset = types.num_vertices[kind], types.offsets[kind]
    write_masks(split / kind, count, folder, offset=offset, num_all=types.num_all)
