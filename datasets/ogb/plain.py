"""OGB's plain layout, of ogbn-arxiv, -products and -proteins: a table for each kind of array.

    raw/num-node-list.csv.gz, num-edge-list.csv.gz      one number each
    raw/edge.csv.gz                                     source,destination
    raw/node-feat.csv.gz or raw/edge-feat.csv.gz        a row for each vertex or stored edge
    raw/node-label.csv.gz                               a class, or 0 and 1 for each task
    split/NAME/{train,valid,test}.csv.gz                a vertex in a row

Other tables, such as node_year.csv.gz and node_species.csv.gz, tell how the split was made, and are
not read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.datasets.flat_array import open_flat
from distgnn.datasets.ogb.arrays import (
    EDGE_FEATURES,
    ENDS,
    FEATURES,
    LABELS,
    MASKS,
    Stage,
    check_ids,
    classes,
    write_edges,
    write_masks,
    write_rows,
)
from distgnn.datasets.ogb.rows import counted, one_number

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from distgnn.datasets.ogb.arrays import Target
    from distgnn.datasets.ogb.catalogue import Published


def sizes(raw: Path) -> tuple[int, int]:
    """Return the numbers of vertices and of stored edges.

    Args:
        raw: The folder raw/.

    Raises:
        InputError: If a file is missing or damaged.
    """
    num_vertices = one_number(raw / "num-node-list.csv.gz")
    if num_vertices == 0:
        raise InputError(f"{raw} says that the graph has no vertices; prepare the data set again")
    return num_vertices, one_number(raw / "num-edge-list.csv.gz")


def stages(published: Published, folder: Path, target: Target) -> list[Stage]:
    """List the stages of this layout, as `arrays.Stages` says."""
    raw, split = folder / "raw", folder / "split" / published.split
    num_vertices, num_stored = sizes(raw)
    ends = partial(stored_edges, raw / "edge.csv.gz", (num_vertices, num_stored))
    num_edges = num_stored * (2 if published.is_both_ways else 1)
    edge_features = Stage(
        (EDGE_FEATURES,),
        lambda: write_rows(
            target,
            EDGE_FEATURES,
            (
                np.repeat(block, 2, axis=0)
                for _, block in counted(_edge_table(raw), np.float32, num_stored)
            ),
            num_edges,
        ),
    )
    return [
        Stage(
            ENDS,
            lambda: write_edges(
                target,
                (both_ways(*pair) if published.is_both_ways else pair for pair in ends()),
                (num_vertices, num_edges),
            ),
        ),
        Stage(
            (FEATURES,),
            lambda: write_rows(
                target,
                FEATURES,
                _features(raw, target.folder, (num_vertices, num_stored)),
                num_vertices,
            ),
        ),
        Stage(
            (LABELS,),
            lambda: write_rows(target, LABELS, _labels(raw, num_vertices), num_vertices),
        ),
        Stage(MASKS, lambda: write_masks(split, num_vertices, target.folder)),
        *([edge_features] if published.num_edge_features else []),
    ]


def stored_edges(
    path: Path, sizes: tuple[int, int]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Read a table of edges.

    Args:
        path: The file.
        sizes: Numbers of vertices and edges.

    Yields:
        Sources and destinations.

    Raises:
        InputError: If the file is missing or damaged, or an id is out of range.
    """
    for row, block in counted(path, np.int64, sizes[1], num_columns=2):
        check_ids(block, sizes[0], (path, row))
        yield block[:, 0], block[:, 1]


def both_ways(
    src: NDArray[np.int64], dst: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each edge with its reverse behind it, as OGB's package does: even a self-loop twice.

    Args:
        src: (num_edges,) sources.
        dst: (num_edges,) destinations.

    Returns:
        Sources and destinations, (2 * num_edges,) each.
    """
    forward = np.stack([src, dst], axis=1)
    return forward.reshape(-1), forward[:, ::-1].reshape(-1)


def _features(raw: Path, arrays: Path, sizes: tuple[int, int]) -> Iterator[NDArray[Any]]:
    path = raw / "node-feat.csv.gz"
    if path.is_file():
        for _, block in counted(path, np.float32, sizes[0]):
            yield block
    else:
        yield mean_of_edges(_edge_table(raw), arrays, sizes)


def _edge_table(raw: Path) -> Path:
    """Return the table of the features of edges, which then must be there."""
    path = raw / "edge-feat.csv.gz"
    if not path.is_file():
        raise InputError(
            f"{raw} has neither node-feat.csv.gz nor edge-feat.csv.gz; prepare the data set again"
        )
    return path


def mean_of_edges(path: Path, arrays: Path, sizes: tuple[int, int]) -> NDArray[np.float32]:
    """Average the features of the edges into each vertex, of edges that go both ways.

    Args:
        path: A table with a row for each stored edge.
        arrays: With the edges already there, each followed by its reverse.
        sizes: Numbers of vertices and stored edges.

    Returns:
        (num_vertices, num_edge_features); 0 for a vertex without edges.

    Raises:
        InputError: If the file is damaged.
    """
    num_vertices, num_stored = sizes
    (src,) = open_flat(arrays / ENDS[0])
    total: NDArray[np.float64] | None = None
    degree = np.zeros(num_vertices)
    for start, block in counted(path, np.float32, num_stored):
        # The sources of an edge and of its reverse are its two ends.
        ends = src.read(2 * start, 2 * (start + block.shape[0]))
        twice = np.repeat(block, 2, axis=0)
        if total is None:
            total = np.zeros((num_vertices, block.shape[1]))
        degree += np.bincount(ends, minlength=num_vertices)
        for column in range(block.shape[1]):
            total[:, column] += np.bincount(ends, twice[:, column], minlength=num_vertices)
    if total is None:
        raise InputError(f"{path} has no rows; prepare the data set again")
    return (total / np.maximum(degree, 1)[:, None]).astype(np.float32)


def _labels(raw: Path, num_vertices: int) -> Iterator[NDArray[Any]]:
    """Classes of a table of one column, 0 and 1 of one of several."""
    path = raw / "node-label.csv.gz"
    for row, block in counted(path, np.float64, num_vertices):
        is_single = block.shape[1] == 1
        yield classes(block[:, 0], (path, row)) if is_single else _tasks(block, path, row)


def _tasks(block: NDArray[np.float64], path: Path, row: int) -> NDArray[np.uint8]:
    is_wrong = (block != 0) & (block != 1)
    if is_wrong.any():
        wrong, column = np.argwhere(is_wrong)[0]
        raise InputError(
            f"{path} has {block[wrong, column]:g} in row {row + int(wrong)}, but the labels of "
            "several tasks are 0 or 1; the file is damaged, so prepare the data set again"
        )
    return block.astype(np.uint8)
