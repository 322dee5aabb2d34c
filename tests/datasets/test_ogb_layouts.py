from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import ogb_archives as mini
import pytest

from distgnn import datasets
from distgnn.datasets import InputError
from distgnn.datasets.ogb import CATALOGUE, prepare

if TYPE_CHECKING:
    from pathlib import Path


def load(
    tmp_path: Path, name: str, files: mini.Files | None = None, **options: Any
) -> datasets.Graph:
    """Load a data set by its name from OGB's own folder."""
    files = mini.BUILDERS[name]() if files is None else files
    mini.write_folder(tmp_path / CATALOGUE[name].folder, files)
    return datasets.load(name, root=tmp_path, **options)


def masks(graph: datasets.Graph) -> dict[str, list[int]]:
    """The vertices of each mask."""
    found = {"train": graph.train_mask, "valid": graph.val_mask, "test": graph.test_mask}
    return {
        key: np.flatnonzero(mask[0]).tolist() for key, mask in found.items() if mask is not None
    }


def sorted_splits(num_vertices: int, offset: int = 0) -> dict[str, list[int]]:
    return {key: sorted((ids + offset).tolist()) for key, ids in mini.splits(num_vertices).items()}


def test_arxiv_is_directed_as_published(tmp_path: Path) -> None:
    graph = load(tmp_path, "ogbn-arxiv")
    stored = mini.edges(20, 12, 12, 1)
    assert (graph.name, graph.num_vertices, graph.metric) == ("ogbn-arxiv", 12, "accuracy")
    np.testing.assert_array_equal(np.stack([graph.src, graph.dst], 1), stored)
    np.testing.assert_array_equal(graph.features, mini.features(12, 4, 2).astype(np.float32))
    np.testing.assert_array_equal(graph.labels, np.arange(12) % 3)
    assert masks(graph) == sorted_splits(12)
    assert graph.unused == ()


def test_arxiv_without_directions_has_all_reverses(tmp_path: Path) -> None:
    graph = load(tmp_path, "ogbn-arxiv", undirected=True)
    pairs = set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    assert pairs == {(b, a) for a, b in pairs}
    assert graph.num_edges > 20


def test_products_gets_each_stored_edge_in_both_directions(tmp_path: Path) -> None:
    graph = load(tmp_path, "ogbn-products")
    stored = mini.edges(20, 12, 12, 1)
    # As OGB's package orders them: each edge, then its reverse.
    np.testing.assert_array_equal(graph.src, stored.reshape(-1))
    np.testing.assert_array_equal(graph.dst, stored[:, ::-1].reshape(-1))
    assert (graph.num_features, graph.num_classes, graph.metric) == (5, 4, "accuracy")


def test_proteins_averages_the_features_of_edges_into_vertices(tmp_path: Path) -> None:
    graph = load(tmp_path, "ogbn-proteins")
    of_edges = mini.features(20, 8, 4).astype(np.float32)
    expected = np.zeros((12, 8))
    for vertex in range(12):
        rows = [of_edges[k // 2] for k in np.flatnonzero(graph.dst == vertex)]
        expected[vertex] = np.mean(rows, axis=0) if rows else 0
    np.testing.assert_allclose(np.asarray(graph.features), expected, rtol=1e-6, atol=1e-7)
    assert graph.labels is not None
    assert (graph.labels.shape, graph.labels.dtype, graph.metric) == (
        (12, 112),
        np.uint8,
        "roc-auc",
    )
    assert graph.num_edges == 40
    assert masks(graph) == sorted_splits(12)
    # Each edge has those of the stored one, in either direction.
    np.testing.assert_array_equal(graph.edge_features, np.repeat(of_edges, 2, axis=0))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ">f4"])
@pytest.mark.parametrize("is_fortran", [False, True])
def test_papers_is_read_from_binary_arrays(tmp_path: Path, dtype: Any, is_fortran: bool) -> None:
    files = mini.papers(dtype, is_fortran=is_fortran)
    graph = load(tmp_path, "ogbn-papers100M", files)
    np.testing.assert_array_equal(np.stack([graph.src, graph.dst], 1), mini.edges(20, 12, 12, 1))
    expected = mini.features(12, 4, 2).astype(dtype).astype(np.float32)
    np.testing.assert_array_equal(graph.features, expected)
    assert graph.labels is not None
    np.testing.assert_array_equal(graph.labels, [*np.arange(11) % 3, -1])
    assert masks(graph) == sorted_splits(12)


def test_mag_is_one_graph_with_types(tmp_path: Path) -> None:
    graph = load(tmp_path, "ogbn-mag")
    first = {"author": 0, "field_of_study": 4, "institution": 7, "paper": 9}
    assert graph.vertex_type is not None
    assert graph.edge_type is not None
    assert graph.vertex_type.tolist() == [0] * 4 + [1] * 3 + [2] * 2 + [3] * 6
    assert graph.relation_names == (
        "author affiliated_with institution",
        "author writes paper",
        "paper cites paper",
        "paper has_topic field_of_study",
    )
    for number, (source, _, destination, num_src, num_dst) in enumerate(mini.RELATIONS):
        stored = mini.edges(5 + number, num_src, num_dst, number)
        mine = graph.edge_type == number
        np.testing.assert_array_equal(graph.src[mine], stored[:, 0] + first[source])
        np.testing.assert_array_equal(graph.dst[mine], stored[:, 1] + first[destination])
    features = np.asarray(graph.features)
    np.testing.assert_array_equal(features[9:], mini.features(6, 4, 6).astype(np.float32))
    assert not features[:9].any()
    assert graph.labels is not None
    assert graph.labels.tolist() == [-1] * 9 + [0, 1, 0, 1, 0, 1]
    assert masks(graph) == sorted_splits(6, 9)
    assert graph.unused == ()


def test_the_width_of_features_is_that_of_a_type_with_vertices(tmp_path: Path) -> None:
    files = mini.mag()
    kinds = ["aaa", "author", "field_of_study", "institution", "paper"]
    files["raw/num-node-dict.csv.gz"] = mini.table([[0, 4, 3, 2, 6]], ",".join(kinds))
    files["raw/node-feat/aaa/node-feat.csv.gz"] = mini.text(b"")
    assert load(tmp_path / "some", "ogbn-mag", files).num_features == 4
    del files["raw/node-feat/paper/node-feat.csv.gz"]
    with pytest.raises(datasets.InputError, match="features of aaa only, of which there are no"):
        load(tmp_path / "none", "ogbn-mag", files)


@pytest.mark.parametrize("name", CATALOGUE)
def test_notes_for_those_who_compare_are_logged(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    load(tmp_path, name)
    said = caplog.text
    is_directed = name in ("ogbn-arxiv", "ogbn-papers100M", "ogbn-mag")
    assert ("directed as published" in said) == is_directed
    assert ("--inverse-relations does that" in said) == (name == "ogbn-mag")
    assert ("mean of those of its edges" in said) == (name == "ogbn-proteins")
    assert ("the features of all others are 0" in said) == (name == "ogbn-mag")


def test_a_graph_without_edges_is_read(tmp_path: Path) -> None:
    files = mini.arxiv()
    files["raw/edge.csv.gz"] = mini.text(b"")
    files["raw/num-edge-list.csv.gz"] = mini.column([0])
    assert load(tmp_path, "ogbn-arxiv", files).num_edges == 0


def test_unlabelled_vertices_and_labels_as_floats_are_read(tmp_path: Path) -> None:
    files = mini.arxiv()
    files["raw/node-label.csv.gz"] = mini.text(b"1.0\n" * 11 + b"nan\n")
    graph = load(tmp_path, "ogbn-arxiv", files)
    assert graph.labels is not None
    assert graph.labels.tolist() == [1] * 11 + [-1]


_AUTHOR = "raw/relations/author___writes___paper"
_DAMAGES: list[tuple[str, dict[str, bytes | None], str]] = [
    ("arxiv", {"raw/node-feat.csv.gz": None}, "neither node-feat.csv.gz nor edge-feat.csv.gz"),
    ("arxiv", {"raw/node-label.csv.gz": None}, "node-label.csv.gz: there is no such file"),
    ("arxiv", {"split/time/valid.csv.gz": None}, "valid.csv.gz: there is no such file"),
    ("arxiv", {"raw/num-node-list.csv.gz": mini.column([12, 3])}, "must hold one number of at"),
    ("arxiv", {"raw/num-node-list.csv.gz": mini.column([0])}, "the graph has no vertices"),
    ("arxiv", {"raw/num-edge-list.csv.gz": mini.column([21])}, "has 20 rows, but the graph needs"),
    ("arxiv", {"raw/num-edge-list.csv.gz": mini.column([3])}, "has 20 rows, but the graph needs 3"),
    ("arxiv", {"raw/edge.csv.gz": mini.table([[0, 12]] * 20)}, "has vertex 12 in row 0, but the"),
    ("arxiv", {"raw/edge.csv.gz": mini.table([[0, -1]] * 20)}, r"has vertex -1 in row 0, but .*12"),
    ("arxiv", {"raw/edge.csv.gz": mini.table([[0, 1, 2]] * 20)}, "has 3 columns at row 0, but 2"),
    ("arxiv", {"raw/edge.csv.gz": mini.text(b"0,x\n" * 20)}, "is not a table of numbers"),
    (
        "arxiv",
        {"raw/edge.csv.gz": mini.text(b"0,1.5\n" * 20)},
        r"is not a table of numbers \(some are not whole, counted from row 0\)",
    ),
    ("arxiv", {"raw/edge.csv.gz": mini.text(b"0,\xff\n" * 20)}, "not a table of numbers"),
    ("arxiv", {"raw/edge.csv.gz": mini.text(b"0,1\n0\n")}, "is not a table of numbers"),
    ("arxiv", {"raw/edge.csv.gz": mini.table([[0, 1]] * 20)[:-9]}, "edge.csv.gz cannot be read"),
    ("arxiv", {"raw/edge.csv.gz": b"0,1\n" * 20}, "edge.csv.gz cannot be read"),
    ("arxiv", {"raw/node-label.csv.gz": mini.column([1.5] * 12)}, "has the label 1.5 in row 0"),
    ("arxiv", {"raw/node-label.csv.gz": mini.column([-2] * 12)}, "has the label -2 in row 0"),
    ("arxiv", {"split/time/test.csv.gz": mini.column([3])}, "lists a vertex twice, as test.csv.gz"),
    ("arxiv", {"split/time/test.csv.gz": mini.column([11, 11])}, "lists a vertex twice, as test"),
    ("arxiv", {"split/time/test.csv.gz": mini.column([99])}, "has vertex 99 in row 0, but the"),
    ("proteins", {"raw/edge-feat.csv.gz": mini.column([])}, "has 0 rows, but the graph needs 20"),
    (
        "proteins",
        {"raw/node-label.csv.gz": mini.table([[0, 2]] * 12)},
        "has 2 in row 0, but the lab",
    ),
    ("mag", {"raw/num-node-dict.csv.gz": None}, "num-node-dict.csv.gz: there is no such file"),
    ("mag", {"raw/num-node-dict.csv.gz": mini.table([["x"]], "paper")}, "has 'x' where the number"),
    ("mag", {"raw/num-node-dict.csv.gz": mini.table([[1], [2]], "paper")}, "names and one row of"),
    ("mag", {"raw/triplet-type-list.csv.gz": mini.column(["a"])}, "has 1 columns, but 3 are"),
    (
        "mag",
        {"raw/triplet-type-list.csv.gz": mini.table([["a", "b", "c"]])},
        "a relation of 'a', but",
    ),
    ("mag", {f"{_AUTHOR}/num-edge-list.csv.gz": None}, "num-edge-list.csv.gz: there is no such"),
    ("mag", {f"{_AUTHOR}/edge.csv.gz": mini.table([[4, 0]] * 6)}, "has vertex 4 of type 'author'"),
    ("mag", {"raw/node-feat/paper/node-feat.csv.gz": None}, "node-feat has no features"),
    (
        "mag",
        {"raw/nodetype-has-label.csv.gz": mini.table([["False"]], "paper")},
        "must say True of",
    ),
    (
        "mag",
        {"raw/node-label/paper/node-label.csv.gz": None},
        "label.csv.gz: there is no such file",
    ),
]


@pytest.mark.parametrize(("short", "changed", "message"), _DAMAGES)
def test_damaged_tables_are_refused(
    tmp_path: Path, short: str, changed: dict[str, bytes | None], message: str
) -> None:
    name = f"ogbn-{short}"
    files = {**mini.BUILDERS[name](), **changed}
    sound = {path: data for path, data in files.items() if data is not None}
    with pytest.raises(datasets.InputError, match=message):
        load(tmp_path, name, sound)
    assert not (tmp_path / name).exists()


_ROWS = mini.features(12, 4, 2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"edge_index": np.zeros((2, 3))},
            r"edge_index must hold whole numbers of shape \(2, 20\)",
        ),
        ({"edge_index": np.full((2, 20), 12)}, "edge_index has vertex 12 in row 0, but the graph"),
        ({"node_feat": _ROWS[:5]}, r"node_feat must hold numbers of shape \(12, num_features\)"),
        ({"node_feat": np.asfortranarray(_ROWS)}, "got float64 .* column by column"),
        ({"num_nodes_list": np.array([5, 7])}, "num_nodes_list must hold one whole number"),
        ({"num_nodes_list": np.array([0])}, "num_nodes_list must be at least 1, got 0"),
        ({"num_edges_list": np.array([-1])}, "num_edges_list must be at least 0, got -1"),
        ({"node_feat": np.array([None] * 12)}, r"node_feat cannot be read \(it holds Python obj"),
    ],
)
def test_wrong_binary_arrays_are_refused(
    tmp_path: Path, data: dict[str, Any], message: str
) -> None:
    with pytest.raises(datasets.InputError, match=message):
        load(tmp_path, "ogbn-papers100M", mini.papers(data=data))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("raw/node-label.npz", None, "node-label.npz: there is no such file"),
        ("raw/node-label.npz", mini.arrays(other=np.zeros(12)), "no array node_label, only other"),
        ("raw/node-label.npz", mini.arrays(node_label=np.zeros(5)), "must hold 12 numbers, got"),
        ("raw/data.npz", b"no zip file", "cannot be read .*damaged, so prepare the data set again"),
    ],
)
def test_damaged_binary_files_are_refused(
    tmp_path: Path, key: str, value: bytes | None, message: str
) -> None:
    files = mini.papers()
    files.pop(key)
    if value is not None:
        files[key] = value
    with pytest.raises(datasets.InputError, match=message):
        load(tmp_path, "ogbn-papers100M", files)


def test_a_flipped_bit_in_a_binary_array_is_found(tmp_path: Path) -> None:
    files = mini.papers()
    with zipfile.ZipFile(io.BytesIO(files["raw/data.npz"])) as archive:
        member = archive.getinfo("node_feat.npy")
    damaged = bytearray(files["raw/data.npz"])
    damaged[member.header_offset + member.compress_size // 2] ^= 1
    files["raw/data.npz"] = bytes(damaged)
    with pytest.raises(datasets.InputError, match="node_feat cannot be read"):
        load(tmp_path, "ogbn-papers100M", files)


def test_links_of_ogb_are_refused_before_they_are_taken_for_something_else(tmp_path: Path) -> None:
    # raw/edge.csv.gz and split/time are what ogbn-arxiv has, too.
    folder = mini.write_folder(tmp_path / "ogbl_collab", mini.arxiv())
    pickled = folder / "split" / "time" / "train.pt"
    pickled.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    message = r"holds links of OGB, whose splits \((.*train.pt)\) are pickles, which distgnn never"
    for source in (folder, pickled, "ogbl-citation2"):
        with pytest.raises(InputError, match=message):
            datasets.load(source, root=tmp_path)
    with pytest.raises(InputError, match=message):
        prepare("ogbl-collab", root=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ogbl_collab"]
