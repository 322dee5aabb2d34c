"""Send rows in few bits, with the built-in trainer and in a loop of your own.

distgnn partition cora --parts 3 --out parts
mpirun -n 3 python examples/strategy.py parts      # on one process nothing is sent
"""

import sys

import torch

import distgnn as dg

source = sys.argv[1] if len(sys.argv) > 1 else "cora"
for halo in ("exact", "int8", "fwd:int8+bwd:int4"):
    run = dg.train(
        source, model="gcn", hidden=32, epochs=60, halo=halo, out=f"strategy-{halo}", overwrite=True
    )
    if dg.rank() == 0:
        sent = run.summary["halo_bytes_per_epoch"]
        print(f"{halo}: test {run.test_metric:.3f}, {sent / 1e3:.1f} kB of rows an epoch")

with dg.init() as ranks:
    data = ranks.load(source, halo="int4")
    layers = dg.nn.SAGEConv(data.num_features, 32), dg.nn.SAGEConv(32, data.num_classes)
    model = ranks.replicate(torch.nn.ModuleList(layers))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        hidden = model[0](data.graph, data.x).relu()
        ranks.backward(data.loss(model[1](data.graph, hidden), "train"))
        optimizer.step()
    hidden = model[0](data.exact, data.x).relu()  # as they are
    ranks.print(f"a loop with int4: test {data.metric(model[1](data.exact, hidden), 'test'):.3f}")
