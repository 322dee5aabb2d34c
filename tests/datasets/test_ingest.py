from __future__ import annotations

import csv
import gzip
import importlib
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distgnn import datasets
from distgnn.datasets import Graph, InputError, relations
from distgnn.datasets.columns import NO_COLUMNS, Columns
from distgnn.datasets.edge_list import is_header
from distgnn.datasets.ingest import ingest
from distgnn.datasets.npz import write_npz
from distgnn.datasets.numbering import Numbering
from distgnn.datasets.parquet_table import parquet_slices
from distgnn.datasets.text_table import read_text, text_slices

OF_VERTICES = ("labels", "features", "vertex_id", "train_mask", "val_mask", "test_mask")
OF_EDGES = ("edge_weight", "edge_features", "edge_type")


def same(one: Graph, other: Graph) -> None:
    """Compare; reverses that were added may come in another order."""
    assert one.num_vertices == other.num_vertices
    ordered = []
    for graph in (one, other):
        columns = [graph.src, graph.dst]
        columns += [values for values in (graph.edge_weight, graph.edge_type) if values is not None]
        rows = np.stack(columns, axis=1).astype(np.float64)
        if graph.edge_features is not None:
            rows = np.concatenate([rows, graph.edge_features], axis=1)
        ordered.append(rows[np.lexsort(rows.T[::-1])])
    assert np.array_equal(*ordered)
    assert one.relation_names == other.relation_names
    for field in OF_VERTICES + OF_EDGES:
        values = [getattr(graph, field) for graph in (one, other)]
        assert (values[0] is None) == (values[1] is None), field
        if field not in OF_EDGES:
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


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int16])
def test_reverses_in_an_array_folder_have_the_features_and_the_type_of_their_edge(
    tmp_path: Path, kind: type[np.generic]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    generator = np.random.default_rng(0)
    ends = generator.integers(0, 9, (2, 60))
    np.save(source / "edge_index.npy", ends)
    np.save(source / "edge_weight.npy", generator.integers(0, 9, 60))
    np.save(source / "edge_features.npy", generator.integers(0, 9, (60, 3)).astype(kind))
    np.save(source / "edge_type.npy", generator.integers(0, 4, 60))
    np.save(source / "relation_names.npy", np.array(["a", "b", "c", "d"]))
    folder = work(tmp_path)
    assert ingest(source, folder) == source
    ingest(source, folder, undirected=True)
    found, expected = datasets.load(folder), datasets.load(source, undirected=True)
    keys = [{*zip(g.src, g.dst, g.edge_type, strict=True)} for g in (found, expected)]  # type: ignore[arg-type]
    assert keys[0] == keys[1]
    assert found.num_edges == expected.num_edges > 60
    same(found, expected)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("edge_features", np.ones(6), r"must hold numbers of shape \(3, num_edge_features\), row"),
        ("edge_features", np.ones((2, 3)), r"got float64 of shape \(2, 3\), row by row; write one"),
        ("edge_features", np.ones((2, 3)).T, "shape .*, column by column; write one row for each"),
        ("edge_features", np.array([["a"]] * 3), r"got <U1 of shape \(3, 1\)"),
        ("edge_features", np.diag([1, np.nan, 2]), r"s.npy: edge 1 has nan in column 1, but every"),
        ("edge_features", np.diag([1, 2, 1e39]), r"edge 2 has 1e\+39 in column 2, but every feat"),
        (
            "edge_type",
            np.ones(2, int),
            r"must hold 3 integers, one for each edge, got int64 of sha",
        ),
        ("edge_type", np.ones(3), "got float64 of shape .*; number the types from 0, or leave it"),
        (
            "edge_type",
            np.array([0, -1, 2]),
            "edge_type.npy: edge 1 has type -1, but types are 0, 1",
        ),
        ("edge_type", np.array([0, 1, 65536]), "edge 2 has type 65536, .*, at most 65535; number"),
    ],
)
def test_values_that_do_not_fit_the_edges_get_no_reverses(
    tmp_path: Path, name: str, values: Any, message: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    np.save(source / "edge_index.npy", np.array([[0, 1, 2], [1, 2, 0]]))
    np.save(source / f"{name}.npy", values)
    with pytest.raises(InputError, match=message):
        ingest(source, work(tmp_path), undirected=True)


def test_a_vertex_table_beside_arrays_is_an_input_error(tmp_path: Path) -> None:
    np.save(tmp_path / "edge_index.npy", np.zeros((2, 1), np.int32))
    with pytest.raises(InputError, match="takes no vertex table, only edge lists do; leave out v"):
        ingest(tmp_path, work(tmp_path), vertices="v.csv")


# The graph or the refusal, the warnings and the lines of progress.
Outcome = tuple[Graph | str, list[str], list[str]]


class Listener(logging.Handler):
    """Collects what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def outcome(path: Path, columns: Columns, *, undirected: bool, num: int | None = None) -> Outcome:
    """Read a table; with a number of bytes or rows, in slices of them.

    Returns the graph or the refusal, the warnings, and the lines of progress.
    """
    listener = Listener()
    lines: list[str] = []
    options: dict[str, Any] = {"undirected": undirected, "columns": columns}
    found: Graph | str
    logger = logging.getLogger("distgnn")
    logger.addHandler(listener)
    try:
        with pytest.MonkeyPatch.context() as patch:
            if num is None:
                found = datasets.load(path, progress=lines.append, **options)
            else:
                folder = path.with_name("arrays")
                folder.mkdir()
                patch.setattr("distgnn.datasets.ingest.table_slices", slices_of(num))
                patch.setattr("distgnn.datasets.flat_array.os.fsync", lambda file: None)
                ingest(path, folder, progress=lines.append, **options)
                found = datasets.load(folder)
    except InputError as error:
        found = str(error)
    finally:
        logger.removeHandler(listener)
    told = [line for line in lines if not line.endswith(" edges read")]
    return found, listener.said, told


def slices_of(num: int) -> Any:
    def slices(path: Path, is_header: Any) -> Any:
        if path.suffix == ".parquet":
            return parquet_slices(path, num_rows=num)
        return text_slices(path, is_header, slice_bytes=num)

    return slices


def check(path: Path, columns: Columns, *, undirected: bool, num: int) -> None:
    """Compare what slices give to what the whole table gives."""
    whole, *said = outcome(path, columns, undirected=undirected)
    sliced, *said_of_slices = outcome(path, columns, undirected=undirected, num=num)
    if isinstance(whole, str) or isinstance(sliced, str):
        # Slices that follow are not counted.
        assert re.sub(r"at least \d+", "N", str(sliced)) == re.sub(
            r"(?<=features have )\d+", "N", str(whole)
        )
        return
    assert [sorted(lines) for lines in said_of_slices] == [sorted(lines) for lines in said]
    same(sliced, whole)
    if not undirected:
        for name in ("src", "dst", "edge_features", "edge_type"):
            assert np.array_equal(getattr(sliced, name), getattr(whole, name))


def write(path: Path, table: dict[str, list[Any]]) -> Path:
    if path.suffix == ".parquet":
        arrow = importlib.import_module("pyarrow")
        importlib.import_module("pyarrow.parquet").write_table(arrow.table(table), path)
        return path
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(table), *zip(*table.values(), strict=True)])
    return path


def ends(count: int) -> dict[str, list[Any]]:
    """Return edges of which some have a reverse, or go from a vertex to itself."""
    return {"src": [k % 3 for k in range(count)], "dst": [k % 4 for k in range(count)]}


# Texts of columns; one that has two faults may be refused for either.
FIELDS = [
    ["1", "2.5", "-3"],
    ["1", "2.5", "", "NA"],
    ["True", "False", ""],
    ["True", "false", "1", "NA"],
    ["", "NA", "7"],
    ["1", "3,5", "x", "", "1_0"],
    ["1", "inf", "1e39"],
    ["1", "nan"],
    ["2", "True", ""],
]
COLUMN = st.sampled_from(FIELDS).flatmap(
    lambda texts: st.lists(st.sampled_from(texts), min_size=1, max_size=9)
)


@settings(max_examples=100)
@given(
    values=COLUMN,
    num=st.integers(1, 40),
    impute=st.sampled_from([None, "zero", "mean"]),
    is_named=st.booleans(),
    undirected=st.booleans(),
)
@example(["True", "x"], 8, None, True, False)
@example(["True", "", "x"], 8, None, False, False)
@example(["", "True"], 8, None, False, False)
@example(["NA", "True"], 8, "zero", False, False)
@example(["", "1"], 8, None, False, False)
@example(["1", "x"], 8, None, False, False)
@example(["1", "True"], 8, None, False, False)
@example(["", ""], 8, "mean", True, False)
def test_a_column_of_slices_is_the_column_of_the_table(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[str],
    num: int,
    impute: str | None,
    is_named: bool,
    undirected: bool,
) -> None:
    path = tmp_path_factory.mktemp("table") / "e.csv"
    write(path, {**ends(len(values)), "t": values})
    columns = Columns(impute=impute, edge_features=("t",) if is_named else None)
    check(path, columns, undirected=undirected, num=num)


PARTS = {
    "weight": st.sampled_from([0.5, 2.0, -1.0]),
    "t": st.integers(-3, 3),
    "ok": st.booleans(),
    "x": st.sampled_from([1.5, 4.0]),
    "gaps": st.sampled_from([1.0, 3.0, None]),
    "note": st.sampled_from(["good", "bad"]),
    "id": st.integers(0, 9),
    "": st.integers(0, 9),
    "kind": st.sampled_from(["b", "a", "NA"]),
}


@settings(max_examples=50)
@given(
    table=st.sets(st.sampled_from(sorted(PARTS))).flatmap(
        lambda names: st.lists(
            st.fixed_dictionaries({name: PARTS[name] for name in names}), min_size=1, max_size=9
        )
    ),
    num=st.integers(1, 60),
    suffix=st.sampled_from([".csv", ".parquet"]),
    undirected=st.booleans(),
)
def test_slices_of_a_table_give_the_graph_of_the_table(
    tmp_path_factory: pytest.TempPathFactory,
    table: list[dict[str, Any]],
    num: int,
    suffix: str,
    undirected: bool,
) -> None:
    path = tmp_path_factory.mktemp("table") / f"e{suffix}"
    names = list(table[0])
    write(path, {**ends(len(table)), **{name: [row[name] for row in table] for name in names}})
    columns = Columns(impute="mean", edge_type="kind" if "kind" in names else None)
    check(path, columns, undirected=undirected, num=1 + num % 4 if suffix == ".parquet" else num)


TYPES = [
    ["10", "9", "-1"],
    ["1.0", "10.0", "2.00"],
    ["1", "2.0", "10"],
    ["10", "9", "likes", "007"],
    ["NA", "a", "null", "ä"],
    ["1", "12345678901234567890"],
    ["a", "b", ""],
]


@settings(max_examples=50)
@given(
    values=st.sampled_from(TYPES).flatmap(
        lambda texts: st.lists(st.sampled_from(texts), min_size=1, max_size=9)
    ),
    num=st.integers(1, 40),
    undirected=st.booleans(),
)
@example(["10", "9", "a", "10"], 8, True)
def test_types_of_slices_are_the_types_of_the_table(
    tmp_path_factory: pytest.TempPathFactory, values: list[str], num: int, undirected: bool
) -> None:
    path = tmp_path_factory.mktemp("table") / "e.csv"
    write(path, {**ends(len(values)), "kind": values})
    check(path, Columns(edge_type="KIND"), undirected=undirected, num=num)


@pytest.mark.parametrize(
    "kinds", [[3, 20, 3], [1.0, 2.0, 10.0], ["b", "a", None], [True, False] * 2]
)
def test_types_of_parquet_are_those_of_the_table(tmp_path: Path, kinds: list[Any]) -> None:
    path = write(tmp_path / "e.parquet", {**ends(len(kinds)), "kind": kinds})
    check(path, Columns(edge_type="kind"), undirected=True, num=1)


@pytest.mark.parametrize("num", [None, 30])
def test_more_types_than_relations_may_be_are_refused(
    tmp_path: Path, num: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relations, "MOST_TYPES", 8)
    path = write(tmp_path / "e.csv", {**ends(9), "time": list(range(9))})
    refused, *_ = outcome(path, Columns(edge_type="time"), undirected=False, num=num)
    assert refused == (
        f"column 'time' of {path}, which --edge-type-column names, has 9 values or more, but at "
        "most 8 types are allowed; name a column of relations"
    )


def test_the_median_of_a_column_of_edges_is_known_in_memory_only(tmp_path: Path) -> None:
    path = write(tmp_path / "e.csv", {**ends(4), "t": ["1", "NA", "3", "4"]})
    refused, *_ = outcome(path, Columns(impute="median"), undirected=False, num=8)
    assert refused == (
        f"line 3 of {path} has no value in the numeric column 't', and out of core --impute median "
        "does not fill features of edges; use --impute mean or zero, or --out-of-core off"
    )


@pytest.mark.parametrize("t", [["1", "2", "3", "4"], ["", "NA", "", ""], ["x", "1", "NA", "2"]])
def test_the_median_is_taken_where_nothing_is_missing(tmp_path: Path, t: list[str]) -> None:
    path = write(tmp_path / "e.csv", {**ends(4), "t": t})
    check(path, Columns(impute="median"), undirected=False, num=8)


def test_a_table_without_edges_has_the_columns_that_load_gives(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    write(source / "edges.csv", {"src": [], "dst": [], "weight": [], "kind": [], "t": []})
    write(source / "vertices.csv", {"id": [4, 5]})
    columns = Columns(edge_type="kind")
    whole, *_ = outcome(source, columns, undirected=True)
    sliced, *_ = outcome(source, columns, undirected=True, num=8)
    assert isinstance(whole, Graph)
    assert isinstance(sliced, Graph)
    same(sliced, whole)
    assert sliced.edge_type is None


def test_columns_of_vertices_that_are_not_used_are_logged(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    write(source / "edges.csv", {**ends(4), "id": [1, 2, 3, 4]})
    write(
        source / "vertices.csv", {"id": [0, 1, 2, 3], "name": ["a", "b", "c", "d"], "x": range(4)}
    )
    check(source, NO_COLUMNS, undirected=False, num=8)
    _, warnings, _ = outcome(source, NO_COLUMNS, undirected=False)
    assert [text.partition(": ")[2] for text in warnings] == [
        "columns that are not used: id",
        "columns that are not used: name",
    ]


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
