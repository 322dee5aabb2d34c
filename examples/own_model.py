"""Train a model of your own with the built-in trainer: checkpoints, resume and reports included.

python examples/own_model.py                  # Cora, which comes with distgnn
distgnn partition cora --parts 3 --out parts
mpirun -n 3 python examples/own_model.py parts     # the same losses on 3 processes
"""

import sys

import torch

import distgnn as dg


class Net(torch.nn.Module):
    def __init__(self, data):
        super().__init__()
        self.first = torch.nn.Linear(data.num_features, 16)
        self.last = torch.nn.Linear(16, data.num_classes)

    def forward(self, graph, x):
        x = graph.dropout(x, 0.5, training=self.training)
        h = torch.relu(graph.aggregate(self.first(x), "sum", weight="gcn"))
        h = graph.dropout(h, 0.5, training=self.training)
        return graph.aggregate(self.last(h), "sum", weight="gcn")


source = sys.argv[1] if len(sys.argv) > 1 else "cora"
run = dg.train(source, model=Net, epochs=60, out="own-model-run", overwrite=True, quiet=True)
if dg.rank() == 0:
    for record in run.metrics[19::20]:
        print(f"epoch {record['epoch'] + 1}: loss {record['loss']:.7g}")
    print(run)
