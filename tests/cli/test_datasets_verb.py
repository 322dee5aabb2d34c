from __future__ import annotations

import numpy as np
import ogb_archives as mini
import pytest

from distgnn.datasets import load, names
from distgnn.datasets.ogb import CATALOGUE
from distgnn.partition.directory.store import read_manifest


def test_json_describes_every_name(distgnn):
    found = distgnn("datasets", "--json").json
    assert list(found) == [*names(), *CATALOGUE]
    assert found["ogbn-arxiv"]["num_vertices"] == 169343
    assert found["cora"]["num_vertices"] == 2708
    assert found["cora"]["licence"] == "MIT"
    assert found["synthetic:rmat"]["options"]["scale"] == 10


def test_one_name_is_described_alone(distgnn):
    found = distgnn("datasets", "synthetic:star", "--json").json
    assert list(found) == ["synthetic:star"]
    assert found["synthetic:star"]["num_edges"] == load("synthetic:star").num_edges


def test_people_see_a_table_and_how_to_write_options(distgnn):
    lines = distgnn("datasets").out.splitlines()
    assert lines[0].split() == ["name", "vertices", "edges", "features", "classes", "licence"]
    assert lines[1].split() == ["cora", "2708", "10556", "1433", "7", "MIT"]
    (path,) = [line for line in lines if line.startswith("synthetic:path takes options: ")]
    assert load(path.split(": ", 1)[1]).num_vertices == 64


def test_a_graph_to_bring_says_what_to_put_where(distgnn, tmp_path, monkeypatch):
    monkeypatch.setenv("DISTGNN_DATASETS", str(tmp_path))
    lines = distgnn("datasets", "reddit").out.splitlines()
    assert lines[1].split() == ["reddit", "-", "-", "-", "-", "-"]
    assert lines[2].startswith("reddit is not there; put reddit_graph.npz or reddit.zip, with ")
    assert f"into {tmp_path / 'reddit'}, or say by --root DIR or DISTGNN_DATASETS" in lines[2]
    (tmp_path / "reddit.zip").touch()
    found = distgnn("datasets", "reddit", "--json").json["reddit"]
    assert (found["path"], found["num_vertices"]) == (str(tmp_path / "reddit.zip"), None)
    assert distgnn("datasets", "reddit").out.splitlines()[2] == f"reddit is {found['path']}"


@pytest.mark.parametrize("name", ["ogbn-arxiv", "reddit"])
def test_a_partition_that_is_called_like_a_data_set_is_meant(distgnn, here, name):
    assert distgnn("partition", "cora", "--parts", "1", "--out", name).status == 0
    words = ("--run", "run", "--epochs", "1", "--hidden", "4")
    assert distgnn("train", name, *words).status == 0
    assert distgnn("inspect", name).status == 0


def test_an_unknown_or_empty_name_is_refused(distgnn):
    assert "no dataset, file or folder 'nosuch'" in distgnn("datasets", "nosuch").sentence
    assert "no dataset, file or folder ''" in distgnn("datasets", "").sentence


def test_a_twin_is_written_and_can_be_used(distgnn, tmp_path):
    folder = tmp_path / "papers"
    made = distgnn("datasets", "make", "papers", "--scale", "1/65536", "--out", folder, "--json")
    assert made.json == {
        "name": "papers",
        "out": str(folder),
        "num_vertices": 1695,
        "num_edges": 24659,
    }
    graph = load(folder)
    assert (graph.num_vertices, graph.num_edges) == (1695, 24659)
    assert str(folder) in distgnn("datasets", "make", "papers", "--out", folder).sentence


def test_people_see_what_was_written(distgnn, tmp_path):
    out = distgnn("datasets", "make", "papers", "--scale", "1e-5", "--out", tmp_path / "p").out
    assert out == f"wrote {tmp_path / 'p'}: papers, 1111 vertices, 16163 edges\n"


def test_mistakes_of_make_are_refused(distgnn, tmp_path):
    make = ("datasets", "make")
    assert "make needs TWIN; write distgnn datasets make" in distgnn(*make).sentence
    assert "make needs --out DIR" in distgnn(*make, "papers").sentence
    assert "a twin must be one of papers" in distgnn(*make, "p", "--out", tmp_path / "p").sentence
    for scale in ("x", "1/0", "0", "-1", "5", "1e999999999", "1/1e999999999", "1/2/2", "nan"):
        sentence = distgnn(*make, "papers", "--scale", scale).sentence
        assert f"fraction above 0 and at most 1, such as 1/64, got '{scale}'" in sentence
    assert "--seed belongs to distgnn datasets make" in distgnn("datasets", "--seed", "1").sentence
    assert "one name at a time is shown, got 'x' too" in distgnn("datasets", "cora", "x").sentence


def test_a_data_set_of_ogb_is_prepared_and_trained_on_by_name(distgnn, tmp_path, here):
    archive = mini.write_zip(tmp_path / "arxiv.zip", mini.arxiv(), "arxiv")
    root = ("--root", tmp_path / "root")
    made = distgnn("datasets", "prepare", "ogbn-arxiv", *root, "--archive", archive, "--json").json
    assert (made["name"], made["num_vertices"], made["num_edges"]) == ("ogbn-arxiv", 12, 20)
    again = distgnn("datasets", "prepare", "ogbn-arxiv", *root)
    assert (
        again.out == f"ogbn-arxiv is in {tmp_path / 'root' / 'ogbn-arxiv'}: 12 vertices, 20 edges\n"
    )
    words = ("--run", "run", "--epochs", "2", "--hidden", "4", "--json")
    trained = distgnn("train", "ogbn-arxiv", *root, *words)
    assert trained.status == 0, trained
    # A run remembers where its data set lies: a later command needs no --root.
    assert distgnn("evaluate", "run", "--json").status == 0


@pytest.mark.parametrize("wish", ["on", "off"])
def test_a_data_set_of_ogb_is_partitioned_by_name_and_by_folder(distgnn, tmp_path, here, wish):
    folder = mini.write_folder(tmp_path / "dataset" / "ogbn_products", mini.products())
    cuts = []
    words = ("--parts", "2", "--out-of-core", wish)
    for source, more in (("ogbn-products", ("--root", folder.parent)), (folder, ())):
        out = tmp_path / f"cut-{len(cuts)}"
        assert distgnn("partition", source, *more, *words, "--out", out).status == 0
        manifest = read_manifest(out)
        cuts.append((manifest.name, manifest.num_vertices, manifest.num_edges))
    assert cuts == [("ogbn-products", 12, 40)] * 2


def test_mistakes_of_prepare_are_refused(distgnn, tmp_path):
    prepare = ("datasets", "prepare")
    assert "prepare needs NAME; write distgnn datasets prepare" in distgnn(*prepare).sentence
    assert "no data set 'cora' to prepare" in distgnn(*prepare, "cora").sentence
    named = distgnn(*prepare, "mutag", "--root", tmp_path).sentence
    assert "'mutag' is read as it is published, without being prepared; put mutag_s" in named
    (tmp_path / "mutag").mkdir()
    (tmp_path / "mutag" / "mutag_stripped.nt").touch()
    named = distgnn(*prepare, "mutag", "--root", tmp_path).sentence
    assert f"without being prepared; it is {tmp_path}/mutag/mutag_stripped.nt" in named
    assert (
        "--root belongs to distgnn datasets prepare" in distgnn("datasets", "--root", "a").sentence
    )
    assert "--out belongs to distgnn datasets make" in distgnn(*prepare, "x", "--out", "a").sentence
    missing = distgnn("train", "ogbn-mag", "--root", tmp_path, "--run", tmp_path / "run").sentence
    assert f"ogbn-mag is not in '{tmp_path}'; run distgnn datasets prepare ogbn-mag" in missing
    assert "did you mean ogbn-arxiv?" in distgnn("train", "ogbn-arxv", "--run", "r").sentence


def test_types_of_ogb_reach_the_graph(tmp_path):
    folder = mini.write_folder(tmp_path / "ogbn_mag", mini.mag())
    graph = load(folder, inverse_relations=True)
    assert graph.num_relations == 8
    assert np.bincount(graph.edge_type).tolist() == [5, 6, 7, 8] * 2
