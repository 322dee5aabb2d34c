"""Twins of published graphs by name: `synthetic:reddit`, `synthetic:papers@1/64,seed=1`."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets import streamed
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.datasets.limits import memory_limit, total_memory
from distgnn.datasets.make_twin import check_masks, make
from distgnn.datasets.scale import scale_of
from distgnn.datasets.streamed import BLOCK
from distgnn.datasets.twins import TWINS, make_twin_graph

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

PREFIX = "synthetic:"
TWIN_NAMES = (*TWINS, *streamed.TWINS)
"""Graphs that have a twin."""
# Bytes an edge while edges are drawn and put in order, features aside. At full size 30 were
# measured of Reddit's, 28 of products' and 34 of arxiv's, and 19 of one that is streamed.
_EDGE_BYTES = {**dict.fromkeys(TWINS, 34), **dict.fromkeys(streamed.TWINS, 22)}


@dataclasses.dataclass(frozen=True)
class _Request:
    """Request for a twin, such as synthetic:papers@1/64,seed=1."""

    source: str
    name: str
    scale: float
    seed: int


def is_twin(source: str) -> bool:
    """Return whether a source names a twin."""
    return source.startswith(PREFIX) and _words(source)[0] in TWIN_NAMES


def describe_twin(source: str) -> dict[str, Any]:
    """Return what `distgnn datasets` shows of a twin, told by its original and its scale.

    Raises:
        InputError: If the scale or an option is not allowed.
    """
    request = _parse(source)
    num_vertices, num_edges = _counts(request)
    twin = _twin(request.name)
    return {
        "name": source,
        "num_vertices": num_vertices,
        "num_edges": num_edges,
        "num_features": twin.num_features,
        "num_classes": twin.num_classes,
        "num_splits": 1,
        "licence": None,
        "options": {"seed": request.seed},
    }


def load_twin(source: str) -> Graph:
    """Return a twin.

    Args:
        source: The name, possibly @ and a scale, possibly a seed.

    Raises:
        InputError: If the scale or an option is not allowed, or the twin does not fit into memory.
    """
    request = _parse(source)
    num_vertices, num_edges = _counts(request)
    row_bytes = 4 * _twin(request.name).num_features
    needed = num_edges * _EDGE_BYTES[request.name] + num_vertices * row_bytes
    limit = memory_limit()
    most = total_memory() if limit is None else limit
    if needed > most:
        remedy = "take a smaller scale"
        if request.name in streamed.TWINS:
            remedy += ", or cut it from disk with distgnn partition --out-of-core on"
        raise InputError(
            f"{source} takes about {needed / 2**30:.0f} GiB and "
            f"{'this machine has' if limit is None else 'a program here may take'} "
            f"{most / 2**30:.0f} GiB; {remedy}"
        )
    if request.name in TWINS:
        graph = make_twin_graph(request.name, scale=request.scale, seed=request.seed)
    else:
        graph = _streamed_graph(request)
    return dataclasses.replace(graph, source=source)


def is_streamed_twin(source: str) -> bool:
    """Return whether a source names a twin that `write_twin` writes slice by slice."""
    return is_twin(source) and _words(source)[0] in streamed.TWINS


def write_twin(source: str, folder: Path) -> None:
    """Write a twin as an array folder, slice by slice.

    Args:
        source: One that `is_streamed_twin` says yes to.
        folder: Which does not exist.

    Raises:
        InputError: If the scale or an option is not allowed, or the disk lacks room.
    """
    request = _parse(source)
    make(request.name, folder, scale=request.scale, seed=request.seed, features="random")


def _words(source: str) -> tuple[str, str, list[str]]:
    """Split a source into the name, the scale (1 if it is not there) and the options."""
    first, *options = source.removeprefix(PREFIX).split(",")
    name, at, scale = first.partition("@")
    return name, scale if at else "1", options


def _parse(source: str) -> _Request:
    name, scale_text, options = _words(source)
    scale = scale_of(scale_text)
    if math.isnan(scale):
        raise InputError(
            f"the scale of {source!r} must be above 0 and at most 1, got {scale_text!r}; write for "
            f"example {PREFIX}{name}@1/64"
        )
    seed = "0"
    for option in options:
        key, _, seed = option.partition("=")
        if key != "seed" or not (seed.isascii() and seed.isdigit()) or len(options) > 1:
            raise InputError(
                f"twin {name!r} takes one option, a seed of at least 0, got {','.join(options)!r}; "
                f"write for example {PREFIX}{name}@1/64,seed=1"
            )
    return _Request(source, name, scale, int(seed))


def _twin(name: str) -> Any:
    return TWINS[name] if name in TWINS else streamed.TWINS[name]


def _counts(request: _Request) -> tuple[int, int]:
    """Return vertices and, of those that are no exact number, about how many edges."""
    if request.name in TWINS:
        twin = TWINS[request.name]
        num_vertices = round(twin.num_vertices * request.scale)
        return num_vertices, round(num_vertices * twin.mean_degree)
    graph = streamed.sketch(streamed.TWINS[request.name], request.scale, request.seed)
    return graph.num_vertices, graph.num_edges


def _streamed_graph(request: _Request) -> Graph:
    """Draw in memory what `write_twin` writes."""
    graph = streamed.sketch(streamed.TWINS[request.name], request.scale, request.seed)
    check_masks(graph, request.scale)
    edge_blocks = range(-(-graph.num_edges // BLOCK))
    vertex_blocks = range(-(-graph.num_vertices // BLOCK))
    src: NDArray[np.int64] = np.empty(graph.num_edges, np.int64)
    dst = np.empty_like(src)
    for block in edge_blocks:
        rows = slice(block * BLOCK, (block + 1) * BLOCK)
        src[rows], dst[rows] = streamed.edges(graph, block)
    features = np.empty((graph.num_vertices, graph.twin.num_features), np.float32)
    labels = np.empty(graph.num_vertices, np.int64)
    masks = np.empty((3, graph.num_vertices), np.bool_)
    for block in vertex_blocks:
        rows = slice(block * BLOCK, (block + 1) * BLOCK)
        features[rows] = streamed.features(graph, block)
        labels[rows], masks[:, rows] = streamed.vertices(graph, block)
    return Graph(
        name=f"{request.name}-twin",
        num_vertices=graph.num_vertices,
        src=src,
        dst=dst,
        features=features,
        labels=labels,
        train_mask=masks[0],
        val_mask=masks[1],
        test_mask=masks[2],
    )
