"""The trainer: best epoch, patience, 0c and cd-R from end to end, and what a run leaves behind."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from graphs import CUTS, cut, make_graph
from torch.nn import functional
from training import ends_of, make_config, run

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.datasets.planted import planted
from distgnn.exchange.base import Synchronous
from distgnn.exchange.delayed import Delayed
from distgnn.partition import assign
from distgnn.partition.build import build_parts
from distgnn.training.config.settings import TrainConfig
from distgnn.training.loop.best import Best, Patience
from distgnn.training.loop.graphs import build_exchange
from distgnn.training.loop.model import build_model
from distgnn.training.loop.progress import Silent
from distgnn.training.loop.trainer import Trainer
from distgnn.training.run.directory import SUMMARY, RunDirectory
from distgnn.training.run.tensors import read_tensors
from distgnn.training.run.writer import train

OF_CODES = ("codec_error", "codec_bits")
TIMES = {
    *("epoch_s", "eval_s", "update_s", "preconditioner_s"),
    *("aggregate_s", "pack_s", "exchange_wait_s"),
}


class Scripted(Trainer):
    """A trainer whose evaluations are written down beforehand: (val metric, val loss) an epoch."""

    def __init__(self, script, config, *, has_val=True):
        graph = make_graph("random")
        graph.val_mask[:] &= has_val
        super().__init__(config, ends_of(graph), cut(graph, 1)[0], SingleGroup())
        self.script = script
        self.weights_at = {}

    def evaluate(self):
        metric, loss = self.script[self.num_epochs]
        state = self.model.state_dict()
        self.weights_at[self.num_epochs] = {k: v.clone() for k, v in state.items()}
        return SimpleNamespace(metric={"train": 0.5, "val": metric, "test": 0.5}, val_loss=loss)


def scripted(script, **options):
    trainer = Scripted(script, make_config(**{"epochs": len(script), **options}))
    return trainer, list(trainer.epochs())


@pytest.mark.parametrize(
    ("script", "best"),
    [
        ([(0.1, 1.0), (0.3, 2.0), (0.2, 0.5)], 1),
        ([(0.3, 1.0), (0.3, 0.9), (0.3, 0.95)], 1),
        ([(0.3, 1.0), (0.3, 1.0)], 0),
        ([(0.0, 1.0), (0.0, 2.0)], 0),
        ([(None, 2.0), (None, 1.0), (None, 1.5)], 1),
    ],
)
def test_the_best_epoch_has_the_best_metric_and_the_lower_loss_among_equals(script, best):
    trainer, records = scripted(script)
    assert trainer.best.epoch == best
    assert len(records) == len(script)
    for name, tensor in trainer.weights_at[best].items():
        assert torch.equal(trainer.best_state[name], tensor)


def test_without_validation_vertices_the_latest_epoch_is_the_best():
    trainer = Scripted([(None, 0.0)] * 3, make_config(epochs=3), has_val=False)
    list(trainer.epochs())
    assert trainer.best.epoch == 2


def test_patience_waits_for_a_better_metric_also_where_the_loss_chooses_the_weights():
    script = [(0.1 + 0.1 * epoch, 1.0 + epoch) for epoch in range(8)]
    trainer, records = scripted(script, select_by="loss", patience=2)
    assert (trainer.best.epoch, len(records)) == (0, 8)
    options = {"select_by": "loss", "lr_schedule": "plateau:2", "lr": 0.01}
    _, records = scripted(script, **options)
    assert {record["lr"] for record in records} == {0.01}


def test_an_older_checkpoint_knows_the_best_metric_as_that_of_the_weights():
    waiting = Patience(make_config(patience=2), {"val": 1})
    waiting.load_state({"lowest_loss": 1.0, "lowest_at": 3}, Best(3, 0.5, 1.0))
    assert waiting.best_at == 3
    again = Patience(make_config(patience=2), {"val": 1})
    again.load_state(waiting.state(), Best())
    assert again.state() == waiting.state()


def test_where_the_metric_is_not_defined_the_validation_loss_stands_for_it():
    losses = [3.0, 2.0, 1.0, 1.5, 1.5, 1.5, 1.5, 1.5]
    trainer, records = scripted([(None, loss) for loss in losses], patience=3)
    assert (trainer.best.epoch, len(records)) == (2, 6)
    sentence = r"^--goal 0.5 is compared with the validation accuracy, which is not defined for the"
    with pytest.raises(InputError, match=sentence):
        scripted([(None, 1.0)], goal=0.5)


def test_patience_counts_epochs_since_the_best_one():
    falling = [(0.5, 1.0), (0.6, 1.0)] + [(0.4, 1.0)] * 10
    assert len(scripted(falling, patience=3)[1]) == 1 + 1 + 3
    assert len(scripted(falling, patience=1)[1]) == 1 + 1 + 1
    assert len(scripted(falling, patience=0)[1]) == 12
    assert len(scripted([(0.5, 1.0 / (1 + n)) for n in range(9)], patience=2)[1]) == 9


def test_patience_ends_a_run_only_once_it_was_evaluated_again():
    late = [(0.5, 1.0)] * 5 + [(0.6, 1.0)] * 10
    trainer, records = scripted(late, patience=2, eval_every=5)
    assert (len(records), trainer.best.epoch) == (15, 9)
    flat = [(0.5, 1.0)] * 15
    assert len(scripted(flat, patience=2, eval_every=5)[1]) == 10
    assert len(scripted(flat, patience=7, eval_every=5)[1]) == 15


def test_patience_waits_for_a_lower_loss_where_that_is_asked_for():
    better = [(0.1 * n, 1.0 if n < 2 else 2.0) for n in range(9)]
    trainer, records = scripted(better, patience=3, stop_on="loss")
    # The lowest loss is that of epoch 0, and the best metric that of the last epoch.
    assert len(records) == 1 + 3
    assert trainer.best.epoch == 3
    falling = [(0.5, 1.0 / (1 + n)) for n in range(6)] + [(0.9, 1.0)] * 6
    assert len(scripted(falling, patience=3, stop_on="loss")[1]) == 6 + 3
    assert [each["val_loss"] for each in records] == [1.0, 1.0, 2.0, 2.0]


def test_a_loss_that_is_not_measured_is_not_waited_for():
    with pytest.raises(InputError, match=r"^--stop-on loss has no effect without --patience; add"):
        make_config(stop_on="loss")
    with pytest.raises(InputError, match=r"^--stop-on must be one of metric, loss, got 'val'$"):
        make_config(stop_on="val", patience=3)
    graph = make_graph("random")
    graph.val_mask[:] = False
    config = make_config(stop_on="loss", patience=3)
    sentence = "^--stop-on loss waits for a lower validation loss, but the split has no validation"
    with pytest.raises(InputError, match=sentence):
        Trainer(config, ends_of(graph), cut(graph, 1)[0], SingleGroup())


def test_the_lowest_validation_loss_may_choose_the_weights():
    script = [(0.5, 3.0), (0.9, 2.0), (0.4, 1.0), (0.3, 4.0)]
    for select_by, epoch in (("metric", 1), ("loss", 2)):
        trainer, _ = scripted(script, select_by=select_by)
        assert trainer.best.epoch == epoch
    # Areas are not defined where all validation labels are equal; the loss is.
    undefined = [(None, 3.0), (None, 1.0), (None, 2.0)]
    assert scripted(undefined, select_by="loss")[0].best.epoch == 1
    with pytest.raises(InputError, match=r"^--select-by must be one of metric, loss, got 'val'$"):
        make_config(select_by="val")
    sentence = r"^--select-by loss compares validation losses, which --evaluation screened\(int8\)"
    with pytest.raises(InputError, match=sentence):
        make_config(evaluation="screened", select_by="loss")
    sentence = "^--select-by loss keeps the weights of the lowest validation loss, but the split"
    with pytest.raises(InputError, match=sentence):
        Patience(make_config(select_by="loss"), {"train": 1, "val": 0, "test": 1})


def test_evaluation_happens_every_so_often_and_after_the_last_epoch():
    trainer, records = scripted([(0.5, 1.0)] * 8, eval_every=3)
    assert list(trainer.weights_at) == [2, 5, 7]
    for record in records:
        is_evaluated = record["epoch"] in (2, 5, 7)
        assert (record["val_metric"] is not None) == is_evaluated
        assert (record["eval_s"] > 0) == is_evaluated


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_never_the_best(loss):
    trainer = Scripted([(0.5, 1.0), (0.9, loss)], make_config(epochs=2))
    expected = (
        f"the validation loss is {loss} in epoch 1, after a loss of .* in epoch 0, and no "
        "checkpoint was written yet; lower --lr, scale the input with --feature-norm, or use --norm"
    )
    with pytest.raises(InputError, match=expected):
        list(trainer.epochs())
    assert trainer.best.epoch == 0


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_a_loss_that_is_not_finite_ends_the_run_on_all_ranks(num_ranks):
    graph = make_graph("random")
    parts = cut(graph, num_ranks)
    config = make_config(lr=1e38, optimizer="sgd", epochs=9, eval_every=5)

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        expected = r"the loss is (nan|inf) in epoch \d, after a loss of \d.* in epoch 0, and no ch"
        with pytest.raises(InputError, match=expected):
            list(trainer.epochs())

    run_ranks(num_ranks, on_rank)


def test_records_are_the_same_on_every_rank_and_hold_what_they_must():
    graph = make_graph("random")
    parts = cut(graph, 3)

    def on_rank(group):
        trainer = Trainer(make_config(eval_every=2), ends_of(graph), parts[group.rank], group)
        return list(trainer.epochs())

    results = run_ranks(3, on_rank)
    assert results[1] == results[0]
    assert results[2] == results[0]
    expected = {"epoch", "lr", "loss", "halo_bytes_sent"}
    expected |= {"weight_bytes_sent", "eval_halo_bytes_sent"}
    expected |= {"val_loss", *(f"{split}_metric" for split in ("train", "val", "test"))}
    for record in results[0]:
        assert record.keys() == TIMES | expected | {
            *OF_CODES,
            *("weight_sync_s", "weight_syncs", "max_staleness"),
        }
        assert json.loads(json.dumps(record)) == record
        assert (record["eval_halo_bytes_sent"] > 0) == (record["val_metric"] is not None)
        phases = sum(record[name] for name in TIMES - {"epoch_s", "eval_s"})
        assert phases > 0


def test_an_algorithm_chooses_its_exchange():
    group = SingleGroup()
    for algorithm in ("0c", "cd-0"):
        assert isinstance(build_exchange(make_config(algorithm=algorithm), group), Synchronous)
    config = make_config(algorithm="cd-4", delay_cache=False)
    exchange = build_exchange(config, group)
    assert isinstance(exchange, Delayed)
    assert exchange.rule == config.halo_rule


def test_a_seed_draws_the_same_weights_whatever_else_draws_numbers():
    task = ends_of(make_graph("random"))
    first = build_model(make_config(seed=4), task).state_dict()
    torch.rand(3)
    again = build_model(make_config(seed=4), task).state_dict()
    other = build_model(make_config(seed=5), task).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)
    build_model(make_config(seed=2**63 - 1), task)


def names_in(folder):
    return sorted(item.name for item in folder.iterdir())


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_a_run_leaves_its_metrics_model_summary_and_checkpoints(num_ranks, tmp_path):
    graph = make_graph("random")
    config = make_config(epochs=5, checkpoint_every=2, norm="batch")
    results = run(tmp_path, graph, cut(graph, num_ranks), config)
    directory = RunDirectory(tmp_path)
    assert directory.read_metrics() == results[0].records
    assert all(result.summary == results[0].summary for result in results)
    summary = directory.read_json(SUMMARY)
    assert summary == results[0].summary
    best = results[0].records[summary["best_epoch"]]
    assert summary["test_metric"] == best["test_metric"]
    assert len(summary["peak_rss_bytes"]) == summary["num_ranks"] == num_ranks
    state = read_tensors(directory.model_path)
    model = build_model(config, ends_of(graph))
    model.load_state_dict(state)
    assert summary["num_parameters"] == sum(p.numel() for p in model.parameters())
    for name, tensor in results[0].trainer.best_state.items():
        assert torch.equal(state[name], tensor)
    assert names_in(directory.checkpoints) == ["epoch-000004", "epoch-000005"]


@pytest.mark.parametrize(("every", "kept"), [(0, [4]), (2, [2, 4]), (4, [4]), (1, [3, 4])])
def test_checkpoints_come_every_so_often_and_at_the_end(every, kept, tmp_path):
    graph = make_graph("random")
    config = make_config(epochs=4, checkpoint_every=every)
    run(tmp_path, graph, cut(graph, 1), config)
    assert names_in(tmp_path / "checkpoints") == [f"epoch-{epoch:06d}" for epoch in kept]


def test_a_finished_run_that_is_resumed_writes_its_checkpoint_once(tmp_path):
    graph = make_graph("random")
    parts = cut(graph, 2)
    config = make_config(epochs=4, checkpoint_every=2)
    first = run(tmp_path, graph, parts, config)
    before = (tmp_path / "checkpoints" / "epoch-000004").stat().st_ino
    again = run(tmp_path, graph, parts, config, resume=True)
    assert (tmp_path / "checkpoints" / "epoch-000004").stat().st_ino == before
    # Nothing was trained, so nothing was set up.
    fresh = {"peak_rss_bytes": 0, "setup_bytes_sent": 0}
    assert {**again[0].summary, **fresh} == {**first[0].summary, **fresh}


def test_a_finished_run_whose_metrics_were_lost_can_still_be_resumed(tmp_path):
    graph = make_graph("random")
    config = make_config(epochs=4)
    run(tmp_path, graph, cut(graph, 1), config)
    (tmp_path / "metrics.jsonl").unlink()
    assert run(tmp_path, graph, cut(graph, 1), config, resume=True)[0].summary["num_epochs"] == 4


def test_a_run_that_is_cut_short_before_any_evaluation_has_no_model_to_keep(tmp_path):
    graph = make_graph("random")
    parts = cut(graph, 2)
    options = {"eval_every": 9, "checkpoint_every": 2}
    run(tmp_path, graph, parts, make_config(epochs=20, **options), stop_at=4)
    expected = (
        "none of the run's 4 epochs was evaluated, so there is no model to keep; "
        "use --epochs above 4"
    )
    with pytest.raises(InputError, match=expected):
        run(tmp_path, graph, parts, make_config(epochs=3, **options), resume=True)
    assert not (tmp_path / "model.safetensors").exists()
    longer = make_config(epochs=5, **options)
    assert run(tmp_path, graph, parts, longer, resume=True)[0].summary["best_epoch"] == 4


def test_all_ranks_hear_that_the_results_cannot_be_written(tmp_path):
    graph = make_graph("random")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / SUMMARY).mkdir()
    with pytest.raises(InputError, match=r"cannot write '.*summary.json': Is a directory"):
        run(tmp_path, graph, cut(graph, 3), make_config())
    assert (tmp_path / "model.safetensors").exists()


def test_the_display_is_closed_whatever_happens(tmp_path):
    closed = []

    class Broken(Silent):
        def epoch(self, record):
            raise KeyboardInterrupt

        def close(self):
            closed.append(True)

    graph = make_graph("random")
    trainer = Trainer(make_config(), ends_of(graph), cut(graph, 1)[0], SingleGroup())
    with pytest.raises(KeyboardInterrupt):
        train(trainer, RunDirectory(tmp_path), Broken(), records=[])
    assert closed == [True]


def dense_part(part, kind):
    """The matrix by which a layer of a part that trains alone aggregates."""
    matrix = np.zeros((part.num_clones, part.num_clones))
    targets = np.repeat(np.arange(part.num_clones), np.diff(part.indptr))
    weight = 1 if part.edge_weight is None else part.edge_weight
    np.add.at(matrix, (targets, part.indices), weight)
    degree = np.diff(part.indptr)
    if kind == "gcn":
        has_loop = np.zeros(part.num_clones, dtype=bool)
        has_loop[targets[targets == part.indices]] = True
        matrix += np.diag(~has_loop)
        scale = matrix.sum(axis=1) ** -0.5
        return torch.from_numpy(scale[:, None] * matrix * scale)
    return torch.from_numpy(matrix / degree.clip(1)[:, None])


def dense_scores(matrix, rows, weights, kind):
    for layer in ("hidden.0", "last"):
        if kind == "gcn":
            rows = matrix @ rows @ weights[f"{layer}.linear.weight"].t() + weights[f"{layer}.bias"]
        else:
            neighbours = matrix @ rows @ weights[f"{layer}.neighbour.weight"].t()
            own = rows @ weights[f"{layer}.root.weight"].t()
            rows = own + neighbours + weights[f"{layer}.neighbour.bias"]
        rows = rows if layer == "last" else rows.relu()
    return rows


def dense_isolated_step(graph, parts, state, kind, weighing):
    """Loss and gradients of 0c: each part alone, in double precision, and the sum of all."""
    weights = {name: tensor.double().requires_grad_() for name, tensor in state.items()}
    is_sparse = not isinstance(graph.features, np.ndarray)
    features = graph.features.toarray() if is_sparse else graph.features
    degree = np.bincount(graph.dst, minlength=graph.num_vertices)
    loss, total = 0, 0
    for part in parts:
        rows = torch.from_numpy(features[part.global_id]).double()
        scores = dense_scores(dense_part(part, kind), rows, weights, kind)
        ids = part.global_id[: part.num_roots]
        train = np.flatnonzero(part.train_mask[0])
        local = np.diff(part.indptr)[: part.num_roots]
        share = np.divide(local, degree[ids], out=np.ones(len(ids)), where=degree[ids] > 0)
        share = torch.from_numpy(share[train])
        if "coverage_correction" in weighing:
            strength, count = weighing["coverage_correction"], torch.from_numpy(local[train])
            whole = torch.from_numpy(degree[ids][train])
            share = 1 - strength + strength * whole.clamp(min=1) / count.clamp(min=1)
        elif not weighing:
            share = torch.ones(len(train))
        labels = torch.from_numpy(graph.labels[ids][train])
        losses = functional.cross_entropy(scores[train], labels, reduction="none")
        loss, total = loss + (losses * share).sum(), total + float(share.sum())
    loss = loss / total
    loss.backward()
    return float(loss.detach()), {name: tensor.grad for name, tensor in weights.items()}


@pytest.mark.parametrize(
    "weighing",
    [{}, {"reweight_loss": True}, {"coverage_correction": 0.5}, {"coverage_correction": 1.0}],
    ids=["alike", "reweighted", "half", "inverse"],
)
@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("model", ["gcn", "sage"])
@pytest.mark.parametrize("kind", ["random", "sparse-features", "weighted", "loops"])
def test_0c_is_each_part_alone(kind, model, how, weighing):
    graph = make_graph(kind)
    parts = cut(graph, 3, how=how)
    config = make_config(model=model, algorithm="0c", epochs=1, **weighing)

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        state = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
        trainer.optimizer.zero_grad = lambda: None
        share = trainer.train_epoch()
        grads = {name: p.grad for name, p in trainer.model.named_parameters()}
        sent = trainer.graph.exchange.take_bytes()
        return share, grads, state, sent, trainer.graphs.setup_bytes_sent

    results = run_ranks(3, on_rank)
    loss, expected = dense_isolated_step(graph, parts, results[0][2], model, weighing)
    assert sum(share for share, *_ in results) == pytest.approx(loss, rel=1e-5)
    largest = max(float(grad.abs().max()) for grad in expected.values())
    for _, grads, _, sent, _ in results:
        assert sent == 0
        for name, grad in expected.items():
            torch.testing.assert_close(
                grads[name].double(), grad, rtol=1e-4, atol=1e-5 * largest, msg=name
            )
    assert sum(setup for *_, setup in results) > 0


def test_0c_is_evaluated_on_the_whole_graph():
    graph = make_graph("random")
    config = make_config(model="gcn", algorithm="0c")

    def scores_on(parts):
        def on_rank(group):
            trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
            return trainer.evaluate()

        return run_ranks(len(parts), on_rank)[0]

    one, three = scores_on(cut(graph, 1)), scores_on(cut(graph, 3))
    assert one.metric == pytest.approx(three.metric)
    assert one.val_loss == pytest.approx(three.val_loss, rel=1e-5)


@pytest.fixture(scope="module")
def communities():
    graph = planted(num_vertices=400, num_classes=4, num_features=8, signal=0.6, seed=3)
    return graph, list(build_parts(graph, assign("metis", graph, 3, seed=0)))


def best_test_metric(communities, **options):
    graph, parts = communities
    config = make_config(model="gcn", hidden=16, epochs=60, eval_every=5, **options)

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        records = [record for record in trainer.epochs() if record["val_metric"] is not None]
        return max(records, key=lambda record: record["val_metric"])["test_metric"], records

    return run_ranks(3, on_rank)[0]


def test_delayed_training_learns_what_synchronous_training_learns(communities):
    synchronous, exact = best_test_metric(communities)
    delayed, late = best_test_metric(communities, algorithm="cd-5")
    chance = 1 / 4
    assert synchronous > chance + 0.3
    assert delayed > synchronous - 0.05
    assert late[-1]["loss"] < late[0]["loss"]
    assert late[-1]["max_staleness"] == 5 + 5 - 1
    assert exact[-1]["max_staleness"] == 0
    sent = [records[-1]["halo_bytes_sent"] for records in (late, exact)]
    assert sent[0] < 0.3 * sent[1]


def test_the_default_configuration_trains(communities):
    graph, parts = communities
    config = TrainConfig(epochs=2)
    trainer = run_ranks(
        3, lambda g: list(Trainer(config, ends_of(graph), parts[g.rank], g).epochs())
    )
    assert len(trainer[0]) == 2
