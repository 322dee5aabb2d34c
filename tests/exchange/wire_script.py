"""Run by mpirun: exchanges rows over connections and compares counted bytes with the kernel's.

Arguments: words of --halo, and the number of epochs.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys

from distgnn.comm import open_group
from distgnn.comm.transports.gloo import GlooGroup, _sockets

WIDTH = 512
# Place of tcpi_bytes_received in the kernel's struct tcp_info.
_RECEIVED = 128


def received_bytes(group: GlooGroup) -> int:
    """Bytes that the connections of this rank have received; others use the interface as well."""
    total = 0
    for number in group._sockets & _sockets():  # gloo has closed some
        with socket.socket(fileno=os.dup(number)) as connection:
            if connection.type == socket.SOCK_STREAM and connection.family != socket.AF_UNIX:
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                total += struct.unpack_from("=Q", info, _RECEIVED)[0]
    return total


def main() -> None:
    group = open_group(backend="gloo", has_lanes=False)
    assert isinstance(group, GlooGroup)
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
    before = received_bytes(group)
    group.barrier()
    for _ in range(int(sys.argv[2])):
        graph.aggregate(rows).sum().backward()
        graph.end_epoch()
    counted = torch.tensor([graph.exchange.take_bytes()])
    group.barrier()
    wire = torch.tensor([received_bytes(group) - before])
    group.all_reduce(counted)
    group.all_reduce(wire)
    if group.rank == 0:
        sys.stdout.write(json.dumps({"counted": int(counted), "wire": int(wire)}) + "\n")
        sys.stdout.flush()
    group.close()


if __name__ == "__main__":
    main()
