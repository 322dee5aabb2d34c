"""cd-R against a sequential simulator that keeps every epoch's rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import CUTS, adjacency, cut, make_graph

from distgnn.comm.threads import run_ranks
from distgnn.exchange.blocks import plan_blocks
from distgnn.exchange.delayed import Delayed
from distgnn.graph import LocalGraph

NUM_EPOCHS = 13
WIDTH = 3


class Simulator:
    """One linear aggregation an epoch under cd-R, part by part, with dense matrices.

    `sent[e][key]` is the row that slot `key` = (half, owner, other, position) sent in epoch e.
    """

    def __init__(self, parts, bins, delay, cached):
        self.parts, self.bins, self.delay, self.cached = parts, bins, delay, cached
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
        """Row of a slot that epoch uses: the newest that has arrived."""
        half, owner, other, index = key
        bin_id = (self.first[half, owner, other] + index) % self.bins
        for age in range(self.delay, epoch + 1):
            if (epoch - age) % self.bins == bin_id:
                return self.sent[epoch - age][key]
            if not self.cached:
                break
        return np.zeros(WIDTH)

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


def clone_matrix(part):
    matrix = np.zeros((part.num_clones, part.num_clones))
    targets = np.repeat(np.arange(part.num_clones), np.diff(part.indptr))
    np.add.at(matrix, (targets, part.indices), 1)
    return matrix


def simulate(parts, inputs, grads, bins, delay, cached):
    forward = Simulator(parts, bins, delay, cached)
    backward = Simulator(parts, bins, delay, cached)
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


def run(parts, inputs, grads, *, stop_at=None, **options):
    """Epochs of one aggregation on ranks as threads; optionally through a checkpoint."""

    def on_rank(group):
        part = parts[group.rank]
        own = part.global_id[: part.num_roots]
        blocks = plan_blocks(part, group)
        graph = LocalGraph(part, blocks, Delayed(group, **options))
        results = []
        for epoch in range(NUM_EPOCHS):
            if epoch == stop_at:
                state = {k: v.clone() for k, v in graph.exchange.state().items()}
                graph = LocalGraph(part, blocks, Delayed(group, **options))
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


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize(("bins", "delay"), [(1, 1), (2, 2), (3, 1), (2, 5), (5, 5)])
@pytest.mark.parametrize("how", CUTS)
def test_every_epoch_equals_the_sequential_simulator(how, bins, delay, cached):
    _, parts, inputs, grads = problem(how)
    expected = simulate(parts, inputs, grads, bins, delay, cached)
    got, staleness, _ = run(parts, inputs, grads, num_bins=bins, delay=delay, is_cached=cached)
    for epoch in range(NUM_EPOCHS):
        np.testing.assert_allclose(got[epoch][0], expected[epoch][0], atol=1e-12)
        np.testing.assert_allclose(got[epoch][1], expected[epoch][1], atol=1e-12)
    assert staleness == (delay + bins - 1 if cached else delay)


def test_the_first_epochs_use_the_part_alone():
    _, parts, inputs, grads = problem("either-end")
    (got, _), *_ = run(parts, inputs, grads, num_bins=2, delay=2)[0]
    for part in parts:
        rows = np.zeros((part.num_clones, WIDTH))
        own = part.global_id[: part.num_roots]
        rows[: part.num_roots] = inputs[0][own]
        expected = (clone_matrix(part) @ rows)[: part.num_roots]
        np.testing.assert_allclose(got[own], expected, atol=1e-12)


def test_constant_rows_reach_the_exact_sum_once_all_have_arrived():
    graph, parts, inputs, grads = problem("anywhere")
    inputs[:], grads[:] = inputs[0], grads[0]
    epochs, _, _ = run(parts, inputs, grads, num_bins=2, delay=2)
    np.testing.assert_allclose(epochs[-1][0], adjacency(graph) @ inputs[0], atol=1e-12)
    np.testing.assert_allclose(epochs[-1][1], adjacency(graph).T @ grads[0], atol=1e-12)


@pytest.mark.parametrize("cached", [True, False])
def test_a_checkpoint_in_the_middle_changes_no_bit(cached):
    _, parts, inputs, grads = problem("anywhere")
    options = {"num_bins": 3, "delay": 3, "is_cached": cached}
    straight, _, _ = run(parts, inputs, grads, **options)
    resumed, _, _ = run(parts, inputs, grads, stop_at=7, **options)
    for one, other in zip(straight, resumed, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_epoch_sends_one_bin_of_the_rows():
    _, parts, inputs, grads = problem("anywhere")
    _, _, sent = run(parts, inputs, grads, num_bins=5, delay=5)
    halo_rows = sum(int(p.is_reading.sum() + p.is_writing.sum()) for p in parts)
    synchronous = NUM_EPOCHS * 2 * halo_rows * WIDTH * 8
    assert 0.15 * synchronous < sent < 0.25 * synchronous


def test_rows_that_do_not_exist_have_no_age():
    parts = cut(make_graph("random"), 1)
    _, _, inputs, grads = problem("anywhere", num_parts=1)
    _, staleness, sent = run(parts, inputs, grads, num_bins=3, delay=3)
    assert (staleness, sent) == (0, 0)
