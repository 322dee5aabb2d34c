"""Delayed exchanges, and a sequential simulator of them that keeps every epoch's rows."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from graphs import cut, make_graph

from distgnn.comm.threads import run_ranks
from distgnn.edges.blocks import plan_blocks
from distgnn.exchange.delayed import Delayed
from distgnn.graph.local_graph import LocalGraph

NUM_EPOCHS = 13
WIDTH = 3


class Simulator:
    """One linear aggregation an epoch under a rule, part by part, with dense matrices.

    `sent[e][key]` is the row that slot `key` = (half, owner, other, position) made in epoch e.
    """

    def __init__(self, parts, rule, *, is_backward):
        self.parts, self.rule = parts, rule
        self.memory = rule.of(is_backward=is_backward)
        self.is_backward = is_backward
        self.sent = []
        halves = ("send", "reduce")
        counts = {half: [getattr(p, f"{half}_counts") for p in parts] for half in halves}
        self.first = {}
        for half, table in counts.items():
            # Rows are numbered over all pairs (root's rank, leaf's rank), whichever way they go.
            position = 0
            for owner in range(len(parts)):
                for other in range(len(parts)):
                    self.first[half, owner, other] = position
                    position += int(table[owner][other])

    def used(self, key, epoch):
        """Row of a slot that epoch uses: the newest that has arrived, or the average of all."""
        half, owner, other, index = key
        rule, warm = self.rule, self.rule.warm_up_epochs
        if epoch < warm:
            return self.sent[epoch][key]
        bin_id = (self.first[half, owner, other] + index) % rule.num_bins
        arrived = range(epoch - rule.delay, epoch - rule.delay + 1)
        if self.memory.is_cached:
            arrived = range(warm, epoch - rule.delay + 1)
        turns = [e for e in arrived if e % rule.num_bins == bin_id]
        if self.memory.is_cached and warm:
            turns = [warm - 1, *turns]
        if warm:
            turns = [max(e, warm - 1) for e in turns]
        return self._average([self.sent[e][key] for e in turns if e >= 0])

    def _average(self, values):
        gamma, total = self.memory.smoothing, np.zeros(WIDTH)
        for value in values:
            total = gamma * total + (1 - gamma) * value
        return total / (1 - gamma ** len(values)) if values else total

    def _slots(self, half, part_of_leaf, member):
        """(owner, index, local leaf) of each leaf of a part that takes part in a half."""
        part = self.parts[part_of_leaf]
        owners = np.repeat(np.arange(part.num_parts), part.leaf_counts)
        index = np.zeros(part.num_parts, dtype=int)
        for leaf in np.flatnonzero(member):
            yield owners[leaf], index[owners[leaf]], leaf
            index[owners[leaf]] += 1

    def step(self, epoch, rows, edges, send, reduce):
        """One direction of one epoch; `edges(part)` is its clone matrix, rows in graph order."""
        sent = self.sent[-1]
        parts = self.parts
        for owner, part in enumerate(parts):
            offsets = np.concatenate([[0], np.cumsum(getattr(part, f"{send}_counts"))])
            for other in range(part.num_parts):
                lane = getattr(part, f"{send}_rows")[offsets[other] : offsets[other + 1]]
                for index, root in enumerate(lane):
                    sent[send, owner, other, index] = rows[part.global_id[root]]
        out = np.zeros_like(rows)
        partials = []
        for rank, part in enumerate(parts):
            local = np.zeros((part.num_clones, WIDTH))
            local[: part.num_roots] = rows[part.global_id[: part.num_roots]]
            member = part.is_reading if send == "send" else part.is_writing
            for owner, index, leaf in self._slots(send, rank, member):
                key = (send, owner, rank, index)
                local[part.num_roots + leaf] = self.used(key, epoch)
            result = edges(part) @ local
            out[part.global_id[: part.num_roots]] = result[: part.num_roots]
            partials.append(result[part.num_roots :])
        for rank, part in enumerate(parts):
            member = part.is_writing if reduce == "reduce" else part.is_reading
            for owner, index, leaf in self._slots(reduce, rank, member):
                sent[reduce + "-back", owner, rank, index] = partials[rank][leaf]
        for rank, part in enumerate(parts):
            member = part.is_writing if reduce == "reduce" else part.is_reading
            for owner, index, leaf in self._slots(reduce, rank, member):
                out[part.global_id[part.num_roots + leaf]] += self.used_back(
                    reduce, owner, rank, index, epoch
                )
        return out

    def used_back(self, half, owner, other, index, epoch):
        self.first[half + "-back", owner, other] = self.first[half, owner, other]
        return self.used((half + "-back", owner, other, index), epoch)


@lru_cache(maxsize=8)
def clone_matrix(part):
    matrix = np.zeros((part.num_clones, part.num_clones))
    targets = np.repeat(np.arange(part.num_clones), np.diff(part.indptr))
    np.add.at(matrix, (targets, part.indices), 1)
    return matrix


def simulate(parts, inputs, grads, rule):
    forward = Simulator(parts, rule, is_backward=False)
    backward = Simulator(parts, rule, is_backward=True)
    results = []
    for epoch in range(NUM_EPOCHS):
        forward.sent.append({})
        backward.sent.append({})
        out = forward.step(epoch, inputs[epoch], clone_matrix, "send", "reduce")
        back = backward.step(
            epoch, grads[epoch], lambda part: clone_matrix(part).T, "reduce", "send"
        )
        results.append((out, back))
    return results


def run(parts, inputs, grads, *, stops=(), rule=None, exchange_of=None):
    """Epochs of one aggregation on ranks as threads; optionally through checkpoints."""
    exchange_of = exchange_of or (lambda group: Delayed(group, rule))

    def on_rank(group):
        part = parts[group.rank]
        own = part.global_id[: part.num_roots]
        blocks = plan_blocks(part, group)
        graph = LocalGraph(part, blocks, exchange_of(group))
        results = []
        for epoch in range(NUM_EPOCHS):
            if epoch in stops:
                state = {k: v.clone() for k, v in graph.exchange.state().items()}
                graph = LocalGraph(part, blocks, exchange_of(group))
                graph.exchange.load_state(state)
            rows = torch.from_numpy(inputs[epoch][own]).requires_grad_()
            out = graph.aggregate(rows)
            out.backward(torch.from_numpy(grads[epoch][own]))
            results.append((own, out.detach().numpy(), rows.grad.numpy()))
            graph.end_epoch()
        return results, graph.exchange.max_staleness, graph.exchange.take_bytes()

    gathered = run_ranks(len(parts), on_rank)
    epochs = []
    for epoch in range(NUM_EPOCHS):
        out, back = np.zeros_like(inputs[0]), np.zeros_like(inputs[0])
        for results, _, _ in gathered:
            own, rows, grad = results[epoch]
            out[own], back[own] = rows, grad
        epochs.append((out, back))
    return epochs, max(s for _, s, _ in gathered), sum(b for _, _, b in gathered)


def problem(how, num_parts=3):
    graph = make_graph("random")
    rng = np.random.default_rng(5)
    shape = (NUM_EPOCHS, graph.num_vertices, WIDTH)
    return graph, cut(graph, num_parts, how=how), rng.normal(size=shape), rng.normal(size=shape)
