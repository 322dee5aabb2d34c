from __future__ import annotations

import numpy as np
import pytest

from distgnn.partition.halo import distinct_slots


# Few slots are marked in a table; many, and more pairs than are marked at a time, are sorted.
@pytest.mark.parametrize("stride", [1, 10**6])
@pytest.mark.parametrize("num_pairs", [0, 1, 500, (1 << 20) + 500])
def test_slots_are_distinct_and_sorted_whether_marked_or_sorted(
    stride: int, num_pairs: int
) -> None:
    generator = np.random.default_rng(num_pairs)
    vertex = generator.integers(0, 7, num_pairs) * stride
    part = generator.integers(0, 5, num_pairs).astype(np.int32)
    part[-400:] = 5
    slots = distinct_slots(vertex, part, 7 * stride)
    keys = np.unique(part * np.int64(7 * stride) + vertex)
    assert np.array_equal(slots.part, keys // (7 * stride))
    assert np.array_equal(slots.vertex, keys % (7 * stride))
