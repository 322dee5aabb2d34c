"""One call of Mt-KaHyPar, in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np


def cut(request: dict[str, Any]) -> Sequence[int]:
    """Cut the hypergraph of a request, whose fields `mtkahypar_library` fills in.

    Returns:
        The part of each node.
    """
    import mtkahypar

    # On one thread the seed fixes what it does, but for limits in multiples of seconds that it took
    # before: it may end otherwise where the process is stopped for a while.
    library = mtkahypar.initialize(1, False)
    mtkahypar.set_seed(request["seed"])
    context = library.context_from_preset(mtkahypar.PresetType.QUALITY)
    context.set_partitioning_parameters(
        request["parts"], request["imbalance"], mtkahypar.Objective.KM1
    )
    context.logging = False
    with os.fdopen(request["graph"], "rb") as file:
        file.seek(0)
        num_nodes, num_nets, num_pins = np.fromfile(file, np.int64, 3).tolist()
        start = np.fromfile(file, np.int64, num_nets + 1).tolist()
        pins = np.fromfile(file, np.int32, num_pins)
        weight = np.fromfile(file, np.int64, num_nodes)
    # The library takes nothing but lists.
    nets = [pins[begin:end].tolist() for begin, end in pairwise(start)]
    ones = [1] * num_nets
    graph = library.create_hypergraph(context, num_nodes, num_nets, nets, weight.tolist(), ones)
    parts: Sequence[int] = graph.partition(context).get_partition()
    return parts
