from __future__ import annotations

import gzip
import importlib
import json
import os
import subprocess
import sys
import uuid
from dataclasses import replace

import numpy as np
import pytest
from large_graphs import write_folder

from distgnn.api.on_disk import _work, stays_on_disk
from distgnn.api.partition_options import PartitionOptions
from distgnn.api.source import SourceOptions
from distgnn.cli.flags import size
from distgnn.datasets.planted import planted
from distgnn.partition.directory.store import read_manifest, read_part
from distgnn.partition.large.work import WorkFolder
from distgnn.partition.methods.auto import NEEDS

COMMAND = ("partition", "graph", "--parts", 3, "--out", "p")


@pytest.fixture
def folder(here):
    graph = planted(num_vertices=200, num_classes=6, seed=1)
    return write_folder(here / "graph", graph)


def test_a_folder_of_arrays_is_cut_on_disk_if_asked(distgnn, folder, here):
    outcome = distgnn(*COMMAND, "--out-of-core", "on", "--memory", "1GiB", "--json")
    manifest = read_manifest("p")
    assert outcome.json["halo_rows"] == manifest.quality["halo_rows"]
    assert manifest.method == "out-of-core"
    assert manifest.options["memory_bytes"] == 1 << 30
    assert "writing: " in outcome.err
    assert not (here / "p.work").exists()
    in_memory = distgnn(*COMMAND, "--overwrite", "--json")
    assert in_memory.json["method"] == "metis"
    assert outcome.json["halo_rows"] <= 1.3 * in_memory.json["halo_rows"]


def test_edges_of_a_table_keep_their_types_and_features_wherever_it_is_cut(distgnn, here):
    rng = np.random.default_rng(0)
    kinds = rng.choice(["cites", "likes", "writes"], 600)
    lines = [
        f"{src},{dst},{kind},{amount:.3f}"
        for src, dst, kind, amount in zip(
            *rng.integers(0, 90, (2, 600)), kinds, rng.random(600), strict=True
        )
    ]
    (here / "graph.csv").write_text("\n".join(["src,dst,kind,amount", *lines]) + "\n")
    words = ("partition", "graph.csv", "--parts", 3, "--edge-type-column", "kind", "--undirected")
    found = []
    for wish in ("on", "off"):
        assert distgnn(*words, "--out-of-core", wish, "--out", wish).status == 0
        assert read_manifest(wish).relation_names == ("cites", "likes", "writes")
        parts = [read_part(wish, number) for number in range(3)]
        columns = [
            np.column_stack([one.edge_features, one.edge_type, one.relation_degree])
            for one in parts
        ]
        rows = np.concatenate(columns)
        found.append(rows[np.lexsort(rows.T)])
    assert np.array_equal(*found)


def on_ranks(size, *words):
    """Run a command on ranks as torchrun starts them; status, output and errors of each."""
    job = {
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "TORCHELASTIC_RUN_ID": uuid.uuid4().hex,
    }
    job |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "distgnn", *map(str, words)],
            env={**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    said = [rank.communicate(timeout=200) for rank in ranks]
    return [(rank.returncode, *words) for rank, words in zip(ranks, said, strict=True)]


def test_ranks_share_the_work_on_disk_and_the_first_one_reports(distgnn, folder, here):
    words = (*COMMAND, "--out-of-core", "on", "--memory", "1GiB", "--json")
    alone = distgnn(*words).json
    (here / "p").rename(here / "alone")
    (status, shown, notes), other = on_ranks(2, *words)
    assert (status, other) == (0, (0, "", "")), (notes, other)
    assert json.loads(shown)["halo_rows"] == alone["halo_rows"]
    files = read_manifest("alone").files
    assert {name: one.sha256 for name, one in read_manifest("p").files.items()} == {
        name: one.sha256 for name, one in files.items()
    }
    # The first one alone can say that the directory is there.
    (status, _, said), other = on_ranks(2, *words)
    assert status == 2
    assert said.startswith("distgnn: 'p' already holds a partition; replace it with --overwrite")


def test_edges_stay_on_disk_where_the_methods_in_memory_would_not_fit(distgnn, here):
    # A ring; 2**22 edges take 0.6 GiB in memory.
    src = np.arange(1 << 22, dtype=np.int32) % 2000
    (here / "graph").mkdir()
    np.save(here / "graph" / "edge_index.npy", np.stack([src, (src + 1) % 2000]))
    outcome = distgnn(*COMMAND, "--memory", "550MiB", "--refine", "off")
    assert "out of core: metis takes about 0.6 GiB of the 0.5 GiB that it may" in outcome.err
    assert read_manifest("p").method == "out-of-core"


def test_a_split_on_disk_is_that_in_memory(distgnn, folder):
    split = ("--split", "0.5/0.2/0.3", "--seed", 4)
    assert distgnn(*COMMAND, *split, "--out-of-core", "on").status == 0
    on_disk = read_manifest("p")
    assert distgnn(*COMMAND, *split, "--out-of-core", "off", "--overwrite").status == 0
    assert on_disk.num_train == read_manifest("p").num_train
    assert on_disk.options["split"] == "0.5/0.2/0.3"


@pytest.mark.parametrize("more", [(), ("--overwrite",)])
def test_a_run_that_ended_before_its_work_folder_was_removed_is_finished(
    more, distgnn, folder, here, monkeypatch
):
    def interrupt(work):
        raise KeyboardInterrupt

    command = (*COMMAND, "--out-of-core", "on", "--memory", "1GiB")
    with monkeypatch.context() as patch:
        patch.setattr("distgnn.partition.large.work.WorkFolder.remove", interrupt)
        assert distgnn(*command).status == 130
    before = read_manifest("p")
    assert (here / "p.work").exists()
    assert distgnn(*command, *more).status == 0
    assert not (here / "p.work").exists()
    assert read_manifest("p") == before
    assert sum(read_part("p", part).num_edges for part in range(3)) == before.num_edges


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            ("--out-of-core", "on", "--method", "ne"),
            "--out-of-core on and --method exclude each other; leave one of them out",
        ),
        (
            ("--out-of-core", "on", "--refine", "off", "--imbalance", "1.1"),
            "--imbalance takes no effect out of core with --refine off; leave one of them out",
        ),
        (
            ("--out-of-core", "off", "--memory", "1GiB"),
            "--memory takes no effect with --out-of-core off; leave one of them out",
        ),
        (
            ("--out-of-core", "off", "--work", "w"),
            "--work takes no effect with --out-of-core off; leave one of them out",
        ),
        (
            ("--method", "libra", "--memory", "1GiB"),
            "--memory takes no effect with --method; leave one of them out",
        ),
        (
            ("--method", "libra", "--work", "w"),
            "--work takes no effect with --method; leave one of them out",
        ),
    ],
)
def test_flags_that_exclude_each_other_are_refused(flags, sentence, distgnn, folder):
    assert distgnn(*COMMAND, *flags).sentence == sentence


def write_edges(path, num_edges):
    """Write an edge list whose ids have seven digits, as those of millions of vertices have."""
    ends = np.random.default_rng(0).integers(1_000_000, 10_000_000, (num_edges, 2))
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        arrow, parquet = (importlib.import_module(f"pyarrow{end}") for end in ("", ".parquet"))
        ends = np.sort(ends, axis=0)
        parquet.write_table(arrow.table({"src": ends[:, 0], "dst": ends[:, 1]}), path)
        return
    text = "".join(f"{src},{dst}\n" for src, dst in ends.tolist()).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


@pytest.mark.parametrize(
    "name",
    ["e.csv", "e.csv.gz", "e.parquet", "f/edges.csv", "f/edges.csv.gz", "f/edges.parquet"],
)
def test_an_edge_list_has_no_more_edges_than_its_size_is_taken_for(name, here):
    write_edges(here / name, 5000)
    source = SourceOptions(name.split("/")[0])
    needed = NEEDS[0].bytes(0, 5000) + 8 * 5000
    assert stays_on_disk(PartitionOptions(source, 2, "p", print, memory=needed - 1))
    assert not stays_on_disk(PartitionOptions(source, 2, "p", print, memory=3 * needed))


def test_reverses_that_are_to_be_added_count_where_edges_are_to_fit(here):
    write_edges(here / "e.parquet", 5000)
    needed = NEEDS[0].bytes(0, 10000) + 8 * 10000
    for is_undirected in (False, True):
        source = SourceOptions("e.parquet", undirected=is_undirected)
        asked = PartitionOptions(source, 2, "p", print, memory=needed - 1)
        assert stays_on_disk(asked) == is_undirected


def test_a_flag_that_keeps_a_large_graph_in_memory_is_told(here, monkeypatch):
    write_edges(here / "e.parquet", 5000)
    monkeypatch.setattr("distgnn.api.on_disk.available_memory", lambda: 1 << 19)
    said = []
    asked = PartitionOptions(SourceOptions("e.parquet"), 2, "p", said.append, quality="fast")
    assert not stays_on_disk(asked)
    (line,) = said
    assert line.startswith("in memory because of --quality, although metis takes about 0.0 GiB of")
    assert not stays_on_disk(replace(asked, quality=None, method="auto"))
    assert said == [line]
    (here / "p.work").mkdir()
    (here / "p.work" / "state.json").write_text("{}")
    assert not stays_on_disk(asked)
    assert said[1] == (
        f"in memory because of --quality; what '{here / 'p.work'}' holds goes on without that flag"
    )


def test_parts_of_which_the_pairs_do_not_fit_are_refused(distgnn, here, monkeypatch):
    np.savez(here / "e.npz", edge_index=[[0], [2999]])
    monkeypatch.setattr("distgnn.api.partitioning.available_memory", lambda: 1 << 30)
    outcome = distgnn("partition", "e.npz", "--parts", 3000, "--out", "p")
    assert outcome.status == 2
    assert "--parts 3000 takes about 1.7 GiB for counts of rows between each two" in outcome.err
    assert outcome.err.strip().endswith("GiB are free; use at most 2317")


@pytest.mark.parametrize("flags", [("--memory", "1GiB"), ("--work", "w")])
def test_a_graph_that_stays_in_memory_is_said_to_ignore_flags_of_the_disk(
    flags, distgnn, folder, here
):
    outcome = distgnn(*COMMAND, *flags)
    assert f"in memory, where {flags[0]} takes no effect; --out-of-core on" in outcome.err
    assert read_manifest("p").method == "metis"
    assert not (here / "w").exists()
    assert "takes no effect" not in distgnn(*COMMAND, "--overwrite").err


def test_only_a_work_folder_that_was_begun_makes_auto_go_on_from_there(distgnn, folder, here):
    (here / "p.work").mkdir()
    (here / "p.work" / "notes.txt").write_text("")
    outcome = distgnn(*COMMAND)
    assert "going on" not in outcome.err
    assert read_manifest("p").method == "metis"
    (here / "p.work" / "notes.txt").unlink()
    WorkFolder(here / "p.work", {"seed": 7})
    outcome = distgnn(*COMMAND, "--overwrite")
    assert f"continuing from '{here / 'p.work'}'" in outcome.err
    assert "is of another partitioning: its seed is 7, not 0" in outcome.err


def test_an_edge_list_is_cut_on_disk_as_it_is_in_memory(distgnn, here):
    lines = [f"{10 * k},{10 * ((k + 1) % 40)}" for k in range(40)]
    (here / "edges.csv").write_text("\n".join(["source,target", *lines]))
    command = ("partition", "edges.csv", "--undirected", "--parts", 3, "--out")
    assert distgnn(*command, "a", "--out-of-core", "on").status == 0
    assert distgnn(*command, "b").status == 0
    on_disk, in_memory = read_manifest("a"), read_manifest("b")
    assert on_disk.num_edges == in_memory.num_edges == 80
    assert on_disk.source_checksum == in_memory.source_checksum
    assert (on_disk.name, on_disk.source) == (in_memory.name, in_memory.source)
    ids = [
        np.concatenate([read_part(out, part).vertex_id for part in range(3)]) for out in ("a", "b")
    ]
    assert sorted(ids[0]) == sorted(ids[1]) == list(range(0, 400, 10))


def test_a_graph_with_a_name_is_cut_on_disk(distgnn):
    command = ("partition", "cora", "--parts", 4, "--out", "p", "--out-of-core", "on")
    assert distgnn(*command).status == 0
    manifest = read_manifest("p")
    assert (manifest.name, manifest.num_features, manifest.num_classes) == ("cora", 1433, 7)
    assert manifest.has_sparse_features


@pytest.mark.parametrize("text", ["8", "1.5GiB", "512MiB"])
def test_sizes_are_numbers_with_a_unit(text):
    assert size(text) == {"8": 8, "1.5GiB": 3 << 29, "512MiB": 1 << 29}[text]


@pytest.mark.parametrize("text", ["", "GiB", "8GB", "-1GiB", "8 gigabytes", "nanGiB", "0.5"])
def test_other_sizes_are_refused(text, distgnn, folder):
    assert "such as 8GiB, got" in distgnn(*COMMAND, f"--memory={text}").sentence


@pytest.mark.parametrize(
    "ends",
    [
        np.asfortranarray(np.array([[0, 1, 2], [1, 2, 0]])),
        np.array([[0, 1, 2], [1, 2, 0]], np.uint32),
        np.array([[0, 1, 2], [1, 2, 0]], ">i8"),
    ],
)
def test_arrays_that_are_read_in_memory_alone_are_counted_by_their_header(ends, distgnn, here):
    (here / "graph").mkdir()
    np.save(here / "graph" / "edge_index.npy", ends)
    assert distgnn(*COMMAND).status == 0
    assert read_manifest("p").method == "metis"
    assert distgnn(*COMMAND, "--overwrite", "--out-of-core", "on").status == 2


def test_a_relative_work_folder_is_that_of_the_folder_of_the_command(here):
    asked = PartitionOptions(SourceOptions("graph"), 2, "p", print, work="w")
    assert _work(asked) == here / "w"
