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
