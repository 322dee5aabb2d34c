"""Roots to begin with: which library places them, with which objective, weights and seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from distgnn.datasets.errors import InputError
from distgnn.partition.methods.kaminpar_library import check_installed, is_installed, is_preset
from distgnn.partition.methods.metis_library import check_objective
from distgnn.partition.methods.options import BEST, FAST, QUALITIES
from distgnn.partition.refine.balance import EDGE_SHARE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distgnn.datasets.graph import Graph

# Edges times parts up to which METIS minimises the volume too, in about a second, and KaMinPar has
# its slower preset.
QUICK_WORK = 10**7
# Edges up to which METIS runs twice, the second time with other weights, and up to which it runs
# again with edges alone where the balance of edges cost more rows than refinement saved. On am-kg
# that left 56, 636 and 1,856 rows in 4, 16 and 64 parts in place of 1,511, 5,799 and 14,371.
TWICE_EDGES, COSTLY_EDGES = 3 * 10**6, 10**7
# Libraries that may place the roots; "best" is both, and what moves fewer rows is kept.
ROOTS = ("metis", "kaminpar", "best")
# KaMinPar balances edges alone: with METIS's share of 0.65, four real graphs in 16 parts ended with
# 1 to 7 % more rows. Roots are evened out afterwards.
KAMINPAR_EDGE_SHARE = 1.0
# Shares of the edges that are tried beside that of METIS's cut, the first by default, and steps of
# the seed, by the best quality. A cut with 0.85 moved 0.6, 5.3 and 3.7 % fewer rows, and once 0.4 %
# more.
OTHER_SHARES, OTHER_SEEDS = (0.85, 1.0), (1,)
# Steps of the seed that it tries with the first of these shares, while a cut is quick. Of 6 seeds,
# the best moved 2.2 to 3.0 % fewer rows than the mean with facebook-pages, amazon-computers and
# coauthor-physics; from one share to another the means differ by 3 % at most.
MORE_SEEDS = range(1, 6)


class Start(NamedTuple):
    """One call of a library."""

    name: str
    """Objective of METIS, or preset of KaMinPar."""
    edge_share: float
    """Share of the edges in the weights of vertices."""
    seed: int
    """Seed of the library."""

    def __str__(self) -> str:
        """Name the library and what it was asked for."""
        library = "KaMinPar" if is_preset(self.name) else "METIS"
        usual = KAMINPAR_EDGE_SHARE if is_preset(self.name) else EDGE_SHARE
        share = "" if self.edge_share == usual else f", edges weigh {self.edge_share:g}"
        return f"{library}, {self.name}{share}"


def starts_of(
    graph: Graph, num_parts: int, *, seed: int, quality: str, roots: str, objective: str
) -> list[Start]:
    """Say which roots are worth their time.

    Args:
        graph: The graph.
        num_parts: At least 1.
        seed: Seed of the first.
        quality: One of QUALITIES.
        roots: One of ROOTS, or empty.
        objective: Objective of METIS, or empty.

    Returns:
        At least one.

    Raises:
        InputError: If one of these is unknown, they exclude each other, or KaMinPar is needed and
            not installed.
    """
    if quality not in QUALITIES:
        raise InputError(f"unknown quality {quality!r}; choose one of {', '.join(QUALITIES)}")
    if not roots:
        roots = "best" if quality == BEST and is_installed() else "metis"
    if roots not in ROOTS:
        raise InputError(f"unknown roots {roots!r}; choose one of {', '.join(ROOTS)}")
    names = objectives_of(graph, num_parts, objective)
    starts = []
    if roots != "kaminpar":
        starts = [Start(name, EDGE_SHARE, seed) for name in names]
        if quality == FAST:
            starts = starts[:1]
    elif objective:
        raise InputError(
            f"objective {objective!r} is for roots by METIS, and KaMinPar minimises the cut; leave "
            "the option objective out"
        )
    if quality != FAST and starts and not objective and graph.num_edges <= TWICE_EDGES:
        starts += [Start(names[0], OTHER_SHARES[0], seed)]
    if quality == BEST and starts:
        others = (Start(names[0], share, seed) for share in OTHER_SHARES)
        starts += [other for other in others if other not in starts]
        starts += [Start(names[0], EDGE_SHARE, seed + step) for step in OTHER_SEEDS]
        if graph.num_edges * num_parts <= QUICK_WORK:
            starts += [Start(names[0], OTHER_SHARES[0], seed + step) for step in MORE_SEEDS]
    if roots != "metis":
        check_installed()
        is_quick = graph.num_edges * num_parts <= QUICK_WORK and quality != FAST
        seeds = [seed, *(seed + step for step in OTHER_SEEDS if quality == BEST)]
        preset = "eco" if is_quick else "default"
        starts += [Start(preset, KAMINPAR_EDGE_SHARE, each) for each in seeds]
    return starts


def can_start_again(graph: Graph, first: Start, quality: str, objective: str) -> bool:
    """Return whether METIS may begin again with edges alone, if parts were costly to balance.

    Args:
        graph: The graph.
        first: The start that led to these parts.
        quality: One of QUALITIES.
        objective: Objective of METIS that was asked for, or empty.
    """
    is_metis = not objective and not is_preset(first.name)
    return is_metis and quality != FAST and graph.num_edges <= COSTLY_EDGES


def objectives_of(graph: Graph, num_parts: int, objective: str) -> Sequence[str]:
    """Say which objectives METIS should be called with.

    Args:
        graph: The graph.
        num_parts: At least 1.
        objective: "volume" or "cut", or empty for those that are worth their time.

    Returns:
        One or more of "cut" and "volume".

    Raises:
        InputError: If the objective is unknown.
    """
    if objective:
        check_objective(objective)
        return (objective,)
    return ("cut", "volume") if graph.num_edges * num_parts <= QUICK_WORK else ("cut",)
