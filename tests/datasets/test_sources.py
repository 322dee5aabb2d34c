from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from distgnn import datasets
from distgnn.datasets import InputError
from distgnn.datasets.npz import write_npz
from distgnn.datasets.sources import add_inverse_relations, add_reverse_edges


def test_cora_is_the_published_graph_with_its_public_split() -> None:
    graph = datasets.load("cora")
    assert (graph.name, graph.source) == ("cora", "cora")
    assert (graph.num_vertices, graph.num_edges, graph.num_features) == (2708, 10556, 1433)
    assert graph.num_classes == 7
    assert scipy.sparse.issparse(graph.features)
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    assert [int(mask.sum()) for mask in masks if mask is not None] == [140, 500, 1000]
    assert len(graph.checksum) == 64


def test_names_are_cora_and_the_synthetic_graphs() -> None:
    assert datasets.names() == [
        "cora",
        "synthetic:grid",
        "synthetic:path",
        "synthetic:planted",
        "synthetic:rmat",
        "synthetic:star",
    ]


@pytest.mark.parametrize("name", datasets.names())
def test_every_name_loads_and_is_described(name: str) -> None:
    graph = datasets.load(name)
    shown = datasets.describe(name)
    assert shown["num_vertices"] == graph.num_vertices
    assert shown["num_edges"] == graph.num_edges
    assert (shown["licence"] == "MIT") == (name == "cora")
    assert ("seed" in shown["options"]) == (name != "cora")


@pytest.mark.parametrize("as_type", [str, Path])
def test_every_kind_of_file_is_dispatched(tmp_path: Path, as_type: type) -> None:
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
    folder, table = datasets.load(as_type(tmp_path)), datasets.load(as_type(tmp_path / "edges.csv"))
    write_npz(table, tmp_path / "g.npz")
    archive = datasets.load(as_type(tmp_path / "g.npz"))
    for graph in (folder, table, archive):
        assert graph.src.tolist() == [0, 1]
        assert graph.dst.tolist() == [1, 2]


def test_vertex_table_is_passed_on(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("0,1\n")
    (tmp_path / "v.csv").write_text("id,label\n0,0\n1,1\n2,0\n")
    graph = datasets.load(tmp_path / "e.csv", vertices=tmp_path / "v.csv")
    assert graph.num_vertices == 3


def test_undirected_adds_the_reverses_that_are_missing(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("0,1,5\n1,0,6\n1,2,7\n2,2,8\n")
    graph = datasets.load(tmp_path / "e.csv", undirected=True)
    edges = list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    assert edges == [(0, 1), (1, 0), (1, 2), (2, 2), (2, 1)]
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [5, 6, 7, 8, 7]


def test_split_replaces_the_masks_by_a_random_split() -> None:
    first, again, other = (datasets.load("cora", split="0.6/0.2/0.2", seed=s) for s in (0, 0, 1))
    assert first.train_mask is not None
    assert again.train_mask is not None
    assert other.train_mask is not None
    assert int(first.train_mask.sum()) == round(0.6 * 2708)
    assert np.array_equal(first.train_mask, again.train_mask)
    assert not np.array_equal(first.train_mask, other.train_mask)


def test_bundled_name_wins_over_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cora").mkdir()
    (tmp_path / "cora" / "edges.csv").write_text("0,1\n")
    monkeypatch.chdir(tmp_path)
    assert datasets.load("cora").num_vertices == 2708
    assert datasets.load("./cora/").num_vertices == 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "coar",
            r"folder 'coar' \(did you mean cora\?\); choose one of cora, .*file that ends in .npz",
        ),
        ("synthetic:rmta", r"no synthetic graph 'rmta'.*did you mean rmat"),
        ("citations.mat", "no dataset, file or folder 'citations.mat'; choose one of"),
        ("none.npz", "none.npz: there is no such file"),
        ("none.csv", "there is no file none.csv"),
    ],
)
def test_unknown_source_is_an_input_error_that_lists_the_names(source: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        datasets.load(source)


def test_file_with_an_unknown_suffix_is_an_input_error(tmp_path: Path) -> None:
    for name, suffix in (("citations.mat", r"\.mat"), ("citations", "")):
        (tmp_path / name).write_text("0,1\n")
        message = f"citations.*' has the unknown suffix '{suffix}'; convert it, .* in .npz, .csv, "
        with pytest.raises(InputError, match=message):
            datasets.load(tmp_path / name)


@pytest.mark.parametrize("suffix", ["", ".csv", ".npz"])
def test_a_path_that_the_system_refuses_is_an_input_error(suffix: str) -> None:
    with pytest.raises(InputError, match=r"xx.*' cannot be read \(File name too long\); check"):
        datasets.load("x" * 5000 + suffix)


def test_unknown_name_cannot_be_described() -> None:
    with pytest.raises(InputError, match=r"no dataset, file or folder 'rmat' .*synthetic:rmat"):
        datasets.describe("rmat")


def test_partition_directory_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match=r"is a partition directory, .*pass it to distgnn train"):
        datasets.load(tmp_path)


def test_vertex_table_of_another_source_is_an_input_error() -> None:
    with pytest.raises(InputError, match="'cora' takes no vertex table, only edge lists do"):
        datasets.load("cora", vertices="v.csv")


def test_bad_split_is_reported_before_anything_is_read() -> None:
    with pytest.raises(InputError, match="a split is three fractions"):
        datasets.load("none.npz", split="half")


def test_import_is_light() -> None:
    code = (
        "import sys, distgnn.datasets\n"
        "heavy = {'torch', 'numba', 'pyarrow', 'pymetis'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def typed(**fields: Any) -> datasets.Graph:
    base: dict[str, Any] = {
        "name": "typed",
        "num_vertices": 3,
        "src": np.array([0, 1, 2]),
        "dst": np.array([1, 0, 2]),
        "edge_type": np.array([0, 1, 1]),
    }
    return datasets.Graph(**{**base, **fields})


def test_reverses_of_typed_edges_have_their_types() -> None:
    features = np.array([[1, 4], [2, 5], [3, 6]])
    graph = add_reverse_edges(typed(edge_weight=features[:, 0], edge_features=features))
    assert graph.edge_type is not None
    edges = zip(graph.src.tolist(), graph.dst.tolist(), graph.edge_type.tolist(), strict=True)
    assert list(edges) == [(0, 1, 0), (1, 0, 1), (2, 2, 1), (1, 0, 0), (0, 1, 1)]
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [1, 2, 3, 1, 2]
    assert graph.edge_features is not None
    assert graph.edge_features.tolist() == [[1, 4], [2, 5], [3, 6], [1, 4], [2, 5]]


def test_inverse_relations_reverse_every_edge_under_a_type_of_its_own() -> None:
    weight = np.array([1, 2, 3])
    graph = add_inverse_relations(
        typed(relation_names=("a", "b"), edge_weight=weight, edge_features=weight[:, None])
    )
    assert graph.edge_type is not None
    edges = zip(graph.src.tolist(), graph.dst.tolist(), graph.edge_type.tolist(), strict=True)
    assert list(edges) == [(0, 1, 0), (1, 0, 1), (2, 2, 1), (1, 0, 2), (0, 1, 3), (2, 2, 3)]
    assert graph.relation_names == ("a", "b", "inverse of a", "inverse of b")
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [1, 2, 3, 1, 2, 3]
    assert graph.edge_features is not None
    assert graph.edge_features.tolist() == [[1], [2], [3], [1], [2], [3]]


def test_inverse_relations_need_types() -> None:
    with pytest.raises(InputError, match=r"'cora' has no edge_type, .* use --undirected"):
        datasets.load("cora", inverse_relations=True)
