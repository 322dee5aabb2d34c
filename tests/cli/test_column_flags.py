"""Flags that name the columns of tables."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

EDGES = "--source-column", "x", "--target-column", "y"
VERTICES = "--vertices", "v.csv", "--id-column", "who", "--label-column", "kind"
FEATURES = "--feature-columns", "b,a"


@pytest.fixture(autouse=True)
def _tables(here: Path) -> None:
    """A ring of 100 vertices, whose columns have names that nobody knows."""
    pairs = [(i, (i + step) % 100) for i in range(100) for step in (1, 99, 7, 93)]
    edges = [f"{number + 500},{x},{y}" for number, (x, y) in enumerate(pairs)]
    (here / "e.csv").write_text("\n".join(["edge_no,x,y", *edges]) + "\n")
    drawn = random.Random(0)
    rows = [f"{drawn.random():.3f},{i},{i % 3},{i % 2},{i % 5}" for i in range(100)]
    (here / "v.csv").write_text("\n".join(["noise,who,kind,a,b", *rows]) + "\n")


@pytest.mark.parametrize("out_of_core", ["off", "on"])
def test_columns_that_are_named_are_told_and_cut(distgnn, here: Path, out_of_core: str) -> None:
    command = ("partition", "e.csv", "--parts", 2, "--out", "p", "--out-of-core", out_of_core)
    done = distgnn(*command, *EDGES, *VERTICES, *FEATURES, "--json")
    assert done.status == 0, done
    assert (done.json["num_vertices"], done.json["num_edges"]) == (100, 400)
    assert f"e.csv: source = 'x'; target = 'y'{'; features' * (out_of_core == 'off')}" in done.err
    assert "v.csv: id = 'who'; label = 'kind'; features = 'b', 'a'" in done.err
    assert done.json["num_features"] == 2
    # Of the same graph under names that are known.
    text = (here / "e.csv").read_text().splitlines()[1:]
    (here / "k.csv").write_text(
        "\n".join(["dst,src", *(f"{y},{x}" for _, x, y in map(split, text))])
    )
    known = distgnn("partition", "k.csv", "--parts", 2, "--out", "q", *VERTICES, *FEATURES)
    assert known.status == 0, known
    if out_of_core == "off":
        for name in ("root_id", "src", "dst"):
            files = [here / folder / "part-00000" / f"{name}.npy" for folder in "pq"]
            if files[0].exists():
                assert np.array_equal(*(np.load(file) for file in files))


def split(line: str) -> list[str]:
    return line.split(",")


@pytest.mark.parametrize("verb", ["partition", "train"])
def test_a_header_that_is_not_known_is_refused(distgnn, here: Path, verb: str) -> None:
    words: dict[str, tuple[Any, ...]] = {
        "partition": ("--parts", 2, "--out", "out"),
        "train": ("--run", "out"),
    }
    sentence = distgnn(verb, "e.csv", *words[verb]).sentence
    assert "its columns are 'edge_no', 'x', 'y': say which by --source-column and" in sentence
    assert not (here / "out").exists()


def test_a_run_remembers_its_columns(distgnn, here: Path) -> None:
    words = (*EDGES, *VERTICES, *FEATURES, "--split", "0.6/0.2/0.2")
    done = distgnn("train", "e.csv", "--epochs", 2, "--hidden", 4, "--run", "run", *words)
    assert done.status == 0, done
    assert "e.csv: source = 'x'; target = 'y'" in done.err
    columns = json.loads((here / "run/config.json").read_text())["source"]["columns"]
    assert columns.pop("features") == ["b", "a"]
    assert columns == {"source": "x", "target": "y", "id": "who", "label": "kind"}
    again = distgnn("evaluate", "run")
    assert again.status == 0, again
    assert "v.csv: id = 'who'; label = 'kind'; features = 'b', 'a'" in again.err
    path = here / "run/config.json"
    path.write_text(path.read_text().replace('"who"', "7"))
    assert "remembers its source as" in distgnn("evaluate", "run").sentence


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--source-column", "nosuch"), "no column 'nosuch', which --source-column names; its col"),
        ((*EDGES, "--id-column", "who"), "--id-column names a column of a vertex table, but "),
        ((*EDGES, *VERTICES, "--feature-columns", "a,,b"), "must be names between commas, got"),
    ],
)
def test_flags_that_name_nothing_are_refused(distgnn, flags: tuple[str, ...], words: str) -> None:
    refused = distgnn("partition", "e.csv", "--parts", 2, "--out", "p", *flags)
    assert refused.status == 2
    assert words in refused.err


def test_columns_have_no_effect_on_a_partition_directory(distgnn, here: Path) -> None:
    assert distgnn("partition", "e.csv", "--parts", 1, "--out", "p", *EDGES).status == 0
    sentence = distgnn("train", "p", "--run", "run", "--weight-column", "edge_no").sentence
    assert "--weight-column has no effect on partition directory" in sentence


@pytest.fixture
def years(here: Path) -> tuple[str, ...]:
    """Two tables: a whole number to learn, a category, and gaps."""
    pairs = [(i, (i + step) % 40) for i in range(40) for step in (1, 39)]
    (here / "ties.csv").write_text("src,dst\n" + "".join(f"{x},{y}\n" for x, y in pairs))
    rows = [f"{i},{1950 + i},{'' if i % 7 == 0 else i / 2},{'ab'[i % 2]}" for i in range(40)]
    (here / "people.csv").write_text("\n".join(["id,label,x,kind", *rows]) + "\n")
    tables = ("ties.csv", "--vertices", "people.csv", "--split", "0.5/0.25/0.25")
    return (*tables, "--impute", "mean", "--one-hot-columns", "kind")


def test_whole_numbers_are_learned_as_values(distgnn, here: Path, years: tuple[str, ...]) -> None:
    assert "--task regression of a table" in distgnn("train", *years, "--run", "no").sentence
    words = ("--epochs", 2, "--hidden", 4, "--quiet", "--json")
    direct = distgnn("train", *years, "--task", "regression", "--run", "one", *words).json
    assert (direct["task"], direct["metric"]) == ("regression", "mse")
    cut = distgnn("partition", *years, "--task", "regression", "--parts", 1, "--out", "p", "--json")
    assert "people.csv: 6 missing values in 1 column of features became the mean of" in cut.err
    assert cut.json["num_features"] == 3
    assert distgnn("train", "p", "--run", "two", *words).json["task"] == "regression"
    evaluated = distgnn("evaluate", "one", "--json").json
    assert evaluated["val_metric"] == pytest.approx(direct["val_metric"], rel=1e-4)
    record = json.loads((here / "one/config.json").read_text())["source"]["columns"]
    assert record == {"one_hot": ["kind"], "impute": "mean", "label_values": True}


def test_classes_of_a_directory_stay_classes(distgnn, here: Path, years: tuple[str, ...]) -> None:
    text = (here / "people.csv").read_text().splitlines()
    rows = [line.split(",") for line in text[1:]]
    classes = [f"{i},{int(label) % 3},{x},{kind}" for i, label, x, kind in rows]
    (here / "people.csv").write_text("\n".join([text[0], *classes]) + "\n")
    assert distgnn("partition", *years, "--parts", 1, "--out", "p").status == 0
    sentence = distgnn("train", "p", "--task", "regression", "--run", "r").sentence
    assert sentence.endswith("(whole numbers of a table: distgnn partition --task regression)")
    folder = ("--out-of-core", "on", "--task", "regression", "--parts", 2, "--out", "q")
    (here / "arrays").mkdir()
    np.save(here / "arrays/edge_index.npy", np.array([[0, 1, 2], [1, 2, 0]]))
    np.save(here / "arrays/labels.npy", np.array([0, 1, 0]))
    refused = distgnn("partition", "arrays", *folder).sentence
    assert "is read as it is stored, out of core; save it as float32 in place of" in refused


def test_out_of_core_reads_the_vertex_table_alike(
    distgnn, here: Path, years: tuple[str, ...]
) -> None:
    words = ("--task", "regression", "--parts", 2, "--json")
    found = [
        distgnn("partition", *years, *words, "--out", out, "--out-of-core", way).json
        for out, way in (("p", "off"), ("q", "on"))
    ]
    assert found[0]["num_features"] == found[1]["num_features"] == 3
    assert distgnn("train", "q", "--run", "r", "--epochs", 1, "--hidden", 4).status != 0  # ranks
    manifest = json.loads((here / "q/manifest.json").read_text())
    assert manifest["num_classes"] == 1


def test_tasks_of_a_cut_are_checked_in_python_too(here: Path) -> None:
    import distgnn
    from distgnn.datasets import InputError

    with pytest.raises(InputError, match="task must be auto or regression here, got 'link'"):
        distgnn.partition_graph("cora", 2, here / "p", task="link")


@pytest.mark.usefixtures("years")
def test_the_command_that_repeats_a_run_has_its_columns(here: Path) -> None:
    import distgnn
    from distgnn.pages.figures import command_of

    made = distgnn.train(
        "ties.csv",
        vertices="people.csv",
        impute="zero",
        label_column="kind",
        split="0.5/0.25/0.25",
        epochs=1,
        hidden=4,
        out=here / "run",
        quiet=True,
    )
    config = json.loads((made.path / "config.json").read_text())
    assert "--label-column=kind --impute=zero" in command_of(config)
