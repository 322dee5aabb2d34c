"""Rows that ranks send each other in an exchange by itself, under a rule of halos."""

from __future__ import annotations

import numpy as np
import torch

from distgnn.comm.threads import run_ranks
from distgnn.exchange.delayed import Delayed
from distgnn.exchange.route import plan_route

WIDE = 20
EPOCHS = 12
COUNTS = np.array([[0, 5, 3, 4], [2, 0, 6, 1], [4, 3, 0, 2], [7, 1, 2, 0]])


def exchanged(rule, rows, *, stops=(), num_epochs=EPOCHS, counts=COUNTS, is_backward=False):
    """Rows that each rank receives in each epoch: (num_ranks, num_epochs, num_in, width)."""

    def on_rank(group):
        exchange = Delayed(group, rule)
        route = plan_route(group, counts[group.rank], counts[:, group.rank])
        found = []
        for epoch in range(num_epochs):
            if epoch in stops:
                state = {name: rows.clone() for name, rows in exchange.state().items()}
                exchange = Delayed(group, rule)
                exchange.load_state(state)
                exchange.seeds.epoch = epoch
            exchange.start_pass(is_backward=is_backward)
            channel = exchange.new_channel()
            arriving = exchange.begin(route, rows[group.rank][epoch], channel)
            found.append(arriving.wait().clone())
            exchange.end_epoch()
            exchange.seeds.end_epoch()
        return found, exchange.take_bytes(), exchange.state()

    return run_ranks(len(counts), on_rank)


def made(seed=0, width=WIDE, num_epochs=EPOCHS, counts=COUNTS):
    """Rows that each rank sends in each epoch, which change slowly."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for count in counts.sum(axis=1):
        start = torch.randn(int(count), width, generator=generator)
        steps = 0.1 * torch.randn(num_epochs, int(count), width, generator=generator)
        rows.append(start + steps.cumsum(0))
    return rows


def sent_to(rows, receiver, epoch, counts=COUNTS):
    """Rows of an epoch, as a receiver has them in its buffer."""
    found = []
    for sender, own in enumerate(counts):
        start = int(own[:receiver].sum())
        found.append(rows[sender][epoch][start : start + int(own[receiver])])
    return torch.cat(found)
