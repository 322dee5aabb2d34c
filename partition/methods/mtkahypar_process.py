"""One call of Mt-KaHyPar, in a process of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

# Those of the preset "quality" but for the limits of time, which are multiples of what it took
# before: parts would differ where the process is stopped for a while. Settings that are not named
# have no value in the library, and those of a preset cannot be changed one by one.
SETTINGS = """
mode=direct preset-type=quality num-vcycles=0
maxnet-removal-factor=0.01 smallest-maxnet-threshold=50000 maxnet-ignore=1000
s-use-localized-random-shuffle=false s-static-balancing-work-packages=128
p-enable-community-detection=true p-louvain-edge-weight-function=hybrid
p-max-louvain-pass-iterations=5 p-louvain-min-vertex-move-fraction=0.01
p-vertex-degree-sampling-threshold=200000
c-type=multilevel_coarsener c-use-adaptive-edge-size=true
c-min-shrink-factor=1.1 c-max-shrink-factor=2.5 c-s=1 c-t=160
c-vertex-degree-sampling-threshold=200000
c-rating-score=heavy_edge c-rating-heavy-node-penalty=no_penalty
c-rating-acceptance-criterion=best_prefer_unmatched
i-mode=rb i-runs=20 i-use-adaptive-ip-runs=true i-min-adaptive-ip-runs=5
i-perform-refinement-on-best-partitions=true i-fm-refinement-rounds=1
i-lp-maximum-iterations=20 i-lp-initial-block-size=5
i-r-refine-until-no-improvement=false i-r-relative-improvement-threshold=0
i-r-lp-type=label_propagation i-r-lp-maximum-iterations=5 i-r-lp-rebalancing=true
i-r-lp-he-size-activation-threshold=100
i-r-fm-type=kway_fm i-r-fm-multitry-rounds=5 i-r-fm-rollback-parallel=true
i-r-fm-rollback-balance-violation-factor=1 i-r-fm-seed-nodes=25
i-r-fm-obey-minimal-parallelism=false i-r-fm-release-nodes=true i-r-fm-iter-moves-on-recalc=true
i-r-fm-time-limit-factor=1e9 i-r-flow-algo=do_nothing
r-rebalancer-type=advanced_rebalancer
r-refine-until-no-improvement=false r-relative-improvement-threshold=0.0025
r-lp-type=label_propagation r-lp-unconstrained=true r-lp-maximum-iterations=5
r-lp-rebalancing=true r-lp-he-size-activation-threshold=100
r-lp-relative-improvement-threshold=0.001
r-fm-type=unconstrained_fm r-fm-multitry-rounds=10 r-fm-unconstrained-rounds=8
r-fm-rollback-parallel=true r-fm-rollback-balance-violation-factor=1
r-fm-threshold-border-node-inclusion=0.7 r-fm-imbalance-penalty-min=0.2
r-fm-imbalance-penalty-max=1 r-fm-seed-nodes=25 r-fm-release-nodes=true
r-fm-min-improvement=-1 r-fm-unconstrained-min-improvement=0.002
r-fm-obey-minimal-parallelism=true r-fm-iter-moves-on-recalc=true r-fm-time-limit-factor=1e9
r-flow-algo=flow_cutter r-flow-scaling=16 r-flow-max-num-pins=4294967295
r-flow-find-most-balanced-cut=true r-flow-determine-distance-from-cut=true
r-flow-max-bfs-distance=2 r-flow-min-relative-improvement-per-round=0.001
r-flow-skip-small-cuts=true r-flow-skip-unpromising-blocks=true r-flow-pierce-in-bulk=true
r-flow-process-mapping-policy=lower_bound r-flow-time-limit-factor=1e9
"""


def cut(request: dict[str, Any]) -> Sequence[int]:
    """Cut the hypergraph of a request, whose fields `mtkahypar_library` fills in.

    Returns:
        The part of each node.
    """
    import mtkahypar

    num_parts = request["parts"]
    library = mtkahypar.initialize(1, False)
    mtkahypar.set_seed(request["seed"])
    context = context_of(library)
    # Limits of the parts take the place of the imbalance.
    context.set_partitioning_parameters(num_parts, 0.0, mtkahypar.Objective.KM1)
    context.logging = False
    graph, begun = _read(request, library, context)
    if begun:
        parted = graph.create_partitioned_hypergraph(context, num_parts, begun)
        del begun
        parted.improve_partition(context, 1)
    else:
        parted = graph.partition(context)
    parts: Sequence[int] = parted.get_partition()
    return parts


def _read(request: dict[str, Any], library: Any, context: Any) -> tuple[Any, list[int]]:
    """Make a hypergraph of the library and read the parts to begin with, if any.

    The library takes nothing but lists, which take more memory than it does, and are gone then.
    """
    with os.fdopen(request["graph"], "rb") as file:
        file.seek(0)
        num_nodes, num_nets, num_pins = np.fromfile(file, np.int64, 3).tolist()
        start, weight, most = (
            np.fromfile(file, np.int64, count).tolist()
            for count in (num_nets + 1, num_nodes, request["parts"])
        )
        pins = np.fromfile(file, np.int32, num_pins)
        begun = np.fromfile(file, np.int32).tolist()
    context.set_individual_target_block_weights(most)
    nets = [pins[begin:end].tolist() for begin, end in pairwise(start)]
    ones = [1] * num_nets
    graph = library.create_hypergraph(context, num_nodes, num_nets, nets, weight, ones)
    return graph, begun


def context_of(library: Any) -> Any:
    """Make a context of the library with the settings of this module."""
    # It has no name, so that nothing is left of it whoever is killed.
    with tempfile.TemporaryFile("w") as settings:
        settings.write("\n".join(SETTINGS.split()))
        settings.flush()
        settings.seek(0)
        return library.context_from_file(f"/dev/fd/{settings.fileno()}")
