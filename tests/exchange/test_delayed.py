"""cd-R against a sequential simulator that keeps every epoch's rows."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np
import pytest
import torch
from graphs import CUTS, adjacency, cut, make_graph

from distgnn.comm.threads import run_ranks
from distgnn.exchange.blocks import plan_blocks
from distgnn.exchange.delayed import Delayed
from distgnn.exchange.exchange import Synchronous
from distgnn.exchange.rule import DelayRule, Memory
from distgnn.graph import LocalGraph

NUM_EPOCHS = 13
WIDTH = 3
CACHED, PAPER = Memory(), Memory(is_cached=False)
SMOOTH, SMOOTHER = Memory(smoothing=0.5), Memory(smoothing=0.75)


class Simulator:
    """One linear aggregation an epoch under a rule, part by part, with dense matrices.

    `sent[e][key]` is the row that slot `key` = (half, owner, other, position) made in epoch e.
    """

    def __init__(self, parts, rule, memory):
        self.parts, self.rule, self.memory = parts, rule, memory
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
    forward = Simulator(parts, rule, rule.forward)
    backward = Simulator(parts, rule, rule.backward)
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


def rules(how):
    """Every kind of rule for one way of cutting, the simplest for the others."""
    simple = [(m, m) for m in (CACHED, PAPER, SMOOTH)]
    mixed = [(CACHED, PAPER), (PAPER, CACHED), (SMOOTH, PAPER), (SMOOTHER, SMOOTH)]
    mixed += [(SMOOTH, CACHED), (CACHED, SMOOTH)]
    cases = [
        *product([(1, 1), (2, 2), (3, 0), (3, 1), (2, 5), (5, 5)], simple, [0]),
        *product([(1, 1), (3, 0), (2, 5), (5, 5)], simple, [4]),
    ]
    if how == "anywhere":
        cases += [*product([(3, 0), (2, 3)], mixed, [0, 4]), *product([(3, 2)], simple, [1, 2])]
    return [
        DelayRule(
            num_bins=bins, delay=delay, warm_up_epochs=warm_up, forward=forward, backward=backward
        )
        for (bins, delay), (forward, backward), warm_up in cases
    ]


def oldest(rule):
    """Largest age that a rule allows."""
    cached = rule.delay + rule.num_bins - 1
    return max(cached if m.is_cached else rule.delay for m in (rule.forward, rule.backward))


@pytest.mark.parametrize("how", CUTS)
def test_every_epoch_equals_the_sequential_simulator(how):
    _, parts, inputs, grads = problem(how)
    for rule in rules(how):
        expected = simulate(parts, inputs, grads, rule)
        got, staleness, _ = run(parts, inputs, grads, rule=rule)
        for epoch in range(NUM_EPOCHS):
            for direction in range(2):
                np.testing.assert_allclose(
                    got[epoch][direction],
                    expected[epoch][direction],
                    atol=1e-12,
                    err_msg=f"{rule}, epoch {epoch}",
                )
        assert staleness == oldest(rule), rule


def test_the_first_epochs_use_the_part_alone():
    _, parts, inputs, grads = problem("either-end")
    (got, _), *_ = run(parts, inputs, grads, rule=DelayRule(num_bins=2, delay=2))[0]
    for part in parts:
        rows = np.zeros((part.num_clones, WIDTH))
        own = part.global_id[: part.num_roots]
        rows[: part.num_roots] = inputs[0][own]
        expected = (clone_matrix(part) @ rows)[: part.num_roots]
        np.testing.assert_allclose(got[own], expected, atol=1e-12)


@pytest.mark.parametrize(("warm_up", "smoothing"), [(0, 0.0), (1, 0.0), (1, 0.9)])
def test_constant_rows_reach_the_exact_sum_once_all_have_arrived(warm_up, smoothing):
    graph, parts, inputs, grads = problem("anywhere")
    inputs[:], grads[:] = inputs[0], grads[0]
    memory = Memory(smoothing=smoothing)
    rule = DelayRule(num_bins=2, delay=2, warm_up_epochs=warm_up, forward=memory, backward=memory)
    epochs, _, _ = run(parts, inputs, grads, rule=rule)
    for out, back in epochs if warm_up else epochs[-1:]:
        np.testing.assert_allclose(out, adjacency(graph) @ inputs[0], atol=1e-12)
        np.testing.assert_allclose(back, adjacency(graph).T @ grads[0], atol=1e-12)


@pytest.mark.parametrize(
    "rule",
    [
        DelayRule(),
        DelayRule(num_bins=5, delay=5, warm_up_epochs=NUM_EPOCHS, forward=PAPER),
    ],
    ids=["no delay", "warm-up only"],
)
def test_a_rule_that_delays_nothing_has_the_bits_of_the_synchronous_exchange(rule):
    _, parts, inputs, grads = problem("anywhere")
    got, staleness, sent = run(parts, inputs, grads, rule=rule)
    expected, _, all_sent = run(parts, inputs, grads, exchange_of=Synchronous)
    np.testing.assert_array_equal(got, expected)
    assert (staleness, sent) == (0, all_sent)


@pytest.mark.parametrize("stops", [(1,), (4,), (5,), (9,), (2, 4, 7)])
@pytest.mark.parametrize(
    ("forward", "backward"), [(CACHED, CACHED), (PAPER, PAPER), (SMOOTH, PAPER)]
)
@pytest.mark.parametrize("warm_up", [0, 4])
def test_a_checkpoint_changes_no_bit_wherever_it_lies(warm_up, forward, backward, stops):
    _, parts, inputs, grads = problem("anywhere")
    rule = DelayRule(
        num_bins=3, delay=3, warm_up_epochs=warm_up, forward=forward, backward=backward
    )
    straight, oldest_row, _ = run(parts, inputs, grads, rule=rule)
    resumed, oldest_resumed, _ = run(parts, inputs, grads, rule=rule, stops=stops)
    np.testing.assert_array_equal(resumed, straight)
    assert oldest_resumed == oldest_row


def test_a_checkpoint_of_a_version_that_did_not_count_arrivals_is_read():
    _, parts, inputs, grads = problem("anywhere")
    rule = DelayRule(num_bins=3, delay=3)

    class Older(Delayed):
        def state(self):
            state = super().state()
            return {k: v[:, :2] if k.endswith(".bin_epoch") else v for k, v in state.items()}

    resumed, *_ = run(
        parts, inputs, grads, stops=(7,), exchange_of=lambda group: Older(group, rule)
    )
    np.testing.assert_array_equal(resumed, run(parts, inputs, grads, rule=rule)[0])


@pytest.mark.parametrize("warm_up", [0, 4])
def test_an_epoch_sends_what_the_rule_says(warm_up):
    _, parts, inputs, grads = problem("anywhere")
    rule = DelayRule(num_bins=5, delay=5, warm_up_epochs=warm_up)
    sent = run(parts, inputs, grads, rule=rule)[2]

    def on_rank(group):
        blocks = plan_blocks(parts[group.rank], group)
        send, reduce = blocks.forward.send.route, blocks.forward.reduce.route.reversed()
        both = (send, reduce, reduce.reversed(), send.reversed())
        return sum(rule.num_sent(route, e) for route in both for e in range(NUM_EPOCHS))

    assert sent == sum(run_ranks(len(parts), on_rank)) * WIDTH * 8
    halo_rows = sum(int(p.is_reading.sum() + p.is_writing.sum()) for p in parts)
    share = rule.sent_fraction(NUM_EPOCHS)
    assert share == pytest.approx((warm_up + (NUM_EPOCHS - warm_up) / 5) / NUM_EPOCHS)
    synchronous = NUM_EPOCHS * 2 * halo_rows * WIDTH * 8
    assert sent == pytest.approx(share * synchronous, rel=0.1)


@pytest.mark.parametrize("memory", [CACHED, PAPER])
def test_what_a_warm_up_leaves_is_as_old_as_its_last_epoch(memory):
    _, parts, _, _ = problem("anywhere")
    rule = DelayRule(num_bins=2, delay=5, warm_up_epochs=3, forward=memory)

    def on_rank(group):
        part, exchange = parts[group.rank], Delayed(group, rule)
        graph, ages = LocalGraph(part, plan_blocks(part, group), exchange), []
        for _ in range(6):
            graph.aggregate(torch.ones(part.num_roots, WIDTH))
            graph.end_epoch()
            ages.append(exchange.max_staleness)
        return ages

    for ages in run_ranks(len(parts), on_rank):
        assert ages == [0, 0, 0, 1, 2, 3]


def test_rows_that_do_not_exist_have_no_age():
    parts = cut(make_graph("random"), 1)
    _, _, inputs, grads = problem("anywhere", num_parts=1)
    rule = DelayRule(num_bins=3, delay=3, warm_up_epochs=2, backward=PAPER)
    _, staleness, sent = run(parts, inputs, grads, rule=rule)
    assert (staleness, sent) == (0, 0)


@pytest.mark.parametrize("memory", [CACHED, SMOOTH])
@pytest.mark.parametrize("warm_up", [0, 2])
def test_rows_of_bfloat16_travel_as_they_are(warm_up, memory):
    """Constant rows have the synchronous bits once all have arrived."""
    graph = make_graph("random")
    # No edge between leaves: what travels is then constant from the start.
    parts = cut(graph, 3, how="at-destination")
    rule = DelayRule(num_bins=3, delay=2, warm_up_epochs=warm_up, forward=memory)
    rows = torch.randn(graph.num_vertices, 5, generator=torch.Generator().manual_seed(1))

    def on_rank(group, exchange):
        part = parts[group.rank]
        local = LocalGraph(part, plan_blocks(part, group), exchange)
        own = rows[torch.from_numpy(part.global_id[: part.num_roots].astype(np.int64))]
        for _ in range(NUM_EPOCHS):
            total = local.sum_forward(own.bfloat16())
            local.end_epoch()
        return total.clone(), exchange.take_bytes()

    expected = run_ranks(3, lambda group: on_rank(group, Synchronous(group)))
    got = run_ranks(3, lambda group: on_rank(group, Delayed(group, rule)))
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one[0], other[0])
        assert one[1] < other[1]


@pytest.mark.parametrize("memory", [CACHED, PAPER])
@pytest.mark.parametrize("how", CUTS)
def test_maxima_and_their_winners_are_delayed_alike(how, memory):
    """Under a rule whose rows arrive every epoch, constant maxima are exact after the delay."""
    _, parts, inputs, grads = problem(how)
    rules = [
        DelayRule(num_bins=1, delay=2, forward=memory, backward=memory),
        DelayRule(num_bins=3, delay=2, warm_up_epochs=2),
    ]

    def on_rank(group, exchange):
        part = parts[group.rank]
        own = part.global_id[: part.num_roots]
        local = LocalGraph(part, plan_blocks(part, group), exchange)
        for _ in range(NUM_EPOCHS):
            rows = torch.from_numpy(inputs[0][own]).requires_grad_()
            out = local.aggregate(rows, "max")
            out.backward(torch.from_numpy(grads[0][own]))
            local.end_epoch()
        return out.detach().numpy(), rows.grad.numpy()

    expected = run_ranks(len(parts), lambda group: on_rank(group, Synchronous(group)))
    for rule in rules:
        got = run_ranks(len(parts), lambda group, rule=rule: on_rank(group, Delayed(group, rule)))
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_allclose(one[0], other[0], atol=1e-12)
            np.testing.assert_allclose(one[1], other[1], atol=1e-12)


def test_no_memory_is_taken_after_the_first_epochs():
    _, parts, _, _ = problem("anywhere")
    rule = DelayRule(num_bins=3, delay=2)

    def on_rank(group):
        part = parts[group.rank]
        graph = LocalGraph(part, plan_blocks(part, group), Delayed(group, rule))
        addresses = []
        for _ in range(NUM_EPOCHS):
            graph.aggregate(torch.ones(part.num_roots, WIDTH))
            graph.end_epoch()
            state = graph.exchange.state()
            messages = [v for k, v in state.items() if ".message." in k and len(v)]
            addresses.append({message.data_ptr() for message in messages})
        return addresses

    for addresses in run_ranks(len(parts), on_rank):
        assert set().union(*addresses[5:]) <= set().union(*addresses[:5])
