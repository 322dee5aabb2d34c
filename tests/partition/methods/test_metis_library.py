"""Memory and signals of the process once METIS has ended."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from distgnn.datasets import InputError
from distgnn.partition.methods import metis_library

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


# METIS takes seconds for it.
LONG = """
import numpy as np

from distgnn.datasets import Graph
from distgnn.partition.arcs import adjacency_of, arcs_of
from distgnn.partition.methods.metis_library import part_graph
src, dst = np.random.default_rng(0).integers(0, 100_000, (2, 400_000))
adjacency = adjacency_of(arcs_of(Graph(name="long", num_vertices=100_000, src=src, dst=dst)))
print("ready", flush=True)
weight = np.ones(100_000, np.int64)
for _ in range(100):
    part_graph(adjacency, 64, vertex_weight=weight, seed=0, objective="cut")
"""


def test_sigterm_ends_metis_and_the_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LONG],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # METIS complains there.
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.terminate()
        said, _ = process.communicate()
    # METIS may go on for a moment with what it has not written, and die of it.
    assert process.returncode in (-signal.SIGTERM, -signal.SIGSEGV, -signal.SIGABRT)
    assert not said


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """Signals SIGTERM that this process handles meanwhile."""
    found: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: found.append(number))
    yield found
    signal.signal(signal.SIGTERM, before)


def test_sigterm_that_metis_leaves_blocked_is_passed_on(handled: list[int]) -> None:
    with (
        pytest.raises(InputError, match="METIS was ended by SIGTERM; cut the graph again"),
        metis_library._passing_signals_on(),
    ):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    assert handled == [signal.SIGTERM]
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.parametrize("is_raised", [False, True])
def test_what_metis_raises_where_memory_is_refused_ends_nothing(
    is_raised: bool, handled: list[int]
) -> None:
    def refused() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGABRT})
        if is_raised:
            signal.raise_signal(signal.SIGTERM)
        raise RuntimeError

    with (
        pytest.raises(MemoryError, match="METIS was refused memory"),
        metis_library._passing_signals_on(),
    ):
        refused()
    assert not handled
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


SMALL = """
import resource
from pathlib import Path

pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (30 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is of Linux")
def test_memory_that_is_refused_to_metis_is_an_error_of_memory() -> None:
    code = LONG.replace('print("ready", flush=True)', SMALL)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"MemoryError" in done.stderr.splitlines()[-1]
