"""distgnn.train with a module of the user's, and what becomes of its run."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from graphs import make_graph

import distgnn as dg
from distgnn.datasets import InputError
from distgnn.datasets.npz import write_npz
from distgnn.nn.relational import RGCNConv


class Net(torch.nn.Module):
    def __init__(self, data):
        super().__init__()
        self.first = torch.nn.Linear(data.num_features, 6)
        self.last = torch.nn.Linear(12, data.num_classes)

    def forward(self, graph, x):
        h = graph.dropout(torch.relu(self.first(x)), 0.2, training=self.training)
        return self.last(torch.cat([h, graph.aggregate(h, "mean")], dim=1))


class Other(Net):
    pass


OPTIONS = {"epochs": 6, "threads": 1, "quiet": True}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on a file, and its file."""
    folder = tmp_path_factory.mktemp("own")
    file = folder / "graph.npz"
    write_npz(make_graph("sparse-features"), file)
    return dg.train(file, model=Net, out=folder / "run", **OPTIONS)


def test_a_run_of_ones_own_model_scores_and_predicts(trained):
    assert len(trained.metrics) == 6
    assert "Net on" in repr(trained)
    found = trained.evaluate(threads=1)
    assert found["test_metric"] == pytest.approx(trained.test_metric)
    assert trained.predict(threads=1).shape == (40, 3)
    assert set(trained.state_dict()) == {
        f"{n}.{k}" for n in ("first", "last") for k in ("weight", "bias")
    }
    again = dg.Run(trained.path, model=Net)
    assert np.array_equal(again.predict(threads=1), trained.predict(threads=1))


class Typed(torch.nn.Module):
    def __init__(self, data):
        super().__init__()
        self.first = RGCNConv(data.num_features, data.num_classes, num_relations=3)

    def forward(self, graph, x):
        return self.first(graph, x)


def test_ones_own_typed_model_is_corrected_and_smoothed(tmp_path):
    graph = make_graph("typed")
    assert graph.num_relations == 3
    run = dg.train(graph, model=Typed, out=tmp_path / "run", **OPTIONS)
    found = run.evaluate(source=graph, correct_and_smooth=(0.5, 0.5), threads=1)
    assert 0 <= found["test_metric"] <= 1


@pytest.mark.parametrize(
    "alphas", [(2.0, 0.8), (-1, 0.8), (float("nan"), 0.8), (0.8, 0.8, 3), 0.8, (0.8,), ("x", 0.8)]
)
def test_shares_of_correction_are_two_below_1(trained, alphas):
    with pytest.raises(InputError, match=r"two shares of at least 0 and below 1, such as \(0.8, 0"):
        trained.evaluate(correct_and_smooth=alphas)


def test_a_row_of_the_masks_is_a_number_and_probabilities_a_switch(trained):
    for value, said in (("1", "a whole number, got '1'"), ("all", "one row of the masks, got 'a")):
        with pytest.raises(InputError, match=f"split_index must be {said}"):
            trained.evaluate(split_index=value)
    with pytest.raises(InputError, match="probabilities must be True or False, got 'yes'"):
        trained.predict(probabilities="yes")


def test_its_config_says_whose_model_it_was(trained):
    model = json.loads((trained.path / "config.json").read_text())["train"]["model"]
    assert (model["model"], model["own"]) == ("own", "Net")


def test_a_run_is_used_with_its_own_class_only(trained):
    for run in (trained.path, dg.Run(trained.path, model=Other)):
        with pytest.raises(dg.InputError, match=r"trained a model of your own, Net.*model=Net\)"):
            dg.predict(run, threads=1)
    with pytest.raises(dg.InputError, match="embed needs to know the hidden layers of the model"):
        trained.embed(threads=1)


def test_it_is_resumed_with_its_own_class_only(trained):
    source = trained.config["source"]["source"]
    more = dg.train(source, model=Net, out=trained.path, resume=True, **{**OPTIONS, "epochs": 8})
    assert [record["epoch"] for record in more.metrics] == list(range(8))
    with pytest.raises(dg.InputError, match=r"own \(begun with Net, now Other\)"):
        dg.train(source, model=Other, out=trained.path, resume=True, **OPTIONS)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hidden": 8}, "--hidden 8 has no effect on a model of your own"),
        ({"estimate": True}, "--estimate needs to know the layers of the model"),
        ({"tune_kernels": True}, "--tune-kernels needs to know the layers of the model"),
        ({"model": 5}, "model must be the name of a model, or a module class or function"),
        ({"model": torch.nn.Linear(6, 3)}, "give the class, model=Linear, or a function of the"),
    ],
)
def test_settings_that_do_not_go_with_it_are_refused(tmp_path, options, sentence):
    with pytest.raises(dg.InputError, match=sentence):
        dg.train(make_graph(), **{"model": Net, "out": tmp_path / "run", **OPTIONS, **options})


class Narrow(torch.nn.Module):
    def __init__(self, data):
        super().__init__()
        self.map = torch.nn.Linear(data.num_features, data.num_classes, dtype=torch.bfloat16)

    def forward(self, graph, x):
        return graph.aggregate(self.map(x.bfloat16()), "mean")


@pytest.mark.parametrize("kind", ["random", "multi-label", "regression"])
def test_a_model_in_bfloat16_is_trained_and_predicts(tmp_path, kind):
    graph = make_graph(kind)
    run = dg.train(graph, model=Narrow, out=tmp_path / "run", **OPTIONS)
    assert run.predict(threads=1).dtype == np.float32
    assert np.isfinite(run.test_metric)


def test_a_module_that_a_run_trained_is_no_beginning(tmp_path):
    graph, made = make_graph(), []

    def once(data):
        made[:] = made or [Net(data)]
        return made[0]

    words = {"model": once, "out": tmp_path / "run", **OPTIONS, "epochs": 2}
    dg.train(graph, **words)
    assert len(dg.train(graph, resume=True, **{**words, "epochs": 3}).metrics) == 3
    with pytest.raises(dg.InputError, match=r"that an earlier run trained.*copy\.deepcopy\(net"):
        dg.train(graph, **{**words, "out": tmp_path / "other"})


def test_training_inside_a_session_is_refused(tmp_path):
    with (
        dg.init(threads=1),
        pytest.raises(dg.InputError, match=r"distgnn\.train opens the ranks itself"),
    ):
        dg.train(make_graph(), model=Net, out=tmp_path / "run", **OPTIONS)


def test_a_run_of_values_has_no_probabilities_to_show(tmp_path):
    graph = make_graph("regression")
    run = dg.train(graph, model=Net, out=tmp_path / "run", **OPTIONS)
    with pytest.raises(InputError, match="is for classes of vertices, but the run learned values"):
        run.predict(source=graph, probabilities=True, threads=1)


def test_a_loss_that_no_vertex_has_is_none(tmp_path):
    graph = make_graph("random")
    graph.val_mask[:] = False
    run = dg.train(graph, model=Net, out=tmp_path / "run", **OPTIONS)
    assert run.evaluate(source=graph, threads=1)["val_loss"] is None
