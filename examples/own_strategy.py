"""Write a strategy of your own: exact rows in every fifth epoch, 4 bits a value in the others.

distgnn partition cora --parts 3 --out parts
mpirun -n 3 python examples/own_strategy.py parts    # on one process nothing is sent
"""

import sys

import torch

import distgnn as dg
from distgnn.exchange.base import Synchronous
from distgnn.exchange.codec import EXACT, CodecSpec, HaloCodecs


class EveryFifth(Synchronous):
    epoch = 0

    def begin(self, *given, **words):
        codec = EXACT if self.epoch % 5 == 0 else CodecSpec(4)
        self.codecs = HaloCodecs(codec, codec)
        return super().begin(*given, **words)

    def end_epoch(self):
        super().end_epoch()
        self.epoch += 1


with dg.init() as ranks:
    data = ranks.load(sys.argv[1] if len(sys.argv) > 1 else "cora", halo=EveryFifth)
    layers = dg.nn.SAGEConv(data.num_features, 32), dg.nn.SAGEConv(32, data.num_classes)
    model = ranks.replicate(torch.nn.ModuleList(layers))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(1, 61):
        optimizer.zero_grad()
        hidden = model[0](data.graph, data.x).relu()
        loss = ranks.backward(data.loss(model[1](data.graph, hidden), "train"))
        optimizer.step()
        if epoch in (1, 2, 60):
            sent = data.graph.exchange.take_bytes() / 1e3
            ranks.print(f"epoch {epoch}: loss {loss:.7g}, {sent:.1f} kB")
    hidden = model[0](data.exact, data.x).relu()
    ranks.print(f"test {data.metric(model[1](data.exact, hidden), 'test'):.3f}")
