"""Write layers of your own: two calls of the graph do all that needs neighbors.

python examples/own_layer.py                       # Cora, which comes with distgnn
distgnn partition cora --parts 3 --out parts
mpirun -n 3 python examples/own_layer.py parts     # the same losses on 3 processes
"""

import sys

import torch

import distgnn as dg


class Neighborhood(torch.nn.Linear):
    """A map of each vertex's row beside the mean of its in-neighbors' rows."""

    def forward(self, graph, x):
        return super().forward(torch.cat([x, graph.aggregate(x, "mean")], dim=1))


class Attention(torch.nn.Module):
    """A mean of the in-neighbors' rows, weighted by scores of both ends of each edge."""

    def __init__(self, in_width, out_width):
        super().__init__()
        self.map, self.scores = (torch.nn.Linear(in_width, n) for n in (out_width, 2))

    def forward(self, graph, x):
        source, target = self.scores(x).split(1, dim=1)
        return graph.attend(self.map(x), source_score=source, target_score=target)


class Net(torch.nn.Module):
    def __init__(self, data):
        super().__init__()
        self.first, self.last = Attention(data.num_features, 16), Neighborhood(32, data.num_classes)

    def forward(self, graph, x):
        return self.last(graph, torch.relu(self.first(graph, x)))


source = sys.argv[1] if len(sys.argv) > 1 else "cora"
run = dg.train(source, model=Net, epochs=60, out="own-layer-run", overwrite=True, quiet=True)
if dg.rank() == 0:
    for record in run.metrics[19::20]:
        print(f"epoch {record['epoch'] + 1}: loss {record['loss']:.7g}")
    print(run)
