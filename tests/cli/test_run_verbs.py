from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from distgnn.cli import main
from distgnn.datasets import load


def read_table(path, separator=","):
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter=separator))


PEOPLE = ["bo", "Ada, Jr", 'the "Fox"', "zoë", "10", "9", "al", "cy", "dee", "eve", "flo", "gus"]


def write_people(folder, ids, classes=("0", "1", "2")):
    """A ring of 12 vertices as tables, with these ids, in an order of their own."""
    size = len(ids)
    with (folder / "edges.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["src", "dst"])
        rows.writerows((ids[number], ids[(number + 1) % size]) for number in range(size))
    with (folder / "vertices.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "label", "split", "x", "y", "z"])
        splits = ["train"] * 6 + ["val"] * 3 + ["test"] * 3
        rows.writerows(
            (
                name,
                classes[number % 3],
                splits[number],
                *(int(number % 3 == column) for column in range(3)),
            )
            for number, name in enumerate(ids)
        )


def train(source, run, *words):
    command = ["train", source, "--run", run, "--epochs", 20, "--lr", 0.1, "--quiet"]
    words = [*command, "--threads", torch.get_num_threads(), *words]
    assert main([str(word) for word in words]) == 0


@pytest.fixture
def parts_run(distgnn, ring, ring_parts, ring_run, here):
    """The run on the whole ring, as if it had been trained on its 3 parts."""
    shutil.copytree(ring_run, here / "run-3")
    config = json.loads((here / "run-3/config.json").read_text())
    config["source"]["source"] = str(ring_parts)
    (here / "run-3/config.json").write_text(json.dumps(config))
    return here / "run-3"


def test_evaluate_gives_the_metrics_that_training_reported(distgnn, ring, ring_run):
    summary = json.loads((ring_run / "summary.json").read_text())
    found = distgnn("evaluate", ring_run, "--json").json
    for split in ("train", "val", "test"):
        assert found[f"{split}_metric"] == summary[f"{split}_metric"]
    assert found["metric"] == "accuracy"
    assert found["split_index"] == 0


def test_evaluate_on_parts_in_one_process_gives_the_same_scores(distgnn, ring_run, parts_run):
    whole = distgnn("evaluate", ring_run, "--json").json
    parts = distgnn("evaluate", parts_run, "--json").json
    assert parts.pop("metric") == whole.pop("metric")
    assert parts == pytest.approx(whole, rel=1e-6)


def test_evaluate_takes_another_split(distgnn, ring, here):
    with np.load(ring) as arrays:
        masks = {name: arrays[name] for name in ("train_mask", "val_mask", "test_mask")}
        turned = {name: np.stack([mask, np.roll(mask, 5)]) for name, mask in masks.items()}
        np.savez("two.npz", **{**arrays, **turned})
    train("two.npz", "r")
    first, second = (
        distgnn("evaluate", "r", "--json", "--split-index", index).json for index in (0, 1)
    )
    assert (first["split_index"], second["split_index"]) == (0, 1)
    assert first["val_loss"] != second["val_loss"]
    sentence = distgnn("evaluate", "r", "--split-index", 2).sentence
    assert sentence == "--split-index 2 is out of range: the graph has 2 splits (0..1)"


@pytest.mark.parametrize("separator", [",", "\t"], ids=["csv", "tsv"])
def test_predictions_are_in_the_graph_s_order_on_parts_as_on_the_whole(
    separator, distgnn, ring_run, parts_run
):
    suffix = {",": "csv", "\t": "tsv"}[separator]
    for run, out in ((ring_run, f"whole.{suffix}"), (parts_run, f"parts.{suffix}")):
        assert distgnn("predict", run, "--out", out).status == 0
    whole = read_table(f"whole.{suffix}", separator)
    parts = read_table(f"parts.{suffix}", separator)
    assert whole[0] == ["id", "label", "probability"]
    assert [row[0] for row in whole[1:]] == [str(vertex) for vertex in range(12)]
    assert [row[:2] for row in parts] == [row[:2] for row in whole]
    for a, b in zip(whole[1:], parts[1:], strict=True):
        assert float(a[2]) == pytest.approx(float(b[2]), abs=2e-6)


def test_npy_holds_the_probabilities_of_all_classes(distgnn, ring_run, parts_run):
    assert distgnn("predict", ring_run, "--out", "whole.npy").status == 0
    assert distgnn("predict", parts_run, "--out", "parts.npy").status == 0
    assert distgnn("predict", ring_run, "--out", "whole.csv").status == 0
    whole, parts = (np.load(name, allow_pickle=False) for name in ("whole.npy", "parts.npy"))
    assert whole.shape == (12, 3)
    assert whole.dtype == np.float32
    np.testing.assert_allclose(whole.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(parts, whole, rtol=1e-5)
    rows = read_table("whole.csv")[1:]
    assert [int(row[1]) for row in rows] == whole.argmax(axis=1).tolist()
    np.testing.assert_allclose([float(row[2]) for row in rows], whole.max(axis=1), atol=1e-6)


def test_accuracy_of_the_predictions_is_the_reported_one(distgnn, ring, ring_run):
    distgnn("predict", ring_run, "--out", "p.csv")
    graph = load(ring)
    label = np.array([int(row[1]) for row in read_table("p.csv")[1:]])
    is_right = label == graph.labels
    found = distgnn("evaluate", ring_run, "--json").json
    assert is_right[graph.test_mask[0]].mean() == found["test_metric"]


@pytest.mark.parametrize("num_parts", [0, 3])
@pytest.mark.parametrize(
    "ids", [PEOPLE, [str(7 * number + 100) for number in range(12)]], ids=["texts", "integers"]
)
def test_predictions_carry_the_ids_of_the_input(ids, num_parts, distgnn, here):
    write_people(here, ids)
    source = here
    train(source, "run")
    if num_parts:
        assert distgnn("partition", source, "--parts", num_parts, "--out", "p").status == 0
        config = json.loads((here / "run/config.json").read_text())
        config["source"]["source"] = str(here / "p")
        (here / "run/config.json").write_text(json.dumps(config))
    assert distgnn("predict", "run", "--out", "p.csv").status == 0
    rows = read_table("p.csv")[1:]
    assert [row[0] for row in rows] == ids
    labels = load(source).labels
    right = [int(row[1]) == label for row, label in zip(rows, labels, strict=True)]
    # The features tell the class, so ids that went astray would show.
    assert sum(right) >= 10


def test_predictions_carry_the_names_of_the_classes(distgnn, here):
    write_people(here, PEOPLE, classes=("zebra", "ant", "bee"))
    assert distgnn("partition", here, "--parts", 1, "--out", "p").status == 0
    for source, run in ((here, "whole"), (here / "p", "parts")):
        train(source, run)
        assert distgnn("predict", run, "--out", f"{run}.csv").status == 0
        found = [row[1] for row in read_table(f"{run}.csv")[1:]]
        expected = [("zebra", "ant", "bee")[number % 3] for number in range(12)]
        assert sum(one == other for one, other in zip(found, expected, strict=True)) >= 10


def test_several_labels_give_a_column_each(distgnn, ring, here):
    with np.load(ring) as arrays:
        several = np.eye(3, dtype=np.uint8)[arrays["labels"]]
        several[:, 0] |= several[:, 1]
        np.savez("several.npz", **{**arrays, "labels": several, "features": several * 1.0})
    train("several.npz", "r", "--epochs", 1)
    assert distgnn("predict", "r", "--out", "p.csv").status == 0
    assert distgnn("predict", "r", "--out", "p.npy").status == 0
    rows = read_table("p.csv")
    assert rows[0] == ["id", "label_0", "label_1", "label_2"]
    probability = np.load("p.npy", allow_pickle=False)
    assert np.array(rows[1:], dtype=int)[:, 1:].tolist() == (probability > 0.5).astype(int).tolist()
    assert probability.sum(axis=1).max() > 1.1
    assert distgnn("evaluate", "r", "--json").json["metric"] == "micro-f1"


def test_a_label_that_is_not_known_is_predicted_all_the_same(distgnn, ring, here):
    with np.load(ring) as arrays:
        labels, mask = arrays["labels"].copy(), arrays["test_mask"].copy()
        labels[11], mask[11] = -1, False
        np.savez("some.npz", **{**arrays, "labels": labels, "test_mask": mask})
    train("some.npz", "r")
    assert distgnn("predict", "r", "--out", "p.csv", "--json").json == {
        "file": "p.csv",
        "num_vertices": 12,
    }
    assert read_table("p.csv")[12][0] == "11"


def test_predictions_replace_an_older_file_and_leave_no_other(distgnn, ring_run, here):
    (here / "p.csv").write_text("old")
    assert distgnn("predict", ring_run, "--out", "p.csv").out == "wrote 12 predictions to p.csv\n"
    assert len(read_table("p.csv")) == 13
    assert [item.name for item in here.iterdir()] == ["p.csv"]


@pytest.mark.parametrize("verb", [["evaluate"], ["predict", "--out", "p.csv"]], ids=lambda v: v[0])
class TestRunThatCannotBeUsed:
    @pytest.fixture
    def run(self, ring_run, here):
        shutil.copytree(ring_run, here / "r")
        return here / "r"

    @pytest.fixture
    def change(self, run):
        def change(**values):
            config = json.loads((run / "config.json").read_text())
            for name, value in values.items():
                section, key = name.split("__")
                config[section][key] = value
            (run / "config.json").write_text(json.dumps(config))

        return change

    def test_no_directory(self, verb, distgnn):
        sentence = distgnn(*verb, "nosuch").sentence
        assert sentence.startswith("'nosuch' is not a run directory: it has no config.json; give")

    def test_a_partition_directory(self, verb, distgnn, ring_parts):
        assert "is not a run directory" in distgnn(*verb, ring_parts).sentence

    def test_a_file(self, verb, distgnn, ring):
        assert "config.json': Not a directory" in distgnn(*verb, ring).sentence

    def test_no_model_yet(self, verb, distgnn, run):
        (run / "model.safetensors").unlink()
        sentence = distgnn(*verb, "r").sentence
        assert "has no model.safetensors: the run has not ended" in sentence

    @pytest.mark.parametrize("size", [0, 7, 100, -1])
    def test_a_model_that_is_cut_off(self, size, verb, distgnn, run):
        file = run / "model.safetensors"
        file.write_bytes(file.read_bytes()[:size])
        assert "model.safetensors' is damaged: " in distgnn(*verb, "r").sentence

    def test_the_model_of_another_run(self, verb, distgnn, run, change):
        config = json.loads((run / "config.json").read_text())
        change(train__model={**config["train"]["model"], "hidden": 5})
        sentence = distgnn(*verb, "r").sentence
        assert "model.safetensors' holds another model than its run's config.json" in sentence

    @pytest.mark.parametrize("text", ["", "{", "[]", "\x00"])
    def test_a_configuration_that_is_no_json_object(self, text, verb, distgnn, run):
        (run / "config.json").write_text(text)
        assert "config.json' is not " in distgnn(*verb, "r").sentence

    @pytest.mark.parametrize(
        "values",
        [
            {"source__source": 5},
            {"source__split": 5},
            {"source__undirected": "yes"},
            {"source__seed": None},
            {"source__extra": 1},
        ],
        ids=str,
    )
    def test_a_source_that_was_edited(self, values, verb, distgnn, change):
        change(**values)
        sentence = distgnn(*verb, "r").sentence
        assert sentence.startswith("run 'r' remembers its source as {")
        assert sentence.endswith("restore its config.json or train again")

    def test_a_source_that_is_gone(self, verb, distgnn, change):
        change(source__source="/nosuch/graph.npz")
        sentence = distgnn(*verb, "r").sentence
        assert sentence.startswith(
            "run 'r' was trained on '/nosuch/graph.npz', which cannot be opened: "
        )

    def test_a_source_with_other_classes_now(self, verb, distgnn, change):
        change(task__class_names=["ant", "bee", "cat"])
        sentence = distgnn(*verb, "r").sentence
        assert sentence.startswith("run 'r' was trained on other classes than '")
        assert sentence.endswith(
            "' has: number 0 was 'ant' and is 'none'; restore it or train again"
        )

    def test_a_source_that_is_another_graph_now(self, verb, distgnn, change):
        change(source__source="synthetic:path")
        assert distgnn(*verb, "r").sentence == (
            "run 'r' was trained on 5 features and 3 classes, but 'synthetic:path' has 8 and 2; "
            "restore it or train again"
        )

    def test_settings_that_were_edited(self, verb, distgnn, change):
        change(train__lr="fast")
        assert "'fast' for lr" in distgnn(*verb, "r").sentence
        change(train__lr=-1.0)
        assert distgnn(*verb, "r").sentence.startswith("--lr must be positive and finite, got -1.0")


@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        ("p", "--out must end in .csv, .tsv, .parquet or .npy, got 'p'"),
        ("p.CSV", "--out must end in .csv, .tsv, .parquet or .npy, got 'p.CSV'"),
        ("nosuch/p.csv", "cannot write 'nosuch/p.csv': there is no directory 'nosuch'; make it"),
        ("d.csv", "cannot write 'd.csv': it is a directory; choose another --out"),
        ("/proc/p.csv", "cannot write '/proc/p.csv': .*; choose another --out"),
        ("p" * 300 + ".csv", "File name too long"),
    ],
)
def test_an_unwritable_output_is_refused(out, sentence, distgnn, ring_run, here):
    (here / "d.csv").mkdir()
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(distgnn("predict", ring_run, "--out", out).sentence)
    assert [item.name for item in here.iterdir()] == ["d.csv"]


def test_a_damaged_part_ends_all_ranks_with_one_sentence(distgnn, parts_run, ring_parts, here):
    shutil.copytree(ring_parts, here / "p")
    config = json.loads((parts_run / "config.json").read_text())
    config["source"]["source"] = str(here / "p")
    (parts_run / "config.json").write_text(json.dumps(config))
    file = here / "p/part-0001/features.npy"
    file.write_bytes(file.read_bytes()[:-1])
    sentence = distgnn("predict", parts_run, "--out", "p.csv").sentence
    size = file.stat().st_size
    assert sentence.startswith(f"rank 1: file '{file}' has {size} bytes, but the manifest says")
    assert not (here / "p.csv").exists()


def test_labels_that_a_run_reads_are_those_of_the_vertices_that_it_was_trained_on(
    distgnn, ring, here
):
    with np.load(ring) as arrays:
        masks = {name: arrays[name] for name in ("train_mask", "val_mask", "test_mask")}
        turned = {name: np.stack([mask, np.roll(mask, 5)]) for name, mask in masks.items()}
        # -1: without a label, to be predicted.
        labels = np.where(np.arange(12) == 11, -1, arrays["labels"])
        turned = {name: mask & (labels >= 0) for name, mask in turned.items()}
        np.savez("two.npz", **{**arrays, **turned, "labels": labels})
    (here / "mine.json").write_text(
        json.dumps({"about": "a", "data": [], "published": {}, "flags": {"labels-as-input": 0.5}})
    )
    train("two.npz", "r", "--recipe", "mine.json")
    assert json.loads((here / "r/config.json").read_text())["train"]["labels_as_input"] == 0.5
    summary = json.loads((here / "r/summary.json").read_text())
    first, second = (
        distgnn("evaluate", "r", "--json", "--split-index", index).json for index in (0, 1)
    )
    for split in ("train", "val", "test"):
        assert first[f"{split}_metric"] == summary[f"{split}_metric"]
    assert distgnn("predict", "r", "--out", "p.npy").status == 0
    found = np.load("p.npy")
    assert found.shape == (12, 3)
    assert np.isfinite(found).all()
    losses = -np.log(found[np.arange(12), labels])
    for index, result in enumerate((first, second)):
        expected = losses[turned["val_mask"][index]].mean()
        assert result["val_loss"] == pytest.approx(expected, rel=1e-5)
