"""METIS roots, edges by minimum vertex cover or in blocks, then refinement."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.graph import Graph
from distgnn.partition.arcs import (
    Adjacency,
    Arcs,
    adjacency_of,
    arcs_of,
    edges_of_parts,
    take_parts,
)
from distgnn.partition.assignment import Assignment
from distgnn.partition.methods import kaminpar_library
from distgnn.partition.methods.block_search import BlockSearch
from distgnn.partition.methods.candidates import (
    at_destination,
    cheapest,
    clones_of_parts,
    excess_edges,
    halo_rows,
    polished,
    refined_from,
    rows_read,
)
from distgnn.partition.methods.cover import place_arcs, place_evenly
from distgnn.partition.methods.grown import better_grown
from distgnn.partition.methods.hypergraph import QUICK_EDGES, fewer_by_hypergraph
from distgnn.partition.methods.kaminpar_library import is_preset
from distgnn.partition.methods.library_process import LibraryFailedError
from distgnn.partition.methods.metis_library import check_objective, part_graph
from distgnn.partition.methods.multilevel import part_by_levels, takes_levels
from distgnn.partition.methods.options import BEST, FAST
from distgnn.partition.methods.starts import TWICE_EDGES, Start, can_start_again, starts_of
from distgnn.partition.refine.balance import (
    EDGE_SHARE,
    Balance,
    is_training_balanced,
    level_isolated,
    rebalanced,
    rounded_sizes,
    training_counts,
)
from distgnn.partition.refine.hubs import lightened, links_of_hub
from distgnn.partition.refine.placement import check_numbers
from distgnn.partition.refine.refinement import EDGE_BALANCE
from distgnn.partition.stopwatch import Stopwatch

# Rounds of cover and rebalance; more than two were seldom needed.
MAX_ROUNDS = 4
# Refinements at the end: by the best quality, and by default up to TWICE_EDGES. On
# three real graphs in 16 parts 12 of them saved 1.3 to 2 % of the rows, the first 8 nine tenths of
# that. On eleven in 4, 16 and 64 parts, 2 saved 0.5 % in the mean, in 4 to 8 % of the time.
MOST_REFINEMENTS, FEW_REFINEMENTS = 8, 2


def assign(
    graph: Graph,
    num_parts: int,
    *,
    seed: int = 0,
    objective: str = "",
    edge_balance: float = EDGE_BALANCE,
    vertex_balance: float = 1.25,
    balance: str = "none",
    roots: str = "",
    quality: str = "default",
    refine: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Assignment:
    """Assign roots by METIS and edges by minimum vertex cover, then refine.

    The cover decides where edges live, so it can unbalance what METIS balanced. Refinement drains
    overfull parts edge by edge; without it, vertices move once more and the cover is taken again.

    On graphs where even that moves many rows, edges are also placed in blocks and refined. Parts
    that grow by expansion are tried, too, where that is quick or there are hubs. The assignment
    that moves the fewest rows is kept, and improved by Mt-KaHyPar where that is installed. None of
    these is tried if balance is "train", for they know nothing of training vertices. Isolated
    vertices go where there are the fewest clones.

    Args:
        graph: The graph. Its direction, self-loops and parallel edges are no obstacle.
        num_parts: At least 1.
        seed: Seed of METIS or KaMinPar, and of the search for blocks.
        objective: "cut" (edges cut), "volume" (rows that travel; several times slower, and after
            refinement seldom better), or empty: "cut", and the better of both while that is quick.
            If empty, "cut" also runs with other weights up to TWICE_EDGES, and with those of edges
            alone where their balance cost more rows than refinement saved.
        edge_balance: Largest part's edges over the mean that is aimed at.
        vertex_balance: Largest part's roots over the mean that is aimed at.
        balance: "train": parts also share the training vertices evenly if these are few; or "none".
        roots: "metis"; "kaminpar", an extra that takes less memory; or "best": both, and the
            assignment that moves fewer rows is kept, METIS's alone where KaMinPar fails. Empty:
            "metis", and "best" for the best quality where KaMinPar is installed.
        quality: "fast": nothing but a cut, a cover and refinement; "default": all of the above; or
            "best": from more weights and seeds, too. The winner is refined twice again by
            "default" up to TWICE_EDGES where there are several roots, eight times by "best". Then
            Mt-KaHyPar improves it, by default where that is quick, unless an objective or the
            roots of one library are asked for.
        refine: Whether to refine.
        progress: Called with one line of text after each stage.

    Returns:
        The assignment.

    Raises:
        InputError: If the objective, the roots, the quality or what to balance is unknown, a
            balance is below 1, or KaMinPar is asked for and not installed. Also if there are more
            vertices or distinct edges than refinement can number.
        LibraryFailedError: If it alone was asked for and fails.

    References:
        Karypis and Kumar, "A fast and high quality multilevel scheme for partitioning irregular
        graphs", SIAM J. Scientific Computing 1998. KaMinPar: see `kaminpar_library`.
    """
    starts = starts_of(
        graph, num_parts, seed=seed, quality=quality, roots=roots, objective=objective
    )
    training = training_counts(graph) if is_training_balanced(balance) else None
    aim = Balance(edge_balance, vertex_balance, refine=refine, training=training)
    watch = Stopwatch(progress)
    arcs = arcs_of(graph)
    if refine:  # at once, rather than after hours of METIS
        check_numbers(vertices=arcs.num_vertices, units=arcs.head.size)
    adjacency = adjacency_of(arcs)
    watch.note("arcs")
    # Where search ends depends on where it begins, so that the best quality also goes on from what
    # the default one would find, as that does.
    ways = [_Way(quality, starts)]
    if quality == BEST:
        usual = starts_of(
            graph, num_parts, seed=seed, quality="default", roots=roots, objective=objective
        )
        ways.append(_Way("default", [start for start in usual if start in starts]))
    search, first = None, starts[0]
    for start in starts:
        if start is first:
            # METIS takes the most memory of all; these 16 bytes an arc are soon found again. Its
            # numbers are 64 bits wide, and those of KaMinPar's file and of clusters 32.
            head = None if adjacency.indices is arcs.head else arcs.head
            arcs = arcs.lean()
            is_narrow = is_preset(start.name) or takes_levels(adjacency, start.name)
            adjacency = adjacency.lean(np.int32 if is_narrow else np.int64)
        try:
            placed = metis_roots(
                graph,
                num_parts,
                adjacency=adjacency,
                seed=start.seed,
                objective=start.name,
                balance=aim.of_roots(),
                edge_share=start.edge_share,
            )
        except LibraryFailedError as error:
            if start is first:
                raise
            watch.note(f"no more roots by KaMinPar, those so far are kept: {error}")
            break  # It comes after METIS.
        watch.note(f"roots by {start}")
        if start is first:
            adjacency = adjacency.whole().lean(np.int32)
            arcs = arcs.whole(adjacency.indices if head is None else head)
            if refine and training is None and quality != FAST:
                search = BlockSearch(arcs, adjacency, num_parts, aim, seed=seed, watch=watch)
        is_watched = start is first and can_start_again(graph, start, quality, objective)
        settled = settle(
            arcs,
            placed,
            num_parts,
            adjacency=adjacency,
            balance=aim,
            watch=watch,
            instead_of=search.instead_of if search and [start] == ways[-1].starts else None,
            asks_cost=is_watched,
        )
        # One or two at a time: each takes 4 bytes an arc.
        for way in ways:
            way.take(arcs, start, settled.placed, placed, edge_balance)
        if settled.is_costly:
            other = start._replace(edge_share=1.0)
            for known in (starts, *(way.starts for way in ways)):
                if other not in known:
                    known.insert(1, other)  # the loop comes to it next, before KaMinPar

    if arcs.of_edge.size > QUICK_EDGES and ways[0].found() is ways[-1].found():
        # From the same one the best quality does what the default one does, and more.
        ways = ways[:1]

    def ended(way: _Way) -> Assignment:
        """Search on from the best of the starts of a quality, as that does."""
        found, is_best = way.found(), way.quality == BEST
        if search is not None:
            blocks = search if way is ways[-1] else search.again()
            found = blocks.better_than(found, way.roots)
            has_hubs = links_of_hub(adjacency, num_parts) < math.inf
            found = better_grown(graph, arcs, found, aim, has_hubs=has_hubs, seed=seed, watch=watch)
        is_quick = graph.num_edges <= TWICE_EDGES and len(way.starts) > 1
        if refine and (is_best or (way.quality != FAST and is_quick)):
            times = MOST_REFINEMENTS if is_best else FEW_REFINEMENTS
            found = polished(arcs, found, aim, times)
            watch.note("refined again")
        if search is not None and roots in ("", "best") and not objective:
            found = fewer_by_hypergraph(
                arcs, found, aim, adjacency=adjacency, seed=seed, quality=way.quality, watch=watch
            )
        return found

    best = cheapest(arcs, [ended(way) for way in ways], edge_balance)
    return of_edges(arcs, best if training is not None else evened(arcs, best, vertex_balance))


class _Way:
    """Search of one quality: the best that its starts have led to so far.

    Args:
        quality: One of QUALITIES.
        starts: Its starts.
    """

    def __init__(self, quality: str, starts: Sequence[Start]) -> None:
        self.quality = quality
        self.starts = list(starts)
        self.roots = np.zeros(0, np.int32)
        self._found: Assignment | None = None

    def take(
        self,
        arcs: Arcs,
        start: Start,
        settled: Assignment,
        roots: NDArray[np.int32],
        edge_balance: float,
    ) -> None:
        """Keep what was made of a start, and its roots before that, if it is the best so far."""
        if start not in self.starts:
            return
        better = settled
        if self._found is not None:
            better = cheapest(arcs, (self._found, settled), edge_balance)
        self.roots = roots if better is settled else self.roots
        self._found = better

    def found(self) -> Assignment:
        """Return the best; there is at least one start."""
        assert self._found is not None, "the first start cannot be left out"
        return self._found


def evened(arcs: Arcs, placed: Assignment, vertex_balance: float) -> Assignment:
    """Even out clones, which refinement may have left less even, by isolated vertices.

    Args:
        arcs: Arcs of the graph.
        placed: An assignment of them.
        vertex_balance: Largest part's roots over the mean that is aimed at.

    Returns:
        Another assignment; `placed` if a part would get too many roots.
    """
    is_isolated, num_parts = arcs.is_isolated(), placed.num_parts
    alone = np.bincount(placed.root_part[is_isolated], minlength=num_parts)
    others = clones_of_parts(arcs, placed) - alone
    roots = level_isolated(placed.root_part, is_isolated, others)
    most = max(int(np.bincount(placed.root_part).max()), vertex_balance * roots.size / num_parts)
    if np.bincount(roots).max() > most:
        return placed
    return Assignment(num_parts, placed.edge_part, roots)


def of_edges(arcs: Arcs, assignment: Assignment) -> Assignment:
    """Turn an assignment of arcs into one of edges.

    Args:
        arcs: Arcs of a graph.
        assignment: With a part for each arc in place of each edge.

    Returns:
        The assignment of the graph.
    """
    edge_part = take_parts(assignment.edge_part, arcs.of_edge)
    return Assignment(assignment.num_parts, edge_part, assignment.root_part)


class Settled(NamedTuple):
    """Arcs that are placed and refined."""

    placed: Assignment
    is_costly: bool
    """Whether the balance of edges cost more rows than refinement saved; False if not asked for."""


def settle(
    arcs: Arcs,
    roots: NDArray[np.int32],
    num_parts: int,
    *,
    adjacency: Adjacency,
    balance: Balance,
    watch: Stopwatch,
    instead_of: Callable[[Assignment], Assignment | None] | None = None,
    asks_cost: bool = False,
) -> Settled:
    """Place arcs by minimum vertex cover, then refine, or move roots out of overfull parts.

    Args:
        arcs: Arcs of the graph.
        roots: (num_vertices,) int32. Part of each vertex's root, to begin with.
        num_parts: Number of parts.
        adjacency: Graph that `adjacency_of` makes of the arcs.
        balance: Balance to aim at, and whether to refine.
        watch: Told of each stage.
        instead_of: Given the cover, may return what is to be taken, refined, in its place.
        asks_cost: Whether to count rows before and after refinement, a pass over the arcs each.

    Returns:
        An assignment of the arcs, and whether it was costly.
    """
    if not balance.refine:
        placed = cover_edges(arcs, roots, num_parts, adjacency=adjacency, balance=balance)
        watch.note("edges by cover")
        return Settled(placed, is_costly=False)
    arc_part = place_arcs(arcs, roots, num_parts, edge_balance=balance.edges)
    watch.note("edges by cover")
    covered = Assignment(num_parts, arc_part, roots)
    if instead_of is not None and (other := instead_of(covered)) is not None:
        return Settled(other, is_costly=False)
    refined = _refined(arcs, covered, balance)
    watch.note("refined")
    is_costly = asks_cost and halo_rows(arcs, refined) > halo_rows(arcs, covered)
    return Settled(refined, is_costly)


def _refined(arcs: Arcs, covered: Assignment, balance: Balance) -> Assignment:
    """Refine the cover; if its edges cannot be balanced at a fair price, the edge cut."""
    if covered.num_parts == 1 or arcs.head.size == 0:
        return covered
    # The cover sees no balance of edges: pay for it what is needed, but not more than the cut does,
    # where all rows are read.
    rows_of_cut = rows_read(arcs, at_destination(arcs, covered))
    spare = max(rows_of_cut - halo_rows(arcs, covered), 0)
    found = [refined_from(arcs, covered, balance, spare)]
    if excess_edges(arcs, found[0], balance.edges) > 0:
        found.append(refined_from(arcs, found[0], balance, halo_rows(arcs, found[0])))
        found.append(refined_from(arcs, at_destination(arcs, covered), balance, 0))
    return cheapest(arcs, found, balance.edges)


def cover_edges(
    arcs: Arcs,
    roots: NDArray[np.int32],
    num_parts: int,
    *,
    adjacency: Adjacency,
    balance: Balance,
) -> Assignment:
    """Place arcs by minimum vertex cover, and move roots where that left parts overfull.

    Args:
        arcs: Arcs of the graph.
        roots: (num_vertices,) int32. Part of each vertex's root, to begin with.
        num_parts: Number of parts.
        adjacency: Graph that `adjacency_of` makes of the arcs.
        balance: Balance to aim at.

    Returns:
        An assignment of the arcs.
    """
    arc_part = place_evenly(arcs, roots, num_parts, edge_balance=balance.edges)
    best = Assignment(num_parts, arc_part, roots)
    for _ in range(MAX_ROUNDS - 1):
        guests = _guest_edges(arcs, roots, arc_part, num_parts)
        if _largest_over_mean(arcs, arc_part, num_parts) <= balance.edges:
            break
        roots = rebalanced(adjacency, roots, balance, guests)
        arc_part = place_evenly(arcs, roots, num_parts, edge_balance=balance.edges)
        largest = _largest_over_mean(arcs, arc_part, num_parts)
        if largest < _largest_over_mean(arcs, best.edge_part, num_parts):
            best = Assignment(num_parts, arc_part, roots)
    return best


def metis_roots(
    graph: Graph,
    num_parts: int,
    *,
    adjacency: Adjacency,
    seed: int,
    objective: str,
    balance: Balance,
    edge_share: float = EDGE_SHARE,
) -> NDArray[np.int32]:
    """Partition the vertices by METIS, in balance of edges and of vertices.

    Args:
        graph: The graph.
        num_parts: At least 1.
        adjacency: Graph that `adjacency_of` makes of the arcs.
        seed: Seed of METIS.
        objective: "volume" or "cut" of METIS, or a preset of KaMinPar.
        balance: Balance to aim at.
        edge_share: Share of the edges in the weights of vertices, from 0 to 1.

    Returns:
        (num_vertices,) int32. Part of each vertex's root; parts may be empty.

    Raises:
        InputError: If the objective is unknown.
    """
    if not is_preset(objective):
        check_objective(objective)
    if num_parts == 1:
        return np.zeros(graph.num_vertices, np.int32)
    # The volume knows that a hub's row travels once; better beside it than in its place.
    is_covered = balance.refine and objective != "volume"
    hub = links_of_hub(adjacency, num_parts) if is_covered else math.inf
    roots = part_evenly(
        adjacency, num_parts, seed=seed, objective=objective, hub=hub, edge_share=edge_share
    )
    return rebalanced(adjacency, roots, balance, np.zeros(num_parts), hub=hub)


def part_evenly(
    adjacency: Adjacency,
    num_parts: int,
    *,
    seed: int,
    objective: str,
    hub: float = math.inf,
    edge_share: float = EDGE_SHARE,
) -> NDArray[np.int32]:
    """Call METIS or KaMinPar for vertices with links, and even out the roots with the others.

    To cut few of many links METIS is called on clusters.

    Args:
        adjacency: Graph that `adjacency_of` makes of the arcs.
        num_parts: At least 2.
        seed: Seed of METIS or KaMinPar.
        objective: "volume" or "cut" of METIS, or a preset of KaMinPar.
        hub: Links from which on a vertex is a hub.
        edge_share: Share of the edges in the weights of vertices, from 0 to 1.

    Returns:
        (num_vertices,) int32. Part of each vertex; parts may be empty.
    """
    light = lightened(adjacency, hub)
    size = rounded_sizes(adjacency, hub=hub, edge_share=edge_share)
    if is_preset(objective):
        roots = kaminpar_library.part_graph(
            light, num_parts, vertex_weight=size, seed=seed, preset=objective
        )
    elif takes_levels(light, objective):
        roots = part_by_levels(light, num_parts, vertex_weight=size, seed=seed)
    else:
        roots = part_graph(light, num_parts, vertex_weight=size, seed=seed, objective=objective)
    is_isolated = np.diff(adjacency.indptr) == 0
    others = np.bincount(roots[~is_isolated], minlength=num_parts)
    return level_isolated(roots, is_isolated, others)


def _guest_edges(
    arcs: Arcs, roots: NDArray[np.int32], arc_part: NDArray[np.int32], num_parts: int
) -> NDArray[np.float64]:
    """Edges of each part beyond half of those at its roots; negative where others host them."""
    source = arcs.sources()
    is_link = source != arcs.head
    counts = [
        np.bincount(parts[is_link], arcs.weight[is_link], minlength=num_parts)
        for parts in (arc_part, roots[source], roots[arcs.head])
    ]
    guests: NDArray[np.float64] = counts[0] - (counts[1] + counts[2]) / 2.0
    return guests


def _largest_over_mean(arcs: Arcs, arc_part: NDArray[np.int32], num_parts: int) -> float:
    counts = edges_of_parts(arc_part, arcs.weight, num_parts)
    return float(counts.max()) * num_parts / max(arcs.of_edge.size, 1)
