"""Runs with --optimizer kfac: any number of ranks, predicted bytes and memory, resume, refusals."""

from __future__ import annotations

import pytest
import torch
from graphs import cut, make_graph
from training import MODELS, check_resumes, ends_of, make_config, run

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets.errors import InputError
from distgnn.datasets.held_out import hold_out_links
from distgnn.forecast.traffic import planned_weights
from distgnn.kernels.dense import is_fast
from distgnn.settings.kfac import KfacOptions
from distgnn.training.config.settings import TrainConfig
from distgnn.training.loop.trainer import Trainer

pytestmark = pytest.mark.skipif(not is_fast(), reason="needs fused multiply-adds")

KINDS = {
    name: "typed" if MODELS[name].get("model") in ("rgcn", "rsage") else "random" for name in MODELS
}


def config_of(name, **options):
    return make_config(**{**MODELS[name], "optimizer": "kfac", **options})


def trained(kind, name, num_parts, **options):
    """Trainers after all epochs, and what their ranks together recorded."""
    graph = make_graph(kind)
    parts = cut(graph, num_parts)

    def on_rank(group):
        trainer = Trainer(config_of(name, **options), ends_of(graph), parts[group.rank], group)
        records = list(trainer.epochs())
        predicted = None
        if trainer.gnn is not None:
            tables = trainer.weights.tables
            predicted = planned_weights(trainer.config, trainer.gnn, tables, trainer.graphs)
        return trainer, records, predicted

    return run_ranks(num_parts, on_rank)


@pytest.mark.parametrize("name", MODELS)
def test_losses_are_those_of_one_rank_and_bytes_those_that_were_predicted(name):
    options = {"epochs": 4, "kfac": "factors=1,inverses=2,first=1,workers=half"}
    kind = KINDS[name]
    ((_, expected, _),) = trained(kind, name, 1, **options)
    for _, records, predicted in trained(kind, name, 3, **options):
        for one, other in zip(records, expected, strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=2e-3)
        sent = [record["weight_bytes_sent"] for record in records]
        assert sent == [predicted.bytes_in_epoch(3, epoch) for epoch in range(4)]


@pytest.mark.parametrize(("workers", "first"), [("all", 1), ("one", 3)])
@pytest.mark.parametrize("name", ["gcn", "sage-mean", "sage-max", "sage-pool", "gat", "gin", "sgc"])
def test_bytes_of_sparse_input_are_predicted(name, workers, first):
    kfac = f"factors=2,inverses=3,first={first},workers={workers},widest=4"
    options = {"epochs": 7, "kfac": kfac}
    for _, records, predicted in trained("sparse-features", name, 3, **options):
        sent = [record["weight_bytes_sent"] for record in records]
        assert sent == [predicted.bytes_in_epoch(3, epoch) for epoch in range(7)]


@pytest.mark.parametrize("name", ["gcn", "sage-mean"])
def test_factors_that_are_read_again_after_a_start_are_predicted(name):
    options = {"epochs": 8, "start": "mlp(3)", "kfac": "factors=3,inverses=3,first=2"}
    for _, records, predicted in trained("random", name, 3, **options):
        sent = [record["weight_bytes_sent"] for record in records]
        assert sent[3:] == [predicted.bytes_in_epoch(3, epoch) for epoch in range(3, 8)]


def test_the_factors_of_a_run_are_those_that_were_described():
    for name in ("gcn-batch-residual", "sage-layer-jumping", "gat", "gin-learned"):
        ((trainer, _, predicted),) = trained("random", name, 1)
        widths = sorted(len(value) for value in trainer.optimizer._factors.values.values())
        sides = [side.width for group in predicted.factors.groups for side in group.sides]
        assert widths == sorted(sides)
        assert predicted.factors.num_bytes >= 16 * sum(width**2 for width in widths)
        assert predicted.working_bytes(1) == predicted.factors.num_bytes


@pytest.mark.parametrize("num_parts", [1, 2])
@pytest.mark.parametrize(
    "kfac", ["factors=2,inverses=3,first=3,decay=0.5", "factors=1,inverses=4,first=1"]
)
def test_a_resumed_run_has_the_bits_of_a_straight_one(kfac, num_parts, tmp_path):
    graph = make_graph("random")
    parts = cut(graph, num_parts)
    config = config_of("gat-dropout", epochs=9, checkpoint_every=1, kfac=kfac, norm="layer")
    check_resumes(tmp_path, graph, parts, config, (0, 4))


def test_a_run_continues_on_another_number_of_ranks(tmp_path):
    graph = make_graph("random")
    config = config_of("sage-mean", epochs=8, checkpoint_every=1, kfac="workers=one")
    straight = run(tmp_path / "straight", graph, cut(graph, 1), config)
    run(tmp_path / "other", graph, cut(graph, 3), config, stop_at=3)
    again = run(tmp_path / "other", graph, cut(graph, 2), config, resume=True)
    for one, other in zip(straight[0].records, again[0].records, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)


def test_links_count_their_pairs_and_their_decoder_is_stepped_by_adam():
    graph = hold_out_links(make_graph("random"), "0.7/0.15/0.15")
    config = make_config(task="link", decoder="mlp", epochs=6, optimizer="kfac")
    trainer = Trainer(config, ends_of(graph), cut(graph, 1)[0], SingleGroup())
    records = list(trainer.epochs())
    assert trainer.objective.num_terms == 2 * trainer.inputs.counts["train"]
    assert records[-1]["loss"] < records[0]["loss"]
    state = trainer.optimizer.state_dict()
    names = [name for name, _ in trainer.model.named_parameters()]
    for number, name in enumerate(names):
        assert ("exp_avg" in state[number]) == name.startswith("decoder"), name


def test_records_tell_the_time_of_curvature_as_a_part_of_the_update():
    options = {"epochs": 4, "kfac": "factors=4,inverses=4,first=1"}
    for _, records, _ in trained("random", "gcn", 2, **options):
        for record in records:
            assert 0 < record["preconditioner_s"] < record["epoch_s"]
    ((_, records, _),) = trained("random", "gcn", 1, epochs=1, optimizer="adam")
    assert records[0]["preconditioner_s"] == 0


def test_the_length_of_a_step_depends_on_the_optimizer_unless_it_is_given():
    assert TrainConfig(**fields_of()).lr == 0.01
    assert TrainConfig(**fields_of(optimizer="kfac")).lr == 0.1
    assert TrainConfig(**fields_of(optimizer="kfac", lr=0.3)).lr == 0.3


def fields_of(**options):
    return {"model": make_config().model, **options}


def test_settings_are_remembered_in_one_form():
    config = TrainConfig(**fields_of(optimizer="kfac", kfac="clip=0.01, damping=.1"))
    assert config.kfac == "damping=0.1"
    assert config.is_second_order
    assert not make_config().is_second_order
    assert str(KfacOptions()) == ""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"kfac": "clip=1"},
            "--kfac clip=1.0 has no effect with --optimizer adam; drop it or use --optimizer kfac",
        ),
        (
            {"optimizer": "kfac", "receptive_field": False},
            "--optimizer kfac averages over the rows that the loss reads; drop --receptive-field",
        ),
        (
            {"optimizer": "kfac", "weights": "every(4)"},
            r"--optimizer kfac preconditions one gradient by sums over all roots, but --weights",
        ),
        ({"optimizer": "kfac", "kfac": "rate=1"}, "--kfac has no setting 'rate'"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        TrainConfig(**fields_of(**options))


def test_no_step_is_replayed_that_may_differ_from_the_one_before(monkeypatch):
    wanted = {}

    def build(name, function, graph, *, is_wanted):
        wanted[name] = is_wanted
        return real(name, function, graph, is_wanted=False)

    from distgnn.training.loop import trainer as module

    real = module.build_repeated
    monkeypatch.setattr(module, "build_repeated", build)
    graph = make_graph("random")
    for optimizer, is_wanted in (("adam", True), ("kfac", False)):
        config = make_config(optimizer=optimizer)
        Trainer(config, ends_of(graph), cut(graph, 1)[0], SingleGroup())
        assert wanted == {"a step": is_wanted, "evaluation": True}


def test_weights_stay_finite_and_the_loss_falls_faster_than_with_adam():
    losses = {}
    for optimizer in ("adam", "kfac"):
        graph = make_graph("random", num_vertices=200)
        config = make_config(model="gcn", hidden=16, optimizer=optimizer, epochs=15)
        trainer = Trainer(config, ends_of(graph), cut(graph, 1)[0], SingleGroup())
        losses[optimizer] = [record["loss"] for record in trainer.epochs()]
        assert all(bool(torch.isfinite(each).all()) for each in trainer.model.parameters())
    assert losses["kfac"][-1] < losses["adam"][-1]
