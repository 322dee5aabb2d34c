"""One call of KaMinPar, in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def cut(request: dict[str, Any]) -> Sequence[int]:
    """Cut the graph of a request, whose fields `kaminpar_library` fills in.

    Returns:
        The part of each vertex.
    """
    import kaminpar

    kaminpar.reseed(request["seed"])
    # Made first: while it lives, the library reads the file on one thread, too.
    partitioner = kaminpar.KaMinPar(1, kaminpar.context_by_name(request["preset"]))
    # The file has no name of its own; this one opens it once more.
    name, file_format = f"/dev/fd/{request['graph']}", kaminpar.GraphFileFormat.PARHIP
    graph = kaminpar.load_graph(name, file_format, compress=True)
    parts: Sequence[int] = partitioner.compute_partition(
        graph, request["parts"], request["imbalance"]
    )
    return parts
