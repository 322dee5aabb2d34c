"""Missing numbers and categories of tables, and whole numbers that are values."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from distgnn.datasets import Graph, InputError, load
from distgnn.datasets.columns import FLAGS, Columns
from distgnn.datasets.edge_list import read_edge_list
from distgnn.datasets.vertex_table import VertexTable, read_vertex_table

if TYPE_CHECKING:
    from pathlib import Path

GAPS = "id,x,y,z\n1,2,NA,0\n2,,5,1\n3,4,nan,2\n4,9,,3\n"


def read(folder: Path, text: str, **choices: Any) -> VertexTable:
    (folder / "v.csv").write_text(text)
    return read_vertex_table(folder / "v.csv", columns=Columns(**choices))


@pytest.mark.parametrize(
    ("choice", "x", "y"), [("mean", 5.0, 5.0), ("median", 4.0, 5.0), ("zero", 0.0, 0.0)]
)
def test_missing_numbers_become_what_is_asked_for(
    tmp_path: Path, choice: str, x: float, y: float
) -> None:
    features = read(tmp_path, GAPS, impute=choice).fields["features"]
    assert features.tolist() == [[2, y, 0], [x, 5, 1], [4, y, 2], [9, y, 3]]
    lines: list[str] = []
    read_vertex_table(tmp_path / "v.csv", columns=Columns(impute=choice), progress=lines.append)
    word = "zero" if choice == "zero" else f"the {choice} of the column"
    assert lines[1].endswith(f"v.csv: 4 missing values in 2 columns of features became {word}")


def test_nulls_of_parquet_become_the_mean(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"id": [1, 2, 3], "x": [1.0, None, 3.0], "n": [None, 8, None]})
    path = tmp_path / "v.parquet"
    importlib.import_module("pyarrow.parquet").write_table(table, path)
    found = read_vertex_table(path, columns=Columns(impute="mean"))
    assert found.fields["features"].tolist() == [[1, 8], [2, 8], [3, 8]]


def test_a_column_without_any_number_is_not_filled(tmp_path: Path) -> None:
    found = read(tmp_path, "id,x,y\n1,,5\n2,NA,6\n", impute="mean")
    assert found.unused == ("x",)
    assert found.fields["features"].tolist() == [[5], [6]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,x\n1,1\n2,\n", "has no value in .* 'x'; fill it or remove the column; --impute fills"),
        ("id,x\n1,1\n2,NA\n", "has 'NA' in .* 'x'; write a number there, or give --impute"),
        ("id,x\n1,1\n2,nan\n", "correct them or remove the column; --impute fills what is missing"),
    ],
)
def test_the_error_of_a_missing_number_names_the_flag(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)
    assert read(tmp_path, text, impute="zero").fields["features"].tolist() == [[1], [0]]


def test_what_is_not_finite_or_no_number_is_refused_all_the_same(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 2 of .* has inf in the numeric column 'x'"):
        read(tmp_path, "id,x\n1,inf\n2,\n3,1\n", impute="mean")
    with pytest.raises(InputError, match=r"line 3 of .* has 'half' in the numeric column 'x'"):
        read(tmp_path, "id,x\n1,1\n2,half\n3,\n", impute="mean")
    with pytest.raises(InputError, match="--impute must be mean, median or zero, got 'most'"):
        Columns(impute="most")


def test_missing_features_of_edges_are_filled_too(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("src,dst,t\n0,1,4\n1,0,\n")
    graph = read_edge_list(tmp_path / "e.csv", columns=Columns(impute="mean"))
    assert graph.edge_features is not None
    assert graph.edge_features.tolist() == [[4], [4]]


def test_categories_become_features_behind_the_numbers(tmp_path: Path) -> None:
    text = "id,city,x,tall\n1,Rome,5,True\n2,,6,False\n3,Oslo,7,True\n4,NA,8,False\n"
    found = read(tmp_path, text, one_hot=("city", "tall"))
    assert found.unused == ()
    # x; Oslo, Rome; False, True
    assert found.fields["features"].tolist() == [
        [5, 0, 1, 0, 1],
        [6, 0, 0, 1, 0],
        [7, 1, 0, 0, 1],
        [8, 0, 0, 1, 0],
    ]
    alone = read(tmp_path, "id,city\n1,b\n2,a\n", one_hot=("city",)).fields["features"]
    assert alone.tolist() == [[0, 1], [1, 0]]
    assert alone.dtype == np.float32
    chosen = read(tmp_path, text, features=("x",), one_hot=("city",))
    assert (chosen.fields["features"].shape, chosen.unused) == ((4, 3), ("tall",))


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"one_hot": ("town",)},
            "has no column 'town', which --one-hot-columns names; its columns",
        ),
        ({"one_hot": ("x",), "features": ("x",)}, "'x' of .* is named as a feature and as a categ"),
        ({"one_hot": ("id",)}, "column 'id' of .* is named as id and as a category"),
        (
            {"one_hot": ("none",)},
            "'none' of .* --one-hot-columns names, has 0 different values, bu",
        ),
        ({"one_hot": ("many",)}, "'many' of .* has 1001 different values, but categories are 1 to"),
    ],
)
def test_categories_that_cannot_be_are_refused(
    tmp_path: Path, choices: dict[str, Any], message: str
) -> None:
    rows = "".join(f"{i},{i},,m{i}\n" for i in range(1001))
    with pytest.raises(InputError, match=message):
        read(tmp_path, f"id,x,none,many\n{rows}", **choices)


def test_whole_numbers_are_values_where_that_is_said(tmp_path: Path) -> None:
    text = "id,label\n1,1987\n2,\n3,-1\n4,NA\n"
    assert read(tmp_path, text).fields["labels"].tolist() == [1987, -1, -1, -1]
    fields = read(tmp_path, text, label_values=True).fields
    nothing = np.zeros(0, dtype=np.int64)
    graph = Graph(name="g", num_vertices=4, src=nothing, dst=nothing, **fields)
    assert graph.is_regression
    expected = [[1987], [np.nan], [-1], [np.nan]]
    assert np.array_equal(np.asarray(graph.labels), expected, equal_nan=True)
    several = read(tmp_path, "id,label_a,label_b\n1,7,0\n2,,3\n", label_values=True).fields
    assert np.array_equal(several["labels"], [[7, 0], [np.nan, 3]], equal_nan=True)
    assert several["labels"].dtype == np.float32
    with pytest.raises(
        InputError, match=r"'label' of .* holds no numbers, which --task regression"
    ):
        read(tmp_path, "id,label\n1,red\n2,blue\n", label_values=True)


def test_classes_of_other_sources_become_values_too(tmp_path: Path) -> None:
    arrays = {"edge_index": np.array([[0, 1, 2], [1, 2, 0]]), "labels": np.array([2, -1, 0])}
    np.savez(tmp_path / "g.npz", **arrays)
    graph = load(tmp_path / "g.npz", columns=Columns(label_values=True))
    assert np.array_equal(np.asarray(graph.labels), [[2], [np.nan], [0]], equal_nan=True)
    np.savez(tmp_path / "n.npz", **arrays, class_names=np.array(["a", "b", "c"]))
    with pytest.raises(InputError, match="the classes of 'n' have names, such as 'a', but --task"):
        load(tmp_path / "n.npz", columns=Columns(label_values=True))
    flags = load(tmp_path / "g.npz", columns=Columns())
    assert flags.labels is not None
    assert flags.labels.tolist() == [2, -1, 0]


def test_choices_are_kept_as_json() -> None:
    given = Columns(one_hot=("a", 'b"c'), impute="mean", label_values=True)
    assert Columns.from_json(given.to_json()) == given
    assert given.words() == ['--one-hot-columns=a,"b""c"', "--impute=mean"]
    assert set(FLAGS) == set(Columns.__dataclass_fields__) - {"label_values"}
    for damaged in ({"label_values": "yes"}, {"impute": 3}, {"one_hot": "a"}):
        with pytest.raises(ValueError, match="columns have"):
            Columns.from_json(damaged)


def test_columns_that_are_left_out_are_told_with_their_own_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "e.csv").write_text("src,dst,note\n0,1,a\n")
    (tmp_path / "v.csv").write_text("id,name\n0,x\n1,y\n")
    read_edge_list(tmp_path / "e.csv", vertices=tmp_path / "v.csv")
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'e.csv'}: columns that are not used: note",
        f"{tmp_path / 'v.csv'}: columns that are not used: name",
    ]


@pytest.mark.parametrize("rows", ["1,NA\n2,5\n", "1,5\n2,NA\n"])
def test_a_missing_number_is_refused_in_any_row(tmp_path: Path, rows: str) -> None:
    with pytest.raises(InputError, match=r"has 'NA' in .* 'x'; .*, or give --impute"):
        read(tmp_path, f"id,x\n{rows}")


@pytest.mark.parametrize("values", ["True,NA,False", "NA,True,False", "True,,False"])
def test_words_for_missing_values_beside_truths_are_filled(tmp_path: Path, values: str) -> None:
    text = "".join(f"{row},{value}\n" for row, value in enumerate(values.split(",")))
    features = read(tmp_path, f"id,x\n{text}", impute="mean").fields["features"]
    assert sorted(features[:, 0].tolist()) == [0, 0.5, 1]
