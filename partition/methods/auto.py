"""Choose a method: the one that moves the fewest rows among those that fit into memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.partition import TAKE_NARROW
from distgnn.partition.methods.grown import QUICK_EDGES
from distgnn.partition.refine.hubs import has_hubs
from distgnn.partition.stream import degrees

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from distgnn.datasets.graph import Graph

# Share of the free memory: the partition directory must be written, too, and estimates are rough.
USABLE_FRACTION = 0.8


@dataclass(frozen=True)
class MethodMemory:
    """Memory that a method takes beyond the graph."""

    method: str
    """One of METHODS."""
    per_edge: int
    """Bytes per directed edge."""
    per_vertex: int
    """Bytes per vertex."""
    refined_per_edge: int
    """Bytes per directed edge where the assignment is refined by request."""

    def bytes(self, num_vertices: int, num_edges: int, *, refine: bool = False) -> int:
        """Estimate the memory for a graph."""
        per_edge = self.refined_per_edge if refine else self.per_edge
        return per_edge * num_edges + self.per_vertex * num_vertices


@dataclass(frozen=True)
class MethodChoice:
    """A method and why it was chosen."""

    method: str
    """One of METHODS."""
    reason: str
    """One line."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the method."""
    takes_little: bool | None = None
    """Whether UNDIRECTED_NEED holds for the graph; None where the choice did not ask."""


# Edges whose ends are looked at at a time.
_CHUNK = 1 << 20
# Ranges of vertices whose edges are sorted one after the other.
_RANGES = 16
# Ends of an edge of 64 bits, which methods that take no narrow graph get a copy with.
WIDE_EDGE_BYTES = 16

# From the one that is worth most to the one that needs the least memory, bytes per edge, vertices
# included, rounded up, 16 parts. With one direction of each edge metis takes 134 on products' twin
# at 1/16 (64eca5d). On a mesh of 2 M edges and twins of ogbn-products and Reddit ne takes 57, 56
# and 56, hdrf 37, 29 and 29; refining after either takes 84 on the mesh (b7cabfa).
NEEDS = (
    MethodMemory("metis", 140, 200, 140),
    MethodMemory("ne", 65, 150, 95),
    MethodMemory("hdrf", 45, 100, 95),
)

# Metis where every edge has its reverse, so that a link stands for two, and where no parts are
# grown: 65 and 69 on products' twin at 1/4 and on a grid of 1 M vertices and 4 M edges (64eca5d).
# With more links METIS gets clusters, and takes less where there are some to find.
UNDIRECTED_NEED = MethodMemory("metis", 80, 60, 80)

# Metis with roots by KaMinPar: refinement is what takes the most. On twins of ogbn-products at 1/16
# and 1/4, placing roots took 25 + 13 and 21 + 8 bytes per edge in two processes, refinement 40 and
# 38 (1f6af89).
KAMINPAR_NEED = MethodMemory("metis", 100, 200, 100)


def takes_little(graph: Graph) -> bool:
    """Check whether METIS takes no more than UNDIRECTED_NEED.

    Args:
        graph: Any graph.

    Returns:
        Whether every edge has its reverse, none comes twice, there are no hubs, and there are too
        many edges to try more than METIS. Reverses are found by sums, which are hardly ever the
        same by chance.
    """
    if graph.num_edges <= QUICK_EDGES or has_hubs(_links_of_vertices(graph)):
        return False
    # A sum over edges that is another one where sources and destinations change places.
    one, other = np.random.default_rng(0).integers(2**64, size=(2, graph.num_vertices), dtype="u8")
    there, back = np.zeros((2, 1), np.uint64)  # Sums of arrays wrap around without a warning.
    for begin in range(0, graph.num_edges, _CHUNK):
        src, dst = graph.src[begin : begin + _CHUNK], graph.dst[begin : begin + _CHUNK]
        there += np.sum(one[src] * other[dst])
        back += np.sum(one[dst] * other[src])
    return bool(there[0] == back[0]) and not _has_parallel_edges(graph)


def _links_of_vertices(graph: Graph) -> NDArray[np.int64]:
    """Count edges at each vertex without loops, which METIS does not see."""
    is_loop = graph.src == graph.dst
    loops = np.bincount(graph.src[is_loop], minlength=graph.num_vertices)
    return degrees(graph) - 2 * loops


def _has_parallel_edges(graph: Graph) -> bool:
    """Return whether an edge comes twice; METIS sees it once, so degrees hide or feign hubs."""
    # Sources in ranges with about as many edges each: all keys at once would take 8 bytes an edge.
    counts = np.cumsum(np.bincount(graph.src, minlength=graph.num_vertices))
    most = max(_CHUNK, graph.num_edges // _RANGES)
    ends = np.searchsorted(counts, np.arange(most, graph.num_edges, most))
    begin = 0
    for end in (*(ends + 1).tolist(), graph.num_vertices):
        is_in = (graph.src >= begin) & (graph.src < end)
        key = graph.src[is_in].astype(np.int64)
        key *= graph.num_vertices
        key += graph.dst[is_in]
        key.sort()
        if np.any(key[1:] == key[:-1]):
            return True
        begin = end
    return False


def choose(
    num_vertices: int,
    num_edges: int,
    available_bytes: int,
    *,
    refine: bool = False,
    has_kaminpar: bool = False,
    is_fast: bool = False,
    takes_little: Callable[[], bool] = lambda: False,
    is_narrow: bool = False,
) -> MethodChoice:
    """Choose a method for a graph of some size.

    Args:
        num_vertices: Number of vertices of the graph.
        num_edges: Directed edges.
        available_bytes: Memory that is free beside the graph.
        refine: Whether any assignment is to be refined; metis refines unless that is off.
        has_kaminpar: Whether roots by KaMinPar may be tried beside those by METIS.
        is_fast: Whether one cut has to do, so that KaMinPar comes only in place of METIS.
        takes_little: Returns whether UNDIRECTED_NEED holds for the graph. Called only where METIS
            does not fit without it.
        is_narrow: Whether the ends of the edges have 32 bits, so that most methods get a copy.

    Returns:
        The first of NEEDS that fits into USABLE_FRACTION of the memory, else the last one.
    """
    have = f"of {available_bytes / 2**30:.2f} GiB that are free"
    usable = USABLE_FRACTION * available_bytes
    tried = []
    candidates: list[tuple[str, MethodMemory, dict[str, str]]] = [
        (need.method, need, {}) for need in NEEDS
    ]
    if has_kaminpar:
        if not is_fast:
            # KaMinPar runs before or after METIS, and takes less.
            candidates[0][2]["roots"] = "best"
        by_kaminpar = "metis with roots=kaminpar", KAMINPAR_NEED, {"roots": "kaminpar"}
        candidates.insert(1, by_kaminpar)
    is_little = None
    for name, given, chosen in candidates:
        need, options = given, chosen
        needed = need.bytes(num_vertices, num_edges, refine=refine)
        if need is NEEDS[0] and needed > usable:
            is_little = takes_little()
            need = UNDIRECTED_NEED if is_little else need
            needed = need.bytes(num_vertices, num_edges, refine=refine)
        if is_narrow and need.method not in TAKE_NARROW:
            needed += WIDE_EDGE_BYTES * num_edges
        tried.append(f"{name} takes about {needed / 2**30:.2f} GiB")
        if needed <= usable:
            break
    return MethodChoice(need.method, f"{', '.join(tried)} {have}", options, is_little)
