"""The `.npz` archives of the heterophilous graphs: roman-empire, minesweeper, questions, ...

References:
    Platonov, Kuznedelev, Diskin, Babenko, Prokhorenkova, "A critical look at the evaluation of
    GNNs under heterophily: Are we really making progress?", ICLR 2023.
"""

from __future__ import annotations

from pathlib import Path

from distgnn.datasets.archive import read_arrays
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.datasets.npz import sha256
from distgnn.datasets.simple_edges import simple_edges

_KEYS = ("node_features", "node_labels", "edges", "train_masks", "val_masks", "test_masks")


def is_heterophilous(names: frozenset[str]) -> bool:
    """Return whether an archive with arrays of these names is one of the heterophilous graphs."""
    return {"node_features", "edges"} <= names


def read_heterophilous(path: str | Path) -> Graph:
    """Read a heterophilous graph: undirected, with ten splits.

    The file has each edge once, as a row of `edges`; the graph has both directions.

    Args:
        path: The `.npz` file.

    Raises:
        InputError: If the file is damaged, an array is missing, or they contradict each other.
    """
    path = Path(path)
    try:
        arrays = read_arrays(path, only=_KEYS)
        for key in _KEYS:
            if key not in arrays:
                raise InputError(
                    f"{key} is missing; such a file has {', '.join(_KEYS)}, so fetch it again"
                )
        edges, features = arrays["edges"], arrays["node_features"]
        if features.ndim != 2:
            raise InputError(
                f"node_features must have one row for each vertex, got shape {features.shape}; "
                "fetch the file again"
            )
        num_vertices = features.shape[0]
        if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
            raise InputError(
                f"edges must hold two vertices a row, got {edges.dtype} of shape {edges.shape}; "
                "fetch the file again"
            )
        if edges.size and not 0 <= int(edges.min()) <= int(edges.max()) < num_vertices:
            raise InputError(
                f"edges has vertices from {edges.min()} to {edges.max()}, but node_features has "
                f"{num_vertices} rows; they must be of one graph"
            )
        src, dst = simple_edges(edges[:, 0], edges[:, 1], num_vertices)
        return Graph(
            name=path.stem,
            num_vertices=num_vertices,
            src=src,
            dst=dst,
            features=features,
            labels=arrays["node_labels"],
            train_mask=arrays["train_masks"],
            val_mask=arrays["val_masks"],
            test_mask=arrays["test_masks"],
            source=str(path),
            checksum=sha256([path]),
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
