from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distgnn.datasets import InputError
from distgnn.datasets.edge_list import read_edge_list, read_folder
from distgnn.datasets.parquet_table import read_parquet
from distgnn.datasets.vertex_table import read_vertex_table

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def write(folder: Path, name: str, columns: dict[str, Any]) -> Path:
    path = folder / f"{name}.parquet"
    parquet.write_table(pa.table(columns), path)
    return path


def test_parquet_folder_reads_like_a_text_folder(tmp_path: Path) -> None:
    columns = {
        "id": ["a", "b", "c"],
        "label": ["x", None, "y"],
        "split": ["train", None, "val"],
        "f": [1.0, 2.0, 3.0],
        "g": [True, False, True],
    }
    write(tmp_path, "edges", {"src": ["b", "c"], "dst": ["a", "a"], "weight": [1.5, 2.5]})
    write(
        tmp_path, "vertices", {**columns, "split": ["train", "test", "val"], "label": list("xyx")}
    )
    graph = read_folder(tmp_path)
    assert graph.src.tolist() == [1, 2]
    assert graph.dst.tolist() == [0, 0]
    assert graph.class_names == ("x", "y")
    assert isinstance(graph.features, np.ndarray)
    assert graph.features.tolist() == [[1, 1], [2, 0], [3, 1]]
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [1.5, 2.5]
    fields = read_vertex_table(write(tmp_path, "nulls", columns)).fields
    assert fields["labels"].tolist() == [0, -1, 1]
    assert fields["train_mask"].tolist() == [True, False, False]


@pytest.mark.parametrize("kind", ["int32", "uint8", "int64"])
def test_integer_ids_of_any_width_are_read(tmp_path: Path, kind: str) -> None:
    ends = pa.array([4, 6], type=getattr(pa, kind)())
    graph = read_edge_list(write(tmp_path, "e", {"src": ends, "dst": ends[::-1]}))
    assert graph.vertex_id is not None
    assert graph.vertex_id.tolist() == [4, 6]
    assert graph.src.tolist() == [0, 1]


def test_integer_labels_with_nulls_are_unlabelled(tmp_path: Path) -> None:
    path = write(tmp_path, "v", {"id": [1, 2, 3], "label": pa.array([2, None, 0])})
    assert read_vertex_table(path).fields["labels"].tolist() == [2, -1, 0]


def test_flags_that_are_null_are_not_known(tmp_path: Path) -> None:
    columns = {"label_a": pa.array([1, None, 0], pa.int8()), "label_b": [None, True, False]}
    labels = read_vertex_table(write(tmp_path, "v", {"id": [1, 2, 3], **columns})).fields["labels"]
    assert np.array_equal(labels, [[1, np.nan], [np.nan, 1], [0, 0]], equal_nan=True)


def test_labels_with_fractions_are_values(tmp_path: Path) -> None:
    path = write(tmp_path, "v", {"id": [1, 2, 3], "label": [0.1, None, 2.0]})
    labels = read_vertex_table(path).fields["labels"]
    assert labels.dtype == np.float32
    assert np.array_equal(labels, np.float32([0.1, np.nan, 2]), equal_nan=True)


def test_dictionary_encoded_text_is_read(tmp_path: Path) -> None:
    column = pa.array(["u", "w", ""]).dictionary_encode()
    fields = read_vertex_table(write(tmp_path, "v", {"id": [1, 2, 3], "label": column})).fields
    assert fields["class_names"] == ("u", "w")
    assert fields["labels"].tolist() == [0, 1, -1]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"src": [1, None], "dst": [2, 3]}, "row 1 of .* has no id in column 'src'"),
        ({"src": ["a", ""], "dst": ["b", "c"]}, "row 1 of .* has no id in column 'src'"),
        (
            {"src": [1, 2], "dst": [2, 3], "weight": [0.5, None]},
            "row 1 of .* has no value in the numeric column 'weight'",
        ),
        ({"src": [[1], [2]], "dst": [[1], [2]]}, "column 'src' of .* has the type list<"),
        (
            {"src": [1], "dst": [2], "weight": ["x"]},
            "the edge weight, does not hold numbers",
        ),
    ],
)
def test_bad_column_is_an_input_error(
    tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    path = write(tmp_path, "e", columns)
    with pytest.raises(InputError, match=message):
        read_edge_list(path)


def test_file_of_another_kind_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    path.write_text("1,2\n")
    with pytest.raises(InputError, match=r"is not a readable Parquet file .*; write it again"):
        read_parquet(path)


def test_missing_pyarrow_is_an_input_error_that_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "e", {"src": [1], "dst": [2]})
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"needs pyarrow.*; run pip install distgnn\[parquet\]"):
        read_parquet(path)


def test_whole_floats_are_integer_ids(tmp_path: Path) -> None:
    graph = read_edge_list(write(tmp_path, "e", {"src": [4.0, 6.0], "dst": [6, 4]}))
    assert graph.vertex_id is not None
    assert graph.vertex_id.tolist() == [4, 6]
    assert graph.src.tolist() == [0, 1]


def test_nan_among_ids_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read_edge_list(write(tmp_path, "e", {"src": [4.0, float("nan")], "dst": [6, 4]}))
    assert "row 1 of" in caplog.messages[0]
    assert "has the id 'nan' in column 'src', which becomes a vertex" in caplog.messages[0]


def test_decimals_are_numbers(tmp_path: Path) -> None:
    decimals = pa.array([Decimal("1.50"), Decimal("2.25")], type=pa.decimal128(10, 2))
    ids = pa.array([Decimal(4), Decimal(6)], type=pa.decimal128(20, 0))
    ends = {"src": ids, "dst": ids[::-1]}
    graph = read_edge_list(write(tmp_path, "e", {**ends, "weight": decimals}))
    assert graph.vertex_id is not None
    assert graph.vertex_id.tolist() == [4, 6]
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [1.5, 2.25]


def test_decimals_beyond_int64_are_texts(tmp_path: Path) -> None:
    ids = pa.array([Decimal(2**63), Decimal(6)], type=pa.decimal128(30, 0))
    table = read_parquet(write(tmp_path, "e", {"src": ids}))
    assert table.integers(0) is None
    assert table.strings(0).tolist() == [str(2**63), "6"]
