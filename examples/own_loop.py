"""Train a model of your own in a loop of your own, on one process or on many.

python examples/own_loop.py                        # Cora, which comes with distgnn
distgnn partition cora --parts 3 --out parts
mpirun -n 3 python examples/own_loop.py parts      # the same losses on 3 processes
"""

import sys

import torch

import distgnn as dg


class Net(torch.nn.Module):
    def __init__(self, data):
        super().__init__()
        self.first, self.neighbors = (torch.nn.Linear(data.num_features, 16) for _ in range(2))
        self.last = torch.nn.Linear(2 * 16, data.num_classes)

    def forward(self, graph, x):
        h = torch.relu(self.first(x) + graph.aggregate(self.neighbors(x), "mean"))
        h = graph.dropout(h, 0.5, training=self.training)
        return self.last(torch.cat([h, graph.aggregate(h, "mean")], dim=1))


with dg.init() as ranks:
    data = ranks.load(sys.argv[1] if len(sys.argv) > 1 else "cora")
    model = ranks.replicate(Net(data))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for epoch in range(1, 61):
        optimizer.zero_grad()
        loss = ranks.backward(data.loss(model(data.graph, data.x), "train"))
        optimizer.step()
        if epoch % 20 == 0:
            ranks.print(f"epoch {epoch}: loss {loss:.7g}")
    model.eval()
    ranks.print(f"test {data.metric_name} {data.metric(model(data.exact, data.x), 'test'):.4f}")
