"""Whole runs of attention: resumed, delayed, each part alone, and told from others."""

from __future__ import annotations

import pytest
import torch
from graphs import cut, make_graph
from training import check_same_values, ends_of, make_config, run

from distgnn.comm.threads import run_ranks
from distgnn.datasets.planted import planted
from distgnn.partition import assign
from distgnn.partition.build import build_parts
from distgnn.training.loop.trainer import Trainer
from distgnn.training.run.directory import RunDirectory
from distgnn.training.run.inference import TrainedRun

GAT = {"model": "gat", "heads": 2}


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("algorithm", ["cd-0", "cd-3", "0c"])
def test_a_resumed_run_has_the_bits_of_the_straight_one(algorithm, num_ranks, tmp_path):
    graph = make_graph("random")
    parts = cut(graph, num_ranks)
    options = {**GAT, "algorithm": algorithm, "dropout": 0.4, "input_dropout": 0.2}
    config = make_config(epochs=8, **options)
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "resumed", graph, parts, make_config(epochs=5, **options))
    resumed = run(tmp_path / "resumed", graph, parts, config, resume=True)
    for one, other in zip(resumed, straight, strict=True):
        assert [r["loss"] for r in one.records] == [r["loss"] for r in other.records]
        check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())
        check_same_values(one.trainer.best_state, other.trainer.best_state)


@pytest.mark.parametrize("algorithm", ["cd-0", "cd-2", "0c"])
def test_a_trained_model_scores_a_vertex_the_same_on_any_part(algorithm, tmp_path):
    graph = make_graph("sparse-features")
    parts = cut(graph, 3)
    trained = run(tmp_path, graph, parts, make_config(**GAT, algorithm=algorithm, epochs=1))
    expected = "static input: off, attention weighs it anew in every epoch"
    assert trained[0].trainer.graphs.savings[0] == expected
    stored = TrainedRun(RunDirectory(tmp_path))
    whole = cut(graph, 1)[0]
    scores = run_ranks(1, lambda group: stored.scores(whole, group))[0]
    on_parts = run_ranks(3, lambda group: stored.scores(parts[group.rank], group))
    for part, rows in zip(parts, on_parts, strict=True):
        own = scores[part.global_id[: part.num_roots]]
        torch.testing.assert_close(rows, own, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [GAT, {"model": "gcn", "static_input": False}])
@pytest.mark.parametrize("algorithm", ["cd-0", "cd-2", "0c"])
def test_a_run_keeps_no_second_copy_of_its_edges(algorithm, options):
    graph = make_graph("random", num_vertices=120)
    parts = cut(graph, 2)
    config = make_config(**options, algorithm=algorithm, epochs=1)

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        graphs = [trainer.graphs.exact, *(trainer.graph.level(n) for n in range(2))]
        list(trainer.epochs())
        return [(g.blocks.forward.has_loops, g._memo.looped_blocks) for g in graphs]

    for seen in run_ranks(2, on_rank):
        assert seen == [(True, None)] * 3


def test_all_algorithms_learn_what_one_process_learns():
    graph = planted(num_vertices=400, num_classes=4, num_features=8, signal=0.6, seed=3)
    parts = list(build_parts(graph, assign("metis", graph, 3, seed=0)))

    def best_test_metric(parts, algorithm):
        config = make_config(**GAT, hidden=8, epochs=60, eval_every=5, algorithm=algorithm)

        def on_rank(group):
            trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
            records = [r for r in trainer.epochs() if r["val_metric"] is not None]
            return max(records, key=lambda record: record["val_metric"])["test_metric"], records

        return run_ranks(len(parts), on_rank)[0]

    alone, _ = best_test_metric(cut(graph, 1), "cd-0")
    chance = 1 / 4
    assert alone > chance + 0.3
    for algorithm, margin in (("cd-0", 0.02), ("cd-5", 0.1)):
        metric, records = best_test_metric(parts, algorithm)
        assert metric > alone - margin
        assert records[-1]["loss"] < records[0]["loss"]
