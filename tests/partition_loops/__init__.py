"""The loops of distgnn._partitioner in plain Python, under the same names.

They take the same arguments, so that a whole method can run on either and give the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn import _partitioner
from partition_loops import annealing as a
from partition_loops import (
    arcs,
    covers,
    drains,
    growth,
    levels,
    orders,
    passes,
    placement,
    plans,
    rows,
    sets,
)
from partition_loops import weights as w

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

LOOPS: dict[str, Callable[..., Any]] = {
    "starts_of": arcs._starts,
    "sort_by_head": arcs._sort_by_head,
    "sort_by_source": arcs._sort_by_source,
    "count_heads": arcs._count_heads,
    "count_sources": arcs._count_sources,
    "take_ends": lambda edge, end, place, taken: taken.__setitem__(..., place[end[edge]]),
    "inner_edges": lambda *given: arcs._inner_edges(*given[:5], part=given[5]),
    "count_arcs": arcs._count_arcs,
    "merge_arcs": lambda *given: arcs._merge(*given[:4], given[4:7], given[7:]),
    "pair_arcs": arcs._pair,
    "with_mates": lambda *given: arcs._with_mates(*given[:4], is_simple=given[4], both=given[5]),
    "group_items": arcs._group,
    "mark_slots": arcs._mark_slots,
    "both_ways": arcs._both_ways,
    "take_parts": lambda first, last, parts, index, taken: taken.__setitem__(
        slice(first, last), parts[index[first:last]]
    ),
    "sort_numbers": lambda values: values.sort(),
    "sort_edges": arcs._sort_edges,
    "transpose_edges": arcs._transpose_edges,
    "edges_of_parts": arcs.edges_of_parts,
    "arcs_apart": placement._apart,
    "are_together": placement._are_together,
    "rows_read": arcs._rows_read,
    "rows_written": arcs._rows_written,
    "count_clones": lambda first, last, *given: arcs._count_clones(
        first, last, given[:2], given[2:4], *given[4:]
    ),
    "spread_roots": arcs._spread,
    "count_fetches": lambda *given: arcs._count_fetches(
        *given[:3], np.full(given[3], -1), given[4]
    ),
    "cut_arcs": lambda first, last, *given: covers._cut_arcs(
        (first, last), given[:3], *given[3:6], one_way=given[6]
    ),
    "number_slots": covers._number_slots,
    "settled_edges": covers._settled,
    "free_components": lambda edges, is_free, is_paired: covers._free_components(
        edges, is_free, is_paired=is_paired
    ),
    "cover_components": lambda edges, placed, is_free, *covered: covers._cover_components(
        edges, (placed, is_free), *covered
    ),
    "covered_edges": lambda edges, left, right, *given: covers._covered(
        edges, (left, right), *given
    ),
    "level_items": covers._level,
    "maximum_matching": covers.maximum_matching,
    "alternating_reach": lambda graph, *matching: covers.alternating_reach(
        graph, covers.Matching(*matching)
    ),
    "vertex_hashes": lambda count, seed: sets._vertex_hashes(count, seed),
    "link_keys": lambda src, dst, seed: sets._link_keys(src, dst, seed),
    "spill_edges": sets._spill,
    "insert_all": sets.insert_all,
    "stream_edges": lambda *given: growth._stream(*given[:5], given[5:7], given[7:]),
    "incident_links": growth._incidence,
    "grow_parts": growth.grow_parts,
    "light_weights": w._light_weights,
    "edges_beside": w.edges_beside,
    "drain_vertices": w._drain,
    "count_blocks": a.count_blocks,
    "spread_blocks": a._spread,
    "note_clusters": lambda *given: a._note_clusters(*given[:4], given[4:]),
    "count_rows": lambda *given: a._count_rows(a._Sample(*given[:3]), *given[3:]),
    "begin_blocks": a._begin,
    "anneal_blocks": lambda blocks, state, most, sweeps, start, _: a._anneal(
        blocks, state, most, (sweeps, np.uint64(start))
    ),
    "choose_groups": lambda first, last, links, *given: levels._choose(
        (first, last), links, given[:4], *given[4:]
    ),
    "join_groups": lambda first, last, choice, size, most, *groups: levels._join(
        (first, last), choice, size, most, groups
    ),
    "merge_cluster_links": lambda first, last, links, members, place, *written: (
        levels._merge_clusters((first, last), links, members, place, written)
    ),
    "join_clusters": rows.join_clusters,
    "gather_alone": rows.gather_alone,
    "change_parts": rows.change_parts,
    "has_reverses": orders._is_symmetric,
    "link_ends": orders._link,
    "merge_communities": orders._merge,
    "walk_mergers": orders._walk_down,
    "propagate_labels": lambda *given: orders._propagate(*given[:4]),
    "fill_placement": placement._fill,
    "move_unit": placement.move,
    "move_root": placement.move_root,
    "list_by_part": plans.list_by_part,
    "plan_slot": lambda where, work, limits, *which: plans.plan(where, work, limits, which),
    "added_spread": passes._added_spread,
    "empty_slots": passes.empty_slots,
    "wander": passes._wander,
    "move_vertices": lambda where, work, limits, *bounds: drains.move_vertices(
        where, work, limits, bounds
    ),
    "drain_for_free": drains._drain_for_free,
    "drain_by_slots": lambda where, work, limits, *bounds: drains._drain_by_slots(
        where, work, limits, bounds
    ),
    "begin_elsewhere": drains._begin_elsewhere,
    "empty_crowded": lambda where, work, limits, *bounds: drains._empty_crowded(
        where, work, limits, bounds
    ),
}


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the partitioner run on these loops."""
    for name, loop in LOOPS.items():
        monkeypatch.setattr(_partitioner, name, loop)
