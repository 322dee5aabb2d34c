from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from distgnn.datasets import Graph, InputError
from distgnn.datasets.edge_list import read_edge_list, read_folder


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def original_edges(graph: Graph) -> list[tuple[object, object]]:
    ids = np.arange(graph.num_vertices) if graph.vertex_id is None else graph.vertex_id
    return list(zip(ids[graph.src].tolist(), ids[graph.dst].tolist(), strict=True))


@pytest.mark.parametrize(
    "text",
    [
        "5,9\n9,7\n",
        "src,dst\n5,9\n9,7\n",
        "Source,Target\n5,9\n9,7\n",
        "FromNodeId,ToNodeId\n5,9\n9,7\n",
        "dst,src\n9,5\n7,9\n",
    ],
)
def test_integer_ids_are_numbered_in_order(tmp_path: Path, text: str) -> None:
    graph = read_edge_list(write(tmp_path, "toy.csv", text))
    assert graph.name == "toy"
    assert graph.num_vertices == 3
    assert original_edges(graph) == [(5, 9), (9, 7)]
    assert graph.vertex_id is not None
    assert graph.vertex_id.tolist() == [5, 7, 9]
    assert len(graph.checksum) == 64


@pytest.mark.parametrize("least", [-5, 5])
def test_sparse_and_negative_ids_are_numbered_in_order(tmp_path: Path, least: int) -> None:
    text = f"{least},1000000000000000\n7,{least}\n"
    graph = read_edge_list(write(tmp_path, "toy.csv", text))
    assert original_edges(graph) == [(least, 10**15), (7, least)]
    assert graph.vertex_id is not None
    assert graph.vertex_id.tolist() == [least, 7, 10**15]


def test_ids_from_zero_without_gaps_need_no_vertex_id(tmp_path: Path) -> None:
    graph = read_edge_list(write(tmp_path, "toy.txt", "0 2\n1 0\n"))
    assert graph.vertex_id is None
    assert graph.src.tolist() == [0, 1]


@pytest.mark.parametrize("text", ["ann,bob\nbob,7\n", "source,target\nann,bob\nbob,7\n"])
def test_one_text_id_makes_all_ids_text(tmp_path: Path, text: str) -> None:
    graph = read_edge_list(write(tmp_path, "toy.csv", text))
    assert original_edges(graph) == [("ann", "bob"), ("bob", "7")]


def test_third_column_is_the_weight(tmp_path: Path) -> None:
    graph = read_edge_list(write(tmp_path, "toy.tsv", "0\t1\t0.5\n1\t0\t2\n"))
    assert graph.edge_weight is not None
    assert graph.edge_weight.dtype == np.float32
    assert graph.edge_weight.tolist() == [0.5, 2.0]


def test_other_named_columns_are_features_of_edges_or_listed_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "time,src,dst,weight,note,rain\n8,0,1,3,a,0.5\n9,1,0,4,b,2\n"
    graph = read_edge_list(write(tmp_path, "toy.csv", text))
    assert graph.unused == ("note",)
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [3, 4]
    assert graph.edge_features is not None
    assert graph.edge_features.tolist() == [[8, 0.5], [9, 2]]
    assert "columns that are not used: note" in caplog.text


def test_ids_of_edges_are_no_features(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "Source,Target,Type,Id,Label,Weight\n5,9,Directed,0,,1\n9,7,Directed,1,,2.5\n"
    graph = read_edge_list(write(tmp_path, "gephi.csv", text))
    assert graph.edge_features is None
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [1, 2.5]
    assert "columns that are not used: Id, Type, Label" in caplog.text


def test_vertex_table_gives_order_isolated_vertices_and_fields(tmp_path: Path) -> None:
    edges = write(tmp_path, "e.csv", "src,dst\nc,a\na,d\n")
    table = write(tmp_path, "v.csv", "id,label,x\nd,0,1\nb,1,2\nc,0,3\na,1,4\n")
    graph = read_edge_list(edges, vertices=table)
    assert graph.num_vertices == 4
    assert original_edges(graph) == [("c", "a"), ("a", "d")]
    assert graph.src.tolist() == [2, 3]
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1, 0, 1]
    assert isinstance(graph.features, np.ndarray)
    assert graph.features.tolist() == [[1], [2], [3], [4]]
    assert graph.checksum != read_edge_list(edges).checksum


def test_integer_ids_match_a_table_with_one_text_id(tmp_path: Path) -> None:
    edges = write(tmp_path, "e.csv", "1,2\n")
    table = write(tmp_path, "v.csv", "id\n2\nx\n1\n")
    assert original_edges(read_edge_list(edges, vertices=table)) == [("1", "2")]


def test_header_alone_with_a_vertex_table_has_isolated_vertices(tmp_path: Path) -> None:
    edges = write(tmp_path, "e.csv", "src,dst\n")
    table = write(tmp_path, "v.csv", "id\n3\n4\n")
    graph = read_edge_list(edges, vertices=table)
    assert (graph.num_vertices, graph.num_edges) == (2, 0)


def test_folder_is_one_dataset(tmp_path: Path) -> None:
    write(tmp_path, "edges.tsv", "src\tdst\n1\t2\n")
    write(tmp_path, "vertices.csv", "id,x\n2,0.5\n1,1.5\n")
    graph = read_folder(tmp_path)
    assert graph.name == tmp_path.name
    assert graph.num_features == 1
    assert graph.vertex_id is not None
    assert graph.vertex_id.tolist() == [2, 1]


def test_folder_without_vertex_table_has_edges_alone(tmp_path: Path) -> None:
    write(tmp_path, "edges.csv", "0,1\n")
    assert read_folder(tmp_path).features is None


def test_vertex_table_of_the_caller_wins_over_that_of_the_folder(tmp_path: Path) -> None:
    write(tmp_path, "edges.csv", "0,1\n")
    write(tmp_path, "vertices.csv", "id\n0\n1\n")
    other = write(tmp_path, "other.csv", "id\n0\n1\n2\n")
    assert read_folder(tmp_path, vertices=other).num_vertices == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("e.csv", "1\n2\n", "has 1 columns, but an edge list has src, dst and possibly weight"),
        ("e.csv", "1,2,3,4\n", "has 4 columns, but an edge list has src, dst"),
        ("e.csv", "1,2,heavy\n", "the third column of .*, the edge weight, does not hold numbers"),
        ("e.csv", "1,2\n,3\n", "line 2 of .* has no id in column 1; every row needs one"),
        ("e.csv", "src,dst\n1,\n", "line 2 of .* has no id in column 'dst'; every row needs one"),
        ("e.csv", "src,dst\n", "has no edges; give at least one edge, or a vertex table"),
        ("e.xlsx", "1,2\n", r"is not a table; its name must end in .csv, .tsv"),
    ],
)
def test_bad_edge_list_is_an_input_error(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    path = write(tmp_path, name, text)
    with pytest.raises(InputError, match=message):
        read_edge_list(path)


def test_missing_edge_list_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file .*none.csv; check the path"):
        read_edge_list(tmp_path / "none.csv")


def test_edge_at_an_unlisted_vertex_is_an_input_error(tmp_path: Path) -> None:
    edges = write(tmp_path, "e.csv", "1,2\n2,8\n")
    table = write(tmp_path, "v.csv", "id\n1\n2\n")
    message = r"line 2 of .*e.csv has an edge at vertex '8', which .*v.csv does not list \(2 vert"
    with pytest.raises(InputError, match=message):
        read_edge_list(edges, vertices=table)


def test_a_graph_that_contradicts_itself_is_named_with_its_files(tmp_path: Path) -> None:
    for weight in ("nan", "1e39"):
        edges = write(tmp_path, "e.csv", f"1,2,{weight}\n")
        with pytest.raises(InputError, match=r"e.csv: edge_weight has 1 values that are NaN"):
            read_edge_list(edges)
    edges = write(tmp_path, "e.csv", "1,2\n")
    table = write(tmp_path, "v.csv", "id,label\n1,0\n2,-5\n")
    with pytest.raises(InputError, match=r"e.csv with .*v.csv: vertex 1 has label -5, but labels"):
        read_edge_list(edges, vertices=table)


def test_folder_without_edges_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no edge list; it must have edges.csv"):
        read_folder(tmp_path)


def test_folder_with_two_edge_lists_is_an_input_error(tmp_path: Path) -> None:
    write(tmp_path, "edges.csv", "0,1\n")
    write(tmp_path, "edges.tsv", "0\t1\n")
    with pytest.raises(InputError, match=r"has both edges.csv and edges.tsv; keep one of them"):
        read_folder(tmp_path)


def test_numbers_of_rows_are_no_features_of_edges(tmp_path: Path) -> None:
    path = write(tmp_path, "edges.csv", ",source,target,length\n0,a,b,2\n1,b,a,3\n")
    graph = read_edge_list(path)
    assert graph.edge_features is not None
    assert graph.edge_features.tolist() == [[2.0], [3.0]]
    assert graph.unused == ("",)


@pytest.mark.parametrize("text", ["src,dst\n1.0,2\n2.0,3\n", "1.0,2.0\n2.00,3\n"])
def test_whole_numbers_with_a_point_are_integer_ids(tmp_path: Path, text: str) -> None:
    graph = read_edge_list(write(tmp_path, "toy.csv", text))
    assert original_edges(graph) == [(1, 2), (2, 3)]


def test_ids_like_versions_match_those_of_the_vertex_table(tmp_path: Path) -> None:
    vertices = write(tmp_path, "v.csv", "id\n1.0\n1.1\n2.0\n")
    graph = read_edge_list(write(tmp_path, "e.csv", "src,dst\n1.0,2.0\n"), vertices=vertices)
    assert original_edges(graph) == [("1.0", "2.0")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1\n1,NA\n2,0\n", "line 2 of .* has the id 'NA' in column 2, which becomes a vertex: "),
        ("src,dst\n0,1\n1,2\nsrc,dst\n2,0\n", "line 4 of .* has the id 'src' in .*'src', so ids"),
        ("0,1\n1,01\n2,x\n", "line 3 of .* has the id 'x' in column 2, so ids are texts, but most"),
    ],
)
def test_an_id_that_makes_all_texts_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, message: str
) -> None:
    read_edge_list(write(tmp_path, "toy.csv", text))
    assert re.search(message, caplog.messages[0])


@pytest.mark.parametrize("text", ["01,02\n02,03\n", "ann,bob\nbob,7\n", "0,1\n1,2\n"])
def test_ids_of_one_kind_are_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    read_edge_list(write(tmp_path, "toy.csv", text))
    assert not caplog.messages
