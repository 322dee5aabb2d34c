"""A trained run that is read back scores exactly as the trainer did."""

from __future__ import annotations

import json

import pytest
import torch
from graphs import cut, make_graph
from training import make_config, run, task_of

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.training.config.settings import TrainConfig
from distgnn.training.data.inputs import load_inputs
from distgnn.training.run.directory import CONFIG, RunDirectory
from distgnn.training.run.inference import TrainedRun
from distgnn.training.run.tensors import write_tensors
from distgnn.training.tasks.objective import Scores
from distgnn.training.tasks.smoothing import CorrectAndSmooth


def rows_of(part):
    return torch.from_numpy(part.features)


def evaluate(path, parts):
    """Scores and metrics of a run that is read back."""
    trained = TrainedRun(RunDirectory(path))

    def on_rank(group):
        part = parts[group.rank]
        scores = trained.scores(part, group)
        options = {"split_index": 0, "feature_norm": trained.config.feature_norm}
        options |= task_of(part)
        return scores, Scores(scores, load_inputs(part, group, **options), group)

    return run_ranks(len(parts), on_rank)


CASES = {
    "cd-0": {"norm": "batch", "feature_norm": "standard", "dropout": 0.4},
    "cd-3": {"algorithm": "cd-3", "model": "gcn", "input_dropout": 0.3},
    "0c": {"algorithm": "0c", "jumping": "cat", "feature_norm": "row"},
    "max": {"aggregator": "max", "residual": True, "norm": "layer"},
}


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_a_run_read_back_gives_the_metrics_of_its_best_epoch(case, num_ranks, tmp_path):
    graph = make_graph("loops")
    parts = cut(graph, num_ranks)
    results = run(tmp_path, graph, parts, make_config(epochs=8, lr=0.05, **CASES[case]))
    summary = results[0].summary
    for rank, (scores, got) in enumerate(evaluate(tmp_path, parts)):
        assert scores.shape == (parts[rank].num_roots, graph.num_classes)
        assert not scores.requires_grad
        for split, value in got.metric.items():
            assert value == summary[f"{split}_metric"]
        # Evaluation in training may aggregate the input first, which rounds otherwise.
        assert got.val_loss == pytest.approx(results[0].trainer.best.loss, rel=1e-6)


@pytest.mark.parametrize("model", ["gcn", "gat", "sage"])
def test_edges_are_kept_twice_only_where_they_are_walked_without_loops(model, tmp_path):
    graph = make_graph("weighted")
    part = cut(graph, 1)[0]
    run(tmp_path, graph, [part], make_config(epochs=1, model=model))
    trained = TrainedRun(RunDirectory(tmp_path))

    def is_looped(keeps_edges):
        local = trained.graph(part, SingleGroup(), keeps_edges=keeps_edges)
        return local.blocks.forward.has_loops

    assert (is_looped(False), is_looped(True)) == (model != "sage", False)
    plain = trained.scores(part, SingleGroup())
    spread = trained.scores(part, SingleGroup(), after=CorrectAndSmooth(0.5, 0.5, 3))
    assert plain.shape == spread.shape
    kept = trained.load_model()(trained.graph(part, SingleGroup(), keeps_edges=True), rows_of(part))
    torch.testing.assert_close(plain, kept.detach(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["sparse-features", "multi-label"])
def test_a_run_read_back_on_other_ranks_gives_the_same_scores(kind, tmp_path):
    graph = make_graph(kind)
    run(tmp_path, graph, cut(graph, 3), make_config(norm="batch"))
    whole = evaluate(tmp_path, cut(graph, 1))[0][0]
    parts = cut(graph, 2)
    for part, (scores, _) in zip(parts, evaluate(tmp_path, parts), strict=True):
        expected = whole[part.global_id[: part.num_roots]]
        torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)


def trained_at(tmp_path):
    graph = make_graph("random")
    run(tmp_path, graph, cut(graph, 1), make_config(epochs=1))
    return RunDirectory(tmp_path)


def change(run_dir, **changes):
    run_dir.write_config({**run_dir.read_config(), **changes})


def test_a_run_remembers_its_source_task_and_configuration(tmp_path):
    run_dir = trained_at(tmp_path)
    change(run_dir, source={"source": "cora"})
    trained = TrainedRun(run_dir)
    assert trained.source == {"source": "cora"}
    assert (trained.ends.name, trained.ends.num_features, trained.ends.num_classes) == (
        "random",
        6,
        3,
    )
    assert trained.config == make_config(epochs=1, task="single-label", metric="accuracy")
    assert not trained.load_model().training


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "cora"},
        {"source": None},
        {"task": None},
        {"task": {"name": "g"}},
        {"task": {"name": "g", "num_features": "many", "num_classes": 3}},
        {"task": [1]},
    ],
)
def test_what_is_not_a_runs_configuration_is_refused(changes, tmp_path):
    run_dir = trained_at(tmp_path)
    change(run_dir, **changes)
    with pytest.raises(InputError, match=r"config.json' is not a run's configuration; train again"):
        TrainedRun(run_dir)


def test_a_configuration_of_another_format_is_refused(tmp_path):
    run_dir = trained_at(tmp_path)
    change(run_dir, format=2)
    with pytest.raises(InputError, match="has format 2, but this version of distgnn reads 1; tr"):
        TrainedRun(run_dir)


def test_a_configuration_with_other_settings_is_refused(tmp_path):
    run_dir = trained_at(tmp_path)
    change(run_dir, train={})
    with pytest.raises(InputError, match="the run's configuration must have the fields"):
        TrainedRun(run_dir)


def test_a_configuration_without_training_is_refused(tmp_path):
    (tmp_path / CONFIG).write_text(json.dumps({"source": {}, "task": {}}))
    with pytest.raises(InputError, match=r"config.json' is not a run's configuration"):
        TrainedRun(RunDirectory(tmp_path))


def test_a_run_that_has_not_ended_is_refused(tmp_path):
    run_dir = trained_at(tmp_path)
    run_dir.model_path.unlink()
    expected = "has no model.safetensors: the run has not ended; finish it with the command "
    expected += "that began it and --resume"
    with pytest.raises(InputError, match=expected):
        TrainedRun(run_dir)


def test_a_damaged_model_is_refused(tmp_path):
    run_dir = trained_at(tmp_path)
    run_dir.model_path.write_bytes(run_dir.model_path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"model.safetensors' is damaged: it should hold"):
        TrainedRun(run_dir).load_model()


@pytest.mark.parametrize("how", ["other weights", "other layers", "impossible width"])
def test_another_model_than_the_runs_is_refused(how, tmp_path):
    run_dir = trained_at(tmp_path)
    if how == "other weights":
        write_tensors(run_dir.model_path, {"w": torch.ones(1)})
    elif how == "other layers":
        change(run_dir, train=make_config(layers=3).to_json())
    else:
        change(run_dir, task={**run_dir.read_config()["task"], "num_features": -1})
    expected = r"model.safetensors' holds another model than its run's config.json; train again"
    with pytest.raises(InputError, match=expected):
        TrainedRun(run_dir).load_model()


def test_scores_are_those_of_evaluation_without_dropout(tmp_path):
    graph = make_graph("random")
    part = cut(graph, 1)[0]
    config = make_config(dropout=0.9, input_dropout=0.9)
    assert isinstance(config, TrainConfig)
    run(tmp_path, graph, [part], config)
    trained = TrainedRun(RunDirectory(tmp_path))
    first, second = (trained.scores(part, SingleGroup()) for _ in range(2))
    assert torch.equal(first, second)
