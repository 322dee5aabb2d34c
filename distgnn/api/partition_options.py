"""A partition that is asked for: the graph, the parts, and how they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from distgnn.partition.orders import DEFAULT_ORDER

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.api.source import SourceOptions

DEFAULT_METHOD = "metis"
AUTO, ON, OFF = "auto", "on", "off"


@dataclass(frozen=True)
class PartitionOptions:
    """A partition that is asked for.

    Attributes:
        source: Graph to cut; its seed is that of the method and the order, too.
        parts: Number of parts.
        out: Partition directory to write.
        say: Receives notes about the work under way.
        method: Name of the method, or auto for the best one that fits into memory; None for metis.
        option: Options of the method, each as NAME=VALUE.
        assignment: File with a part for each edge or vertex, instead of a method.
        assignment_of: Items of that file, edges or vertices; None to decide by its length.
        quality: fast, default or best, of the methods that know it; None for their default.
        refine: Whether edges move afterwards where fewer rows travel; None for the method's own.
        imbalance: Largest part's edges over the mean; None for that of the method.
        order: Order of the vertices inside a part.
        overwrite: Whether to replace an existing partition directory.
        out_of_core: Whether the edges stay on disk: auto, on or off.
        memory: Bytes that partitioning out of core may take; None for most of what is free.
        work: Folder of partitioning out of core; None for the name of `out` with .work.
    """

    source: SourceOptions
    parts: int
    out: str
    say: Callable[[str], None]
    method: str | None = None
    option: tuple[str, ...] = ()
    assignment: str | None = None
    assignment_of: str | None = None
    quality: str | None = None
    refine: bool | None = None
    imbalance: float | None = None
    order: str = DEFAULT_ORDER
    overwrite: bool = False
    out_of_core: str = AUTO
    memory: int | None = None
    work: str | None = None

    @property
    def seed(self) -> int:
        """Seed of the method, the order and the splits."""
        return self.source.seed
