"""The source that a user names, turned into files that are read in slices."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distgnn.datasets.columns import NO_COLUMNS, Columns
from distgnn.datasets.ingest import ingest
from distgnn.datasets.layouts import files_of
from distgnn.datasets.npz import sha256
from distgnn.datasets.splits import parse_fractions, random_split
from distgnn.partition.large.clock import Progress
from distgnn.partition.large.source import GraphOnDisk, open_folder
from distgnn.partition.large.work import WorkFolder

ARRAYS = "source"
"""Name of the folder that an edge list is turned into."""


@dataclass(frozen=True, kw_only=True)
class SourceText:
    """A source, as `datasets.load` takes it."""

    source: str
    """A name, a file or a folder."""
    vertices: str | None = None
    """The vertex table of an edge list."""
    undirected: bool = False
    """Add the reverse of every edge that has none."""
    split: str | None = None
    """Shares of train, val and test."""
    columns: Columns = NO_COLUMNS
    """Names of columns in the edge list and the vertex table."""
    seed: int = 0
    """Seed of the split."""

    @property
    def name(self) -> str:
        """Name of the graph."""
        path = Path(self.source)
        if path.is_dir():
            return path.resolve().name
        return path.name.split(".")[0] if path.is_file() else self.source

    def files(self) -> list[Path]:
        """List the files that it is read from; none for a graph that has a name."""
        found = files_of(Path(self.source))
        found += [] if self.vertices is None else [Path(self.vertices)]
        return [file for file in found if file.is_file()]

    def about(self) -> dict[str, Any]:
        """Say what makes it another source, JSON values."""
        return {
            "source": self.source,
            "vertices": self.vertices,
            "undirected": self.undirected,
            "split": self.split,
            "columns": self.columns.to_json(),
            "files": [
                [file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in self.files()
            ],
        }

    def checksum(self) -> str:
        """Compute the SHA-256 of all that was read."""
        files = self.files()
        return sha256(files) if files else ""

    def open(self, work: WorkFolder, progress: Progress | None) -> GraphOnDisk:
        """Open it, or turn it into an array folder first.

        Args:
            work: Where the folder is made, and kept after an interruption.
            progress: Called with one line of text now and then.

        Returns:
            The source, with the masks of the split.

        Raises:
            InputError: If it is unknown, cannot be read, or contradicts itself or the options.
            OSError: If the disk is full.
        """
        fractions = None if self.split is None else parse_fractions(self.split)
        folder = work["arrays"]
        if folder is None:
            made = work.path(ARRAYS)
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            folder = str(
                ingest(
                    self.source,
                    made,
                    vertices=self.vertices,
                    undirected=self.undirected,
                    columns=self.columns,
                    progress=progress,
                )
            )
            work.record(arrays=folder)
        found = open_folder(folder)
        vertices = replace(found.vertices, name=self.name, source=self.source)
        if fractions is not None:
            vertices = random_split(vertices, fractions, seed=self.seed)
        return replace(found, vertices=vertices)
