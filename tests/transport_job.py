"""The losses and weights of short trainings; as a script, on the ranks that mpirun started."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from graphs import cut, make_graph

from distgnn.comm import open_group
from distgnn.nn.config import ModelConfig
from distgnn.training.config.settings import TrainConfig
from distgnn.training.data.info import DataInfo
from distgnn.training.loop.trainer import Trainer

if TYPE_CHECKING:
    from distgnn.comm.group import Group

RUNS = (("cd-0", {"hidden": 16}), ("cd-2", {"hidden": 16}), ("cd-0", {"model": "gat", "heads": 2}))


def train(group: Group) -> list[list[float]]:
    """The losses of each run, and after them all weights."""
    graph = make_graph(num_vertices=400)
    part = cut(graph, group.size)[group.rank]
    ends = DataInfo.of(graph)
    found = []
    for algorithm, settings in RUNS:
        config = TrainConfig(model=ModelConfig(**settings), algorithm=algorithm, epochs=6)
        trainer = Trainer(config, ends, part, group)
        numbers = [record["loss"] for record in trainer.epochs()]
        for parameter in trainer.model.parameters():
            numbers += parameter.detach().flatten().tolist()
        found.append(numbers)
    return found


if __name__ == "__main__":
    group = open_group(backend=os.environ["BACKEND"])
    trained = train(group)
    if group.rank == 0:
        sys.stdout.write(json.dumps(trained) + "\n")
    group.close()
