"""The array folder: the arrays of the `.npz` graph file as single `.npy` files.

It is the form for graphs that do not fit into memory: numpy maps such files, and tools read them
slice by slice. `edge_index.npy` may be two files instead, `src.npy` and `dst.npy`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets import _checks
from distgnn.datasets.archive import is_text_sound
from distgnn.datasets.errors import InputError
from distgnn.datasets.flat_array import DAMAGES, FlatArray, open_flat, read_header, reason_of
from distgnn.datasets.npz import graph_of_arrays, log_leaks, log_unused, sha256, texts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.datasets.graph import Graph

# Smaller arrays are read: a map costs a page and a descriptor of the kernel each.
_MAP_BYTES = 1 << 20
# Types of edges that are checked at once.
_TYPES_AT_ONCE = 1 << 22
# Arrays whose last or first axis counts the vertices.
_BY_VERTEX = (("features", 0), ("labels", 0), ("vertex_id", 0), ("train_mask", -1))


def is_array_folder(path: Path) -> bool:
    """Return whether a folder has edges as arrays."""
    return any((path / name).is_file() for name in ("edge_index.npy", "src.npy", "dst.npy"))


def read_array_folder(path: str | Path) -> Graph:
    """Read a graph from an array folder.

    Features, and whatever else has the dtype of a Graph already, stay on disk and are mapped into
    memory, copy-on-write.

    Args:
        path: The folder; its name becomes the name of the graph.

    Raises:
        InputError: If an array is missing, damaged or of another kind, or they contradict each
            other.
    """
    path = Path(path)
    files = sorted(path.glob("*.npy"))
    arrays = {file.stem: open_array(file) for file in files}
    if "edge_index" not in arrays:
        ends_of(path)
        ends = arrays.pop("src"), arrays.pop("dst")
    else:
        ends = None
    name = path.resolve().name
    try:
        graph = graph_of_arrays(arrays, ends, name=name, source=str(path), checksum=sha256(files))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    log_unused(graph)
    log_leaks(graph)
    return graph


def ends_of(folder: Path) -> tuple[FlatArray, FlatArray]:
    """Open the sources and the destinations of the edges of an array folder.

    Args:
        folder: The folder.

    Returns:
        Two arrays of equal size and dtype, int32 or int64.

    Raises:
        InputError: If an array is missing, damaged or of another kind.
    """
    both = folder / "edge_index.npy"
    if both.is_file():
        # The header alone: opened, a transposed array would be a row for each edge.
        shape = read_header(both).shape
        if len(shape) != 2 or shape[0] != 2:
            raise InputError(
                f"{both} must have shape (2, num_edges), got {shape}; put sources in the first "
                "row and destinations in the second"
            )
        rows = open_flat(both)
    else:
        rows = []
        for path in (folder / "src.npy", folder / "dst.npy"):
            shape = read_header(path).shape
            if len(shape) != 1:
                raise InputError(
                    f"{path} must have shape (num_edges,), got {shape}; write one id for each edge"
                )
            rows += open_flat(path)
    src, dst = rows
    if src.size != dst.size or src.dtype != dst.dtype:
        raise InputError(
            f"{folder}: src has {src.size} ids of {src.dtype} and dst {dst.size} of {dst.dtype}; "
            "give one of each for each edge, of the same type"
        )
    if src.dtype not in (np.dtype(np.int32), np.dtype(np.int64)):
        raise InputError(
            f"{folder}: the ends of edges must be int32 or int64, got {src.dtype}; convert them"
        )
    return src, dst


def num_edges_of(folder: Path) -> int:
    """Return how many edges a folder has by the header of its arrays, however they are stored.

    Args:
        folder: The folder.

    Returns:
        The number; 0 where the shape is that of no edges.

    Raises:
        InputError: If an array is missing or damaged.
    """
    both = folder / "edge_index.npy"
    shape = read_header(both if both.is_file() else folder / "src.npy").shape
    return shape[-1] if shape else 0


def weight_of(folder: Path, num_edges: int) -> FlatArray | None:
    """Open the weights of the edges of an array folder.

    Args:
        folder: The folder.
        num_edges: How many edges it has.

    Returns:
        (num_edges,) numbers, possibly not finite; None where there are no weights.

    Raises:
        InputError: If the array is damaged, or has not one number for each edge.
    """
    path = folder / "edge_weight.npy"
    return _one_for_each(path, num_edges, ("numbers", "fiub"), "correct it or leave it out")


def _one_for_each(
    path: Path, num_edges: int, what: tuple[str, str], advice: str
) -> FlatArray | None:
    """Open the values of edges, of some kinds of dtypes; None without the file."""
    if not path.is_file():
        return None
    header = read_header(path)
    if header.shape != (num_edges,) or header.dtype.kind not in what[1]:
        raise InputError(
            f"{path} must hold {num_edges} {what[0]}, one for each edge, got {header.dtype} of "
            f"shape {header.shape}; {advice}"
        )
    return open_flat(path)[0]


def edge_features_of(folder: Path, num_edges: int) -> tuple[FlatArray | None, int]:
    """Open the features of the edges of an array folder.

    Args:
        folder: The folder.
        num_edges: How many edges it has.

    Returns:
        (num_edges * num_columns,) numbers row by row, possibly not finite, and the number of
        columns; None and 0 where there are no features.

    Raises:
        InputError: If the array is damaged, has another shape, or does not lie row by row.
    """
    path = folder / "edge_features.npy"
    if not path.is_file():
        return None, 0
    header = read_header(path)
    dtype, shape = header.dtype, header.shape
    is_table = len(shape) == 2 and shape[0] == num_edges and shape[1] > 0
    if not is_table or dtype.kind not in "fiub" or header.is_fortran or not dtype.isnative:
        order = "column by column" if header.is_fortran else "row by row"
        raise InputError(
            f"{path} must hold numbers of shape ({num_edges}, num_edge_features), row by row, got "
            f"{dtype} of shape {shape}, {order}; write one row for each edge"
        )
    return FlatArray(path, header.offset_bytes, dtype, shape[0] * shape[1]), shape[1]


def edge_type_of(folder: Path, num_edges: int) -> FlatArray | None:
    """Open the types of the edges of an array folder.

    Args:
        folder: The folder.
        num_edges: How many edges it has.

    Returns:
        (num_edges,) integers, possibly out of range; None where edges have no types.

    Raises:
        InputError: If the array is damaged, or has not one integer for each edge.
    """
    path = folder / "edge_type.npy"
    advice = "number the types from 0, or leave it out"
    return _one_for_each(path, num_edges, ("integers", "iu"), advice)


def allowed_types(found: FlatArray, start: int, stop: int) -> NDArray[np.int64]:
    """Read types of edges.

    Args:
        found: Types, as `edge_type_of` opens them.
        start: The first edge.
        stop: The one after the last.

    Returns:
        (stop - start,) int64.

    Raises:
        InputError: If one is out of range, or the file has become shorter.
    """
    try:
        return _checks.types(found.read(start, stop), "edge_type", stop - start, start=start)
    except InputError as error:
        raise InputError(f"{found.path}: {error}") from error


def relations_of(folder: Path, num_edges: int) -> tuple[FlatArray, int] | None:
    """Open the types of the edges of a folder, and check them.

    Args:
        folder: The folder.
        num_edges: Edges of the graph.

    Returns:
        (num_edges,) integers on disk, and the number of relations: named ones, or the largest
        type + 1. None if there are no types.

    Raises:
        InputError: If there is not one type for each edge, one is no type, or names are missing.
    """
    found = edge_type_of(folder, num_edges)
    if found is None:
        return None
    used = 1
    for start in range(0, num_edges, _TYPES_AT_ONCE):
        kinds = allowed_types(found, start, min(start + _TYPES_AT_ONCE, num_edges))
        used = max(used, int(kinds.max()) + 1)
    names = folder / "relation_names.npy"
    if not names.is_file():
        return found, used
    texts = texts_of("relation_names", open_array(names))
    return found, len(_checks.relation_names(texts, np.array([used - 1])))


def num_vertices_of(folder: Path) -> int | None:
    """Return how many vertices the arrays of a folder say there are, without reading the edges.

    Args:
        folder: The folder.

    Returns:
        The number, or None where no array but the edges tells it.

    Raises:
        InputError: If an array is damaged, or the number is not one of at least 1.
    """
    file = folder / "num_vertices.npy"
    if file.is_file():
        value = open_array(file)
        if value.size != 1 or value.dtype.kind not in "iu" or int(value.item()) < 1:
            raise InputError(
                f"{file} must hold one whole number of at least 1, got {value!r}; correct it"
            )
        return int(value.item())
    if (folder / "features_shape.npy").is_file():
        file = folder / "features_shape.npy"
        value = open_array(file).reshape(-1)[:2]
        if value.size != 2 or value.dtype.kind not in "iu" or int(value[0]) < 1:
            raise InputError(
                f"{file} must hold the numbers of rows and columns of the features, at least one "
                f"row, got {value!r}; correct it"
            )
        return int(value[0])
    for name, axis in _BY_VERTEX:
        if (folder / f"{name}.npy").is_file():
            shape = read_header(folder / f"{name}.npy").shape
            return shape[axis] if shape else None
    return None


def open_array(file: Path) -> NDArray[Any]:
    """Read a small array, map a large one copy-on-write.

    Args:
        file: An .npy file.

    Returns:
        The array.

    Raises:
        InputError: If it is missing or damaged.
    """
    header = read_header(file)
    is_large = file.stat().st_size - header.offset_bytes >= _MAP_BYTES
    try:
        array = np.load(file, mmap_mode="c" if is_large else None, allow_pickle=False)
        if not is_text_sound(array):
            raise ValueError("its text has characters that do not exist")
    except DAMAGES as error:
        raise InputError(
            f"{file} cannot be read ({reason_of(error)}); write it again with numpy.save"
        ) from error
    # A plain view: memmap's own class would make every slice and sum of it a memmap too.
    plain: NDArray[Any] = array.view(np.ndarray)
    return plain
