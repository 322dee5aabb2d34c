"""cd-R against a sequential simulator that keeps every epoch's rows."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from delayed import NUM_EPOCHS, WIDTH, clone_matrix, problem, run, simulate
from graphs import CUTS, adjacency, cut, make_graph

from distgnn.comm.threads import run_ranks
from distgnn.datasets.errors import InputError
from distgnn.edges.blocks import plan_blocks
from distgnn.exchange.base import Synchronous
from distgnn.exchange.delayed import Delayed
from distgnn.exchange.rule import delayed
from distgnn.graph.local_graph import LocalGraph
from distgnn.nn.gat import GATConv
from distgnn.training.config.codecs import parse_halo

CACHED, PAPER = (True, 0.0), (False, 0.0)
SMOOTH, SMOOTHER = (True, 0.5), (True, 0.75)


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
        delayed(
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
    (got, _), *_ = run(parts, inputs, grads, rule=delayed(num_bins=2, delay=2))[0]
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
    memory = (True, smoothing)
    rule = delayed(num_bins=2, delay=2, warm_up_epochs=warm_up, forward=memory, backward=memory)
    epochs, _, _ = run(parts, inputs, grads, rule=rule)
    for out, back in epochs if warm_up else epochs[-1:]:
        np.testing.assert_allclose(out, adjacency(graph) @ inputs[0], atol=1e-12)
        np.testing.assert_allclose(back, adjacency(graph).T @ grads[0], atol=1e-12)


@pytest.mark.parametrize(
    "rule",
    [
        delayed(),
        delayed(num_bins=5, delay=5, warm_up_epochs=NUM_EPOCHS, forward=PAPER),
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
    rule = delayed(num_bins=3, delay=3, warm_up_epochs=warm_up, forward=forward, backward=backward)
    straight, oldest_row, _ = run(parts, inputs, grads, rule=rule)
    resumed, oldest_resumed, _ = run(parts, inputs, grads, rule=rule, stops=stops)
    np.testing.assert_array_equal(resumed, straight)
    assert oldest_resumed == oldest_row


@pytest.mark.parametrize("warm_up", [0, 4])
def test_an_epoch_sends_what_the_rule_says(warm_up):
    _, parts, inputs, grads = problem("anywhere")
    rule = delayed(num_bins=5, delay=5, warm_up_epochs=warm_up)
    sent = run(parts, inputs, grads, rule=rule)[2]

    def on_rank(group):
        blocks = plan_blocks(parts[group.rank], group)
        send, reduce = blocks.forward.send.route, blocks.forward.reduce.route.reversed()
        ways = ((send, False), (reduce, False), (reduce.reversed(), True), (send.reversed(), True))
        place = (group.rank, group.size)
        return sum(
            rule.num_sent(route, epoch, *place, is_backward=is_backward)
            for route, is_backward in ways
            for epoch in range(NUM_EPOCHS)
        )

    assert sent == sum(run_ranks(len(parts), on_rank)) * WIDTH * 8
    halo_rows = sum(int(p.is_reading.sum() + p.is_writing.sum()) for p in parts)
    share = (warm_up + (NUM_EPOCHS - warm_up) / 5) / NUM_EPOCHS
    whole = rule.whole_fraction(NUM_EPOCHS, is_backward=False)
    assert float(whole + (1 - whole) * rule.forward.deal.share) == pytest.approx(share)
    synchronous = NUM_EPOCHS * 2 * halo_rows * WIDTH * 8
    assert sent == pytest.approx(share * synchronous, rel=0.1)


@pytest.mark.parametrize("memory", [CACHED, PAPER])
def test_what_a_warm_up_leaves_is_as_old_as_its_last_epoch(memory):
    _, parts, _, _ = problem("anywhere")
    rule = delayed(num_bins=2, delay=5, warm_up_epochs=3, forward=memory)

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


def test_rows_of_another_layer_are_refused():
    _, parts, _, _ = problem("anywhere")
    rule = delayed(delay=1)

    def on_rank(group):
        part, first, second = parts[group.rank], Delayed(group, rule), Delayed(group, rule)
        blocks = plan_blocks(part, group)
        LocalGraph(part, blocks, first).aggregate(torch.ones(part.num_roots, WIDTH))
        first.end_epoch()
        second.load_state(first.state())
        with pytest.raises(InputError, match=r"^the checkpoint keeps rows of another layer, "):
            LocalGraph(part, blocks, second).aggregate(torch.ones(part.num_roots, WIDTH + 1))

    run_ranks(len(parts), on_rank)


def test_rows_that_do_not_exist_have_no_age():
    parts = cut(make_graph("random"), 1)
    _, _, inputs, grads = problem("anywhere", num_parts=1)
    rule = delayed(num_bins=3, delay=3, warm_up_epochs=2, backward=PAPER)
    _, staleness, sent = run(parts, inputs, grads, rule=rule)
    assert (staleness, sent) == (0, 0)


@pytest.mark.parametrize("memory", [CACHED, SMOOTH])
@pytest.mark.parametrize("warm_up", [0, 2])
def test_rows_of_bfloat16_travel_as_they_are(warm_up, memory):
    """Constant rows have the synchronous bits once all have arrived."""
    graph = make_graph("random")
    # No edge between leaves: what travels is then constant from the start.
    parts = cut(graph, 3, how="at-destination")
    rule = delayed(num_bins=3, delay=2, warm_up_epochs=warm_up, forward=memory)
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
        delayed(num_bins=1, delay=2, forward=memory, backward=memory),
        delayed(num_bins=3, delay=2, warm_up_epochs=2),
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
    rule = delayed(num_bins=3, delay=2)

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


@pytest.mark.parametrize(
    ("halo", "is_maximum", "why"),
    [
        ("changed(0.1)", True, "takes a maximum, which sends values with the ids"),
        ("smooth(0.5)", True, "takes a maximum, which sends values with the ids"),
        ("smooth(0.5)", False, "attends, which sends averages with the sums of their softmax"),
    ],
)
def test_rows_that_are_no_sums_are_not_compared_or_averaged(halo, is_maximum, why):
    _, parts, _, _ = problem("anywhere")
    rule = parse_halo(halo)
    layer = GATConv(WIDTH, WIDTH, heads=1, concat=False)

    def on_rank(group):
        part = parts[group.rank]
        graph = LocalGraph(part, plan_blocks(part, group), Delayed(group, rule))
        rows = torch.ones(part.num_roots, WIDTH)
        return graph.aggregate(rows, "max") if is_maximum else layer(graph, rows)

    with pytest.raises(InputError, match=why):
        run_ranks(len(parts), on_rank)
