from __future__ import annotations

from distgnn.datasets import load, names


def test_json_describes_every_name(distgnn):
    found = distgnn("datasets", "--json").json
    assert list(found) == names()
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
    for scale in ("x", "1/0"):
        sentence = distgnn(*make, "papers", "--scale", scale).sentence
        assert f"scale must be a number or a fraction such as 1/64, got '{scale}'" in sentence
    assert "--seed belongs to distgnn datasets make" in distgnn("datasets", "--seed", "1").sentence
    assert "one name at a time is shown, got 'x' too" in distgnn("datasets", "cora", "x").sentence
