"""One call of KaMinPar in a process of its own, which begins with the same state every time."""

from __future__ import annotations

import json
import sys

import numpy as np


def main() -> None:
    """Cut the graph of a request, whose fields `kaminpar_library` fills in."""
    import kaminpar

    request = json.loads(sys.argv[1])
    kaminpar.reseed(request["seed"])
    # Made first: while it lives, the library reads the file on one thread, too.
    partitioner = kaminpar.KaMinPar(1, kaminpar.context_by_name(request["preset"]))
    file_format = kaminpar.GraphFileFormat.PARHIP
    graph = kaminpar.load_graph(request["graph"], file_format, compress=True)
    parts = partitioner.compute_partition(graph, request["parts"], request["imbalance"])
    np.save(request["out"], np.array(parts, np.int32))


if __name__ == "__main__":
    main()
