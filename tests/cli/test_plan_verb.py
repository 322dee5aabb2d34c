"""An epoch of a cluster that is not at hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from graphs import cut, make_graph

from distgnn.datasets import InputError
from distgnn.forecast import rehearsal
from distgnn.forecast.pace import Pace
from distgnn.forecast.plan import Cluster, _compute, _Scales
from distgnn.forecast.rehearsal import Rehearsal, sample_of
from distgnn.forecast.traffic import forecast
from distgnn.machine import loopback
from distgnn.partition.directory.store import read_manifest
from distgnn.training.config.settings import TrainConfig


@pytest.fixture(autouse=True)
def _shortly(monkeypatch):
    monkeypatch.setattr(rehearsal, "_LEAST_S", 0.0)


@pytest.fixture
def plan(distgnn, ring_parts):
    def run(*words):
        command = ("plan", ring_parts, "--bandwidth", "10Gb/s", "--threads", 1, "--hidden", 8)
        return distgnn(*command, *words)

    return run


def test_an_epoch_is_computing_and_what_the_partition_sends(plan, distgnn, ring_parts):
    values = plan("--json", "--latency", "10us").json
    inspected = distgnn("inspect", ring_parts, "--hidden", 8, "--json").json
    assert values["halo_bytes_per_epoch"] == inspected["halo_bytes_per_epoch"] > 0
    assert values["memory_bytes_per_rank"] == inspected["memory_bytes_per_rank"]
    assert values["eval_halo_bytes"] == inspected["eval_halo_bytes"] > 0
    assert values["screened_halo_bytes"] is None
    assert (values["ranks"], len(values["compute_s_per_rank"])) == (3, 3)
    assert values["compute_s"] == max(values["compute_s_per_rank"]) > 0
    assert values["weights_s"] > 4 * 10e-6
    assert values["latency_s"] == 10e-6
    assert (values["num_messages"] > 0, values["messages_s"] > 0) == (True, True)
    least = max(values["compute_s"], values["rows_s"]) + values["weights_s"]
    most = values["compute_s"] + values["messages_s"] + values["rows_s"] + values["weights_s"]
    assert least <= values["hidden_epoch_s"] * 1.001
    assert values["hidden_epoch_s"] <= values["epoch_s"] <= most * 1.001


def test_people_see_a_line_for_each_share(plan):
    lines = dict(line.split(maxsplit=1) for line in plan("--ranks", 3).out.splitlines())
    expected = ["ranks", "computing", "messages", "rows", "evaluation", "gradients"]
    assert list(lines) == [*expected, "epoch", "memory"]
    assert lines["computing"].endswith(", the slowest")
    assert " ms if nothing is hidden, " in lines["epoch"]
    assert lines["epoch"].endswith(" ms if all is that can be")


def test_the_latency_of_this_machine_is_taken_where_none_is_given(plan, monkeypatch):
    monkeypatch.setattr(loopback, "_round_trip_seconds", lambda ends: 0.25)
    values = plan("--json").json
    assert values["latency_s"] == 0.125
    assert values["weights_s"] == pytest.approx(4 * 0.125, rel=1e-3)
    assert values["rows_s"] > 0.125


def test_each_step_of_the_ring_takes_what_a_sum_over_two_took_here(plan, monkeypatch):
    monkeypatch.setattr(loopback, "_round_trip_seconds", lambda ends: 0.25)
    monkeypatch.setattr(loopback, "_reduction_seconds", lambda ends: 2 * (0.125 + 0.5))
    assert plan("--json").json["weights_s"] == pytest.approx(4 * (0.125 + 0.5), rel=1e-3)
    values = plan("--cores", 0.5, "--json").json
    assert values["weights_s"] == pytest.approx(4 * (0.125 + 2 * 0.5), rel=1e-3)


def test_messages_are_tried(monkeypatch):
    found = loopback.try_loopback()
    assert 1e-7 < found.toll.message_s < 0.1
    assert 0 <= found.toll.byte_s < 1e-6
    assert 1e-6 < found.latency_s < 1
    assert 0 <= found.step_s < 1
    monkeypatch.setattr(loopback, "_HOST", "192.0.2.1")
    with pytest.raises(InputError, match=r"gloo cannot send to 192\.0\.2\.1 .*; set up its loop"):
        loopback.try_loopback()


def test_one_rank_needs_no_link(distgnn, ring):
    assert distgnn("partition", ring, "--parts", 1, "--out", "p").status == 0
    values = distgnn("plan", "p", "--threads", 1, "--hidden", 8, "--json").json
    assert values["rows_s"] == values["weights_s"] == 0
    assert values["epoch_s"] == values["compute_s"] == pytest.approx(values["rehearsed_epoch_s"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--ranks", 4],
            "has 3 parts, but --ranks is 4; distgnn repartition .* --parts 4 --out DI",
        ),
        (["--bandwidth", "fast"], "--bandwidth must be a speed such as 10Gb/s"),
        (["--bandwidth", "0GB/s"], "--bandwidth must be a speed such as 10Gb/s"),
        (["--latency", "soon"], "--latency must be a time such as 20us"),
        (["--algorithm", "cd-x"], "--algorithm must be"),
        (["--cores", 0], "--cores must be above 0 and at most 1024, got '0'"),
        (["--cores", 1025], "--cores must be above 0 and at most 1024, got '1025'"),
    ],
)
def test_what_cannot_be_planned_is_refused(words, sentence, plan):
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(plan(*words).sentence)


def test_several_ranks_need_a_link(distgnn, ring_parts):
    sentence = distgnn("plan", ring_parts).sentence
    assert sentence == "--bandwidth is needed for 3 ranks, such as --bandwidth 100Gb/s"


def test_a_graph_that_nothing_can_be_trained_on_is_refused(distgnn, here):
    np.savez(here / "bare.npz", edge_index=np.array([[0, 1], [1, 2]]))
    assert distgnn("partition", "bare.npz", "--parts", 1, "--out", "p").status == 0
    assert (
        "has no features, labels or masks, so nothing can be trained"
        in distgnn("plan", "p").sentence
    )


def scales(threads, **given):
    return _Scales(Cluster(**given), threads, Pace(edge_s=2.0, product_s=3.0))


def test_cores_and_memory_scale_what_depends_on_them(ring_parts):
    manifest = read_manifest(ring_parts)
    found = forecast(ring_parts, manifest, TrainConfig())
    done = Rehearsal(found, found.model, 1.0, epoch_s=7.0)
    same, of_sums = _compute(found, done, scales(2), manifest)
    assert same.max() == pytest.approx(7.0)
    assert 0 < of_sums.max() < 7.0
    assert _compute(found, done, scales(2, cores=8), manifest)[0].max() == pytest.approx(7.0 / 4)
    only_sums = scales(2)
    only_sums.sums = 1e-9
    products = _compute(found, done, only_sums, manifest)[0].max()
    only_products = scales(2)
    only_products.products = 1e-9
    sums = _compute(found, done, only_products, manifest)[0].max()
    assert products + sums == pytest.approx(7.0, rel=1e-3)
    fixed, _ = _compute(found, done._replace(fixed_s=4.0), scales(2, cores=8), manifest)
    assert fixed.max() == pytest.approx(3.0 / 4 + 4.0)
    shared = scales(1, cores=0.5)
    assert shared.turns == 2.0
    fixed, _ = _compute(found, done._replace(fixed_s=4.0), shared, manifest)
    assert fixed.max() == pytest.approx(14)
    assert scales(2, memory_bandwidth=1e30).sums < 1e-15
    assert scales(2, memory_bandwidth=1e30, cores=4).products == 0.5


KINDS = ["random", "sparse-features", "weighted", "multi-label", "few-edges", "typed"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_of_all_edges_walks_those_of_the_part(kind):
    for part in cut(make_graph(kind), 3):
        sample = sample_of(part, 0, 10**9)
        assert (sample.part, sample.num_parts) == (0, 2)
        assert sample.num_edges == part.num_edges
        assert sample.num_leaves == part.num_leaves
        assert sample.num_roots <= part.num_roots + 2
        assert sample.is_reading.tolist() == part.is_reading.tolist()
        assert sample.is_writing.tolist() == part.is_writing.tolist()
        lengths = np.diff(part.indptr)[part.num_roots :]
        assert np.diff(sample.indptr)[sample.num_roots :].tolist() == lengths.tolist()
        assert sample.train_mask.any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_edges", [0, 20])
def test_a_sample_is_the_first_rows_of_a_part_with_their_sources(kind, max_edges):
    for part in cut(make_graph(kind), 3):
        sample = sample_of(part, 0, max_edges)
        # A row is taken whole, and one from and one for a leaf in any case.
        longest = int(np.diff(part.indptr).max())
        assert sample.num_edges <= max_edges + 4 * longest
        assert sample.num_roots + sample.num_leaves <= part.num_roots + part.num_leaves + 2
        assert sample.is_reading.any() == part.is_reading.any()
        assert sample.is_writing.any() == part.is_writing.any()
        assert sample.send_counts.tolist() == [0, sample.is_reading.sum()]
        assert sample.reduce_counts.tolist() == [0, sample.is_writing.sum()]
        for rows, count in (
            (sample.send_rows, sample.is_reading.sum()),
            (sample.reduce_rows, sample.is_writing.sum()),
        ):
            assert len(rows) == count
            assert ((rows >= 0) & (rows < sample.num_roots)).all()


@pytest.mark.parametrize(
    "words", [(), ("--model", "gat"), ("--aggregator", "max"), ("--algorithm", "cd-3")]
)
def test_a_sample_trains_beside_its_mirror_image(words, plan):
    values = plan("--json", *words).json
    assert 0 < values["rehearsed_fixed_s"] <= values["rehearsed_epoch_s"] < 10


def test_late_rows_hide_behind_all_that_is_computed(plan):
    slow = ("--latency", "1us", "--bandwidth", "1Mb/s", "--json")
    now, late = plan(*slow).json, plan(*slow, "--algorithm", "cd-2").json
    hidden = [each["epoch_s"] - each["hidden_epoch_s"] for each in (now, late)]
    assert 0 <= hidden[0] <= now["compute_s"]
    assert hidden[1] >= min(late["rows_s"], late["compute_s"]) * 0.999


def test_a_whole_part_is_planned_like_one_rank(distgnn, ring, here):
    assert distgnn("partition", ring, "--parts", 1, "--out", "p").status == 0
    for words in (["--algorithm", "cd-3", "--delay-cache", "off"], ["--model", "gat"]):
        values = distgnn("plan", "p", "--threads", 1, "--hidden", 4, "--json", *words).json
        assert 0 < values["epoch_s"] < 10
    assert json.dumps(values)
