from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest

from distgnn.cli import build_parser
from distgnn.cli.inspect_text import quality_lines
from distgnn.cli.train_verb import config_from
from distgnn.comm.threads import run_ranks
from distgnn.datasets import load
from distgnn.partition.assignment import Assignment
from distgnn.partition.bound import least_halo_rows
from distgnn.partition.directory.store import read_manifest, read_part
from distgnn.partition.quality import estimate, measure
from distgnn.partition.reuse import row_reuse
from distgnn.training.data.info import DataInfo
from distgnn.training.loop.trainer import Trainer


@pytest.fixture
def measured(ring, ring_parts):
    """The quality, computed again from the parts themselves."""
    graph = load(ring)
    part_of_root = {}
    part_of_edge = {}
    for number in range(3):
        part = read_part(ring_parts, number)
        part_of_root |= dict.fromkeys(part.global_id[: part.num_roots].tolist(), number)
        for row in range(len(part.indptr) - 1):
            for source in part.indices[part.indptr[row] : part.indptr[row + 1]]:
                part_of_edge[int(part.global_id[source]), int(part.global_id[row])] = number
    edges = zip(graph.src.tolist(), graph.dst.tolist(), strict=True)
    edge_part = [part_of_edge[edge] for edge in edges]
    root_part = [part_of_root[vertex] for vertex in range(graph.num_vertices)]
    return measure(graph, Assignment(3, np.int32(edge_part), np.int32(root_part)))


def test_the_bound_of_rows_stands_beside_them(distgnn, ring_parts):
    parts = [read_part(ring_parts, number) for number in range(3)]
    values = distgnn("inspect", ring_parts, "--bound", "--json").json
    assert values["least_halo_rows"] == least_halo_rows(parts, 3) > 0
    assert "least_halo_rows" not in distgnn("inspect", ring_parts, "--json").json
    shown = distgnn("inspect", ring_parts, "--bound").out
    line = next(line for line in shown.splitlines() if line.startswith("least_halo_rows"))
    assert line.split(maxsplit=1)[1].startswith(f"{values['least_halo_rows']} for these roots")


@pytest.mark.parametrize(
    ("rows", "beside"),
    [(20, ", as many as halo_rows"), (23, "; halo_rows are 15.0% above"), (17, "15.0% below")],
)
def test_rows_are_compared_with_the_bound(rows, beside, ring_parts):
    manifest = read_manifest(ring_parts)
    quality = {**manifest.quality, "halo_rows": rows}
    lines = quality_lines(replace(manifest, quality=quality), least_rows=20)
    (line,) = (line for line in lines if line.startswith("least_halo_rows"))
    assert line.endswith(beside)


TRAINED = {
    "defaults": [],
    "one layer": ["--layers", 1],
    "all rows": ["--static-input", "off", "--receptive-field", "off"],
    "gcn": ["--model", "gcn", "--hidden", 9, "--layers", 3],
    "gat": ["--model", "gat", "--heads", 3, "--hidden", 2, "--split-index", 0],
    "maxima": ["--aggregator", "max", "--input-dropout", 0.5, "--recompute"],
    "delayed": ["--algorithm", "cd-3", "--delay-cache", "off"],
    "alone": ["--algorithm", "0c"],
    "labels": ["--labels-as-input", 0.5, "--hidden", 12],
    "half": ["--activations-dtype", "bf16", "--features-dtype", "bf16", "--static-input", "off"],
}


@pytest.mark.parametrize("words", TRAINED.values(), ids=TRAINED)
def test_bytes_are_those_that_training_with_the_same_flags_counts(words, distgnn, ring_parts):
    found = distgnn("inspect", ring_parts, "--json", *words).json
    command = ["train", str(ring_parts), "--run", "r", "--epochs", "6", *map(str, words)]
    arguments = build_parser().parse_args(command)
    manifest = read_manifest(ring_parts)
    ends = DataInfo.of(manifest)

    def on_rank(group):
        part = read_part(ring_parts, group.rank)
        return list(Trainer(config_from(arguments), ends, part, group).epochs())

    records = run_ranks(3, on_rank)[0]
    mean = sum(record["halo_bytes_sent"] for record in records) / len(records)
    assert found["halo_bytes_per_epoch"] == mean
    assert sum(found["halo_bytes_sent_per_rank"]) == pytest.approx(mean)
    assert {record["eval_halo_bytes_sent"] for record in records} == {found["eval_halo_bytes"]}


def test_json_says_who_sends_what_to_whom_and_which_layer_moves_it(distgnn, ring_parts):
    found = distgnn("inspect", ring_parts, "--json", "--static-input", "off").json
    between = np.array(found["halo_bytes_between"])
    assert between.shape == (3, 3)
    assert not between.diagonal().any()
    assert between.sum(axis=1).tolist() == found["halo_bytes_sent_per_rank"]
    assert between.sum(axis=0).tolist() == found["halo_bytes_received_per_rank"]
    moved = [layer["forward_bytes"] + layer["backward_bytes"] for layer in found["layers"]]
    assert sum(moved) == found["halo_bytes_per_epoch"] == between.sum() > 0
    assert len(found["memory_bytes_per_rank"]) == 3
    assert {where: len(each) for where, each in found["device_bytes_per_rank"].items()} == {
        "device": 3,
        "host": 3,
    }
    assert found["model"]["hidden"] == 64


def test_people_see_bars_the_matrix_and_the_savings(distgnn, ring_parts):
    printed = distgnn("inspect", ring_parts).out
    assert "for sage, 2 layers, 64 hidden columns (fp32, cd-0):" in printed
    assert "static input: the first layer aggregates it once" in printed
    stored = distgnn("inspect", ring_parts, "--activations-dtype", "bf16").out
    assert "for sage, 2 layers, 64 hidden columns (bf16, cd-0):" in stored
    assert "################" in printed
    assert [line.split()[0] for line in printed.splitlines() if " sends " in line][1:] == [
        "0",
        "1",
        "2",
    ]


@pytest.mark.parametrize(("words", "is_bound"), [("skewscout", True), ("decentralized", False)])
def test_bytes_of_models_that_may_be_fewer_are_said_to_be_at_most(
    words, is_bound, distgnn, ring_parts
):
    found = distgnn("inspect", ring_parts, "--preset", words, "--json").json
    assert found["weights_at_most"] == is_bound


def test_time_is_the_business_of_plan(distgnn, ring_parts):
    for words in (["--bandwidth", "10Gb/s"], ["--latency", "20us"]):
        assert distgnn("inspect", ring_parts, *words).sentence == (
            "inspect counts bytes and memory, and predicts no time; distgnn plan "
            f"{ring_parts} --bandwidth 100Gb/s predicts that of an epoch"
        )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--widths", "8", "--layers", "8,8"], "--widths and widths of --layers are the same"),
        (
            ["--widths", "4", "--hidden", 99],
            "--hidden has no effect on sums of given widths; leave",
        ),
        (["--widths", "4", "--layers", 3], "--layers has no effect on sums of given widths"),
        (["--layers", "4,4", "--features-dtype", "bf16"], "--features-dtype has no effect on sums"),
        (["--widths", "a"], "--widths must be widths such as 16,7, got 'a'"),
        (["--layers", "two"], "--layers must be a whole number from 1"),
        (["--split-index", 3], "--split-index 3 is out of range"),
        (["--heads", 2], "--heads 2 has no effect on --model sage"),
    ],
)
def test_what_cannot_be_predicted_is_one_sentence(words, sentence, distgnn, ring_parts):
    assert distgnn("inspect", ring_parts, *words).sentence.startswith(sentence)


def test_a_graph_without_labels_gets_plain_sums(distgnn, ring, here):
    arrays = dict(np.load(ring))
    for name in ("labels", "train_mask", "val_mask", "test_mask"):
        arrays.pop(name, None)
    np.savez(here / "bare.npz", **arrays)
    assert distgnn("partition", "bare.npz", "--parts", 2, "--out", "p").status == 0
    found = distgnn("inspect", "p", "--json").json
    assert found["layer_widths"] == [64, 64]
    assert found["eval_halo_bytes"] is None
    assert "sum rows of width 64, 64 over all edges" in distgnn("inspect", "p").out


def test_json_gives_the_quality_and_what_sums_of_given_widths_cost(distgnn, ring_parts, measured):
    found = distgnn("inspect", ring_parts, "--json", "--layers", "16,7").json
    for name in ("replication_factor", "halo_rows", "edge_balance", "vertex_balance"):
        assert found[name] == getattr(measured, name)
    assert found["halo_rows_at_destination"] >= found["halo_rows"]
    expected = estimate(measured, [16, 7], num_features=5)
    assert found["layer_widths"] == [16, 7]
    assert found["halo_bytes_per_epoch"] == expected.halo_bytes_per_epoch
    assert found["memory_bytes_per_rank"] == list(expected.memory_bytes)
    assert distgnn("inspect", ring_parts, "--json", "--widths", "16,7").json == found


def test_counts_in_json_are_of_the_whole_graph(distgnn, ring_parts):
    found = distgnn("inspect", ring_parts, "--json").json
    assert found["num_edges"] == 12
    assert sum(part["num_edges"] for part in found["parts"]) == 12
    assert "files" not in found


def test_people_see_the_same_numbers(distgnn, ring_parts, measured):
    printed = distgnn("inspect", ring_parts).out
    assert f"replication_factor  {measured.replication_factor:.3f}" in printed
    assert f"halo_rows           {measured.halo_rows} " in printed
    assert "ring, 12 vertices, 12 edges" in printed
    assert "metis, 3 parts, seed 0" in printed
    assert "order               auto\n" in printed


def test_reuse_is_estimated_for_each_part_at_the_widest_layer(distgnn, ring_parts):
    expected = [row_reuse(read_part(ring_parts, number), 16) for number in range(3)]
    assert (
        distgnn("inspect", ring_parts, "--json", "--layers", "16,7").json["row_reuse"] == expected
    )
    printed = distgnn("inspect", ring_parts, "--layers", "16,7").out
    assert f"reuse per rank   {min(expected):.1f} reads at least for each fetch" in printed
    header, *rows = printed[printed.index("part  edges") :].splitlines()[:4]
    assert header.split()[-1] == "reuse"
    assert [row.split()[-1] for row in rows] == [f"{value:.1f}" for value in expected]


@pytest.mark.parametrize("widths", ["0", "-3", "16,0"])
def test_widths_are_positive(widths, distgnn, ring_parts):
    sentence = distgnn("inspect", ring_parts, f"--widths={widths}").sentence
    assert sentence.startswith("layer widths must be positive, got [")


def test_verify_finds_an_altered_file(distgnn, ring_parts, here):
    shutil.copytree(ring_parts, here / "p")
    assert distgnn("inspect", "p", "--verify").status == 0
    file = here / "p/part-0001/features.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert distgnn("inspect", "p").status == 0
    sentence = distgnn("inspect", "p", "--verify").sentence
    assert "features.npy' was altered" in sentence


@pytest.mark.parametrize("row", [-1, 100, 2**31 - 1])
@pytest.mark.parametrize(
    "words",
    [
        ("inspect",),
        ("inspect", "--bound"),
        ("inspect", "--widths=4"),
        ("plan", "--bandwidth=1Gb/s"),
    ],
)
def test_an_edge_that_begins_outside_its_part_is_damage(row, words, distgnn, ring_parts, here):
    shutil.copytree(ring_parts, here / "p")
    for number in range(3):
        file = here / f"p/part-000{number}/indices.npy"
        indices = np.load(file)
        indices[0] = row
        np.save(file, indices)
    sentence = distgnn(words[0], "p", *words[1:]).sentence
    assert "but may hold 0.." in sentence
    assert sentence.endswith("partition the graph again or copy the directory again")


def test_a_hierarchical_partition_shows_rows_per_level(distgnn, ring):
    command = ("partition", ring, "--parts", 4, "--out", "h", "--method", "hierarchical")
    assert "halo_rows_per_level" in distgnn(*command, "--option", "levels=2x2").out
    found = distgnn("inspect", "h", "--json").json
    assert sum(found["halo_rows_per_level"]) == found["halo_rows"] >= 4
    assert len(found["halo_rows_per_level"]) == 2
