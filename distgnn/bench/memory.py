"""Peak memory of each contestant, in a process of its own, where nobody left anything."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from distgnn.training.loop.metrics import peak_rss_bytes

if TYPE_CHECKING:
    from distgnn.bench.epoch import EpochRace

_NUM_EPOCHS = 3


def measure(race: EpochRace, name: str) -> int:
    """Train some epochs in this process.

    Args:
        race: Settings of the race.
        name: distgnn, or a peer.

    Returns:
        Its peak from the time when the graph had been made; all the process's where the system
        does not let a peak be forgotten.
    """
    from distgnn.bench.epoch import OURS, VARIANTS, peer_alone, trainer_of, twin_graph
    from distgnn.partition.directory.store import whole_part
    from distgnn.training.data.info import DataInfo

    torch.set_num_threads(race.threads)
    graph = twin_graph(race)
    gc.collect()
    forget_peak()
    if name in (OURS, *VARIANTS):
        part, ends = whole_part(graph), DataInfo.of(graph)
        # As `distgnn train` does; what peers train on may refer to the graph's edges.
        del graph
        step = trainer_of(part, ends, race, VARIANTS.get(name, "fp32")).train_epoch
    else:
        step = peer_alone(name, graph, race)
        del graph
    for _ in range(_NUM_EPOCHS):
        step()
    return peak_rss_bytes()


def forget_peak() -> None:
    """Let the peak memory of this process start from now, where the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _main() -> None:
    from distgnn.bench.epoch import EpochRace

    name, race = sys.argv[1], EpochRace(**json.loads(sys.argv[2]))
    sys.stdout.write(f"{measure(race, name)}\n")


if __name__ == "__main__":
    _main()
