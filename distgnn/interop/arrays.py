"""Graphs from numpy arrays, and what the adapters of other libraries share."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from distgnn.datasets.errors import InputError
from distgnn.datasets.npz import graph_of_arrays

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from distgnn.datasets.graph import Graph

_LOGGER = logging.getLogger(__name__)

FIELDS = (
    *("num_vertices", "features", "labels", "train_mask", "val_mask", "test_mask", "edge_weight"),
    *("edge_features", "edge_type", "vertex_type", "relation_names", "vertex_id", "class_names"),
)
"""Arrays that `from_numpy` takes beside the edges."""
MASKS = ("train_mask", "val_mask", "test_mask")
"""The masks of a split."""
# What other libraries call the arrays of a vertex.
_FEATURES, _LABELS = ("feat", "features", "x"), ("label", "labels", "y")


def from_numpy(edge_index: Any, *, name: str = "memory", **arrays: Any) -> Graph:
    """Build a graph from arrays.

    Args:
        edge_index: (2, num_edges) int. Sources, then destinations; messages flow along edges.
        name: Name of the graph in reports.
        arrays: Any of `FIELDS`, with the shapes of `Graph`; features may be a scipy matrix. None
            is the same as leaving one out. `num_vertices` may be left out where features, labels or
            ids tell it.

    Returns:
        The graph, checked. Arrays that have the dtype of a Graph are shared, not copied.

    Raises:
        InputError: If a name is unknown, or arrays contradict each other.
    """
    for key in arrays:
        if key not in FIELDS:
            raise InputError(f"a graph has no {key!r}; it takes {', '.join(FIELDS)}")
    given: dict[str, Any] = {key: value for key, value in arrays.items() if value is not None}
    for key in given:
        if key != "features":
            given[key] = np.asarray(given[key])
    given["edge_index"] = np.asarray(edge_index)
    return graph_of_arrays(given, None, name=name, source="", checksum="")


def vertex_arrays(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return features, labels and masks from what another library has on its vertices.

    Args:
        values: By the names that DGL and PyG use for them; torch tensors, features perhaps sparse
            ones, or a SparseTensor of torch_sparse.

    Returns:
        By our names, as `from_numpy` takes them.
    """
    found: dict[str, Any] = {}
    for ours, theirs, convert in (
        ("features", _FEATURES, _to_rows),
        ("labels", _LABELS, to_array),
    ):
        key = next((key for key in theirs if values.get(key) is not None), None)
        if key is not None:
            found[ours] = convert(values[key])
    labels = found.get("labels")
    if labels is not None and labels.ndim == 2 and labels.shape[1] == 1:
        found["labels"] = labels[:, 0]
    for key in MASKS:
        if values.get(key) is not None:
            # Several splits are columns there and rows here.
            found[key] = to_array(values[key]).astype(np.bool_).T
    return found


def tell_of_features(kinds: Iterable[str]) -> None:
    """Log that the features of some types are left out.

    Args:
        kinds: Types of vertices that have features; none where nothing is left out.
    """
    if names := ", ".join(sorted(kinds)):
        _LOGGER.warning(
            "features of %s are left out, as other types of vertices have none or others; give "
            "all of them as many columns, such as zeros",
            names,
        )


def to_array(tensor: Any) -> Any:
    """Return a torch tensor of any device as a numpy array, which shares its memory if it can."""
    own = tensor.detach().cpu()
    # numpy has no such type.
    return (own.float() if str(own.dtype) == "torch.bfloat16" else own).numpy()


def _to_rows(features: Any) -> Any:
    """Return features as `to_array` does, or as a scipy matrix where they are sparse."""
    if hasattr(features, "to_scipy"):
        return features.to_scipy(layout="csr")
    if str(features.layout) == "torch.strided":
        return to_array(features)
    entries = features.detach().cpu().to_sparse_coo().coalesce()
    places = tuple(entries.indices().numpy())
    return scipy.sparse.csr_matrix((to_array(entries.values()), places), shape=entries.shape)


def as_table(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array of any shape with what belongs to its first index in one row."""
    # Not -1 columns, which cannot be told from no rows.
    return values.reshape(len(values), math.prod(values.shape[1:]))


def to_tensors(graph: Graph) -> dict[str, Any]:
    """Return features, labels and masks of a graph as torch tensors, by our names.

    Sparse features become dense; a single split is (num_vertices,), several are (num_vertices,
    num_splits), as other libraries have them.
    """
    import torch

    found: dict[str, Any] = {}
    if graph.features is not None:
        features: Any = graph.features
        dense = features.toarray() if scipy.sparse.issparse(features) else features
        found["features"] = torch.from_numpy(np.ascontiguousarray(dense))
    if graph.labels is not None:
        found["labels"] = torch.from_numpy(graph.labels)
    for key in MASKS:
        mask = getattr(graph, key)
        if mask is not None:
            columns = mask[0] if graph.num_splits == 1 else np.ascontiguousarray(mask.T)
            found[key] = torch.from_numpy(columns)
    return found
