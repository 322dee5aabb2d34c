from __future__ import annotations

import gzip
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn import datasets
from distgnn.datasets import Graph, InputError
from distgnn.datasets.edge_list import is_header
from distgnn.datasets.ingest import ingest
from distgnn.datasets.npz import write_npz
from distgnn.datasets.numbering import Numbering
from distgnn.datasets.parquet_table import parquet_slices
from distgnn.datasets.text_table import read_text, text_slices


def same(one: Graph, other: Graph) -> None:
    """Compare; reverses that were added may come in another order."""
    assert one.num_vertices == other.num_vertices
    ordered = []
    for graph in (one, other):
        weight = np.zeros(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
        order = np.lexsort((weight, graph.dst, graph.src))
        ordered.append(np.stack([graph.src, graph.dst, weight])[:, order])
    assert np.array_equal(*ordered)
    for field in ("labels", "features", "vertex_id", "train_mask", "val_mask", "test_mask"):
        values = [getattr(graph, field) for graph in (one, other)]
        assert (values[0] is None) == (values[1] is None), field
        assert values[0] is None or np.array_equal(*values), field


def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


TEXTS = {
    "plain.csv": "0,1\n1,2\n2,0\n2,2\n",
    "header.tsv": "weight\ttarget\tsource\n0.5\t1\t0\n1e3\t2\t1\n-2\t0\t1\n",
    "blanks.txt": "# comment\n  7   9 \n\n 9  7\n12 7\n",
    "sparse.edges": "5,-3\n-3,900000000000000000\n77,5\n",
    "weights.csv.gz": "0,4,1\n4,0,2\n4,2,3\n",
}


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("name", TEXTS)
def test_an_edge_list_gives_the_graph_that_load_gives(
    tmp_path: Path, name: str, undirected: bool
) -> None:
    content = TEXTS[name].encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    lines: list[str] = []
    folder = ingest(tmp_path / name, work(tmp_path), undirected=undirected, progress=lines.append)
    same(datasets.load(tmp_path / name, undirected=undirected), datasets.load(folder))
    assert lines[-1].endswith(" edges read")
    assert not (folder / "raw").exists()


@pytest.mark.parametrize("ids", [[3, 1, 2, 0, 9], [30, -10, 2**40, 0, 9]])
def test_a_folder_with_a_vertex_table_gives_the_graph_that_load_gives(
    tmp_path: Path, ids: list[int]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    rows = [f"{v},{k % 2},{k / 4},{('train', 'val', 'test')[k % 3]}" for k, v in enumerate(ids)]
    (source / "vertices.csv").write_text("\n".join(["id,label,x,split", *rows]))
    (source / "edges.csv").write_text(f"{ids[0]},{ids[1]}\n{ids[2]},{ids[0]}\n{ids[4]},{ids[4]}\n")
    folder = ingest(source, work(tmp_path))
    same(datasets.load(source), datasets.load(folder))


@pytest.mark.parametrize("undirected", [False, True])
def test_parquet_gives_the_graph_that_load_gives(tmp_path: Path, undirected: bool) -> None:
    arrow = importlib.import_module("pyarrow")
    columns = {"src": [4, 4, 8], "dst": [8, 6, 4], "weight": [1.0, 2.0, 3.0]}
    path = tmp_path / "edges.parquet"
    importlib.import_module("pyarrow.parquet").write_table(arrow.table(columns), path)
    folder = ingest(path, work(tmp_path), undirected=undirected)
    same(datasets.load(path, undirected=undirected), datasets.load(folder))
    slices = list(parquet_slices(path, num_rows=2))
    assert [table.num_rows for table in slices] == [2, 1]
    assert slices[1].place(0) == f"row 2 of {path}"


@pytest.mark.parametrize("undirected", [False, True])
def test_any_other_source_becomes_an_array_folder(tmp_path: Path, undirected: bool) -> None:
    graph = datasets.load("synthetic:planted,num_vertices=60")
    write_npz(graph, tmp_path / "g.npz")
    folder = ingest(tmp_path / "g.npz", work(tmp_path), undirected=undirected)
    same(graph, datasets.load(folder))


@pytest.mark.parametrize("name", ["edge_index", "src"])
@pytest.mark.parametrize("has_weights", [False, True])
def test_an_array_folder_is_taken_as_it_is_unless_edges_are_added(
    tmp_path: Path, name: str, has_weights: bool
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    generator = np.random.default_rng(0)
    ends = generator.integers(0, 30, (2, 200))
    if name == "src":
        np.save(source / "src.npy", ends[0])
        np.save(source / "dst.npy", ends[1])
    else:
        np.save(source / "edge_index.npy", ends)
    np.save(source / "features.npy", generator.random((40, 3), np.float32))
    if has_weights:
        np.save(source / "edge_weight.npy", ends[0] + 40 * ends[1])
    folder = work(tmp_path)
    assert ingest(source, folder) == source
    assert list(folder.iterdir()) == []
    assert ingest(source, folder, undirected=True) == folder
    same(datasets.load(source, undirected=True), datasets.load(folder))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"e.csv": "a,b\nb,c\n"}, r"e.csv has ids that are not integers, which are numbered"),
        ({"e.csv": "src,dst\n"}, "e.csv has no edges; give at least one edge, or a vertex table"),
        ({"e.csv": "0,1,1\n1,2,1e39\n"}, r"e.csv: edge 1 has the weight 1e\+39, but every weight"),
        ({"e.csv": "0,1,1\n1,2,x\n"}, "line 2 of .*e.csv has 'x' in the numeric column 3"),
        (
            {"e.csv": "0,1\n1,2\n", "v.csv": "id\n0\n1\n"},
            r"edge 1 of .*e.csv is at vertex 2, which .*v.csv does not list; add the vertex",
        ),
        ({"e.csv": "0,1\n", "v.csv": "id\na\n1\n"}, "v.csv has ids that are not integers"),
    ],
)
def test_what_cannot_be_read_slice_by_slice_is_an_input_error(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    vertices = tmp_path / "v.csv" if "v.csv" in files else None
    with pytest.raises(InputError, match=message):
        ingest(tmp_path / "e.csv", work(tmp_path), vertices=vertices)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(6), r"must hold 3 numbers, one for each edge, got float64 of shape \(6,\)"),
        (np.ones(2), r"must hold 3 numbers, one for each edge, got float64 of shape \(2,\)"),
        (np.ones((3, 1)), r"got float64 of shape \(3, 1\); correct it or leave it out"),
        (np.ones((0, 5)), r"got float64 of shape \(0, 5\); correct it or leave it out"),
        (np.array(["1", "2", "3"]), r"got <U1 of shape \(3,\); correct it or leave it out"),
        (np.array([1, 2, np.nan]), r"source/edge_weight.npy: edge 2 has the weight nan, but every"),
        (np.array([1, 1e39, 3]), r"source/edge_weight.npy: edge 1 has the weight 1e\+39, but"),
    ],
)
def test_weights_that_do_not_fit_the_edges_get_no_reverses(
    tmp_path: Path, weight: Any, message: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    np.save(source / "edge_index.npy", np.array([[0, 1, 2], [1, 2, 0]]))
    np.save(source / "edge_weight.npy", weight)
    with pytest.raises(InputError, match=message):
        ingest(source, work(tmp_path), undirected=True)


def test_features_of_edges_get_no_reverses_on_disk(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    np.save(source / "edge_index.npy", np.array([[0, 1], [1, 2]]))
    np.save(source / "edge_features.npy", np.ones((2, 3)))
    folder = work(tmp_path)
    assert ingest(source, folder) == source
    message = "source has edge_features.npy, which reverse edges get in memory only; use --out"
    with pytest.raises(InputError, match=message):
        ingest(source, folder, undirected=True)


def test_columns_that_are_not_read_slice_by_slice_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "e.csv").write_text("src,dst,time,rain\n0,1,8,1\n1,2,9,0\n")
    folder = ingest(tmp_path / "e.csv", work(tmp_path))
    assert "e.csv: columns that are not used: time, rain (features of edges are" in caplog.text
    assert not (folder / "edge_features.npy").exists()


def test_a_vertex_table_beside_arrays_is_an_input_error(tmp_path: Path) -> None:
    np.save(tmp_path / "edge_index.npy", np.zeros((2, 1), np.int32))
    with pytest.raises(InputError, match="takes no vertex table, only edge lists do; leave out v"):
        ingest(tmp_path, work(tmp_path), vertices="v.csv")


@settings(max_examples=60)
@given(
    rows=st.lists(st.sampled_from(["1,2", "", "# 5", " 10 , 20", '"3",4', "\ufeff"]), max_size=12),
    slice_bytes=st.integers(1, 30),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_slices_of_a_text_are_the_text(
    tmp_path_factory: pytest.TempPathFactory, rows: list[str], slice_bytes: int, end: str
) -> None:
    path = tmp_path_factory.mktemp("text") / "e.csv"
    path.write_bytes(end.join(["src,dst", *(row for row in rows if row != "\ufeff")]).encode())
    whole = read_text(path, is_header)
    slices = list(text_slices(path, is_header, slice_bytes=slice_bytes))
    for column in range(2):
        expected: Any = whole.integers(column)
        found = [table.integers(column) for table in slices]
        assert np.concatenate([ids for ids in found if ids is not None]).tolist() == (
            expected.tolist()
        )
    assert {table.names for table in slices} == {("src", "dst")}
    assert np.concatenate([table.line for table in slices]).tolist() == whole.line.tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# nothing\n\n", "e.csv has no rows; give at least one line that is not a comment"),
        ("0,1\n1,2\n2,3,4\n", "line 3 of .*e.csv has 3 columns, but the lines before have 2"),
        ('0,1\n1,2\n"2,3\n', "line 3 of .*e.csv has an odd number of double quotes"),
        ("0,1\n1,2\n2\0,3\n", "e.csv is not a text file"),
    ],
)
def test_a_mistake_in_a_later_slice_is_named_by_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "e.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        list(text_slices(path, is_header, slice_bytes=4))


def test_a_damaged_archive_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "e.csv.gz"
    path.write_bytes(gzip.compress(b"0,1\n" * 100)[:-9])
    with pytest.raises(InputError, match=r"e\.csv\.gz cannot be read"):
        list(text_slices(path, is_header))


@pytest.mark.parametrize("ids", [[0, 1, 2], [2, 0, 1], [5, 1], [10**12, -4, 7], [3, 10**12], []])
def test_ids_get_the_numbers_of_their_positions(ids: list[int]) -> None:
    numbering = Numbering(np.array(ids, np.int64))
    wanted = np.array([*ids, 6, -1, 2**60], np.int64)
    assert numbering.numbers(wanted).tolist() == [*range(len(ids)), -1, -1, -1]
