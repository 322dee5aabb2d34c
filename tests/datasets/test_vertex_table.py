from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distgnn.datasets import Graph, InputError, parquet_table, text_table
from distgnn.datasets.vertex_table import VertexTable, read_vertex_table


def read(folder: Path, text: str) -> VertexTable:
    path = folder / "v.csv"
    path.write_text(text, encoding="utf-8")
    return read_vertex_table(path)


def test_every_other_numeric_column_is_a_feature(tmp_path: Path) -> None:
    table = read(tmp_path, "x,id,name,y\n0.5,7,ann,1\n1.5,3,bob,2\n")
    assert table.ids.tolist() == [7, 3]
    features = table.fields["features"]
    assert features.dtype == np.float32
    assert features.flags.c_contiguous
    assert features.tolist() == [[0.5, 1], [1.5, 2]]
    assert table.unused == ("name",)


def test_table_of_ids_alone_has_no_fields(tmp_path: Path) -> None:
    assert read(tmp_path, "id\na\nb\n").fields == {}


@pytest.mark.parametrize(
    "values", [("0", "2", "-1"), ("0", "2", ""), ("0.0", "2.0", ""), ("0", "2.0", "nan")]
)
def test_integer_labels_may_have_gaps(tmp_path: Path, values: tuple[str, ...]) -> None:
    rows = "".join(f"{i},{value}\n" for i, value in enumerate(values))
    fields = read(tmp_path, f"id,label\n{rows}").fields
    assert fields["labels"].tolist() == [0, 2, -1]
    assert "class_names" not in fields


def test_class_names_become_sorted_classes(tmp_path: Path) -> None:
    fields = read(tmp_path, "id,label\n1,dog\n2,cat\n3,\n4,dog\n").fields
    assert fields["labels"].tolist() == [1, 0, -1, 1]
    assert fields["class_names"] == ("cat", "dog")


def test_several_label_columns_are_several_labels(tmp_path: Path) -> None:
    table = read(tmp_path, "id,label_red,x,label_big\n1,0,5,1\n2,1,6,1\n")
    assert table.fields["class_names"] == ("red", "big")
    nothing = np.zeros(0, dtype=np.int64)
    graph = Graph(name="g", num_vertices=2, src=nothing, dst=nothing, **table.fields)
    assert graph.labels is not None
    assert graph.labels.tolist() == [[0, 1], [1, 1]]
    assert graph.num_features == 1


def test_flags_that_are_not_written_are_not_known(tmp_path: Path) -> None:
    table = read(tmp_path, "id,label_a,label_b,label_c\n1,1,,\n2,,0,\n3,nan,1,\n")
    nothing = np.zeros(0, dtype=np.int64)
    graph = Graph(name="g", num_vertices=3, src=nothing, dst=nothing, **table.fields)
    assert graph.is_multilabel
    assert graph.labels is not None
    assert graph.labels.tolist() == [[1, 255, 255], [255, 0, 255], [255, 1, 255]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id,label\n1,0.5\n2,\n3,-1\n4,NA\n", [[0.5], [np.nan], [-1], [np.nan]]),
        ("id,label_a,label_b\n1,0.5,1\n2,,0\n", [[0.5, 1], [np.nan, 0]]),
    ],
)
def test_numbers_with_fractions_are_values_to_be_learned(
    tmp_path: Path, text: str, expected: list[list[float]]
) -> None:
    fields = read(tmp_path, text).fields
    size, nothing = len(expected), np.zeros(0, dtype=np.int64)
    graph = Graph(name="g", num_vertices=size, src=nothing, dst=nothing, **fields)
    assert graph.is_regression
    assert np.array_equal(np.asarray(graph.labels), expected, equal_nan=True)


def test_a_word_for_nothing_among_numbers_is_no_class(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fields = read(tmp_path, "id,label\n1,0\n2,NA\n3,10\n4,null\n5,9\n").fields
    assert fields["labels"].tolist() == [0, -1, 10, -1, 9]
    assert "class_names" not in fields
    assert not caplog.records


def test_a_word_for_nothing_among_names_is_a_class_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read(tmp_path, "id,label\n1,EU\n2,AS\n3,\n").fields["class_names"] == ("AS", "EU")
    assert not caplog.records
    fields = read(tmp_path, "id,label\n1,EU\n2,NA\n3,\n4,NA\n").fields
    assert fields["class_names"] == ("EU", "NA")
    assert "2 vertices have the class 'NA'; leave the field empty where there is no" in caplog.text


def test_columns_are_known_in_capitals_too(tmp_path: Path) -> None:
    table = read(tmp_path, "ID,Label,Split,X\na,0,train,5\nb,1,test,6\n")
    assert table.ids.tolist() == ["a", "b"]
    assert table.fields["labels"].tolist() == [0, 1]
    assert table.fields["train_mask"].tolist() == [True, False]
    assert table.fields["features"].tolist() == [[5], [6]]
    assert read(tmp_path, "id,Label_A,LABEL_b\n1,0,1\n").fields["class_names"] == ("A", "b")
    exact = read(tmp_path, "ID,id\n7,a\n8,b\n")
    assert exact.ids.tolist() == ["a", "b"]
    assert exact.fields["features"].tolist() == [[7], [8]]


def test_split_column_becomes_masks(tmp_path: Path) -> None:
    fields = read(tmp_path, "id,split\n1,train\n2,\n3,test\n4,val\n").fields
    assert fields["train_mask"].tolist() == [True, False, False, False]
    assert fields["val_mask"].tolist() == [False, False, False, True]
    assert fields["test_mask"].tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,x\n1,2\n", "has no column 'id' among name, x; its first line must name the columns"),
        ("id,x\n", "has no rows; give one row for each vertex"),
        ("id,label,label_a\n1,0,0\n", "has both 'label' and 'label_a'; keep one"),
        ("id,label_a\n1,red\n", "column 'label_a' of .* must hold 0 and 1; name a column of"),
        ("id,label\n1,0\n2,inf\n", "line 3 of .* has label 'inf', but labels are integers, cl"),
        ("id,label\n1,0\n2,1e20\n", "line 3 of .* has label '1e20', but labels are integers, c"),
        (
            "id,label_a\n1,\n2,1\n3,NA\n",
            "line 4 of .* has 'NA' in the numeric column 'label_a'; write a number there or not",
        ),
        ("id,x\n1,\n2,1\n", "line 2 of .*v.csv has no value in the numeric column 'x'; fill it"),
        ("id,x\n1,1\n2,\n", "line 3 of .*v.csv has no value in the numeric column 'x'; fill it"),
        ("id,x\n1,1\n2,nan\n", "line 3 of .*v.csv has nan in the numeric column 'x', whose feat"),
        (
            "id,x\n1,-1e39\n",
            "line 2 of .* has -1e[+]39 in the numeric column 'x', whose features ha",
        ),
        ("id,split\n1,train\n2,dev\n", "line 3 of .* has split 'dev'; write train, val, test or"),
        ("id,x\n1,0.5\n,1.5\n", "line 3 of .* has no id in column 'id'"),
        ("id,x\n1,0.5\n2,half\n", "line 3 of .* has 'half' in the numeric column 'x'"),
    ],
)
def test_bad_vertex_table_is_an_input_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


def test_a_decimal_comma_is_pointed_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "v.csv"
    path.write_text("id;age;town\n0;;a,b\n1;3,5;a\n")
    table = read_vertex_table(path)
    assert table.unused == ("age", "town")
    (record,) = caplog.records
    assert record.message == (
        f"line 3 of {path} has '3,5' in column 'age', which is a text: write a point in place of "
        "the comma if it is a number"
    )
    path.write_text("id;label\n0;NA\n1;3,5\n2;4,5\n")
    assert read_vertex_table(path).fields["class_names"] == ("3,5", "4,5", "NA")
    assert "line 3 of" in caplog.records[1].message
    assert "has '3,5' in column 'label', which is a text: write a point" in caplog.text


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
def test_numbers_that_pandas_gives_to_rows_are_no_features(name: str, tmp_path: Path) -> None:
    table = read(tmp_path, f"{name},id,x\n0,7,0.5\n1,3,1.5\n")
    assert table.fields["features"].tolist() == [[0.5], [1.5]]
    assert table.unused == (name,)


def test_names_with_underscores_are_no_numbers(tmp_path: Path) -> None:
    fields = read(tmp_path, "id,month,label\n0,2023_01,1_1\n1,2023_02,11\n2,2023_03,1_2\n").fields
    assert "features" not in fields
    assert fields["class_names"] == ("11", "1_1", "1_2")
    assert fields["labels"].tolist() == [1, 0, 2]


class Compared(str):
    """A name that counts how often one was compared with another."""

    __slots__ = ()
    count = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return str.__eq__(self, other)


def test_names_of_very_many_columns_are_not_compared_with_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["id", *(f"f{n}" for n in range(400))]
    (tmp_path / "v.csv").write_text(f"{','.join(texts)}\n{','.join(texts)}\n")
    row_text = text_table._row_text
    monkeypatch.setattr(
        text_table, "_row_text", lambda *place: [Compared(text) for text in row_text(*place)]
    )
    Compared.count = 0
    assert len(read_vertex_table(tmp_path / "v.csv").unused) == 400
    parquet_table._check_names(tmp_path / "v.parquet", [Compared(text) for text in texts])
    assert Compared.count < 40 * len(texts)
