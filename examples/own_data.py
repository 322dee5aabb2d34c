"""Train a model that is no GNN, on data that is no graph: each rank draws its own.

python examples/own_data.py                                   # one process
mpirun -n 3 python examples/own_data.py                       # three, with three times the data
mpirun -n 3 python examples/own_data.py 'every(1)+pairs'      # any words of --weights
"""

import sys

import torch

import distgnn as dg


def draw(seed, count):
    x = torch.randn(count, 20, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] * x[:, 1] + 0.3 * x[:, 2] > 0).long()


with dg.init() as ranks:
    x, y = draw(ranks.rank, 3000)
    net = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    model = ranks.replicate(net, weights=sys.argv[1] if len(sys.argv) > 1 else "every(8)+mean")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for step in range(1, 241):
        batch = torch.arange(64) + step * 64 % 2944
        optimizer.zero_grad()
        loss = ranks.backward(torch.nn.functional.cross_entropy(model(x[batch]), y[batch]))
        optimizer.step()
        if step % 80 == 0:
            ranks.print(f"step {step}: loss of rank 0 {loss:.4f}")
    with ranks.consensus(), torch.no_grad():
        x, y = draw(1000, 5000)
        right = (model(x).argmax(dim=1) == y).double().mean()
    ranks.print(f"test {right:.3f}, {ranks.take_weight_bytes() / 1e3:.1f} kB sent by rank 0")
