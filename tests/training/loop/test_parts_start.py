"""Runs with --start parts(N): first as 0c, then on the graph; resume, patience, refusals, bytes."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from graphs import EDGE_KIND, cut, make_graph
from stored_parts import store_random
from training import MODELS, check_resumes, ends_of, make_config

from distgnn.api.strategy import spell_out
from distgnn.comm.threads import run_ranks
from distgnn.datasets.errors import InputError
from distgnn.forecast.memory import device_bytes, memory_of_ranks
from distgnn.forecast.traffic import forecast
from distgnn.nn.config import ModelConfig
from distgnn.partition.directory.store import read_manifest, read_part
from distgnn.training.config.compatibility import check_length
from distgnn.training.config.settings import TrainConfig
from distgnn.training.loop.trainer import Trainer
from distgnn.training.run.beginning import check_graph
from distgnn.training.run.directory import RunDirectory


def config_of(name="gcn", **options):
    return make_config(**{**MODELS[name], "start": "parts(2)", "epochs": 4, **options})


def trained(num_parts, config, kind="random", graph=None):
    graph = graph or make_graph(kind)
    parts = cut(graph, num_parts)

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        return trainer, list(trainer.epochs())

    return run_ranks(num_parts, on_rank)


def values_of(found, name):
    return [record[name] for record in found[0][1]]


def check_begins_like_0c(config, graph=None):
    found = trained(3, config, graph=graph)
    apart = trained(3, replace(config, start="graph", algorithm="0c", halo="exact"), graph=graph)
    for name in ("loss", "val_metric"):
        assert values_of(found, name)[:2] == pytest.approx(values_of(apart, name)[:2], rel=1e-4)
    assert values_of(found, "halo_bytes_sent")[:2] == [0, 0]
    return found


@pytest.mark.parametrize("name", MODELS)
def test_the_first_epochs_are_those_of_0c_and_the_others_send_rows(name):
    found = check_begins_like_0c(config_of(name))
    if name not in ("sgc", "sgc-near"):
        whole = trained(3, config_of(name, start="graph"))
        sent = values_of(whole, "halo_bytes_sent")
        assert values_of(found, "halo_bytes_sent")[2:] == sent[2:]
        assert min(sent) > 0
    assert all(metric is not None for metric in values_of(found, "val_metric"))


@pytest.mark.parametrize("num_trained", [1, 40, 105, 120])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_loss_reads_the_same_rows_wherever_layers_run_on_some(num_trained, layers):
    graph = make_graph("random", num_vertices=120)
    graph.train_mask[0] = np.arange(120) < num_trained
    options = {"layers": layers, "dropout": 0.3}
    restricted = check_begins_like_0c(config_of("sage-mean", **options), graph)
    whole = trained(3, config_of("sage-mean", receptive_field=False, **options), graph=graph)
    expected = values_of(whole, "loss")
    assert values_of(restricted, "loss") == pytest.approx(expected, rel=1e-4)


def test_ranks_agree_on_how_much_parts_see():
    found = trained(3, config_of("sage-mean"))
    graph, parts = make_graph("random"), cut(make_graph("random"), 3)
    own, whole = np.zeros(40), np.bincount(graph.dst, minlength=40)
    for part in parts:
        roots = part.global_id[: part.num_roots]
        own[roots] = np.diff(part.indptr)[: part.num_roots]
    is_read = graph.train_mask[0]
    expected = np.where(whole > 0, own / np.maximum(whole, 1), 1.0)[is_read].mean()
    assert 0 < expected < 1
    for trainer, _ in found:
        assert trainer.course.coverage == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"norm": "batch"},
        {"halo": "int8"},
        {"weights": "every(2)+mean"},
        {"weights": "int4", "hidden": 40},
        {"ema": 0.5},
        {"overlap": False},
        {"verify": "rows"},
        {"recompute": True, "layers": 3},
        {"features_dtype": "bf16"},
        {"evaluation": "screened"},
    ],
)
@pytest.mark.parametrize("kind", ["random", "sparse-features"])
def test_the_start_goes_with(options, kind):
    if kind == "sparse-features" and "features_dtype" in options:
        pytest.skip("sparse features have one type")
    found = trained(2, config_of("sage-mean", **options), kind)
    assert values_of(found, "halo_bytes_sent")[:2] == [0, 0]
    assert all(loss > 0 for loss in values_of(found, "loss"))


def test_edges_keep_their_features_on_parts():
    graph = make_graph(EDGE_KIND)
    check_begins_like_0c(config_of("gat", edge_features="use"), graph)


def test_parts_may_come_after_some_epochs_of_the_graph():
    found = trained(3, config_of(start="parts(1:3)"))
    whole = trained(3, config_of(start="graph"))
    assert values_of(found, "loss")[0] == values_of(whole, "loss")[0]
    assert [sent > 0 for sent in values_of(found, "halo_bytes_sent")] == [True, False, False, True]


def test_one_rank_has_the_whole_graph():
    found, whole = (trained(1, config_of(start=start)) for start in ("parts(2)", "graph"))
    assert values_of(found, "loss") == values_of(whole, "loss")


def test_parts_are_freed_where_they_end():
    graph = make_graph("random")
    parts = cut(graph, 3)

    def on_rank(group):
        trainer = Trainer(config_of(), ends_of(graph), parts[group.rank], group)
        alone = weakref.ref(trainer.graphs.parts.graph)
        found = [alone() is not None for _ in trainer.epochs()]
        gc.collect()
        return [*found[:2], alone() is not None]

    assert run_ranks(3, on_rank) == [[True, True, False]] * 3


def test_the_optimizer_goes_on():
    trainer, _ = trained(2, config_of())[0]
    assert int(trainer.optimizer.state_dict()[0]["step"]) == 4


@pytest.mark.parametrize("weights", ["sum", "qadam(2)+int8", "every(2)+mean"])
@pytest.mark.parametrize("num_parts", [1, 3])
def test_a_resumed_run_has_the_bits_of_a_straight_one(weights, num_parts, tmp_path):
    graph = make_graph("random")
    parts = cut(graph, num_parts)
    options = {"epochs": 6, "start": "parts(3)", "checkpoint_every": 1, "dropout": 0.3}
    config = config_of("gcn", hidden=40, weights=weights, **options)
    check_resumes(tmp_path, graph, parts, config, (0, 2, 3))


def test_a_start_that_has_begun_keeps_its_cut(tmp_path):
    run_dir = RunDirectory(tmp_path / "run")
    run_dir.path.mkdir()
    begun = {"task": "single-label", "graph": "g", "num_ranks": 2, "partition": "p"}
    begun["train"] = config_of(start="parts(1:3)").to_json()
    run_dir.write_config(begun)
    for num_epochs in (0, 1, 2, 3):
        (run_dir.checkpoints / f"epoch-{num_epochs:06d}").mkdir(parents=True)
        check_graph(run_dir, begun)
        for changed, sentence in (
            ({"num_ranks": 3}, r"num_ranks \(begun with 2, now 3\)"),
            ({"partition": "q"}, r"partition \(begun with p, now q\)"),
        ):
            words = pytest.raises(InputError, match=f"cannot resume .*: {sentence}")
            with words if num_epochs == 2 else nullcontext():
                check_graph(run_dir, begun | changed)


def test_epochs_of_the_start_are_none_of_waiting(monkeypatch):
    def stays(self, epoch):
        self.best = replace(self.best, epoch=0, metric=1.0)
        self.patience.watch(0, 1.0, 1.0)
        return {"val_metric": 1.0, "test_metric": 1.0, "val_loss": 1.0}

    monkeypatch.setattr(Trainer, "_evaluate_exactly", stays)
    options = {"epochs": 20, "patience": 3}
    assert len(trained(2, config_of(start="graph", **options))[0][1]) == 4
    for num_parts in (1, 2):
        assert len(trained(num_parts, config_of(start="parts(6)", **options))[0][1]) == 9


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"start": "parts(0)"}, r"must be graph, mlp\(N\), parts\(N\) or parts\(A:N\) with N at"),
        ({"start": "parts(4:4)"}, r"with N at least 1 and A below N, got parts\(4:4\)"),
        ({"start": "mlp(1:4)"}, r"with N at least 1 and A below N, got mlp\(1:4\)"),
        ({"model": "rgcn"}, r"--start parts\(2\) is for edges without types, which --model rgcn"),
        ({"task": "link"}, r"--start parts\(2\) trains without rows of others, but --task link"),
        ({"labels_as_input": 0.5}, r"--start parts\(2\) sends no rows, but --labels-as-input 0.5"),
        ({"algorithm": "cd-1"}, r"--start parts\(2\) sends no rows that later epochs could use"),
        ({"algorithm": "0c"}, r"--start parts\(2\) has no effect with --algorithm 0c, which"),
        ({"halo": "delay(1)"}, r"--start parts\(2\) sends no rows that later epochs could use"),
        ({"optimizer": "lbfgs"}, r"--start parts\(2\) changes the loss in mid-run, but --opt"),
        ({"optimizer": "kfac"}, r"--start parts\(2\) changes the loss in mid-run, but --opt"),
    ],
)
def test_what_has_no_meaning_is_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        make_config(**{"start": "parts(2)", **options})


def test_a_model_of_ones_own_is_refused():
    with pytest.raises(InputError, match=r"--start parts\(2\) needs to know the layers"):
        TrainConfig(model=ModelConfig(model="own", own="Net"), start="parts(2)")


def test_a_start_that_takes_all_epochs_is_refused():
    with pytest.raises(InputError, match=r"--start parts\(4\) leaves none of the last of 4 epochs"):
        check_length(config_of(start="parts(4)"))


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize(
    "options",
    [{}, {"norm": "batch"}, {"weights": "qadam(3)+int8", "hidden": 40, "layers": 3}],
)
def test_bytes_of_each_epoch_are_predicted(options, start, tmp_path):
    graph = make_graph("random")
    store_random(tmp_path / "parts", graph, 3)
    manifest = read_manifest(tmp_path / "parts")
    parts = [read_part(tmp_path / "parts", number) for number in range(3)]
    config = config_of("gcn", **{"epochs": 7, "start": f"parts({start}:{start + 2})", **options})

    def on_rank(group):
        return list(Trainer(config, ends_of(graph), parts[group.rank], group).epochs())

    found = forecast(tmp_path / "parts", manifest, config)
    after = " from epoch 1 on" * start
    line = f"start: 2 epochs on each part alone{after}, which send no rows"
    assert line in found.savings
    records = run_ranks(3, on_rank)[0]
    sent = [record["halo_bytes_sent"] for record in records]
    assert sent == [found.bytes_in_epoch(epoch) for epoch in range(7)]
    assert [each == 0 for each in sent[:3]] == [start <= epoch < start + 2 for epoch in range(3)]
    assert [record["weight_bytes_sent"] for record in records] == [
        found.weights.bytes_in_epoch(3, epoch) for epoch in range(7)
    ]
    # Edges are there twice while it lasts.
    plain = forecast(tmp_path / "parts", manifest, replace(config, start="graph"))
    more = [
        one - other
        for one, other in zip(
            memory_of_ranks(manifest, found), memory_of_ranks(manifest, plain), strict=True
        )
    ]
    assert all(each >= 8 * part.num_edges for each, part in zip(more, parts, strict=True))
    # So they are in 0c, to the end.
    alone = forecast(tmp_path / "parts", manifest, replace(config, start="graph", algorithm="0c"))
    rows = [part.num_roots + part.num_leaves for part in parts]
    more = [
        one - other
        for one, other in zip(
            memory_of_ranks(manifest, alone), memory_of_ranks(manifest, plain), strict=True
        )
    ]
    width = graph.features.shape[1]
    for each, part, num_rows in zip(more, parts, rows, strict=True):
        assert each >= 8 * part.num_edges + num_rows * width * 4 - part.num_leaves * 4096


def test_a_device_needs_room_for_the_rows_of_a_part_and_for_the_graph():
    graph = make_graph("random", num_vertices=120)
    part, ends = cut(graph, 4)[0], ends_of(graph)
    config = config_of("sage-mean", layers=3, hidden=64)
    kinds = config, replace(config, start="graph"), replace(config, start="graph", algorithm="0c")
    both, whole, apart = (device_bytes(one, ends, part, features_on="device") for one in kinds)
    assert both == apart > whole


def test_a_strategy_says_which_epochs_send_nothing():
    found = spell_out(config_of(), "cora")
    assert found["start"] == "parts(2)"
    assert found["first_epochs"] == "2 epochs on each part alone, which send no rows"
