"""Runs with --start mlp(N): no rows in its epochs, any number of ranks, resume, refusals."""

from __future__ import annotations

import pytest
import torch
from graphs import cut, make_graph
from stored_parts import store_random
from training import MODELS, check_resumes, ends_of, make_config

from distgnn.api.strategy import spell_out
from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets.errors import InputError
from distgnn.forecast.traffic import forecast
from distgnn.kernels.dense import is_fast
from distgnn.nn.config import ModelConfig
from distgnn.partition.directory.store import read_manifest, read_part
from distgnn.training.config.compatibility import check_length
from distgnn.training.config.settings import TrainConfig
from distgnn.training.loop.trainer import Trainer


def config_of(name="gcn", **options):
    return make_config(**{**MODELS[name], "start": "mlp(2)", "epochs": 4, **options})


def trained(num_parts, config, kind="random"):
    graph = make_graph(kind)
    parts = cut(graph, num_parts)

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        return trainer, list(trainer.epochs())

    return run_ranks(num_parts, on_rank)


@pytest.mark.parametrize("name", MODELS)
def test_losses_are_those_of_one_rank_and_the_start_sends_no_rows(name):
    ((_, expected),) = trained(1, config_of(name))
    for _, records in trained(3, config_of(name)):
        for one, other in zip(records, expected, strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=2e-3)
        assert [r["halo_bytes_sent"] + r["eval_halo_bytes_sent"] for r in records[:2]] == [0, 0]
        assert [r["val_metric"] is None for r in records] == [True, True, False, False]
        if name not in ("sgc", "sgc-near"):
            assert all(record["halo_bytes_sent"] > 0 for record in records[2:])


def test_the_start_is_a_perceptron_with_the_same_weights():
    graph = make_graph("random")
    config = config_of("gcn", optimizer="sgd", weight_decay=0.0)
    trainer = Trainer(config, ends_of(graph), cut(graph, 1)[0], SingleGroup())
    weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    record = next(trainer.epochs())
    rows = trainer.inputs.features[trainer.inputs.wanted]
    labels = trainer.inputs.labels[trainer.inputs.wanted]
    first, last = (name for name in weights if name.endswith("weight"))
    hidden = torch.relu(rows @ weights[first].t())
    scores = hidden @ weights[last].t()
    expected = torch.nn.functional.cross_entropy(scores, labels)
    assert record["loss"] == pytest.approx(float(expected), rel=1e-5)


KFAC = pytest.param("kfac", marks=pytest.mark.skipif(not is_fast(), reason="needs fused adds"))


QADAM = {"weights": "qadam(2)+int8", "hidden": 40, "layers": 3}


@pytest.mark.parametrize("optimizer", ["adam", KFAC, "lbfgs", "qadam"])
@pytest.mark.parametrize("num_parts", [1, 2])
def test_a_resumed_run_has_the_bits_of_a_straight_one(optimizer, num_parts, tmp_path):
    graph = make_graph("random")
    parts = cut(graph, num_parts)
    how = QADAM if optimizer == "qadam" else {"optimizer": optimizer}
    config = config_of("gcn", epochs=6, start="mlp(3)", checkpoint_every=1, **how)
    check_resumes(tmp_path, graph, parts, config, (0, 2, 3))


def test_the_optimizer_begins_again_with_the_graph():
    steps = []
    graph = make_graph("random")
    trainer = Trainer(config_of(), ends_of(graph), cut(graph, 1)[0], SingleGroup())
    for _ in trainer.epochs():
        steps.append(int(trainer.optimizer.state_dict()[0]["step"]))
    assert steps == [1, 2, 1, 2]


@pytest.mark.parametrize("options", [{"algorithm": "0c"}, {"norm": "batch"}, {"halo": "int8"}])
@pytest.mark.parametrize("kind", ["random", "sparse-features"])
def test_the_start_goes_with(options, kind):
    for _, records in trained(2, config_of("sage-mean", **options), kind):
        assert records[-1]["loss"] > 0
        assert records[0]["halo_bytes_sent"] == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"start": "mlp"}, r"--start must be graph, mlp\(N\), .* with N at least 1 .*, got mlp"),
        (
            {"start": "mlp(0)"},
            r"--start must be graph, mlp\(N\), .* with N at least 1 .*, got mlp\(0\)",
        ),
        (
            {"model": "rgcn"},
            r"--start mlp\(2\) trains without edges, but --model rgcn has a map for each type",
        ),
        ({"task": "link"}, r"--start mlp\(2\) trains without rows of others, but --task link"),
        ({"labels_as_input": 0.5}, r"--start mlp\(2\) would .* labels; drop one of the two"),
        ({"algorithm": "cd-1"}, r"--start mlp\(2\) sends no rows .*; use --algorithm cd-0 or 0c"),
        ({"halo": "int4+delay(1)"}, r"--start mlp\(2\) sends no rows that later epochs could use"),
        ({"model": "gat", "edge_features": "use"}, "add --edge-features ignore"),
    ],
)
def test_what_has_no_meaning_is_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        make_config(**{"start": "mlp(2)", **options})


def test_a_model_of_ones_own_is_refused():
    with pytest.raises(InputError, match=r"--start mlp\(2\) needs to know the layers"):
        TrainConfig(model=ModelConfig(model="own", own="Net"), start="mlp(2)")


def test_a_start_that_takes_all_epochs_is_refused():
    with pytest.raises(
        InputError, match=r"--start mlp\(4\) leaves none of the last of 4 epochs to"
    ):
        check_length(config_of(start="mlp(4)"))


@pytest.mark.parametrize("options", [{}, {**QADAM, "start": "mlp(3)", "epochs": 7}])
def test_bytes_of_each_epoch_are_predicted(options, tmp_path):
    graph = make_graph("random")
    store_random(tmp_path / "parts", graph, 3)
    manifest = read_manifest(tmp_path / "parts")
    parts = [read_part(tmp_path / "parts", number) for number in range(3)]
    config = config_of("gcn", **options)
    start = config.quiet_epochs.stop

    def on_rank(group):
        return list(Trainer(config, ends_of(graph), parts[group.rank], group).epochs())

    found = forecast(tmp_path / "parts", manifest, config)
    assert any(f"start: {start} epochs on each vertex alone" in line for line in found.savings)
    records = run_ranks(3, on_rank)[0]
    sent = [record["halo_bytes_sent"] for record in records]
    assert sent == [found.bytes_in_epoch(epoch) for epoch in range(config.epochs)]
    assert sent[:start] == [0] * start
    assert sent[start] > 0
    # With the graph the optimizer begins again, and so does the warm-up of qadam.
    assert [record["weight_bytes_sent"] for record in records] == [
        found.weights.bytes_in_epoch(3, epoch) for epoch in range(config.epochs)
    ]
    assert found.weights.bytes_per_epoch(3) == records[-1]["weight_bytes_sent"]


def test_a_strategy_says_which_epochs_send_nothing():
    found = spell_out(config_of(), "cora")
    assert found["start"] == "mlp(2)"
    assert found["first_epochs"] == (
        "2 epochs on each vertex alone, which send no rows and are not evaluated"
    )
