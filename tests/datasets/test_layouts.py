from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from distgnn import datasets
from distgnn.datasets import InputError
from distgnn.datasets.layouts import NAMED, locate, reader_of

PLACES = ["{root}", "{root}/{name}", "{root}/{name}/raw"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_name_is_found_below_the_root(tmp_path: Path, name: str, place: str) -> None:
    folder = Path(place.format(root=tmp_path, name=name))
    folder.mkdir(parents=True, exist_ok=True)
    for file in NAMED[name]:
        (folder / file).touch()
        expected = folder if file == "reddit_graph.npz" else folder / file
        assert locate(name, tmp_path) == str(expected)
        (folder / file).unlink()


def test_pygs_folders_are_found(tmp_path: Path) -> None:
    for name, folder in (
        ("pubmed", "PubMed"),
        ("reddit", "Reddit"),
        ("am", "AM"),
        ("amazon-computers", "Computers"),
        ("coauthor-cs", "CS"),
        ("roman-empire", "roman_empire"),
    ):
        (tmp_path / folder / "raw").mkdir(parents=True)
        (tmp_path / folder / "raw" / NAMED[name][0]).touch()
        assert locate(name, tmp_path).startswith(str(tmp_path / folder / "raw"))
    # Its own folder comes first.
    (tmp_path / "pubmed").mkdir()
    (tmp_path / "pubmed" / NAMED["pubmed"][0]).touch()
    assert locate("pubmed", tmp_path) == str(tmp_path / "pubmed" / NAMED["pubmed"][0])


def test_any_file_or_folder_of_a_name_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "mine.npz", edge_index=np.array([[0], [1]]))
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "edges.csv").write_text("0,1\n1,2\n")
    assert datasets.load("mine", root=tmp_path).num_vertices == 2
    monkeypatch.setenv("DISTGNN_DATASETS", str(tmp_path))
    assert datasets.load("table").num_vertices == 3
    assert locate("nothing") == "nothing"
    assert locate("./mine") == "./mine"


def test_a_path_wins_over_a_name_below_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "am").mkdir()
    monkeypatch.chdir(tmp_path)
    assert locate("am", tmp_path / "other") == "am"


def test_a_known_name_that_is_not_there_says_what_to_bring(tmp_path: Path) -> None:
    expected = rf"'reddit' is not in {tmp_path}; put reddit_graph.npz or reddit.zip.*--root DIR"
    with pytest.raises(InputError, match=expected):
        datasets.load("reddit", root=tmp_path)
    with pytest.raises(InputError, match=r"did you mean reddit\?"):
        datasets.load("redit", root=tmp_path)


def test_names_of_bundled_graphs_stay_theirs(tmp_path: Path) -> None:
    np.savez(tmp_path / "cora.npz", edge_index=np.array([[0], [1]]))
    assert datasets.load("cora", root=tmp_path).num_vertices == 2708
    assert not set(NAMED) & set(datasets.names())


def test_the_reader_is_told_by_what_is_inside(tmp_path: Path) -> None:
    files = {
        "a.npz": {"adj_data": np.ones(1)},
        "b.npz": {"node_features": np.ones(1), "edges": np.ones(1)},
        "c.npz": {"edge_index": np.ones((2, 1))},
    }
    for name, arrays in files.items():
        np.savez(tmp_path / name, **arrays)
    scipy.sparse.save_npz(tmp_path / "d.npz", scipy.sparse.eye(2, format="csr"))
    scipy.io.mmwrite(tmp_path / "e.mtx", scipy.sparse.eye(2))
    (tmp_path / "f.nt.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "ind.g.graph").touch()
    readers = {path.name: reader_of(path) for path in sorted(tmp_path.iterdir())}
    found = {name: reader and reader.__name__ for name, reader in readers.items()}
    assert found == {
        "a.npz": "read_gnn_benchmark",
        "b.npz": "read_heterophilous",
        "c.npz": None,
        "d.npz": "read_scipy_npz",
        "e.mtx": "read_matrix_market",
        "f.nt.gz": "read_rdf",
        "ind.g.graph": "read_planetoid",
    }
