"""Runs with --optimizer lbfgs: any number of ranks, honest bytes, resume, refusals."""

from __future__ import annotations

import pytest
from graphs import cut, make_graph
from training import check_resumes, check_same_values, ends_of, make_config, run

from distgnn.api.strategy import spell_out
from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets.errors import InputError
from distgnn.exchange.base import all_reduce_bytes
from distgnn.forecast.traffic import planned_weights
from distgnn.nn.config import ModelConfig
from distgnn.training.config.settings import TrainConfig
from distgnn.training.loop.trainer import Trainer

MODELS = {
    "sgc": {"model": "sgc", "layers": 1, "hops": 2},
    "gcn": {"model": "gcn", "hidden": 8},
    "gat": {"model": "gat", "heads": 2},
    "sage-recompute": {"norm": "layer", "recompute": True},
    "gcn-alone": {"model": "gcn", "algorithm": "0c"},
}


def config_of(name, **options):
    return make_config(**{**MODELS[name], "optimizer": "lbfgs", **options})


def trained(name, num_parts, **options):
    """The trainer of each rank after all epochs, its records, and its passes."""
    graph = make_graph("random")
    parts = cut(graph, num_parts)

    def on_rank(group):
        trainer = Trainer(config_of(name, **options), ends_of(graph), parts[group.rank], group)
        passes = []
        real = trainer._differentiate

        def counted():
            passes.append(trainer.num_epochs)
            return real()

        trainer._differentiate = counted
        return trainer, list(trainer.epochs()), passes

    return run_ranks(num_parts, on_rank)


def predicted(trainer):
    """Return the traffic of weights that is predicted for a run."""
    tables = trainer.weights.tables
    return planned_weights(trainer.config, trainer.gnn, tables, trainer.graphs)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "gcn-alone"])
def test_losses_are_those_of_one_rank_and_fall_in_every_epoch(name):
    ((_, expected, _),) = trained(name, 1, epochs=6)
    losses = [record["loss"] for record in expected]
    assert losses == sorted(losses, reverse=True)
    found = trained(name, 3, epochs=6)
    for trainer, records, passes in found:
        for one, other in zip(records, expected, strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=5e-3)
        check_same_values(trainer.model.state_dict(), found[0][0].model.state_dict())
        assert passes == found[0][2]


def test_bytes_are_those_of_all_evaluations_of_an_epoch():
    plain = [r["halo_bytes_sent"] for r in trained("gcn", 3, epochs=5, optimizer="sgd")[0][1]]
    _, records, passes = trained("gcn", 3, epochs=5)[0]
    assert plain[0] > 0
    counts = [passes.count(epoch) for epoch in range(5)]
    assert counts[0] >= 2
    assert [r["halo_bytes_sent"] for r in records] == [plain[0] * count for count in counts]
    assert all(record["weight_bytes_sent"] > 0 for record in records)


@pytest.mark.parametrize("name", ["gcn", "sgc"])
def test_bytes_of_a_search_with_one_evaluation_are_predicted(name):
    for trainer, records, passes in trained(name, 3, epochs=6):
        counts = [passes.count(epoch) for epoch in range(6)]
        assert 1 in counts[1:]
        one = predicted(trainer).bytes_in_epoch(3)
        # Each evaluation more sends gradients, loss, penalty and slope.
        more = one - 3 * (all_reduce_bytes(16, 3) + all_reduce_bytes(8, 3))
        for record, count in zip(records[1:], counts[1:], strict=True):
            assert record["weight_bytes_sent"] == one + (count - 1) * more


def test_sgc_propagates_its_input_once_however_many_evaluations_there_are():
    for trainer, records, _ in trained("sgc", 3, epochs=4):
        assert all(record["halo_bytes_sent"] == 0 for record in records)
        assert trainer.graphs.exact.setup_bytes_sent > 0


def test_a_run_goes_on_alone_with_gradients_of_its_own_graph():
    _, records, _ = trained("gcn-alone", 2, epochs=5)[0]
    assert records[-1]["loss"] < records[0]["loss"]


@pytest.mark.parametrize("num_parts", [1, 2])
def test_a_resumed_run_has_the_bits_of_a_straight_one(num_parts, tmp_path):
    graph = make_graph("random")
    parts = cut(graph, num_parts)
    config = config_of("gcn", epochs=9, checkpoint_every=1)
    check_resumes(tmp_path, graph, parts, config, (0, 4))


def test_a_run_continues_on_another_number_of_ranks(tmp_path):
    graph = make_graph("random")
    config = config_of("gcn", epochs=6, checkpoint_every=1)
    straight = run(tmp_path / "straight", graph, cut(graph, 1), config)
    run(tmp_path / "other", graph, cut(graph, 3), config, stop_at=2)
    again = run(tmp_path / "other", graph, cut(graph, 2), config, resume=True)
    for one, other in zip(straight[0].records, again[0].records, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-2)


def test_the_loss_falls_faster_than_with_adam():
    losses = {}
    for optimizer in ("adam", "lbfgs"):
        graph = make_graph("random", num_vertices=200)
        config = make_config(model="sgc", layers=1, optimizer=optimizer, epochs=15)
        trainer = Trainer(config, ends_of(graph), cut(graph, 1)[0], SingleGroup())
        losses[optimizer] = [record["loss"] for record in trainer.epochs()]
    assert losses["lbfgs"][-1] < losses["adam"][-1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"model": "gcn", "dropout": 0.5}, "--dropout 0.5 draws masks; set it to 0"),
        ({"input_dropout": 0.2}, "--input-dropout 0.2 draws masks; set it to 0"),
        (
            {"model": "gat", "attention_dropout": 0.3},
            "--attention-dropout 0.3 draws masks; set it to 0",
        ),
        ({"norm": "batch"}, "--norm batch would keep statistics of all that it tries; use --norm"),
        ({"task": "link"}, "--task link draws pairs; use another optimizer"),
        ({"labels_as_input": 0.5}, "--labels-as-input 0.5 draws labels; leave it out"),
        ({"clip_grad_norm": 1.0}, "--clip-grad-norm 1.0 changes its gradients; leave it out"),
        ({"halo": "int8"}, "rows that are coded or late change it; use --algorithm cd-0 or 0c"),
        ({"algorithm": "cd-2"}, "rows that are coded or late change it; use --algorithm cd-0"),
        ({"weights": "int8"}, "--weights int8.* rounds or splits it; use sum"),
        ({"weights": "every(4)"}, r"--weights every\(4\)\+mean rounds or splits it; use sum"),
    ],
)
def test_what_changes_from_one_evaluation_to_the_next_is_refused(options, sentence):
    with pytest.raises(InputError, match=f"compares the losses of one function.*{sentence}"):
        make_config(optimizer="lbfgs", **options)


def test_a_strategy_says_that_an_epoch_sends_its_rows_for_each_evaluation():
    found = spell_out(config_of("gcn"), "cora")
    assert found["epoch"].startswith("a line search, which sends rows and gradients once for each")
    assert spell_out(make_config(), "cora")["epoch"] == ""


def test_a_model_of_ones_own_is_refused():
    with pytest.raises(InputError, match="a model of your own may draw random numbers; use"):
        TrainConfig(model=ModelConfig(model="own", own="Net"), optimizer="lbfgs")


def test_dropout_of_hidden_layers_that_are_not_there_is_allowed_and_lr_is_that_of_newton():
    config = make_config(model="sgc", layers=1, dropout=0.5, optimizer="lbfgs")
    fields = {"model": config.model, "optimizer": "lbfgs"}
    assert TrainConfig(**fields).lr == 1
