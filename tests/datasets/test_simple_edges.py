"""Both directions of every edge, once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distgnn.datasets.simple_edges import simple_edges


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.uint64])
def test_edges_get_both_directions_once_whatever_their_integers(dtype: Any) -> None:
    src, dst = np.random.default_rng(0).integers(0, 200, (2, 1000)).astype(dtype)

    found = simple_edges(src, dst, 200)

    links = {(int(one), int(other)) for one, other in zip(src, dst, strict=True) if one != other}
    both = links | {(other, one) for one, other in links}
    expected = sorted((head, tail) for tail, head in both)
    assert [(int(head), int(tail)) for tail, head in zip(*found, strict=True)] == expected
    assert found[0].dtype == found[1].dtype == np.int64
