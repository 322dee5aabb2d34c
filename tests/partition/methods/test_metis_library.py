"""Memory of the process once METIS has ended."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

# A process of its own: what others left on the heap would be taken first.
SCRIPT = """
import ctypes

import numpy as np

from distgnn.datasets import Graph
from distgnn.partition import assign

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.malloc.argtypes = [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]


def is_mapped(num_bytes):
    block = library.malloc(num_bytes)
    size = ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value
    library.free(block)
    return bool(size & 2)  # a bit of the size, which stands in front of a block


ends = np.random.default_rng(0).integers(0, 40, (2, 200))
assign("metis", Graph(name="random", num_vertices=40, src=ends[0], dst=ends[1]), 2)
print([is_mapped(size << 20) for size in (4, 31, 33)])
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_blocks_are_kept_for_the_next_ones_again_after_metis() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=False)
    assert done.stdout.decode().strip() == "[False, False, True]", done.stderr.decode()
