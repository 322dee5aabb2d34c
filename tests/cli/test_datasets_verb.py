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
