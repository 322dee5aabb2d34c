"""Run by mpirun: exchanges rows over loopback and compares counted bytes with the kernel's.

Arguments: words of --halo, and the number of epochs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from distgnn.comm import open_group

WIDTH = 512


def loopback_bytes() -> int:
    """Bytes that the loopback interface has sent since the machine started."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, values = line.partition(":")
        if name.strip() == "lo":
            return int(values.split()[8])
    raise AssertionError("there is no loopback interface")


def main() -> None:
    group = open_group(backend="gloo", has_lanes=False)
    import torch
    from graphs import cut, make_graph

    from distgnn.edges.blocks import plan_blocks
    from distgnn.exchange.base import Synchronous
    from distgnn.graph.local_graph import LocalGraph
    from distgnn.training.config.codecs import parse_halo

    parts = cut(make_graph(num_vertices=2000), group.size)
    part, codecs = parts[group.rank], parse_halo(sys.argv[1]).codecs
    graph = LocalGraph(part, plan_blocks(part, group), Synchronous(group, codecs))
    rows = torch.ones(graph.num_rows, WIDTH, requires_grad=True)
    group.barrier()
    before = loopback_bytes()
    group.barrier()
    for _ in range(int(sys.argv[2])):
        graph.aggregate(rows).sum().backward()
        graph.end_epoch()
    counted = torch.tensor([graph.exchange.take_bytes()])
    group.barrier()
    wire = loopback_bytes() - before
    group.all_reduce(counted)
    if group.rank == 0:
        sys.stdout.write(json.dumps({"counted": int(counted), "wire": wire}) + "\n")
        sys.stdout.flush()
    group.close()


if __name__ == "__main__":
    main()
