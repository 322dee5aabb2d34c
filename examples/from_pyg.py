"""Train on a graph of PyG, take the results back to it, and cut it for several ranks.

pip install torch_geometric
python examples/from_pyg.py
"""

import torch

import distgnn as dg
from distgnn.interop import to_pyg

data = to_pyg(dg.load("cora"))  # or any Data of yours, such as Planetoid("data", "Cora")[0]
run = dg.train(data, model="gcn", hidden=16, epochs=60, out="from-pyg-run", overwrite=True)
print(run)

data.probability = torch.from_numpy(run.predict())
data.embedding = torch.from_numpy(run.embed())
print("right on", float((data.probability.argmax(dim=1) == data.y).float().mean()), "of", data)

model = run.to_pyg()  # the trained weights as a plain model of PyG
scores = model(data.x, data.edge_index).detach()
print("PyG differs by", float((scores.softmax(dim=1) - data.probability).abs().max()))

partition = dg.partition_graph(data, 4, "from-pyg-parts", overwrite=True)
print(partition)  # next: mpirun -n 4 distgnn train from-pyg-parts --run run
