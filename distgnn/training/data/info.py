"""Facts of a data set that a model depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from distgnn.nn.relational import GraphSize

TaskName = Literal["single-label", "multi-label", "regression", "link"]


class About(Protocol):
    """A graph, or the manifest of its parts; see there."""

    @property
    def name(self) -> str:
        """Name of the graph."""

    @property
    def num_features(self) -> int:
        """Columns of the features."""

    @property
    def num_classes(self) -> int:
        """Classes, or columns of the labels; 0 without labels."""

    @property
    def class_names(self) -> Sequence[str] | None:
        """Name of each class, or nothing."""

    @property
    def is_multilabel(self) -> bool:
        """Whether a vertex may have several classes at once."""

    @property
    def is_regression(self) -> bool:
        """Whether the labels are values."""

    @property
    def has_links(self) -> bool:
        """Whether links are held out, to be predicted."""

    @property
    def metric(self) -> str:
        """Metric of the data set, or nothing."""

    @property
    def num_vertices(self) -> int:
        """Number of vertices of the whole graph."""

    @property
    def num_relations(self) -> int:
        """Types of edges."""

    @property
    def num_vertex_types(self) -> int:
        """Types of vertices."""

    @property
    def num_edge_features(self) -> int:
        """Columns of the features of edges."""

    @property
    def has_edge_weights(self) -> bool:
        """Whether edges have weights."""


@dataclass(frozen=True)
class DataInfo:
    """Facts of a data set about the model's ends.

    Attributes:
        name: Name of the graph.
        num_features: Columns of the input.
        num_classes: Columns of the output.
        class_names: Name of each class, or nothing where the source numbers them.
        metric: Metric of the data set, or nothing.
        num_vertices: Number of vertices of the whole graph.
        num_relations: Types of edges; 0 without.
        num_vertex_types: Types of vertices; 0 without.
        task: Task of the labels; nothing without.
        has_links: Whether links are held out, to be predicted.
        num_edge_features: Columns of the features of edges; 0 without.
        has_edge_weights: Whether edges have weights.
    """

    name: str
    num_features: int
    num_classes: int
    class_names: tuple[str, ...] = ()
    metric: str = ""
    num_vertices: int = 0
    num_relations: int = 0
    num_vertex_types: int = 0
    task: TaskName | Literal[""] = ""
    has_links: bool = False
    num_edge_features: int = 0
    has_edge_weights: bool = False

    @classmethod
    def of(cls, about: About) -> DataInfo:
        """Read what a graph or the manifest of its parts says.

        Args:
            about: Either.
        """
        return cls(
            about.name,
            about.num_features,
            about.num_classes,
            tuple(about.class_names or ()),
            about.metric,
            num_vertices=about.num_vertices,
            num_relations=about.num_relations,
            num_vertex_types=about.num_vertex_types,
            task=_task_of(about),
            has_links=about.has_links,
            num_edge_features=about.num_edge_features,
            has_edge_weights=about.has_edge_weights,
        )

    @property
    def size(self) -> GraphSize:
        """Size of the graph, for typed models and those that read features of edges."""
        return GraphSize(
            self.num_vertices,
            self.num_relations,
            self.num_vertex_types,
            num_edge_features=self.num_edge_features,
        )


def _task_of(about: About) -> TaskName | Literal[""]:
    if not about.num_classes:
        return ""
    if about.is_multilabel:
        return "multi-label"
    return "regression" if about.is_regression else "single-label"
