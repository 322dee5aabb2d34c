"""What a data set asks of a model."""

from __future__ import annotations

from dataclasses import dataclass

from distgnn.nn.relational import GraphSize


@dataclass(frozen=True)
class ModelEnds:
    """What the data set says about the model's ends.

    Attributes:
        name: Of the graph.
        num_features: Columns of the input.
        num_classes: Columns of the output.
        class_names: Name of each class, or nothing where the source numbers them.
        metric: The data set's own, or nothing.
        num_vertices: Of the whole graph.
        num_relations: Types of edges; 0 without.
        num_vertex_types: Types of vertices; 0 without.
    """

    name: str
    num_features: int
    num_classes: int
    class_names: tuple[str, ...] = ()
    metric: str = ""
    num_vertices: int = 0
    num_relations: int = 0
    num_vertex_types: int = 0

    @property
    def size(self) -> GraphSize:
        """What a typed model must know."""
        return GraphSize(self.num_vertices, self.num_relations, self.num_vertex_types)
