"""Predicting links on the command line."""

from __future__ import annotations

import numpy as np
import pytest

SPLIT = ("--edge-split", "0.7/0.15/0.15")


@pytest.fixture
def people(here):
    """Two groups whose members know each other, with names for ids and no labels."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 15, (2, 150)) + 15 * rng.integers(0, 2, 150)
    names = np.array([f"p{number:02d}" for number in range(30)])
    features = rng.normal(size=(30, 4)).astype(np.float32)
    np.savez(
        here / "people.npz",
        edge_index=np.stack([src, dst]),
        features=features,
        vertex_id=names,
        num_vertices=30,
    )
    return here / "people.npz"


def train(distgnn, source, run, *more):
    flags = ("--epochs", 3, "--hidden", 8, "--json", "--quiet", "--decoder", "mlp")
    return distgnn("train", source, "--run", run, *flags, *more)


@pytest.fixture
def run_of(distgnn, people, here):
    """A run in one process, and its summary."""
    return here / "run", train(distgnn, people, here / "run", *SPLIT).json


def test_a_run_on_links_is_trained_and_evaluated(distgnn, run_of):
    run, summary = run_of
    assert (summary["task"], summary["metric"]) == ("link", "mrr")
    assert summary["train_metric"] is None
    evaluated = distgnn("evaluate", run, "--json").json
    assert evaluated["test_metric"] == pytest.approx(summary["test_metric"])
    assert evaluated["metric"] == "mrr"
    shown = distgnn("evaluate", run)
    assert "train_metric  -" in shown.out


def test_the_links_of_the_test_are_predicted_under_their_names(distgnn, run_of, here):
    run, _ = run_of
    found = distgnn("predict", run, "--out", "out.csv", "--json").json
    lines = [line.split(",") for line in (here / "out.csv").read_text().splitlines()]
    assert lines[0] == ["first", "second", "probability"]
    assert found["num_pairs"] == len(lines) - 1 > 10
    assert all(a.startswith("p") and a < b and 0 < float(p) < 1 for a, b, p in lines[1:])
    assert lines[1:] == sorted(lines[1:])
    # The output is a table of pairs itself, and blank lines at its end are none.
    (here / "out.csv").write_text((here / "out.csv").read_text() + "\n  \n")
    assert distgnn("predict", run, "--out", "again.npy", "--pairs", "out.csv").status == 0
    expected = [float(line[2]) for line in lines[1:]]
    np.testing.assert_allclose(np.load(here / "again.npy"), expected, atol=1e-6)


def test_parts_hold_the_links_out_and_predict_the_same(distgnn, people, run_of, here):
    run, _ = run_of
    assert distgnn("partition", people, "--parts", 3, "--out", "parts", *SPLIT).status == 0
    config = (run / "config.json").read_text()
    assert distgnn("predict", run, "--out", "one.csv").status == 0
    text = config.replace(str(people), str(here / "parts")).replace(f'"{SPLIT[1]}"', "null")
    (run / "config.json").write_text(text)
    assert distgnn("predict", run, "--out", "three.csv").status == 0
    one, three = ((here / f"{n}.csv").read_text().splitlines() for n in ("one", "three"))
    assert [line.rsplit(",", 1)[0] for line in one] == [line.rsplit(",", 1)[0] for line in three]
    chances = [[float(line.rsplit(",", 1)[1]) for line in lines[1:]] for lines in (one, three)]
    assert chances[0] == pytest.approx(chances[1], abs=1e-5)
    inspected = distgnn("inspect", "parts", "--hidden", 8)
    assert "receptive field: off, links may end at any vertex" in inspected.out
    assert distgnn("plan", "parts", "--bandwidth", "1GB/s").sentence.startswith(
        "'parts' holds links out, whose random pairs send rows besides those of the model"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\np01,p02\np01,nobody\n", "line 3 of 'pairs.csv' names 'nobody', which is no vertex"),
        (
            "a,b\np01\n",
            "line 2 of 'pairs.csv' is no pair; write a header, then both ends of a pair",
        ),
        ("a,b\n", "line 1 of 'pairs.csv' is no pair"),
        ("a,b\n\np01,p02\n", "line 2 of 'pairs.csv' is no pair"),
        ("\n\n", "line 1 of 'pairs.csv' is no pair"),
        ("p01,p02\np03,p04\n", "the first line of 'pairs.csv' looks like a pair, as both its na"),
        (None, "cannot read 'pairs.csv'"),
    ],
)
def test_a_file_of_pairs_that_does_not_do_is_refused(text, expected, distgnn, run_of, here):
    if text is not None:
        (here / "pairs.csv").write_text(text)
    outcome = distgnn("predict", run_of[0], "--out", "out.csv", "--pairs", "pairs.csv")
    assert outcome.sentence.startswith(expected)
    sentence = distgnn("predict", run_of[0], "--out", "out.csv", "--pairs", "pairs.txt").sentence
    assert sentence == "--pairs must end in .csv or .tsv, got 'pairs.txt'"


def test_what_does_not_go_with_links_is_one_sentence(distgnn, people, run_of, ring, ring_run):
    run, _ = run_of
    command = ("train", people, "--run", "r", "--task", "link")
    assert distgnn(*command).sentence.startswith("--task link needs links that are held out, but")
    assert distgnn("train", people, "--run", "r", *SPLIT, "--estimate").sentence == (
        "--estimate tries epochs of tasks on vertices, but this is a link task; leave it out"
    )
    assert distgnn("evaluate", run, "--split-index", 1).sentence.startswith(
        "--split-index 1 has no effect on a link task"
    )
    command = ("train", people, "--run", "all", *SPLIT, "--split-index", "all")
    assert distgnn(*command).sentence == (
        "--split-index all has no effect on a link task: links are held out once; leave it out"
    )
    for verb in (("evaluate", run), ("predict", run, "--out", "o.csv")):
        assert distgnn(*verb, "--correct-and-smooth", "0.5,0.5").sentence == (
            "--correct-and-smooth needs one label a vertex, but this is a link task; leave it out"
        )
    assert distgnn("predict", ring_run, "--out", "o.csv", "--pairs", "p.csv").sentence.startswith(
        "--pairs is for a run that learned links, but"
    )


def test_epochs_of_a_task_on_vertices_are_planned_beside_links(distgnn, ring):
    assert distgnn("partition", ring, "--parts", 2, "--out", "p", *SPLIT).status == 0
    words = ("p", "--task", "single-label", "--bandwidth", "1GB/s", "--hidden", 8, "--json")
    assert distgnn("plan", *words).json["epoch_s"] > 0
    assert distgnn("plan", "p", "--task", "link", "--bandwidth", "1GB/s").sentence.endswith(
        "plan predicts tasks on vertices, so give one of them as --task"
    )


def test_a_graph_of_another_size_is_refused(distgnn, people, run_of):
    with np.load(people) as found:
        arrays = dict(found)
    arrays["features"] = np.concatenate([arrays["features"], arrays["features"][:1]])
    arrays["vertex_id"] = np.append(arrays["vertex_id"], "p99")
    np.savez(people, **arrays | {"num_vertices": 31})
    for verb in (("evaluate",), ("predict", "--out", "out.csv")):
        sentence = distgnn(verb[0], run_of[0], *verb[1:]).sentence
        assert sentence.startswith(
            f"run '{run_of[0]}' learned links of 30 vertices, but '{people}'"
        )
        assert sentence.endswith("has 31; restore it or train again")


def test_an_edge_split_is_for_a_source_that_is_not_cut(distgnn, people, here):
    assert distgnn("partition", people, "--parts", 1, "--out", "parts", *SPLIT).status == 0
    assert train(distgnn, "parts", "r", *SPLIT).sentence.startswith(
        "--edge-split has no effect on partition directory"
    )
    assert distgnn(
        "partition", people, "--parts", 1, "--out", "p", *SPLIT, "--out-of-core", "on"
    ).sentence.startswith("--out-of-core on and --edge-split exclude each other")
