from __future__ import annotations

import gc
import json
import re
import shutil
import weakref

import numpy as np
import pytest

from distgnn.api.source import open_source
from distgnn.cli import build_parser
from distgnn.cli.train_verb import config_from
from distgnn.forecast import rehearsal
from distgnn.nn.config import ModelConfig
from distgnn.training.config.settings import TrainConfig
from distgnn.training.loop.trainer import Trainer


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses(run):
    return [record["loss"] for record in metrics(run)]


def config(*words):
    return config_from(build_parser().parse_args(["train", "cora", "--run", "run", *words]))


def test_flags_default_to_the_configuration_s_own_defaults():
    assert config() == TrainConfig()


def test_every_flag_reaches_the_configuration():
    words = (
        "--model sage --aggregator max --hidden 8 --layers 3 --dropout 0.1 --input-dropout 0.2 "
        "--norm layer --residual --jumping cat --epochs 9 --optimizer adamw --lr 0.5 --seed 4 "
        "--weight-decay 0.25 --feature-norm row --eval-every 2 --patience 3 --split-index 1 "
        "--algorithm cd-5 --delay-cache off --checkpoint-every 7 --static-input off "
        "--receptive-field off --features-dtype bf16 --activations-dtype bf16"
    )
    assert config(*words.split()) == TrainConfig(
        model=ModelConfig(
            model="sage",
            aggregator="max",
            hidden=8,
            layers=3,
            dropout=0.1,
            input_dropout=0.2,
            norm="layer",
            residual=True,
            jumping="cat",
            activations_dtype="bf16",
        ),
        epochs=9,
        optimizer="adamw",
        lr=0.5,
        weight_decay=0.25,
        feature_norm="row",
        features_dtype="bf16",
        seed=4,
        eval_every=2,
        patience=3,
        split_index=1,
        algorithm="cd-5",
        delay_cache=False,
        checkpoint_every=7,
        static_input=False,
        receptive_field=False,
    )
    assert config("--algorithm", "0c", "--reweight-loss").reweight_loss
    delays = "--algorithm cd-5 --bins 2 --delay 3 --warm-up-epochs 4 --smoothing 0.5"
    assert config(*delays.split(), "--gradient-smoothing", "0.25") == TrainConfig(
        algorithm="cd-5",
        bins=2,
        delay=3,
        warm_up_epochs=4,
        smoothing=0.5,
        gradient_smoothing=0.25,
    )
    paper = config("--algorithm", "cd-5", "--delay-cache", "on", "--gradient-cache", "off")
    assert paper == TrainConfig(algorithm="cd-5", gradient_cache=False)
    assert config("--model", "gat", "--heads", "8").model.heads == 8
    words = "--model appnp --hops 4 --alpha 0.3 --degrees out-in --activation elu --dropout 0.2"
    assert config(*words.split()).model == ModelConfig(
        model="appnp",
        hops=4,
        alpha=0.3,
        degrees="out-in",
        activation="elu",
        dropout=0.2,
        input_dropout=0.2,
    )
    words = "--model gatv2 --attention-dropout 0.6"
    assert config(*words.split()).model.attention_dropout == 0.6
    words = "--model gin --eps 0.5 --learn-eps"
    assert config(*words.split()).model == ModelConfig(model="gin", eps=0.5, learn_eps=True)


def test_models_begin_as_in_their_papers_unless_told_otherwise():
    assert config("--model", "sgc").model == ModelConfig(model="sgc", layers=1, hops=2)
    assert config("--model", "sgc", "--layers", "3").model.layers == 3
    assert config("--model", "appnp").model.hops == 10
    assert config("--model", "appnp", "--hops", "3").model.hops == 3
    assert config("--model", "gin").model == ModelConfig(model="gin")


def test_the_input_is_dropped_out_as_in_the_papers_unless_told_otherwise():
    for model in ("gcn", "gat", "appnp"):
        assert config("--model", model, "--dropout", "0.3").model.input_dropout == 0.3
        assert config("--model", model, "--input-dropout", "0").model.input_dropout == 0
    for model in ("sage", "gin", "sgc"):
        assert config("--model", model, "--dropout", "0.3").model.input_dropout == 0


def test_a_run_directory_holds_what_was_done(distgnn, ring, here):
    command = ("train", ring, "--run", "a/run", "--epochs", 5, "--checkpoint-every", 2)
    found = distgnn(*command, "--json").json
    run = here / "a/run"
    written = json.loads((run / "summary.json").read_text())
    assert found == written
    assert found["num_epochs"] == 5
    assert found["num_ranks"] == 1
    assert len(metrics(run)) == 5
    begun = json.loads((run / "config.json").read_text())
    assert begun["source"]["source"] == str(ring)
    task = {"name": "ring", "num_features": 5, "num_classes": 3, "class_names": []}
    sizes = {"num_vertices": 12, "num_relations": 0, "num_vertex_types": 0}
    assert begun["format"] == 1
    assert begun["task"] == task | sizes | {"num_edge_features": 0, "has_edge_weights": False}
    assert begun["num_ranks"] == 1
    assert TrainConfig.from_json(begun["train"]).epochs == 5
    names = sorted(item.name for item in (run / "checkpoints").iterdir())
    assert names == ["epoch-000004", "epoch-000005"]
    assert (run / "model.safetensors").stat().st_size > 0


def test_an_estimate_that_was_asked_for_is_kept_beside_the_median(distgnn, ring, monkeypatch):
    monkeypatch.setattr(rehearsal, "_LEAST_S", 0.0)
    words = ("train", ring, "--run", "run", "--epochs", 3, "--json")
    found = distgnn(*words, "--estimate")
    assert 0 < found.json["estimated_epoch_s"] < 10
    assert found.json["median_epoch_s"] > 0
    assert re.search(r"^time: about [0-9.]+ ms an epoch, estimated$", found.err, re.MULTILINE)
    assert distgnn(*words, "--resume").json["estimated_epoch_s"] is None
    sentence = distgnn(*words, "--estimate", "--device", "cuda").sentence
    assert sentence == "--estimate tries epochs on the processor, got --device cuda; leave it out"


def test_no_epoch_is_trained_before_the_first_of_a_run(distgnn, ring, monkeypatch):
    trained, train_epoch = [], Trainer.train_epoch

    def note_and_train(trainer):
        trained.append(trainer)
        return train_epoch(trainer)

    monkeypatch.setattr(Trainer, "train_epoch", note_and_train)
    assert distgnn("train", ring, "--run", "run", "--epochs", 3, "--quiet").status == 0
    assert len(trained) == 3
    assert len(set(map(id, trained))) == 1


def test_a_trace_may_lie_in_the_run_directory(distgnn, ring, here):
    words = ("--trace", "run/trace.json", "--trace-epochs", "1:3", "--quiet")
    distgnn("train", ring, "--run", "run", "--epochs", 4, *words)
    events = json.loads((here / "run/trace.json").read_text())["traceEvents"]
    assert {e["args"]["epoch"] for e in events if e["ph"] == "X"} == {1, 2}
    again = distgnn("train", ring, "--run", "run", "--epochs", 4, "--quiet", "--overwrite")
    assert again.status == 0


def test_progress_is_one_line_an_epoch_on_standard_error_or_nothing(distgnn, ring):
    outcome = distgnn("train", ring, "--run", "a", "--epochs", 3)
    lines = outcome.err.splitlines()
    assert lines[0] == "task: single-label, measured by accuracy"
    assert lines[1] == "static input: the first layer aggregates it once"
    assert lines[2].startswith("receptive field: the layers run over ")
    assert re.fullmatch(r"memory: about [0-9.]+ .?i?B at the peak of rank 0, predicted", lines[3])
    epochs = [["epoch", str(epoch)] for epoch in range(3)]
    assert [line.split()[:2] for line in lines[4:]] == epochs
    assert "test metric" in outcome.out
    assert "results         a" in outcome.out
    assert distgnn("train", ring, "--run", "b", "--epochs", 3, "--quiet").err == ""


def test_the_same_seed_gives_the_same_bits(distgnn, ring, here):
    for run, seed in (("a", 1), ("b", 1), ("c", 2)):
        command = ("train", ring, "--run", run, "--epochs", 4, "--seed", seed, "--quiet")
        assert distgnn(*command).status == 0
    assert losses(here / "a") == losses(here / "b") != losses(here / "c")
    models = [(here / run / "model.safetensors").read_bytes() for run in "abc"]
    assert models[0] == models[1] != models[2]


def test_a_partition_of_one_part_trains_like_the_graph_itself(distgnn, ring, here):
    assert distgnn("partition", ring, "--parts", 1, "--out", "p").status == 0
    for source, run in ((ring, "a"), ("p", "b")):
        assert distgnn("train", source, "--run", run, "--epochs", 4, "--quiet").status == 0
    assert losses(here / "a") == losses(here / "b")


def test_resuming_ends_with_the_bits_of_a_straight_run(distgnn, ring, here):
    command = ("train", ring, "--quiet", "--checkpoint-every", 3, "--run")
    assert distgnn(*command, "straight", "--epochs", 8).status == 0
    assert distgnn(*command, "halted", "--epochs", 4).status == 0
    # A run that was killed after epoch 5 has records that its newest checkpoint lacks.
    shutil.rmtree(here / "halted/checkpoints/epoch-000004")
    outcome = distgnn(*command, "halted", "--epochs", 8, "--resume")
    assert outcome.status == 0
    assert outcome.err == "resuming from epoch 3\n"
    assert losses(here / "halted") == losses(here / "straight")
    model = (here / "halted/model.safetensors").read_bytes()
    assert model == (here / "straight/model.safetensors").read_bytes()


def test_resume_begins_a_run_that_does_not_exist(distgnn, ring, here):
    outcome = distgnn("train", ring, "--run", "r", "--epochs", 2, "--quiet", "--resume")
    assert outcome.err == "resuming from the start: no checkpoint yet\n"
    assert len(metrics(here / "r")) == 2


def test_a_run_that_has_ended_resumes_to_the_same_end(distgnn, ring):
    command = ("train", ring, "--run", "r", "--epochs", 3, "--quiet", "--json")
    ended = distgnn(*command).json
    again = distgnn(*command, "--resume").json
    assert again["test_metric"] == ended["test_metric"]
    assert again["num_epochs"] == 3


def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(distgnn, ring, here):
    command = ("train", ring, "--run", "r", "--quiet", "--checkpoint-every", 2, "--epochs")
    assert distgnn(*command, 4).status == 0
    state = here / "r/checkpoints/epoch-000004/state.safetensors"
    state.write_bytes(state.read_bytes()[:-1])
    outcome = distgnn(*command, 5, "--resume")
    assert outcome.status == 0
    assert "epoch-000004/state.safetensors' was altered" in outcome.err
    assert "an older checkpoint is used" in outcome.err
    assert "resuming from epoch 2" in outcome.err


def test_an_existing_run_is_replaced_only_if_asked(distgnn, ring, here):
    command = ("train", ring, "--run", "r", "--quiet", "--epochs")
    assert distgnn(*command, 3).status == 0
    before = (here / "r/metrics.jsonl").read_bytes()
    assert distgnn(*command, 2).sentence == (
        "'r' already holds a run; continue it with --resume, replace it with --overwrite, or "
        "choose another --run"
    )
    assert (here / "r/metrics.jsonl").read_bytes() == before
    (here / "r/notes.txt").write_text("mine")
    assert distgnn(*command, 2, "--overwrite").status == 0
    assert len(metrics(here / "r")) == 2
    assert (here / "r/notes.txt").read_text() == "mine"


def test_a_run_resumes_with_its_own_settings_only(distgnn, ring, here):
    command = ("train", ring, "--run", "r", "--quiet", "--epochs", 2)
    assert distgnn(*command).status == 0
    sentence = distgnn(*command, "--resume", "--lr", 0.5, "--hidden", 3).sentence
    assert sentence.startswith("cannot resume 'r' with other settings: ")
    assert "lr (begun with 0.01, now 0.5)" in sentence
    assert "hidden (begun with 64, now 3)" in sentence
    sentence = distgnn(*command, "--resume", "--undirected").sentence
    assert "undirected (begun with False, now True)" in sentence
    assert "split" not in sentence
    assert distgnn(*command, "--resume", "--overwrite").sentence.startswith(
        "argument --overwrite: not allowed with argument --resume"
    )


def test_a_run_does_not_resume_on_a_graph_that_has_changed(distgnn, ring, here):
    shutil.copy(ring, here / "g.npz")
    command = ("train", "g.npz", "--run", "r", "--quiet", "--epochs", 2)
    assert distgnn(*command).status == 0
    with np.load("g.npz") as arrays:
        np.savez("g.npz", **{**arrays, "features": arrays["features"] * 2})
    sentence = distgnn(*command, "--resume").sentence
    assert "checksum (begun with " in sentence
    assert distgnn(*command, "--overwrite").status == 0


def test_a_run_resumes_on_another_partition_or_copy_of_its_graph(distgnn, ring, here):
    cut = ("partition", ring, "--parts", 1, "--out", "parts", "--overwrite")
    length = ("--quiet", "--epochs")
    assert distgnn(*cut, "--order", "source").status == 0
    for run in ("straight", "r"):
        assert distgnn("train", "parts", "--run", run, *length, 3).status == 0
    assert distgnn("train", "parts", "--run", "straight", *length, 9, "--resume").status == 0
    assert distgnn(*cut, "--order", "rcm").status == 0
    shutil.copy(ring, here / "copy.npz")
    for epochs, source in ((5, "parts"), (7, ring), (9, "copy.npz")):
        outcome = distgnn("train", source, "--run", "r", *length, epochs, "--resume")
        assert (outcome.status, outcome.err) == (0, f"resuming from epoch {epochs - 2}\n")
    assert losses(here / "r") == pytest.approx(losses(here / "straight"), rel=1e-5)
    assert distgnn("evaluate", "r").status == 0


def test_delays_that_start_cold_are_announced(distgnn, ring, here):
    cut = ("partition", ring, "--parts", 1, "--out", "parts", "--overwrite", "--order")
    command = ("train", "parts", "--run", "r", "--quiet", "--algorithm", "cd-2", "--epochs")
    for order, epochs in (("source", 3), ("rcm", 4)):
        assert distgnn(*cut, order).status == 0
        outcome = distgnn(*command, epochs, "--resume")
    assert outcome.err.splitlines() == [
        "resuming from epoch 3",
        "delays start cold: the checkpoint's delayed rows are of another partition",
    ]


def test_a_run_of_0c_goes_on_with_its_own_cut_only(distgnn, ring, here):
    cut = ("partition", ring, "--parts", 1, "--out", "parts", "--overwrite", "--order")
    command = ("train", "parts", "--run", "r", "--quiet", "--algorithm", "0c", "--epochs")
    assert distgnn(*cut, "source").status == 0
    assert distgnn(*command, 2).status == 0
    assert distgnn(*cut, "rcm").status == 0
    assert "partition (begun with " in distgnn(*command, 3, "--resume").sentence
    assert distgnn(*cut, "source").status == 0
    assert distgnn(*command, 3, "--resume").status == 0


def test_a_loss_that_is_no_number_ends_the_run_with_a_remedy(distgnn, ring):
    command = ("train", ring, "--run", "r", "--epochs", 5, "--lr", "1e30", "--quiet", "--json")
    sentence = distgnn(*command).sentence
    assert "loss is nan" in sentence or "loss is inf" in sentence
    assert sentence.endswith("lower --lr, scale the input with --feature-norm, or use --norm")


def test_options_that_a_partition_ignores_are_refused(distgnn, ring_parts):
    for flag in (["--undirected"], ["--split", "0.5/0.25/0.25"], ["--vertices", "v.csv"]):
        sentence = distgnn("train", ring_parts, "--run", "r", *flag).sentence
        assert sentence.startswith(f"{flag[0]} has no effect on partition directory '{ring_parts}'")
        assert sentence.endswith("give it to distgnn partition")


def test_a_goal_is_announced_and_its_figures_are_in_the_summary(distgnn, ring):
    command = ("train", ring, "--epochs", 3, "--goal", 0.01)
    ended = distgnn(*command, "--run", "r")
    assert "goal: validation accuracy at least 0.01, recorded when it is reached" in ended.err
    assert "goal: validation accuracy at least 0.01 reached in epoch " in ended.err
    found = distgnn(*command, "--run", "s", "--json").json
    assert found["goal"] == 0.01
    assert found["time_to_goal_s"] > found["training_to_goal_s"] > 0


def test_patience_ends_a_run_early(distgnn, ring):
    command = ("train", ring, "--run", "r", "--epochs", 500, "--patience", 2, "--quiet", "--json")
    found = distgnn(*command).json
    assert found["num_epochs"] < 500
    assert found["num_epochs"] == found["best_epoch"] + 3


def test_the_source_is_let_go_before_the_first_epoch(distgnn, ring, monkeypatch):
    """The graph's edges would take as much again as those that training walks."""
    given, held = [], []
    initialise, train_epoch = Trainer.__init__, Trainer.train_epoch

    def open_and_note(values, say, graph):
        source = open_source(values, say, graph)
        given.append(weakref.ref(source.graph))
        return source

    def note_and_initialise(trainer, config, task, part, group, **options):
        given.append(weakref.ref(part))
        initialise(trainer, config, task, part, group, **options)

    def look_and_train(trainer):
        gc.collect()
        held.extend(each() for each in given)
        return train_epoch(trainer)

    monkeypatch.setattr("distgnn.api.source.open_source", open_and_note)
    monkeypatch.setattr(Trainer, "__init__", note_and_initialise)
    monkeypatch.setattr(Trainer, "train_epoch", look_and_train)
    assert distgnn("train", ring, "--run", "run", "--epochs", 1, "--threads", 1).status == 0
    assert held == [None, None]
