"""Memory of the process once METIS has ended."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from distgnn.datasets import Graph
from distgnn.partition import assign

LIBRARY = ctypes.CDLL(None)
# In the size of a block, which stands in front of it.
IS_MAPPED = 2


def is_mapped(num_bytes: int) -> bool:
    """Return whether the C library maps a new block of this size by itself."""
    LIBRARY.malloc.restype = ctypes.c_void_p
    LIBRARY.malloc.argtypes = [ctypes.c_size_t]
    LIBRARY.free.argtypes = [ctypes.c_void_p]
    block = LIBRARY.malloc(num_bytes)
    size = ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value
    LIBRARY.free(block)
    return bool(size & IS_MAPPED)


@pytest.mark.skipif(not hasattr(LIBRARY, "mallopt"), reason="not glibc")
def test_blocks_are_kept_for_the_next_ones_again_after_metis() -> None:
    ends = np.random.default_rng(0).integers(0, 40, (2, 200))
    assign("metis", Graph(name="random", num_vertices=40, src=ends[0], dst=ends[1]), 2)
    assert [is_mapped(size << 20) for size in (4, 31, 33)] == [False, False, True]
