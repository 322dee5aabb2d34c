"""Creation of a partition directory: complete under its name, or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import scipy.sparse as sp
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.files import sync_directory
from distgnn.datasets.graph import Graph
from distgnn.partition.directory.files import write_array
from distgnn.partition.directory.layout import part_folder
from distgnn.partition.directory.manifest import FileRecord, Manifest, PartCounts
from distgnn.partition.directory.temporary import NEW, PREVIOUS, folder_beside

MANIFEST_NAME = "manifest.json"


def manifest_of(
    graph: Graph,
    parts: Sequence[PartCounts],
    files: Mapping[str, FileRecord],
    *,
    num_edges: int,
    num_features: int,
    num_edge_features: int,
    num_relations: int,
    **how: Any,
) -> Manifest:
    """Describe a partition.

    Args:
        graph: Names, labels and masks; its edges, and features of both kinds, may be elsewhere.
        parts: Sizes of each part.
        files: All files.
        num_edges: Number of edges of the whole graph.
        num_features: Number of features of the whole graph.
        num_edge_features: Number of features of edges.
        num_relations: Number of relations; 0 without types of edges.
        **how: The fields of `Manifest` that say how it was made.

    Returns:
        The manifest.
    """
    # A Graph has labels for all that its masks select, so these are what the loss counts.
    train = graph.train_mask
    values: dict[str, Any] = {
        "source": graph.source,
        "source_checksum": graph.checksum,
        **how,
    }
    return Manifest(
        name=graph.name,
        num_parts=len(parts),
        num_vertices=graph.num_vertices,
        num_edges=num_edges,
        num_features=num_features,
        num_edge_features=num_edge_features,
        has_sparse_features=sp.issparse(graph.features),
        num_classes=graph.num_classes,
        class_names=graph.class_names or (),
        num_relations=num_relations,
        num_vertex_types=graph.num_vertex_types,
        relation_names=graph.relation_names or (),
        is_multilabel=graph.is_multilabel,
        is_regression=graph.is_regression,
        metric=graph.metric,
        has_labels=graph.labels is not None,
        num_splits=graph.num_splits,
        num_train=() if train is None else tuple(int(count) for count in train.sum(axis=1)),
        parts=tuple(parts),
        files=files,
        **values,
    )


def write_part(
    folder: Path, part: int, arrays: Mapping[str, NDArray[Any]]
) -> dict[str, FileRecord]:
    """Write arrays of a part into its folder, which is made if it is not there.

    Args:
        folder: The directory in the making.
        part: Number of the part.
        arrays: By name.

    Returns:
        Size and checksum of each file, by its path relative to the directory.

    Raises:
        OSError: If the disk is full or cannot be written.
    """
    part_path = folder / part_folder(part)
    part_path.mkdir(exist_ok=True)
    records = {
        f"{part_path.name}/{name}.npy": write_array(part_path / f"{name}.npy", array)
        for name, array in arrays.items()
    }
    sync_directory(part_path)
    return records


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, which makes a partition directory of a folder.

    Args:
        folder: The directory in the making.
        manifest: All about it.

    Raises:
        OSError: If the disk is full or cannot be written.
    """
    text = json.dumps(manifest.to_json(), indent=1, allow_nan=False)
    with (folder / MANIFEST_NAME).open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def complete_or_absent(target: Path, check: Callable[[], None] | None = None) -> Iterator[Path]:
    """Yield a temporary sibling of `target` that takes its place if the block succeeds.

    Args:
        target: An absolute path.
        check: Called after the block; raises InputError if what is at the target by then may not be
            replaced.

    Yields:
        An empty folder.

    Raises:
        InputError: If something cannot be written, or the check refuses.
    """
    missing = [path for path in target.parents if not path.exists()]
    is_complete = False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with folder_beside(target) as temporary:
            # Temporary folders are private; the partition has the mode of any new folder.
            content = temporary / NEW
            content.mkdir()
            yield content
            sync_directory(content)
            # Another process may have come first.
            if check is not None:
                check()
            replace(content, target, temporary)
        for path in missing:
            # Folders that were made for it, too, are names in one that was there.
            sync_directory(path.parent)
        is_complete = True
    except OSError as error:
        raise InputError(
            f"cannot write partition directory {str(target)!r}: {error.strerror or error}; choose "
            "another directory or make room"
        ) from error
    finally:
        if not is_complete:
            _remove_empty(missing)


def replace(content: Path, target: Path, temporary: Path) -> None:
    """Rename `content` to `target`; what was there goes into `temporary`, or back on failure.

    Args:
        content: A complete directory.
        target: On the same file system.
        temporary: An existing folder there.

    Raises:
        OSError: If a name cannot be changed.
    """
    previous = temporary / PREVIOUS
    try:
        if target.exists():
            target.rename(previous)
        content.rename(target)
    except BaseException:  # An interrupt between the two, too.
        if previous.exists() and not target.exists():
            previous.rename(target)
        raise
    sync_directory(target.parent)


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return
