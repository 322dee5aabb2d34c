"""Where a run keeps its walk orders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distgnn.api.source import SourceOptions
from distgnn.api.walk_orders import walk_folder
from distgnn.training.run.walk_order_cache import WalkOrderCache


def opened(source):
    return SourceOptions(str(source)).open(print)


@pytest.fixture
def parts(distgnn, ring, here):
    """The ring in 1 part, in a folder that can be written."""
    assert distgnn("partition", ring, "--parts", 1, "--out", "ring-1").status == 0
    return here / "ring-1"


@pytest.fixture
def _walk_orders_for_all(monkeypatch):
    """Walk orders for blocks of any size."""
    monkeypatch.setattr("distgnn.edges.walk_orders._MIN_ORDERED_EDGES", 1)
    monkeypatch.setattr("distgnn.edges.walk_orders._CACHE_BYTES", (0, 0))


@pytest.fixture
def train(distgnn, parts, here):
    def run(*words):
        outcome = distgnn("train", parts, "--run", here / "run", "--overwrite", *QUICK, *words)
        assert outcome.status == 0
        return outcome

    return run


QUICK = ("--epochs", 3, "--hidden", 4, "--threads", 1, "--json")


def test_walk_orders_are_kept_beside_a_partition_directory_only(parts, ring):
    directory, file = opened(parts), opened(ring)
    assert walk_folder("on", directory) == parts.with_name("ring-1.walks")
    assert walk_folder("on", file) is None
    assert walk_folder("off", directory) is None
    assert walk_folder("elsewhere", directory) == walk_folder("elsewhere", file)
    assert walk_folder("elsewhere", file) == Path("elsewhere")


@pytest.mark.usefixtures("_walk_orders_for_all")
def test_the_second_run_reads_the_walk_orders_that_the_first_one_made(train, parts):
    first, second = train(), train()
    found = [
        (outcome.json["walk_orders_read"], outcome.json["walk_orders_made"])
        for outcome in (first, second)
    ]
    num_walk_orders = found[0][1]
    assert num_walk_orders > 0
    assert found == [(0, num_walk_orders), (num_walk_orders, 0)]
    assert f"walk orders: {num_walk_orders} read, 0 made in " in second.err
    assert len(list(parts.with_name("ring-1.walks").iterdir())) == num_walk_orders
    assert first.json["final_loss"] == second.json["final_loss"]


@pytest.mark.usefixtures("_walk_orders_for_all")
def test_a_resumed_run_reads_its_walk_orders(distgnn, parts, here):
    words = ("train", parts, "--run", "run", "--hidden", 4, "--threads", 1, "--json")
    made = distgnn(*words, "--epochs", 2).json["walk_orders_made"]
    resumed = distgnn(*words, "--epochs", 4, "--resume").json
    assert (resumed["walk_orders_read"], resumed["walk_orders_made"]) == (made, 0)
    assert json.loads((here / "run" / "summary.json").read_text()) == resumed


@pytest.mark.usefixtures("_walk_orders_for_all")
def test_a_run_without_a_walk_order_cache_leaves_nothing_behind(train, parts):
    for _ in range(2):
        assert train("--walk-cache", "off").json["walk_orders_read"] == 0
    assert not parts.with_name("ring-1.walks").exists()


@pytest.mark.usefixtures("_walk_orders_for_all")
def test_a_damaged_walk_order_is_told_and_changes_nothing(train, here):
    first = train("--walk-cache", "kept")
    for path in (here / "kept").iterdir():
        path.write_bytes(b"")
    second = train("--walk-cache", "kept")
    assert "is damaged: its header is cut off; its walk order is made again" in second.err
    assert second.json["final_loss"] == first.json["final_loss"]
    assert second.json["walk_orders_made"] == first.json["walk_orders_made"]


@pytest.mark.usefixtures("_walk_orders_for_all")
def test_a_walk_order_cache_that_cannot_be_written_is_told_once(train, here):
    (here / "file").write_text("")
    outcome = train("--walk-cache", "file/walks")
    assert outcome.err.count("cannot write walk order cache 'file/walks': Not a directory") == 1
    assert outcome.json["walk_orders_made"] > 0


@pytest.mark.usefixtures("_walk_orders_for_all")
def test_what_was_tried_is_kept_and_changes_no_loss(train, here):
    by_size = train("--walk-cache", "off").json
    tuned = train("--walk-cache", "kept", "--tune-kernels")
    assert "kernels: " in tuned.err
    assert " ms: " in tuned.err
    (records,) = tuned.json["kernels"]
    assert {"none", "tasks", "clusters"} <= set(records[0]["ms"])
    assert by_size["kernels"] == [[]]
    again = train("--walk-cache", "kept")
    assert "kernels: " not in again.err
    assert again.json["kernels"] == tuned.json["kernels"]
    assert len(list((here / "kept").glob("*.choice.json"))) == len(records)
    assert by_size["final_loss"] == tuned.json["final_loss"] == again.json["final_loss"]
    assert json.loads((here / "run" / "summary.json").read_text())["kernels"] == [records]


@pytest.mark.usefixtures("_walk_orders_for_all")
@pytest.mark.parametrize("verb", [("evaluate",), ("predict", "--out", "scores.npy")])
def test_a_run_is_scored_with_the_walk_orders_that_training_left(
    verb, distgnn, train, here, monkeypatch
):
    train("--walk-cache", "kept")
    num_kept = len(list((here / "kept").iterdir()))
    counts = []
    read = WalkOrderCache.get

    def get(cache, key, block, way):
        walk = read(cache, key, block, way)
        counts.append((cache.counts.num_read, cache.counts.num_made, walk is None))
        return walk

    monkeypatch.setattr(WalkOrderCache, "get", get)
    for folder, is_found in (("kept", True), ("empty", False)):
        counts.clear()
        words = (*verb, "--walk-cache", folder, "--threads", 1, "--json")
        assert distgnn(words[0], here / "run", *words[1:]).status == 0
        assert counts[0] == (int(is_found), 0, not is_found)
    assert len(list((here / "kept").iterdir())) == num_kept
    assert not (here / "empty").exists()
