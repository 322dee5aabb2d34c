"""Short trainings with coded rows; as a script, on the ranks that mpirun started."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from graphs import cut, make_graph

from distgnn.comm import open_group
from distgnn.nn.config import ModelConfig
from distgnn.training.config.settings import TrainConfig
from distgnn.training.data.info import DataInfo
from distgnn.training.loop.trainer import Trainer

if TYPE_CHECKING:
    from distgnn.comm.group import Group

RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bf16", {"model": "gcn", "hidden": 16}),
    ("int8", {"hidden": 16}),
    ("fwd:int4+bwd:int8(round=near)", {"model": "gat", "heads": 2, "hidden": 16}),
    ("int2", {"aggregator": "max", "hidden": 16}),
    ("changed(0.05)+int8", {"hidden": 16}),
    ("best(3)+delay(1)+int4", {"model": "gcn", "hidden": 16}),
    ("warmup(1)+budget(0.3)", {"hidden": 16}),
    ("warmup(1)+gate(0.02,vote=half)+bf16", {"model": "gcn", "hidden": 16}),
    ("gate(q60,vote=mean,most=2)", {"model": "gat", "heads": 2, "hidden": 16}),
    (
        "fwd:changed(0.1)+refresh(2)+int4+trend+bwd:refresh(2)+int4+feedback",
        {"model": "gcn", "hidden": 16},
    ),
)


def train(group: Group) -> list[list[dict[str, float]]]:
    """Return loss, bytes and error of each epoch of each run."""
    graph = make_graph(num_vertices=200)
    part, ends = cut(graph, group.size)[group.rank], DataInfo.of(graph)
    found = []
    for halo, settings in RUNS:
        config = TrainConfig(model=ModelConfig(**settings, layers=3), halo=halo, epochs=4)
        trainer = Trainer(config, ends, part, group)
        names = ("loss", "halo_bytes_sent", "codec_error")
        found.append([{name: record[name] for name in names} for record in trainer.epochs()])
    return found


if __name__ == "__main__":
    group = open_group(backend=os.environ["BACKEND"])
    trained = train(group)
    if group.rank == 0:
        sys.stdout.write(json.dumps(trained) + "\n")
    group.close()
