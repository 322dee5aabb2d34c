"""Columns of tables: known names, names that a user gives, and headers that are refused."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn import datasets
from distgnn.datasets import Graph, InputError
from distgnn.datasets.columns import FLAGS, Columns
from distgnn.datasets.edge_list import read_edge_list
from distgnn.datasets.ingest import ingest

ENDINGS = ("csv", "tsv", "txt", "parquet")
EDGE_COLUMNS = {
    "source": [3, 0, 4, 1],
    "target": [0, 4, 3, 3],
    "weight": [0.5, 2.0, -1.0, 4.0],
    "edge_features": [7.0, 8.0, 9.0, 6.0],
    "other": [90, 91, 92, 93],
}
VERTEX_COLUMNS = {
    "id": [4, 3, 1, 0],
    "label": [1, 0, 1, 2],
    "features": [0.25, 0.5, 0.75, 1.0],
    "other": [50, 51, 52, 53],
}
# None of them is known; letters of known names are among them on purpose.
UNKNOWN = ("edge_no", "x", "y", "citing paper", "srcs", "dt", "wt", "Knoten", "label2")


def write(path: Path, columns: dict[str, list[Any]]) -> Path:
    """Write a table, of the format that the suffix promises."""
    if path.suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        importlib.import_module("pyarrow.parquet").write_table(arrow.table(columns), path)
        return path
    between = {".csv": ",", ".tsv": "\t", ".txt": ";"}[path.suffix]
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    path.write_text("".join(between.join(map(str, row)) + "\n" for row in rows))
    return path


def named(columns: dict[str, list[Any]], names: dict[str, str]) -> dict[str, list[Any]]:
    """Return the columns in the order of the names, under these names."""
    return {name: columns[role] for role, name in names.items()}


def given_names(*tables: dict[str, str]) -> Columns:
    values: dict[str, Any] = {k: v for table in tables for k, v in table.items() if k != "other"}
    for several in ("features", "edge_features"):
        if several in values:
            values[several] = (values[several],)
    return Columns(**values)


def naming(roles: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, str]]:
    """Draw a name for each role, and the order of the columns."""
    names = st.permutations(UNKNOWN).map(lambda drawn: drawn[: len(roles)])
    orders = st.permutations(list(roles))
    return st.builds(lambda order, drawn: dict(zip(order, drawn, strict=True)), orders, names)


def check(graph: Graph) -> None:
    """Compare with the columns above, whose vertices are in the order of the vertex table."""
    ids = np.asarray(VERTEX_COLUMNS["id"])
    assert ids[graph.src].tolist() == EDGE_COLUMNS["source"]
    assert ids[graph.dst].tolist() == EDGE_COLUMNS["target"]
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == EDGE_COLUMNS["weight"]
    assert graph.labels is not None
    assert graph.labels.tolist() == VERTEX_COLUMNS["label"]
    assert isinstance(graph.features, np.ndarray)
    assert graph.features.tolist() == [[value] for value in VERTEX_COLUMNS["features"]]


@settings(max_examples=60)
@given(naming(EDGE_COLUMNS), naming(VERTEX_COLUMNS), st.sampled_from(ENDINGS))
def test_columns_of_any_names_in_any_order_become_what_the_user_says(
    tmp_path_factory: pytest.TempPathFactory,
    edge_names: dict[str, str],
    vertex_names: dict[str, str],
    ending: str,
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    edges = write(folder / f"edges.{ending}", named(EDGE_COLUMNS, edge_names))
    vertices = write(folder / f"vertices.{ending}", named(VERTEX_COLUMNS, vertex_names))
    columns = given_names(edge_names, vertex_names)
    lines: list[str] = []
    graph = datasets.load(edges, vertices=vertices, columns=columns, progress=lines.append)
    check(graph)
    assert graph.edge_features is not None
    assert graph.edge_features.tolist() == [[v] for v in EDGE_COLUMNS["edge_features"]]
    assert graph.unused == (edge_names["other"], vertex_names["other"])
    told = {
        "source": edge_names["source"],
        "target": edge_names["target"],
        "weight": edge_names["weight"],
        "features": edge_names["edge_features"],
    }
    assert lines[0] == f"{edges}: " + "; ".join(f"{k} = {v!r}" for k, v in told.items())
    told = {key: vertex_names[key] for key in ("id", "label", "features")}
    assert lines[1] == f"{vertices}: " + "; ".join(f"{k} = {v!r}" for k, v in told.items())


@settings(max_examples=30)
@given(naming(EDGE_COLUMNS), naming(VERTEX_COLUMNS), st.sampled_from(ENDINGS))
def test_slices_on_disk_give_the_graph_that_load_gives(
    tmp_path_factory: pytest.TempPathFactory,
    edge_names: dict[str, str],
    vertex_names: dict[str, str],
    ending: str,
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    edges = write(folder / f"edges.{ending}", named(EDGE_COLUMNS, edge_names))
    vertices = write(folder / f"vertices.{ending}", named(VERTEX_COLUMNS, vertex_names))
    (folder / "arrays").mkdir()
    columns = given_names(edge_names, vertex_names)
    lines: list[str] = []
    out = ingest(
        edges, folder / "arrays", vertices=vertices, columns=columns, progress=lines.append
    )
    check(datasets.load(out))
    assert any(f"source = {edge_names['source']!r}" in line for line in lines)


@settings(max_examples=60)
@given(naming(EDGE_COLUMNS), st.integers(2, 5), st.sampled_from(ENDINGS), st.booleans())
def test_a_header_that_is_not_known_is_refused_with_its_columns_and_the_flags(
    tmp_path_factory: pytest.TempPathFactory,
    names: dict[str, str],
    num_columns: int,
    ending: str,
    is_on_disk: bool,
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    # Ends first, as a table that is read by position has them.
    kept = {role: names[role] for role in list(EDGE_COLUMNS)[:num_columns]}
    path = write(folder / f"e.{ending}", named(EDGE_COLUMNS, kept))
    with pytest.raises(InputError) as refused:
        _ = ingest(path, folder) if is_on_disk else read_edge_list(path)
    sentence = str(refused.value)
    assert sentence.startswith(f"{path} has a header without known names for both ends of an edge")
    assert f"its columns are {', '.join(repr(name) for name in kept.values())}: " in sentence
    assert "--source-column and --target-column, and by --weight-column" in sentence


@pytest.mark.parametrize(
    "ends", [("src", "dst"), ("Source", "Target"), ("From_Node_ID", "toNodeId")]
)
@settings(max_examples=15)
@given(st.permutations(list(EDGE_COLUMNS)))
def test_known_names_are_found_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, ends: tuple[str, str], order: list[str]
) -> None:
    known = {"source": ends[0], "target": ends[1], "weight": "Weight", "edge_features": "time"}
    names = {role: known.get(role, role) for role in order}
    path = write(tmp_path_factory.mktemp("tables") / "e.csv", named(EDGE_COLUMNS, names))
    graph = read_edge_list(path)
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == EDGE_COLUMNS["weight"]
    ids = np.unique(EDGE_COLUMNS["source"] + EDGE_COLUMNS["target"])
    assert ids[graph.src].tolist() == EDGE_COLUMNS["source"]
    assert ids[graph.dst].tolist() == EDGE_COLUMNS["target"]


def test_a_file_without_a_header_is_told_by_position(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("0,1,0.5\n1,0,2\n")
    lines: list[str] = []
    assert read_edge_list(tmp_path / "e.csv", progress=lines.append).num_edges == 2
    told = "no header; by position, source = column 1; target = column 2; weight = column 3"
    assert lines == [f"{tmp_path}/e.csv: {told}"]


def test_many_features_are_told_by_their_ends(tmp_path: Path) -> None:
    features = {f"f{number}": [number, 1] for number in range(30)}
    write(tmp_path / "v.csv", {"id": [0, 1], **features})
    write(tmp_path / "e.csv", {"src": [0], "dst": [1]})
    lines: list[str] = []
    read_edge_list(tmp_path / "e.csv", vertices=tmp_path / "v.csv", progress=lines.append)
    assert lines[1] == f"{tmp_path}/v.csv: id = 'id'; features = 'f0' .. 'f29' (30 columns)"


@pytest.mark.parametrize("field", [field for field in FLAGS if field != "impute"])
def test_a_name_that_no_column_has_is_refused_with_the_columns(tmp_path: Path, field: str) -> None:
    write(tmp_path / "e.csv", {"src": [0, 1], "dst": [1, 0], "w": [1, 2]})
    write(tmp_path / "v.csv", {"id": [0, 1], "label": [1, 0], "f": [1, 2]})
    name: Any = ("f", "nosuch") if field in ("features", "one_hot") else "nosuch"
    name = ("w", "nosuch") if field == "edge_features" else name
    of_edges = field in ("source", "target", "weight", "edge_type", "edge_features")
    names = "'src', 'dst', 'w'" if of_edges else "'id', 'label', 'f'"
    message = (
        f"{tmp_path}/{'e' if of_edges else 'v'}.csv has no column 'nosuch', which {FLAGS[field]} "
        f"names; its columns are {names}"
    )
    with pytest.raises(InputError) as refused:
        read_edge_list(
            tmp_path / "e.csv", vertices=tmp_path / "v.csv", columns=Columns(**{field: name})
        )
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (Columns(source="dst"), "column 'dst' of .* is named as source and as target, but has one"),
        (Columns(weight="src"), "column 'src' of .* is named as source and as weight"),
        (Columns(edge_features=("t", "t")), "column 't' of .* is named as a feature and as a feat"),
        (Columns(edge_features=("dst",)), "column 'dst' of .* is named as target and as a feature"),
        (
            Columns(edge_features=("note",)),
            "column 'note' of .*, which --edge-feature-columns names",
        ),
        (
            Columns(weight="note"),
            "column 'note' of .*, the edge weight, does not hold numbers; cor",
        ),
        (Columns(edge_type="dst"), "column 'dst' of .* is named as target and as type"),
        (Columns(label="id"), "column 'id' of .* is named as id and as label"),
        (
            Columns(features=("name",)),
            "column 'name' of .*, which --feature-columns names, does not",
        ),
    ],
)
def test_columns_that_cannot_be_used_are_refused(
    tmp_path: Path, columns: Columns, message: str
) -> None:
    write(tmp_path / "e.csv", {"src": [0], "dst": [1], "t": [5], "note": ["a"]})
    write(tmp_path / "v.csv", {"id": [0, 1], "name": ["a", "b"]})
    with pytest.raises(InputError, match=message):
        read_edge_list(tmp_path / "e.csv", vertices=tmp_path / "v.csv", columns=columns)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["likes", "cites", "likes"], ("cites", "likes")),
        ([10, 9, 10], ("9", "10")),
        (["10.0", "9.0", "10.0"], ("9", "10")),
        (["02", "01", "02"], ("01", "02")),
    ],
)
def test_a_column_of_types_makes_relations_in_sorted_order(
    tmp_path: Path, values: list[Any], names: tuple[str, ...]
) -> None:
    edges = {"src": [0, 1, 2], "kind": values, "dst": [1, 2, 0], "w": [1, 2, 3], "x": [4, 5, 6]}
    path = write(tmp_path / "e.csv", edges)
    lines: list[str] = []
    graph = datasets.load(path, columns=Columns(edge_type="KIND"), progress=lines.append)
    assert graph.edge_type is not None
    assert graph.edge_type.tolist() == [1, 0, 1]
    assert graph.relation_names == names
    assert graph.edge_features is not None
    assert graph.edge_features.tolist() == [[4], [5], [6]]
    assert "; type = 'kind'; features = 'x'" in lines[0]


def test_a_word_for_nothing_among_types_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "e.csv"
    path.write_text("src,dst,kind\n0,1,a\n1,0,NULL\n2,0,NULL\n")
    graph = datasets.load(path, columns=Columns(edge_type="kind"))
    assert graph.relation_names == ("NULL", "a")
    assert "e.csv: 2 edges have the type 'NULL'; give each edge a type" in caplog.text


def test_an_edge_table_without_rows_has_neither_types_nor_weights(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_text("src,dst,kind,weight\n")
    write(tmp_path / "v.csv", {"id": ["a", "b"], "label": ["x", "y"]})
    graph = read_edge_list(path, vertices=tmp_path / "v.csv", columns=Columns(edge_type="kind"))
    assert graph.num_vertices == 2
    assert graph.num_edges == 0
    assert graph.edge_type is None


def test_an_edge_without_a_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_text("src,dst,kind\n0,1,a\n1,0,\n")
    (tmp_path / "arrays").mkdir()
    columns = Columns(edge_type="kind")
    message = r"line 3 of .*e.csv has no type in column 'kind'; every"
    with pytest.raises(InputError, match=message):
        datasets.load(path, columns=columns)
    with pytest.raises(InputError, match=message):
        ingest(path, tmp_path / "arrays", columns=columns)


def test_columns_of_a_source_that_is_no_table_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "e.csv", {"src": [0], "dst": [1]})
    (tmp_path / "arrays").mkdir()
    ingest(tmp_path / "e.csv", tmp_path / "arrays")
    for source in ("cora", str(tmp_path / "arrays")):
        with pytest.raises(
            InputError, match=r"--label-column is about columns of a table, but '.*' is"
        ):
            datasets.load(source, columns=Columns(label="y"))
    for read in (read_edge_list, datasets.load):
        with pytest.raises(
            InputError, match=r"--id-column names a column of a vertex table, but .*e"
        ):
            read(tmp_path / "e.csv", columns=Columns(id="y"))


def test_another_label_leaves_the_known_ones_out_of_the_features(tmp_path: Path) -> None:
    write(tmp_path / "e.csv", {"src": [0], "dst": [1]})
    write(tmp_path / "v.csv", {"id": [0, 1], "label": [1, 0], "label_a": [0, 1], "y": [0, 1]})
    graph = read_edge_list(
        tmp_path / "e.csv", vertices=tmp_path / "v.csv", columns=Columns(label="y")
    )
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1]
    assert graph.features is None
    assert graph.unused == ("label", "label_a")


def test_texts_above_a_weight_are_a_header(tmp_path: Path) -> None:
    write(tmp_path / "e.csv", {"person": ["ann", "bob"], "friend": ["bob", "ann"], "n": [1, 2]})
    with pytest.raises(InputError, match=r"its columns are 'person', 'friend', 'n': say which"):
        read_edge_list(tmp_path / "e.csv")


@given(st.dictionaries(st.sampled_from(sorted({*FLAGS} - {"impute"})), st.text(min_size=1)))
def test_columns_are_read_back_from_json(values: dict[str, str]) -> None:
    several = ("features", "edge_features", "one_hot")
    columns = Columns(**{k: (v,) if k in several else v for k, v in values.items()})  # type: ignore[arg-type]
    assert Columns.from_json(columns.to_json()) == columns
    for bad in ({"nosuch": "a"}, {"source": 1}, {"features": "a"}):
        with pytest.raises(ValueError, match="columns have"):
            Columns.from_json(bad)
