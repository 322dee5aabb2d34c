"""Count the rows that Libra's parts would move, of graphs too large to build the parts of.

    python examples/bench/libra_rows.py FOLDER [--parts P] [--seed S]

FOLDER comes from `distgnn datasets make papers --out FOLDER`. The edges are placed exactly as by
`distgnn partition FOLDER --parts P --method libra`, but held in 4 bytes an end. Roots are not
chosen: each would be where it saves most, and that alone counts. Takes some 20 bytes an edge and
50 a vertex.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from distgnn import _partitioner
from distgnn.partition.assignment import random_numbers
from distgnn.partition.jit import compiled
from distgnn.partition.methods.libra import stream_edges
from distgnn.partition.stream import edge_cap, no_clones

_SLICE = 1 << 24


def read_ends(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read both ends of every edge as int32."""
    ends = []
    for name in ("src", "dst"):
        stored = np.load(folder / f"{name}.npy", mmap_mode="r")
        held = np.empty(stored.size, np.int32)
        for begin in range(0, stored.size, _SLICE):
            held[begin : begin + _SLICE] = stored[begin : begin + _SLICE]
        ends.append(held)
    return ends[0], ends[1]


@compiled
def _count_rows(reads: np.ndarray, writes: np.ndarray) -> int:
    """Reading and writing slots, less those at the best root of each vertex."""
    rows = 0
    for vertex in range(reads.shape[0]):
        has_any, has_both = False, False
        for word in range(reads.shape[1]):
            has_any |= (reads[vertex, word] | writes[vertex, word]) != 0
            has_both |= (reads[vertex, word] & writes[vertex, word]) != 0
            for bits in (reads[vertex, word], writes[vertex, word]):
                while bits:
                    bits &= bits - np.uint64(1)
                    rows += 1
        rows -= int(has_any) + int(has_both)
    return rows


def main() -> None:
    """Count, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    begin = time.process_time()
    src, dst = read_ends(arguments.folder)
    print(f"{src.size} edges read", file=sys.stderr)
    num_vertices = int(np.load(arguments.folder / "num_vertices.npy"))
    degree = np.bincount(src, minlength=num_vertices)
    degree += np.bincount(dst, minlength=num_vertices)
    order = random_numbers(arguments.seed).permutation(src.size)
    cap = edge_cap(src.size, arguments.parts, 1.05)
    part = stream_edges(src, dst, order, degree, np.array([arguments.parts, cap]))
    del order
    reads, writes = (no_clones(num_vertices, arguments.parts) for _ in range(2))
    for first in range(0, src.size, _SLICE):
        # The kernel reads these types; a copy of all edges at once would be too large.
        placed = part[first : first + _SLICE].astype(np.int32)
        for lives_on, ends in ((reads, src), (writes, dst)):
            vertices = ends[first : first + _SLICE].astype(np.int64)
            _partitioner.insert_all(lives_on, vertices, placed)
    values = {
        "halo_rows": int(_count_rows(reads, writes)),
        "edges": int(src.size),
        "edge_balance": float(np.bincount(part).max() * arguments.parts / max(src.size, 1)),
        "cpu_seconds": round(time.process_time() - begin),
    }
    print(json.dumps(values))


if __name__ == "__main__":
    main()
