"""The fewest rows that travel for given roots while each edge lives at one of its ends."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from distgnn.datasets.distinct import distinct
from distgnn.partition.build import Part
from distgnn.partition.methods.cut_edges import cut_edges, minimum_cover


def least_halo_rows(parts: Iterable[Part], num_parts: int) -> int:
    """Count the rows of the best partition with these roots and each edge at one of its ends.

    That is a minimum vertex cover of the edges between parts, see `partition.methods.cover`. It
    holds for any balance of edges. A partition may move fewer rows, as edges may also live on a
    third part that has both ends for the sake of others.

    Args:
        parts: All parts, in order. Edges between parts are held, in 40 bytes each.
        num_parts: Number of parts.

    Returns:
        Rows that one layer moves in one direction of the pass, as `Quality.halo_rows`.
    """
    ends, owners = [np.empty((2, 0), np.int64)], [np.empty((2, 0), np.int32)]
    for number, part in enumerate(parts):
        own = np.full(part.num_roots, number, np.int32)
        others = np.repeat(np.arange(num_parts, dtype=np.int32), part.leaf_counts)
        owner = np.concatenate([own, others])
        head = np.repeat(np.arange(owner.size, dtype=np.int32), np.diff(part.indptr))
        is_cut = owner[part.indices] != owner[head]
        both = np.stack([part.indices[is_cut], head[is_cut]])
        ends.append(part.global_id[both])
        owners.append(owner[both])
    vertices, number_of = np.unique(np.concatenate(ends, axis=1), return_inverse=True)
    number_of = number_of.reshape(2, -1)
    root_part = np.empty(vertices.size, np.int32)
    root_part[number_of] = np.concatenate(owners, axis=1)
    pairs = distinct(number_of[0] * vertices.size + number_of[1])
    src, dst = (each.astype(np.int32) for each in np.divmod(pairs, max(vertices.size, 1)))
    if src.size == 0:
        return 0
    return minimum_cover(cut_edges(src, dst, np.ones_like(src), root_part, num_parts)).size
