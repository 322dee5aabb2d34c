"""Train on a graph of PyG, and take the results back to it.

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
