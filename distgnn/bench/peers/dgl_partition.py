"""DGL's partitioners, from a graph file to directories of parts."""

from __future__ import annotations

import sys

import numpy as np
import torch


def main(file: str, parts: int, out: str, method: str) -> None:
    """Partition a graph without features into a directory.

    Args:
        file: An .npz file with edge_index and num_vertices.
        parts: How many.
        out: The directory.
        method: "metis" for METIS and DistDGL's parts, or "libra" for DistGNN's.
    """
    import dgl

    with np.load(file, allow_pickle=False) as arrays:
        num_vertices = int(arrays["num_vertices"])
        src, dst = (torch.from_numpy(ends.copy()) for ends in arrays["edge_index"])
    graph = dgl.graph((src, dst), num_nodes=num_vertices)
    del src, dst
    if method == "metis":
        dgl.distributed.partition_graph(graph, "graph", parts, out, part_method="metis")
        return
    from dgl.distgnn.partition.libra_partition import partition_graph

    # It takes no graph without these.
    graph.ndata["feat"] = torch.zeros(num_vertices, 1)
    graph.ndata["label"] = torch.zeros(num_vertices, dtype=torch.int64)
    for mask in ("train_mask", "val_mask", "test_mask"):
        graph.ndata[mask] = torch.zeros(num_vertices, dtype=torch.bool)
    partition_graph(parts, graph, out)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
