"""The verbs of the command line as functions: same results, same errors, no exit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
import torch
from graphs import make_graph
from ring import ring_arrays

import distgnn as dg
from distgnn.cli import main

QUICK = {"epochs": 3, "hidden": 4, "threads": 1}


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    """A sound graph file."""
    path = tmp_path_factory.mktemp("ring") / "ring.npz"
    np.savez(path, **ring_arrays())
    return path


@pytest.fixture(scope="module")
def run(ring):
    """A run on the ring."""
    return dg.train(ring, model="gcn", out=ring.parent / "run", **QUICK)


def test_a_run_pauses_and_continues_as_if_it_had_not(ring, tmp_path, capsys):
    words = {**QUICK, "model": "gcn", "epochs": 6, "lr_schedule": "cosine", "lr_warm_up": 2}
    straight = dg.train(ring, out=tmp_path / "straight", **words)
    paused = dg.train(ring, out=tmp_path / "run", pause_after=2, quiet=False, **words)
    assert len(paused.metrics) == 2
    assert "paused after epoch 2 of 6; --resume continues" in capsys.readouterr().err
    more = ["--lr-schedule", "cosine", "--lr-warm-up", "2", "--epochs", "6", "--hidden", "4"]
    train = ["train", str(ring), "--run", str(tmp_path / "run"), "--model", "gcn", "--quiet"]
    assert main([*train, *more, "--threads", "1", "--resume", "--pause-after", "4"]) == 0
    assert "paused after epoch 4 of 6" in capsys.readouterr().err
    run = dg.train(ring, out=tmp_path / "run", resume=True, pause_after=9, **words)
    names = ("loss", "lr", "val_metric")
    for one, other in zip(run.metrics, straight.metrics, strict=True):
        assert [one[name] for name in names] == [other[name] for name in names]


@pytest.mark.parametrize("more", [{"lr_schedule": "plateau:1"}, {"patience": 5}])
def test_a_pause_changes_nothing_where_its_epoch_is_not_evaluated(ring, tmp_path, more):
    words = {**QUICK, "model": "gcn", "epochs": 12, "eval_every": 3, "lr": 0.3, **more}
    straight = dg.train(ring, out=tmp_path / "straight", **words)
    paused = dg.train(ring, out=tmp_path / "run", pause_after=5, **words)
    assert paused.metrics[4]["val_metric"] is not None
    assert paused.best_epoch == 2
    run = dg.train(ring, out=tmp_path / "run", resume=True, **words)
    assert [one["loss"] for one in run.metrics] == [one["loss"] for one in straight.metrics]
    assert [one["lr"] for one in run.metrics] == [one["lr"] for one in straight.metrics]
    assert run.best_epoch == straight.best_epoch


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"pause_after": 0}, "--pause-after must be 1 or more, got 0"),
        ({"pause_after": 2, "seeds": 2}, "--pause-after is about one run, but --seeds and"),
    ],
)
def test_a_pause_that_cannot_be_is_refused(ring, tmp_path, words, sentence):
    with pytest.raises(dg.InputError, match=re.escape(sentence)):
        dg.train(ring, out=tmp_path / "run", **QUICK, **words)


def test_the_quick_example_reaches_the_accuracy_of_the_literature(repository, tmp_path):
    script = repository / "examples/quick.py"
    lines = [line for line in script.read_text().splitlines() if line and line[0] not in '"# ']
    assert len(lines) <= 25
    command = [sys.executable, script, tmp_path / "run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    found = re.search(r"^(\d\.\d+) \(2708, 7\) \(2708, 16\)$", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    assert float(found[1]) > 0.79
    assert "gcn on cora, 200 epochs" in done.stdout
    # Standard error is no terminal here, so that only warnings are shown.
    assert "epoch " not in done.stderr


def test_a_run_is_that_of_the_command_line(run, ring, tmp_path):
    words = ["train", ring, "--run", tmp_path / "r", "--model", "gcn", "--epochs", 3]
    words += ["--hidden", 4, "--threads", 1, "--quiet"]
    assert main([str(word) for word in words]) == 0
    other = dg.Run(tmp_path / "r")
    assert [record["loss"] for record in other.metrics] == [
        record["loss"] for record in run.metrics
    ]
    assert other.config["train"] == run.config["train"]
    assert other.test_metric == run.test_metric == run.summary["test_metric"]
    assert other.best_epoch == run.best_epoch
    for name, weight in run.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name])


def test_a_run_says_in_two_lines_what_it_is(run, tmp_path):
    first, second = repr(run).splitlines()
    assert first == f"Run('{run.path}'): gcn on ring, 3 epochs"
    assert second.strip().startswith(f"accuracy at epoch {run.best_epoch}: test 0.")
    assert repr(dg.Run(run.path)) == repr(run)
    assert run._repr_html_().startswith("<table><caption>Run(")
    assert repr(dg.Run(tmp_path / "nowhere")).endswith("no run was begun here")
    with pytest.raises(dg.InputError, match=r"is not a run directory: it has no summary\.json"):
        _ = dg.Run(tmp_path / "nowhere").summary


def test_predictions_and_embeddings_are_in_the_order_of_the_vertices(run, tmp_path):
    probability = run.predict(out=tmp_path / "p.csv", threads=1)
    assert probability.shape == (12, 3)
    assert np.allclose(probability.sum(axis=1), 1, atol=1e-5)
    text = (tmp_path / "p.csv").read_text().splitlines()
    assert [int(line.split(",")[1]) for line in text[1:]] == probability.argmax(axis=1).tolist()
    rows = run.embed(threads=1)
    assert (rows.shape, rows.dtype) == ((12, 4), np.float32)
    # The last layer is a mean over in-neighbours and the vertex, of a linear map of these rows.
    weights = run.state_dict()
    src, dst = ring_arrays()["edge_index"]
    sums = scipy.sparse.csr_matrix((np.full(12, 0.5), (dst, src)), (12, 12)) + 0.5 * np.eye(12)
    scores = sums @ (rows @ weights["last.linear.weight"].numpy().T)
    scores = torch.from_numpy(np.asarray(scores)) + weights["last.bias"]
    assert np.allclose(scores.softmax(dim=1), probability, atol=1e-5)
    assert run.evaluate(threads=1)["test_metric"] == pytest.approx(run.test_metric)


def test_embeddings_of_many_parts_are_those_of_one_process(ring, tmp_path):
    words = ["partition", ring, "--parts", 3, "--out", tmp_path / "parts", "--json"]
    assert main([str(word) for word in words]) == 0
    options = {"model": "sage", "layers": 3, "residual": True, "norm": "layer", **QUICK}
    whole = dg.train(ring, out=tmp_path / "whole", **options)
    config = (tmp_path / "whole/config.json").read_text()
    config = config.replace(str(ring), str(tmp_path / "parts"))
    (tmp_path / "whole/config.json").write_text(config)
    on_parts = dg.Run(tmp_path / "whole").embed(threads=1)
    (tmp_path / "whole/config.json").write_text(config.replace(str(tmp_path / "parts"), str(ring)))
    assert np.allclose(on_parts, whole.embed(threads=1), atol=1e-5)


def test_a_partition_is_a_directory_that_can_be_trained_on(tmp_path):
    graph = make_graph("features")
    parts = dg.partition_graph(graph, 1, tmp_path / "parts", method="libra", order="degree")
    assert (parts.num_parts, parts.num_vertices) == (1, graph.num_vertices)
    assert parts.parts[0]["edges"] == parts.num_edges == graph.num_edges
    first, second = repr(parts).splitlines()
    assert first == f"Partition('{tmp_path / 'parts'}'): {graph.name} in 1 parts by libra"
    assert f"{graph.num_edges} edges, {parts.quality['halo_rows']} halo rows" in second
    run = dg.train(parts, out=tmp_path / "r", **QUICK)
    assert run.predict(threads=1).shape[0] == graph.num_vertices
    with pytest.raises(dg.InputError, match="already holds a partition; replace it with"):
        dg.partition_graph(graph, 2, tmp_path / "parts")
    for settings, sentence in (
        ({"metod": "x"}, "partition_graph has no setting 'metod'; did you mean method?"),
        ({"method": "cut"}, "--method must be one of metis, .*, got 'cut'"),
        ({"refine": "yes"}, "refine must be True or False, got 'yes'"),
    ):
        with pytest.raises(dg.InputError, match=sentence):
            dg.partition_graph(graph, 2, tmp_path / "p", **settings)
    assert not (tmp_path / "p").exists()


def test_partitions_are_inspected_planned_and_reported_on_as_by_the_command_line(tmp_path, capsys):
    graph = make_graph("features")
    parts = dg.partition_graph(graph, 2, tmp_path / "parts")
    capsys.readouterr()
    assert main(["inspect", str(parts.path), "--model", "gcn", "--hidden", "8", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    found = json.loads(json.dumps(dg.inspect(parts, model="gcn", hidden=8, verify=True)))
    assert found == shown
    assert dg.inspect(parts, widths=[3])["layer_widths"] == [3]
    with pytest.raises(dg.InputError, match="hidden has no effect on sums of given widths"):
        dg.inspect(parts, widths=[3], hidden=8)
    planned = dg.plan(parts, bandwidth=1e9, latency=1e-5, threads=1, model="gcn", hidden=8)
    assert planned["halo_bytes_per_epoch"] == found["halo_bytes_per_epoch"]
    with pytest.raises(dg.InputError, match="--bandwidth is needed for 2 ranks"):
        dg.plan(parts, model="gcn")
    page = dg.report(parts, tmp_path / "page.html", model="gcn")
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_a_model_without_hidden_rows_embeds_nothing(ring, tmp_path):
    run = dg.train(ring, model="sgc", out=tmp_path / "r", epochs=2, threads=1)
    with pytest.raises(dg.InputError, match="a sgc model of 1 layer has no hidden rows"):
        run.embed(threads=1)


def test_a_graph_in_memory_is_trained_on_and_asked_for_again(tmp_path):
    graph = make_graph("features")
    run = dg.train(graph, out=tmp_path / "r", **QUICK)
    assert run.predict(threads=1).shape[0] == graph.num_vertices
    again = dg.Run(tmp_path / "r")
    with pytest.raises(dg.InputError, match="it was a graph in memory; give the graph again"):
        again.predict(threads=1)
    with pytest.raises(dg.InputError, match="must be a graph in memory, got 'cora'; give"):
        again.predict(source="cora")
    assert np.array_equal(again.predict(source=graph, threads=1), run.predict(threads=1))
    # It is the same graph that a run is resumed with.
    longer = dg.train(graph, out=tmp_path / "r", resume=True, **{**QUICK, "epochs": 5})
    assert len(longer.metrics) == 5
    other = make_graph("features", seed=5)
    with pytest.raises(dg.InputError, match=r"cannot resume .* with other settings: edges \(begun"):
        dg.train(other, out=tmp_path / "r", resume=True, **QUICK)


def test_options_of_a_source_change_a_graph_in_memory(tmp_path):
    ends = np.arange(40), (np.arange(40) + 1) % 40
    ring = scipy.sparse.csr_matrix((np.ones(40, np.float32), ends), (40, 40))
    graph = dg.load(ring)
    with pytest.raises(dg.InputError, match="columns are about tables"):
        dg.train(graph, out=tmp_path / "r", vertices="v.csv", **QUICK)
    run = dg.train(graph, out=tmp_path / "r", edge_split="0.8/0.1/0.1", one_hot=True, **QUICK)
    assert run.summary["task"] == "link"
    assert run.embed(threads=1).shape == (40, 4)


def test_a_series_has_runs_and_a_mean(ring, tmp_path):
    series = dg.train(ring, out=tmp_path / "s", seeds=2, **QUICK)
    assert isinstance(series, dg.Series)
    metrics = [run.test_metric for run in series.runs]
    assert series.test_metric == pytest.approx(np.mean(metrics))
    assert series.test_metric_std == pytest.approx(np.std(metrics, ddof=1))
    assert repr(series).startswith(f"Series('{tmp_path / 's'}'): 2 runs\n  accuracy: test ")


def test_a_recipe_is_a_start_that_keywords_win_over(ring, tmp_path):
    run = dg.train(ring, recipe="cora-gcn", out=tmp_path / "r", **QUICK)
    train = run.config["train"]
    assert (train["model"]["model"], train["model"]["hidden"], train["epochs"]) == ("gcn", 4, 3)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"hiden": 3}, "train has no setting 'hiden'; did you mean hidden?"),
        ({"overwite": True}, "train has no setting 'overwite'; did you mean overwrite?"),
        ({"xyzzy": 3}, r"train has no setting 'xyzzy'; see help\(distgnn.train\)"),
        ({"hidden": "16"}, "hidden must be a whole number, got '16'"),
        ({"residual": 1}, "residual must be True or False, got 1"),
        ({"lr": "fast"}, "lr must be a number, got 'fast'"),
        ({"split_index": -1}, "--split-index must be at least 0, got -1"),
        ({"model": "gpt"}, "--model must be one of sage, gcn, gat"),
        ({"recipe": "no-such"}, "there is no recipe 'no-such'"),
        ({"backend": "pigeon"}, "backend must be one of auto, gloo, mpi, nccl, got 'pigeon'"),
    ],
)
def test_a_setting_that_is_not_allowed_is_one_sentence(settings, sentence, ring, tmp_path):
    with pytest.raises(dg.InputError, match=sentence):
        dg.train(ring, out=tmp_path / "r", **{**QUICK, **settings})
    assert not (tmp_path / "r").exists()


def test_other_verbs_refuse_unknown_settings_too(run):
    with pytest.raises(dg.InputError, match="predict has no setting 'thread'; did you mean thr"):
        run.predict(thread=1)
    with pytest.raises(dg.InputError, match=r"is not a run directory: it has no config\.json"):
        dg.evaluate(run.path / "checkpoints")


def test_a_switch_may_be_written_as_on_the_command_line(ring, tmp_path):
    run = dg.train(ring, out=tmp_path / "r", static_input="off", **QUICK)
    assert run.config["train"]["static_input"] is False


def test_training_leaves_the_threads_of_torch_as_they_were(ring, tmp_path):
    before = torch.get_num_threads()
    dg.train(ring, out=tmp_path / "r", **{**QUICK, "threads": before + 1})
    assert torch.get_num_threads() == before


def test_a_progress_object_hears_notes_and_epochs(ring, tmp_path, capsys):
    class Heard:
        def __init__(self):
            self.epochs, self.notes, self.closed = [], [], 0

        def epoch(self, record):
            self.epochs.append(record["epoch"])

        def note(self, line):
            self.notes.append(line)

        warn = note

        def close(self):
            self.closed += 1

    heard = Heard()
    dg.train(ring, out=tmp_path / "r", progress=heard, **QUICK)
    assert (heard.epochs, heard.closed) == ([0, 1, 2], 1)
    assert any(line.startswith("memory: about ") for line in heard.notes)
    assert capsys.readouterr() == ("", "")


def test_no_verb_opens_ranks_inside_a_session(ring, run, tmp_path):
    with dg.init(threads=1):
        with pytest.raises(dg.InputError, match=r"distgnn.train opens the ranks itself, but a se"):
            dg.train(ring, out=tmp_path / "r", **QUICK)
        with pytest.raises(dg.InputError, match=r"distgnn.predict opens the ranks itself"):
            run.predict()


PROGRAM = """
import sys, distgnn as dg
try:
    run = dg.train(sys.argv[1], out=sys.argv[2], epochs=3, hidden=4, threads=1)
except dg.InputError as error:
    print("refused:", error)
else:
    print(run.predict(threads=1).shape, run.test_metric)
"""


def under_mpirun(mpirun, num_ranks, *words):
    environ = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [mpirun, "-n", num_ranks, "--oversubscribe", sys.executable, "-c", PROGRAM, *words]
    return subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


@pytest.mark.mpi
def test_the_same_program_runs_on_several_ranks(mpirun, ring, tmp_path):
    words = ["partition", ring, "--parts", 2, "--out", tmp_path / "parts", "--json"]
    assert main([str(word) for word in words]) == 0
    done = under_mpirun(mpirun, 2, tmp_path / "parts", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == second
    assert first.startswith("(12, 3) ")


@pytest.mark.mpi
def test_ranks_that_are_refused_raise_and_end(mpirun, ring, tmp_path):
    done = under_mpirun(mpirun, 2, ring, tmp_path / "run")
    assert done.returncode != 0
    refused = [line for line in done.stdout.splitlines() if line.startswith("refused: ")]
    assert refused
    assert all("2 ranks were started on" in line for line in refused)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("preset", "given", "sentence"),
    [
        ("grappa", {"algorithm": "cd-0"}, "--algorithm 0c, got --algorithm cd-0"),
        ("grappa", {"coverage_correction": 0}, "0.5, got --coverage-correction 0"),
        ("cofree", {"reweight_loss": False}, "--reweight-loss, got --no-reweight-loss"),
        ("bsp", {"algorithm": "0c"}, "--algorithm cd-0, got --algorithm 0c"),
    ],
)
def test_a_default_beside_a_preset_that_says_otherwise_is_refused(
    ring, tmp_path, preset, given, sentence
):
    with pytest.raises(dg.InputError, match=f"^--preset {preset} says .*{sentence}; drop one of"):
        dg.train(ring, out=tmp_path / "r", preset=preset, **given, **QUICK)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"resume": True, "overwrite": True}, "resume continues what is there, and overwrite repl"),
        ({"force": "maybe"}, "force must be True or False, got 'maybe'"),
        ({"merge_parts": 1}, "merge_parts must be True or False, got 1"),
        ({"pause_after": "5"}, "pause_after must be a whole number, got '5'"),
        ({"walk_cache": False}, "walk_cache must be a text, got False"),
        ({"seeds": 2.5}, "seeds must be a whole number, got 2.5"),
    ],
)
def test_arguments_of_another_type_are_refused(words, sentence, ring, tmp_path):
    with pytest.raises(dg.InputError, match=re.escape(sentence)):
        dg.train(ring, out=tmp_path / "run", **QUICK, **words)
    assert not (tmp_path / "run").exists()


def test_a_fraction_of_a_part_is_refused(ring, tmp_path):
    with pytest.raises(dg.InputError, match=r"parts must be a whole number, got 2\.7"):
        dg.partition_graph(ring, 2.7, tmp_path / "parts")
    dg.partition_graph(ring, np.int64(2), tmp_path / "parts")


def test_runs_of_a_series_know_the_graph_and_the_model(tmp_path):
    graph = make_graph()
    series = dg.train(graph, model=Own, out=tmp_path / "s", epochs=1, threads=1, seeds=2)
    assert len(series.runs[1].predict()) == graph.num_vertices


class Own(torch.nn.Module):
    """A layer of one's own."""

    def __init__(self, data):
        super().__init__()
        self.layer = dg.nn.GCNConv(data.num_features, data.num_classes)

    def forward(self, graph, x):
        return self.layer(graph, x)


def test_a_run_that_goes_on_has_no_summary_of_its_shorter_self(ring, tmp_path, monkeypatch):
    dg.train(ring, out=tmp_path / "run", **QUICK)

    def fails(*_, **__):
        raise KeyError("stopped")

    monkeypatch.setattr("distgnn.training.run.writer.train", fails)
    with pytest.raises(KeyError):
        dg.train(ring, out=tmp_path / "run", resume=True, **{**QUICK, "epochs": 9})
    assert not (tmp_path / "run/summary.json").exists()


def test_a_program_gets_its_threads_back(ring):
    before = torch.get_num_threads()
    with dg.init(threads=before + 1) as ranks:
        assert torch.get_num_threads() == before + 1
        ranks.load(ring)
    assert torch.get_num_threads() == before


def test_reports_take_something_to_report_on_and_no_flags_of_what_is_done(run, tmp_path):
    with pytest.raises(dg.InputError, match="there is nothing to report on; give a partition, a"):
        dg.report([], tmp_path / "p.html")
    with pytest.raises(dg.InputError, match="flags of the model have no effect on a run, which"):
        dg.report([run, run], tmp_path / "p.html", hidden=16)


def test_a_file_that_is_no_list_of_weights_is_not_read(ring, tmp_path):
    with (tmp_path / "w.txt").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(
        dg.InputError, match=r"w.txt' has 1073741824 bytes, more than 16777216; giv"
    ):
        dg.train(ring, out=tmp_path / "run", class_weights=tmp_path / "w.txt", **QUICK)
    with pytest.raises(dg.InputError, match=r"a list of numbers, got \['a', 'a', .*\.\.\.\]$"):
        dg.train(ring, out=tmp_path / "run", class_weights=["a"] * 1000, **QUICK)
