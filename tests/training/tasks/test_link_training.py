"""Predicting links: any number of ranks, the plain formulae, what is drawn, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import cut, make_graph
from torch.nn import functional
from training import check_equal, check_same_values, ends_of, first_step, make_config, run

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.datasets.held_out import hold_out_links
from distgnn.datasets.planted import planted
from distgnn.exchange.base import Synchronous
from distgnn.exchange.fetch import Roots
from distgnn.nn.decoders import DECODERS
from distgnn.training.data.link_inputs import load_link_inputs
from distgnn.training.loop.trainer import Trainer
from distgnn.training.tasks import links
from distgnn.training.tasks.links import Pairs
from distgnn.training.tasks.pairs import draw_others, draw_pairs
from distgnn.training.tasks.tasks import LINK_METRICS, resolve, resolve_again

NUM_VERTICES = 40
SINGLE = SingleGroup()


def linked(kind="random"):
    return hold_out_links(make_graph(kind, num_vertices=NUM_VERTICES), "0.7/0.15/0.15")


def trainer_of(graph, part, group, **options):
    return Trainer(make_config(task="link", **options), ends_of(graph), part, group)


@pytest.mark.usefixtures("multiplied_here")
@pytest.mark.parametrize(
    ("kind", "model", "options"),
    [
        ("random", "sage-mean", {"metric": "hits@10", "decoder": "mlp"}),
        ("loops", "gcn-dropout", {"metric": "mrr"}),
        ("sparse-features", "gat", {"metric": "hits@10"}),
        ("weighted", "gcn-batch-residual", {"decoder": "mlp", "weight_decay": 0.0}),
        ("typed", "rgcn", {"decoder": "mlp"}),
    ],
)
def test_the_number_of_ranks_does_not_matter(kind, model, options, monkeypatch):
    monkeypatch.setattr(links, "_BLOCK", 50)
    graph = linked(kind)
    expected = first_step(cut(graph, 1), graph, model, num_epochs=2, task="link", **options)
    assert any(np.abs(grad.numpy()).max() > 1e-4 for grad in expected[1][0].values())
    for num_parts, how in ((2, "anywhere"), (4, "empty-part")):
        parts = cut(graph, num_parts, how=how)
        got = first_step(parts, graph, model, num_epochs=2, task="link", **options)
        check_equal(got, expected)


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
def test_the_loss_and_its_gradient_are_those_of_the_plain_formula(decoder):
    graph = linked("loops")
    trainer = trainer_of(graph, cut(graph, 1)[0], SINGLE, decoder=decoder, dropout=0.0)
    rows = torch.randn(NUM_VERTICES, 4, generator=torch.Generator().manual_seed(0))
    rows.requires_grad_()
    weights = list(trainer.model.decoder.parameters())
    seed = trainer.graph.mask_seeds.next_seed()
    trainer.graph.mask_seeds.num_drawn = 0
    value = trainer.objective.loss(rows)
    got = [value, *torch.autograd.grad(value, [rows, *weights])]
    is_link = graph.src != graph.dst
    edges = graph.src[is_link], graph.dst[is_link]
    drawn = draw_pairs(seed, np.arange(len(edges[0])), NUM_VERTICES)
    both = [torch.from_numpy(np.concatenate(ends)) for ends in zip(edges, drawn, strict=True)]
    target = torch.cat([torch.ones(len(edges[0])), torch.zeros(len(edges[0]))])
    product = rows[both[0]] * rows[both[1]]
    if decoder == "dot":
        scores = product.sum(dim=1)
    else:
        for number in range(0, len(weights), 2):
            inner = torch.relu(product) if number else product
            product = inner @ weights[number].t() + weights[number + 1]
        scores = product[:, 0]
    plain = functional.binary_cross_entropy_with_logits(scores, target)
    expected = [plain, *torch.autograd.grad(plain, [rows, *weights])]
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
def test_gradients_are_differences(decoder):
    generator = torch.Generator().manual_seed(1)
    layer = DECODERS[decoder](3).double()
    for weight in layer.parameters():
        weight.data.normal_(generator=generator)
    table = torch.randn(6, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    roots = Roots(Synchronous(SINGLE), torch.arange(6), 6)
    ends = torch.tensor([0, 1, 1, 5]), torch.tensor([2, 1, 4, 0])

    def loss(rows, *weights):
        del weights
        return Pairs(roots, *ends).loss(rows, layer, is_link=False)

    assert torch.autograd.gradcheck(loss, (table, *layer.parameters()))


def test_edges_that_are_held_out_are_aggregated_on_no_rank():
    graph = linked()
    for part in cut(graph, 3):
        ids = part.global_id
        ends = ids[part.indices], np.repeat(ids, np.diff(part.indptr))
        edges = {(min(u, v), max(u, v)) for u, v in zip(*ends, strict=True)}
        held_out = np.concatenate([graph.val_links, graph.test_links])
        assert not edges & set(map(tuple, held_out))


def hits(links_of, others, k):
    """OGB's formula, densely."""
    least = np.sort(others)[-k]
    return np.mean([score > least for score in links_of])


def mrr(links_of, others):
    """OGB's formula, densely."""
    found = []
    for score, row in zip(links_of, others, strict=True):
        best, worst = np.sum(row > score), np.sum(row >= score)
        found.append(1 / ((best + worst) / 2 + 1))
    return np.mean(found)


@pytest.mark.parametrize("num_parts", [1, 3, 4])
@pytest.mark.parametrize("name", ["mrr", "hits@10", "hits@20"])
def test_metrics_are_those_of_ogb_with_ties_on_any_number_of_ranks(name, num_parts):
    rng = np.random.default_rng(0)
    measure = LINK_METRICS[name]
    links_of = rng.integers(0, 6, 30).astype(np.float32)
    shape = (30, 50) if measure.num_own else 45
    others = rng.integers(0, 6, shape).astype(np.float32)
    expected = mrr(links_of, others) if measure.num_own else hits(links_of, others, int(name[5:]))

    def on_rank(group):
        # The last rank has nothing where there are several.
        step = 30 // max(num_parts - 1, 1)
        own = slice(step * group.rank, step * (group.rank + 1))
        of_others = own if measure.num_own else slice(2 * own.start, 2 * own.stop)
        pieces = (torch.from_numpy(links_of[own]), torch.from_numpy(others[of_others]))
        sums = measure.shares(*pieces, group)
        group.all_reduce(sums)
        return measure.value(sums)

    assert run_ranks(num_parts, on_rank) == pytest.approx([expected] * num_parts)


def test_scores_that_are_no_numbers_rank_links_last():
    nan, measure = float("nan"), LINK_METRICS["mrr"]
    links_of = torch.tensor([nan, 1.0, 1.0])
    others = torch.tensor([[0.0, 0.0], [nan, 0.0], [0.0, 0.0]])
    assert measure.shares(links_of, others, SINGLE).tolist() == [1 / 3 + 1 / 2 + 1, 3]
    others = torch.tensor([2.0] * 9 + [nan])
    assert LINK_METRICS["hits@10"].shares(links_of, others, SINGLE).tolist() == [0, 3]


@pytest.mark.parametrize("num_parts", [1, 3])
def test_links_are_ranked_some_at_a_time_with_the_same_result(num_parts, monkeypatch):
    graph = linked()
    parts = cut(graph, num_parts, how="empty-part" if num_parts > 1 else "anywhere")
    rows = torch.randn(NUM_VERTICES, 4, generator=torch.Generator().manual_seed(0))
    drawn = []

    def draw(seed, ends, num_each, num_vertices):
        drawn.append(len(ends))
        return draw_others(seed, ends, num_each, num_vertices)

    monkeypatch.setattr(links, "draw_others", draw)

    def on_rank(group):
        part = parts[group.rank]
        inputs = load_link_inputs(part, group, make_config(task="link", metric="mrr"))
        evaluator = links.LinkEvaluator(inputs, group)
        return evaluator.evaluate(rows[inputs.root_id], DECODERS["dot"](4))

    expected = run_ranks(num_parts, on_rank)[0]
    assert len(drawn) == 2 * num_parts
    held_out = torch.from_numpy(graph.val_links)
    others = draw_others(1, graph.val_links, 1000, NUM_VERTICES)
    # A drawn vertex may be the end of the link itself: sums in another order would break the tie.
    decoder, heads = DECODERS["dot"](4), rows[held_out[:, 0]]
    scores = decoder(heads, rows[held_out[:, 1]])
    ends = rows[torch.from_numpy(others).reshape(-1)]
    of_others = decoder(heads.repeat_interleave(1000, dim=0), ends).view(len(heads), 1000)
    assert expected.metric["val"] == pytest.approx(mrr(scores.numpy(), of_others.numpy()))
    drawn.clear()
    monkeypatch.setattr(links, "_RANKED_BYTES", 3 * 1000 * 128 + 48 * NUM_VERTICES)
    for found in run_ranks(num_parts, on_rank):
        for name in links.HELD_OUT:
            assert found.metric[name] == pytest.approx(expected.metric[name], rel=1e-9)
        assert found.val_loss == pytest.approx(expected.val_loss, rel=1e-6)
    assert max(drawn) == 3
    assert len(drawn) > 2 * num_parts


@pytest.mark.parametrize("num_kept", [0, 4, 100])
def test_pairs_of_links_are_drawn_and_looked_up_once_as_far_as_memory_lets(num_kept, monkeypatch):
    graph = linked()
    parts = cut(graph, 2)
    monkeypatch.setattr(links, "_KEPT_BYTES", 2 * num_kept * 1000 * 20)
    # Two links at a time.
    monkeypatch.setattr(links, "_RANKED_BYTES", 2 * 1000 * 128 + 48 * NUM_VERTICES)
    drawn = []

    def draw(seed, ends, num_each, num_vertices):
        drawn.append(seed)
        return draw_others(seed, ends, num_each, num_vertices)

    monkeypatch.setattr(links, "draw_others", draw)

    def on_rank(group):
        part = parts[group.rank]
        inputs = load_link_inputs(part, group, make_config(task="link", metric="mrr"))
        evaluator = links.LinkEvaluator(inputs, group)
        evaluator.exchange.take_bytes()  # those of planning
        found = []
        for seed in range(3):
            rows = torch.randn(NUM_VERTICES, 4, generator=torch.Generator().manual_seed(seed % 2))
            evaluation = evaluator.evaluate(rows[inputs.root_id], DECODERS["dot"](4))
            group.barrier()
            found.append((evaluation, evaluator.exchange.take_bytes(), len(drawn)))
            group.barrier()
        return found, evaluator

    (found, evaluator), (others, _) = run_ranks(2, on_rank)
    assert found[0][0] == found[2][0] != found[1][0]
    assert [evaluation for evaluation, *_ in found] == [evaluation for evaluation, *_ in others]
    numbers = np.diff([0, *(number for *_, number in found)]).tolist()
    num_steps = [-(-most // 2) for most in evaluator._most.values()]
    again = sum(max(0, steps - num_kept // 2) for steps in num_steps)
    assert numbers == [2 * sum(num_steps), 2 * again, 2 * again]
    num_links = sum(min(most, num_kept) for most in evaluator._most.values())
    assert evaluator.kept_bytes == num_links * 1000 * 20
    assert (found[1][1] < found[0][1]) == (num_kept > 0)


def test_pairs_that_are_drawn_are_uniform_and_depend_on_their_numbers_alone():
    numbers = np.arange(60000)
    first, second = draw_pairs(7, numbers, 10)
    assert not np.any(first == second)
    counts = np.bincount(first * 10 + second, minlength=100).reshape(10, 10)
    off_diagonal = counts[~np.eye(10, dtype=bool)]
    assert off_diagonal.min() > 0.8 * off_diagonal.mean()
    assert off_diagonal.max() < 1.2 * off_diagonal.mean()
    again = draw_pairs(7, numbers[100:200], 10)
    np.testing.assert_array_equal(again[0], first[100:200])
    assert np.mean(draw_pairs(8, numbers, 10)[0] == first) < 0.2
    pairs = np.array([[0, 1], [3, 9]])
    others = draw_others(7, pairs, 1000, 10)
    assert not np.any(others == pairs[:, :1])
    np.testing.assert_array_equal(draw_others(7, pairs[::-1], 1000, 10)[1], others[0])


def test_a_community_graph_is_learned():
    graph = planted(num_vertices=200, num_classes=4, num_features=16, seed=0)
    graph = hold_out_links(graph, "0.8/0.1/0.1", seed=1)
    part = cut(graph, 1)[0]
    trainer = trainer_of(graph, part, SINGLE, hidden=16, epochs=60, eval_every=60, metric="mrr")
    before = trainer.evaluate().metric["test"]
    record = list(trainer.epochs())[-1]
    assert record["test_metric"] > 2 * before
    assert record["train_metric"] is None


def test_a_resumed_run_has_the_same_bits(tmp_path):
    graph = linked()
    parts = cut(graph, 2)
    config = make_config(
        task="link", decoder="mlp", epochs=4, dropout=0.3, checkpoint_every=1, algorithm="cd-2"
    )
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "again", graph, parts, config, stop_at=1)
    again = run(tmp_path / "again", graph, parts, config, resume=True)
    for one, other in zip(straight, again, strict=True):
        check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())
        assert one.summary["val_metric"] == other.summary["val_metric"]


def test_rows_of_ends_are_counted():
    graph = linked()
    parts = cut(graph, 2)
    # As many hidden columns as there are classes: the models send the same.
    options = {"hidden": 3, "receptive_field": False}
    with_links = first_step(parts, graph, "sage-mean", task="link", **options)[0][0]
    plain = first_step(parts, graph, "sage-mean", task="single-label", **options)[0][0]
    assert with_links["halo_bytes_sent"] > plain["halo_bytes_sent"]
    assert with_links["eval_halo_bytes_sent"] > plain["eval_halo_bytes_sent"]


def test_memory_is_that_of_rows_of_ends_and_of_pairs():
    graph = linked()
    trainer = trainer_of(graph, cut(graph, 1)[0], SINGLE)
    is_edge = graph.src != graph.dst
    num_ends = len(np.unique(np.stack([graph.src, graph.dst])[:, is_edge]))
    rows = NUM_VERTICES + num_ends + NUM_VERTICES
    num_ranked = 1000 * (len(graph.val_links) + len(graph.test_links))
    expected = 3 * 4 * 16 * rows + 128 * np.count_nonzero(is_edge) + 20 * num_ranked
    assert trainer.objective.working_bytes(16) == expected


def test_a_graph_that_holds_links_out_is_for_them_unless_its_labels_are_asked_for():
    ends = ends_of(linked())
    assert (ends.task, ends.has_links) == ("single-label", True)
    found = resolve(make_config(), ends)
    assert (found.task, found.metric) == ("link", "mrr")
    assert resolve(make_config(task="single-label"), ends).metric == "accuracy"


@pytest.mark.parametrize(
    ("options", "has_links", "expected"),
    [
        ({}, False, "--task link needs links that are held out, but the graph has none; give --ed"),
        ({"metric": "accuracy"}, True, "--metric 'accuracy' is none of a link task; use --metric "),
        ({"algorithm": "0c"}, True, "--algorithm 0c leaves ranks alone, but --task link scores pa"),
        ({"split_index": 2}, True, "--split-index 2 has no effect on a link task: links are held"),
    ],
)
def test_what_does_not_go_with_links_is_refused(options, has_links, expected):
    ends = replace(ends_of(make_graph()), has_links=has_links)
    with pytest.raises(InputError, match=f"^{expected}"):
        resolve(make_config(task="link", **options), ends)


def test_a_decoder_without_links_is_refused():
    with pytest.raises(InputError, match=r"^--decoder mlp has no effect on a single-label task; d"):
        resolve(make_config(decoder="mlp"), ends_of(make_graph()))
    with pytest.raises(InputError, match=r"^--decoder must be one of dot, mlp, got 'sum'"):
        make_config(decoder="sum")


def test_a_run_that_learned_links_needs_them_again():
    config = make_config(task="link", metric="mrr")
    with pytest.raises(InputError, match=r"by mrr, but the graph holds no links out; restore the"):
        resolve_again(config, ends_of(make_graph()))


def test_too_few_links_to_learn_or_to_measure_are_refused():
    graph = linked()
    config = make_config(task="link", metric="hits@100")
    with pytest.raises(InputError, match=r"of which validation or test has \d+; use --metric mrr"):
        load_link_inputs(cut(graph, 1)[0], SINGLE, config)
    none = replace(graph, src=graph.src[:0], dst=graph.dst[:0])
    with pytest.raises(InputError, match=r"^the graph has no edge between two vertices, so there"):
        load_link_inputs(cut(none, 1)[0], SINGLE, make_config(task="link", metric="mrr"))
