"""Modules that users write, in the built-in trainer: on any number of ranks, resumed, refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from graphs import cut, make_graph
from torch import nn
from training import check_same_values, run

from distgnn.comm.single import SingleGroup
from distgnn.datasets.errors import InputError
from distgnn.nn.config import ModelConfig
from distgnn.training.config.settings import TrainConfig
from distgnn.training.data.info import DataInfo
from distgnn.training.loop.own_model import own_config
from distgnn.training.loop.trainer import Trainer

if TYPE_CHECKING:
    from pathlib import Path


class Net(nn.Module):
    """Sums, attention and dropout, with layers of torch."""

    def __init__(self, data):
        super().__init__()
        self.first = nn.Linear(data.num_features, 6)
        self.score = nn.Linear(6, 2)
        self.last = nn.Linear(6, data.num_classes)

    def forward(self, graph, x):
        h = torch.relu(graph.aggregate(self.first(x), "sum", "gcn"))
        h = graph.dropout(h, 0.3, training=self.training)
        score = self.score(h)
        return self.last(graph.attend(h, source_score=score, target_score=-score)) + self.last(
            graph.aggregate(h, "mean")
        )


class WithTorchDropout(Net):
    def forward(self, graph, x):
        return nn.functional.dropout(super().forward(graph, x), 0.2, self.training)


def config_of(factory, **options):
    return TrainConfig(model=own_config(factory), **{"epochs": 5, "seed": 3, **options})


def trained(folder: Path, graph, parts, factory=Net, *, resume=False, stop_at=None, **options):
    config = config_of(factory, **options)
    return run(folder, graph, parts, config, factory=factory, resume=resume, stop_at=stop_at)


def losses(one):
    return [record["loss"] for record in one[0].records]


@pytest.mark.parametrize("kind", ["random", "sparse-features", "weighted", "multi-label"])
def test_three_ranks_learn_what_one_does(tmp_path, kind):
    graph = make_graph(kind)
    one = trained(tmp_path / "one", graph, cut(graph, 1))
    three = trained(tmp_path / "three", graph, cut(graph, 3))
    assert losses(three) == pytest.approx(losses(one), rel=1e-5)
    assert losses(one)[-1] < losses(one)[0]
    for name in ("train_metric", "val_metric", "test_metric"):
        assert three[0].summary[name] == pytest.approx(one[0].summary[name], abs=1e-5)
    for name, weight in one[0].trainer.model.state_dict().items():
        other = three[2].trainer.model.state_dict()[name]
        torch.testing.assert_close(other, weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algorithm", ["cd-0", "cd-2", "0c"])
def test_a_resumed_run_ends_with_the_bits_of_a_straight_one(tmp_path, algorithm):
    graph = make_graph()
    parts = cut(graph, 3)
    options = {"algorithm": algorithm, "checkpoint_every": 2}
    straight = trained(tmp_path / "straight", graph, parts, **options)
    trained(tmp_path / "again", graph, parts, stop_at=2, **options)
    resumed = trained(tmp_path / "again", graph, parts, resume=True, **options)
    assert losses(resumed) == losses(straight)
    for one, other in zip(straight, resumed, strict=True):
        check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())


def test_dropout_of_torch_resumes_with_the_same_bits_whatever_else_draws(tmp_path):
    graph = make_graph()
    options = {"checkpoint_every": 2, "factory": WithTorchDropout}
    straight = trained(tmp_path / "straight", graph, cut(graph, 1), **options)
    plain = trained(tmp_path / "plain", graph, cut(graph, 1))
    assert losses(plain) != losses(straight)
    trained(tmp_path / "again", graph, cut(graph, 1), stop_at=2, **options)
    torch.rand(7)
    before = torch.random.get_rng_state()
    resumed = trained(tmp_path / "again", graph, cut(graph, 1), resume=True, **options)
    assert losses(resumed) == losses(straight)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_labels_as_input_are_columns_of_the_model(tmp_path):
    graph = make_graph()
    widths = []

    def factory(data):
        widths.append(data.num_features)
        return Net(data)

    one = trained(tmp_path / "one", graph, cut(graph, 1), factory, labels_as_input=0.5)
    three = trained(tmp_path / "three", graph, cut(graph, 3), factory, labels_as_input=0.5)
    assert set(widths) == {graph.num_features + graph.num_classes}
    assert losses(three) == pytest.approx(losses(one), rel=1e-5)


class Sparse(Net):
    takes_sparse = True

    def forward(self, graph, x):
        assert x.is_sparse
        return super().forward(graph, x.to_dense())


def test_a_model_that_says_so_gets_sparse_rows(tmp_path):
    graph = make_graph("sparse-features")
    dense = trained(tmp_path / "dense", graph, cut(graph, 1))
    sparse = trained(tmp_path / "sparse", graph, cut(graph, 1), Sparse)
    assert losses(sparse) == losses(dense)


def test_frozen_weights_stay(tmp_path):
    def factory(data):
        model = Net(data)
        model.first.weight.requires_grad_(False)
        return model

    graph = make_graph()
    (one,) = trained(tmp_path, graph, cut(graph, 1), factory)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        begun = Net(DataInfo.of(graph))
    assert torch.equal(one.trainer.model.first.weight, begun.first.weight)
    assert not torch.equal(one.trainer.model.last.weight, begun.last.weight)


def test_the_log_says_what_is_off_and_the_run_knows_the_name():
    graph = make_graph()
    config = config_of(Net)
    trainer = Trainer(config, DataInfo.of(graph), cut(graph, 1)[0], SingleGroup(), factory=Net)
    text = "\n".join(trainer.graphs.savings)
    assert "receptive field: off, a model of your own may read any row" in text
    assert "static input: off, a model of your own decides what it aggregates" in text
    assert TrainConfig.from_json(config.to_json()) == config
    assert config.model.own == "Net"
    (difference,) = config.differences(config_of(WithTorchDropout))
    assert difference == "own (begun with Net, now WithTorchDropout)"
    with pytest.raises(InputError, match="--estimate needs to know the layers of the model"):
        trainer.known_model("--estimate")


def changed(function):
    class Changed(Net):
        def forward(self, graph, x):
            return function(self, graph, x, super().forward(graph, x))

    return Changed


MODELS = {
    "scores must have 3 columns, one for each class, but the model returned shape": changed(
        lambda s, g, x, y: y[:, :2]
    ),
    "scores must have 40 rows, one for each vertex that this rank owns, but": changed(
        lambda s, g, x, y: y[1:]
    ),
    "scores must be a tensor of floats with a row for each": changed(lambda s, g, x, y: [y]),
    "the model changed its input x in place": changed(lambda s, g, x, y: (x.mul_(2), y)[1]),
    "but it returned a int; return the module": lambda data: 5,
}


@pytest.mark.parametrize("sentence", MODELS)
def test_models_that_do_not_fit_are_refused(tmp_path, sentence):
    graph = make_graph()
    with pytest.raises(InputError, match=sentence):
        trained(tmp_path, graph, cut(graph, 1), MODELS[sentence])


class WithBatchNorm(Net):
    def __init__(self, data):
        super().__init__(data)
        self.norm = nn.BatchNorm1d(6)


def test_batch_norm_of_torch_is_refused_on_several_ranks(tmp_path):
    graph = make_graph()
    trained(tmp_path / "one", graph, cut(graph, 1), WithBatchNorm)
    with pytest.raises(InputError, match="'norm' of the model is torch's BatchNorm1d"):
        trained(tmp_path / "three", graph, cut(graph, 3), WithBatchNorm)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"recompute": True}, "--recompute needs to know the layers"),
        ({"decay_of": "first"}, "--decay-of first needs to know the layers"),
        ({"task": "link"}, "--task link needs to know the layers"),
        ({"decoder": "mlp"}, "--decoder mlp needs to know the layers"),
        ({"model": {"hidden": 8}}, "--hidden 8 has no effect on a model of your own"),
        ({"model": {"norm": "batch"}}, "--norm batch has no effect on a model of your own"),
        ({"model": {"own": ""}}, "--model must be one of sage, gcn, .*, got 'own'"),
    ],
)
def test_settings_of_known_layers_are_refused(options, sentence):
    model = {"model": "own", "own": "Net", **options.pop("model", {})}
    with pytest.raises(InputError, match=sentence):
        TrainConfig(model=ModelConfig(**model), **options)
