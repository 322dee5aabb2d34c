"""The noun of partitions: a Partition, which is a directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.partition.directory.store import read_manifest

if TYPE_CHECKING:
    from distgnn.partition.directory.manifest import Manifest

_SHOWN = ("replication_factor", "edge_balance", "vertex_balance")


class Partition:
    """A partition directory: a graph that is cut into parts, one per rank.

    Args:
        path: The directory.

    Attributes:
        path: The directory.

    Raises:
        InputError: If it is none, or its manifest is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._manifest: Manifest = read_manifest(self.path)

    def __fspath__(self) -> str:
        """Return the directory, so that a partition is a source."""
        return str(self.path)

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return self._manifest.num_parts

    @property
    def num_vertices(self) -> int:
        """Number of vertices of the whole graph."""
        return self._manifest.num_vertices

    @property
    def num_edges(self) -> int:
        """Number of edges of the whole graph."""
        return self._manifest.num_edges

    @property
    def parts(self) -> list[dict[str, int]]:
        """Numbers of edges, roots and leaves of each part."""
        return [
            {"edges": part.num_edges, "roots": part.num_roots, "leaves": part.num_leaves}
            for part in self._manifest.parts
        ]

    @property
    def quality(self) -> dict[str, Any]:
        """Measures of the cut by name, such as halo_rows and replication_factor."""
        return dict(self._manifest.quality)

    def inspect(self, **settings: Any) -> dict[str, Any]:
        """Predict what training on the partition sends and takes; see `distgnn.inspect`."""
        from distgnn.api.directories import inspect

        return inspect(self.path, **settings)

    def __repr__(self) -> str:
        """Say in two lines what the partition is."""
        about, quality = self._manifest, self._manifest.quality
        shown = ", ".join(f"{name} {quality[name]:.3f}" for name in _SHOWN)
        return (
            f"Partition('{self.path}'): {about.name} in {about.num_parts} parts by {about.method}\n"
            f"  {about.num_vertices} vertices, {about.num_edges} edges, "
            f"{quality['halo_rows']} halo rows, {shown}"
        )
