"""The graph that every reader returns and every partitioner takes."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from distgnn.datasets import _checks
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Vertices up to which ends fit into 32 bits.
_MOST_NARROW = 2**31

IN_MEMORY = "<memory>"
"""Name that a run records as its source if that was a graph in memory."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Graph:
    """A directed graph with all that training needs: plain arrays, validated once.

    Messages flow along edges from `src` to `dst`. Self-loops, parallel edges and isolated vertices
    are allowed; an undirected graph has both directions of every edge. Construction converts
    arrays to the dtypes below. It raises `InputError` where they contradict each other or are not
    finite, so that later stages may trust them.
    """

    name: str
    """Name of the graph in reports and partition directories."""
    num_vertices: int
    """At least 1; vertices are 0 .. num_vertices - 1."""
    src: NDArray[np.int64]
    """(num_edges,) int64, or int32 in what `narrowed` returns. The vertex that each edge leaves."""
    dst: NDArray[np.int64]
    """(num_edges,) of the same dtype. The vertex that each edge enters."""
    features: NDArray[np.float32] | scipy.sparse.csr_matrix | None = None
    """(num_vertices, num_features) float32, dense or CSR with sorted indices."""
    labels: NDArray[np.int64] | NDArray[np.uint8] | NDArray[np.float32] | None = None
    """(num_vertices,) int64, -1 = unlabelled; or (num_vertices, num_classes): uint8 of 0 and 1,
    255 = unknown; or float32 values to be learned, NaN = unknown."""
    train_mask: NDArray[np.bool_] | None = None
    """(num_splits, num_vertices) bool. Vertices that the loss reads; with a test_mask, or none."""
    val_mask: NDArray[np.bool_] | None = None
    """(num_splits, num_vertices) bool. Vertices that choose the best epoch. All are False where
    the source has training and test vertices only; the last epoch then counts."""
    test_mask: NDArray[np.bool_] | None = None
    """(num_splits, num_vertices) bool. Vertices that the final metric is measured on."""
    edge_weight: NDArray[np.float32] | None = None
    """(num_edges,) float32."""
    edge_features: NDArray[np.float32] | None = None
    """(num_edges, num_edge_features) float32."""
    edge_type: NDArray[np.int64] | None = None
    """(num_edges,) int64. The relation of each edge, 0 .. num_relations - 1."""
    vertex_type: NDArray[np.int64] | None = None
    """(num_vertices,) int64. The type of each vertex, 0 .. num_vertex_types - 1."""
    relation_names: tuple[str, ...] | None = None
    """The name of each relation, where the input has names; only with `edge_type`."""
    vertex_id: NDArray[np.int64] | NDArray[np.str_] | None = None
    """(num_vertices,) int64 or str. The ids of the input; None where they are 0, 1, 2, ..."""
    val_links: NDArray[np.int64] | None = None
    """(num, 2) int64. Pairs of vertices, the smaller id first, whose edges are held out. They
    choose the best epoch of link prediction; with test_links, or none."""
    test_links: NDArray[np.int64] | None = None
    """(num, 2) int64. Pairs like these, which the final metric is measured on."""
    class_names: tuple[str, ...] | None = None
    """The name of each class, where the input has names."""
    metric: str = ""
    """Metric of published results, a value of `distgnn train --metric`; empty if there is none."""
    unused: tuple[str, ...] = ()
    """Names of arrays in the source that a Graph cannot hold, such as `time`."""
    source: str = ""
    """The file or the dataset name that the graph was read from."""
    checksum: str = ""
    """SHA-256 of the source file in hexadecimal; empty for synthetic graphs."""

    def __post_init__(self) -> None:
        """Convert and validate every field.

        Raises:
            InputError: If a field has the wrong shape or dtype or a value out of range.
        """
        _checks.check_unmasked(vars(self))
        self._set("num_vertices", _checks.vertex_count(self.num_vertices))
        src, dst = _checks.edges(self.src, self.dst, self.num_vertices)
        self._set("src", src)
        self._set("dst", dst)
        if self.features is not None:
            self._set("features", _checks.features(self.features, self.num_vertices))
        if self.labels is not None:
            self._set("labels", _checks.labels(self.labels, self.num_vertices))
        if self.edge_weight is not None:
            self._set("edge_weight", _checks.edge_weight(self.edge_weight, src.size))
        if self.edge_features is not None:
            self._set("edge_features", _checks.edge_features(self.edge_features, src.size))
        if self.edge_type is not None:
            self._set("edge_type", _checks.types(self.edge_type, "edge_type", src.size))
        if self.vertex_type is not None:
            checked = _checks.types(self.vertex_type, "vertex_type", self.num_vertices)
            self._set("vertex_type", checked)
        if self.relation_names is not None:
            names = _checks.relation_names(self.relation_names, self.edge_type)
            self._set("relation_names", names)
        if self.vertex_id is not None:
            self._set("vertex_id", _checks.vertex_id(self.vertex_id, self.num_vertices))
        if self.class_names is not None:
            self._set("class_names", _checks.class_names(self.class_names, self.labels))
        for name in ("val_links", "test_links"):
            if getattr(self, name) is not None:
                self._set(name, _checks.links(getattr(self, name), name, self.num_vertices))
        if (self.val_links is None) != (self.test_links is None):
            raise InputError("val_links and test_links go together; give both or none")
        if self.val_links is not None and self.test_links is not None:
            _checks.check_links_apart(self.val_links, self.test_links, self.num_vertices)
        masks = {"train": self.train_mask, "val": self.val_mask, "test": self.test_mask}
        for key, mask in _checks.masks(masks, self.labels, self.num_vertices).items():
            self._set(f"{key}_mask", mask)

    def _set(self, field: str, value: Any) -> None:
        # The dataclass is frozen for its users; only construction may replace a field.
        object.__setattr__(self, field, value)

    def narrowed(self) -> Graph:
        """Return the graph with ends of 32 bits where they fit, in half the memory.

        Products of its ends overflow: only the partitioner's default method and what writes parts
        take such a graph.
        """
        return self._with_ends(np.int32) if self.num_vertices <= _MOST_NARROW else self

    def widened(self) -> Graph:
        """Return the graph with ends of 64 bits, which every method of the partitioner takes."""
        return self if not self.is_narrow else self._with_ends(np.int64)

    def _with_ends(self, kind: Any) -> Graph:
        # Commands that cut nothing do without it.
        from concurrent.futures import ThreadPoolExecutor

        other = copy.copy(self)  # It was checked.
        # Side by side: most of the time goes by until the system has cleared the memory.
        with ThreadPoolExecutor(2) as pool:
            src, dst = pool.map(lambda ends: ends.astype(kind), (self.src, self.dst))
        other._set("src", src)
        other._set("dst", dst)
        return other

    @property
    def is_narrow(self) -> bool:
        """Whether ends have 32 bits."""
        return bool(self.src.dtype != np.int64)

    @property
    def num_edges(self) -> int:
        """Number of directed edges."""
        return int(self.src.size)

    @property
    def num_features(self) -> int:
        """Number of feature columns; 0 without features."""
        return 0 if self.features is None else int(self.features.shape[1])

    @property
    def num_edge_features(self) -> int:
        """Number of feature columns of edges; 0 without such features."""
        return 0 if self.edge_features is None else int(self.edge_features.shape[1])

    @property
    def has_edge_weights(self) -> bool:
        """Whether edges have weights."""
        return self.edge_weight is not None

    @property
    def has_links(self) -> bool:
        """Whether links are held out, to be predicted."""
        return self.test_links is not None

    @property
    def is_multilabel(self) -> bool:
        """Whether a vertex may have several classes at once."""
        return self.labels is not None and self.labels.dtype == np.uint8

    @property
    def is_regression(self) -> bool:
        """Whether the labels are values."""
        return self.labels is not None and self.labels.dtype == np.float32

    @cached_property
    def num_classes(self) -> int:
        """Number of classes: named ones, label columns, or largest label + 1; 0 without labels."""
        if self.labels is None:
            return 0
        if self.labels.ndim == 2:
            return int(self.labels.shape[1])
        if self.class_names is not None:
            return len(self.class_names)
        return int(self.labels.max()) + 1

    @cached_property
    def num_relations(self) -> int:
        """Number of relations: named ones, or largest type of an edge + 1; 0 without types."""
        if self.edge_type is None:
            return 0
        if self.relation_names is not None:
            return len(self.relation_names)
        return int(self.edge_type.max(initial=0)) + 1

    @cached_property
    def num_vertex_types(self) -> int:
        """Largest type of a vertex + 1; 0 without types."""
        return 0 if self.vertex_type is None else int(self.vertex_type.max()) + 1

    @property
    def num_splits(self) -> int:
        """Number of train/val/test splits; 0 without masks."""
        return 0 if self.train_mask is None else int(self.train_mask.shape[0])

    def __repr__(self) -> str:
        """Say in two lines what the graph is."""
        counts = [f"{self.num_features} features", f"{self.num_classes} classes"]
        if self.num_relations:
            counts.append(f"{self.num_relations} relations")
        if self.train_mask is not None:
            counts.append(f"{int(self.train_mask[0].sum())} training vertices")
        return (
            f"Graph({self.name!r}: {self.num_vertices} vertices, {self.num_edges} edges,\n"
            f"      {', '.join(counts)})"
        )
