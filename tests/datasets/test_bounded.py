"""Files that promise more than they hold, or wait for ever, or print what they like."""

from __future__ import annotations

import contextlib
import gzip
import os
import tracemalloc
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distgnn.datasets import Graph, InputError, archive, files, load, parquet_table
from distgnn.datasets.array_folder import num_vertices_of
from distgnn.datasets.flat_array import read_header
from distgnn.datasets.matrix_market import read_matrix_market
from distgnn.datasets.npz import read_npz
from distgnn.datasets.ogb.member import open_member
from distgnn.datasets.parquet_table import parquet_slices, read_parquet
from distgnn.datasets.reddit import is_reddit
from distgnn.datasets.whole_lines import whole_lines

EDGES = np.array([[0, 1, 2], [1, 2, 0]])


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a megabyte."""
    monkeypatch.setattr(files, "_SMALL_BYTES", 1 << 10)
    monkeypatch.setattr(files, "available_memory", lambda: 1 << 20)


def npy(descr: str, shape: str, values: bytes, *, length: int = 117) -> bytes:
    """Return an .npy file whose header says what it likes."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(length)
    return b"\x93NUMPY\x01\x00" + (length + 1).to_bytes(2, "little") + f"{text}\n".encode() + values


def refused(path: Path) -> None:
    """Load a file that cannot be used."""
    with contextlib.suppress(InputError):
        pytest.fail(load(path).name)


def peak_of(action: Any) -> int:
    """Return the most bytes that were taken at a time."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_an_array_that_is_not_used_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, edge_index=EDGES, extra=np.zeros(1 << 24, np.uint8))
    assert peak_of(lambda: read_npz(path)) < 8 << 20
    assert read_npz(path).unused == ("extra",)


@pytest.mark.usefixtures("little_memory")
def test_an_array_above_the_free_memory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, edge_index=EDGES, features=np.zeros((3, 1 << 20), np.float32))
    assert peak_of(lambda: refused(path)) < 4 << 20
    with pytest.raises(InputError, match=r"features takes 0.0126 GB of memory, but .* are free"):
        read_npz(path)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("(2, 1000000000000)", "its last 15999999999952 bytes are missing"),
        ("(2, 2)", ""),
    ],
)
def test_a_header_is_compared_with_the_bytes_behind_it(
    tmp_path: Path, shape: str, message: str
) -> None:
    with zipfile.ZipFile(tmp_path / "g.npz", "w") as opened:
        opened.writestr("edge_index.npy", npy("<i8", shape, EDGES.tobytes()))
    if message:
        with pytest.raises(InputError, match=message):
            read_npz(tmp_path / "g.npz")
    else:
        assert read_npz(tmp_path / "g.npz").num_edges == 2


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_come_back_in_either_order_of_storage(tmp_path: Path, order: Any) -> None:
    wanted = np.asarray(np.arange(24.0).reshape(2, 3, 4), order=order)
    np.savez(tmp_path / "a.npz", wanted=wanted, nothing=np.zeros((0, 3)), one=np.asarray(7))
    found = archive.read_arrays(tmp_path / "a.npz")
    np.testing.assert_array_equal(found["wanted"], wanted)
    assert (found["nothing"].shape, found["one"].item()) == ((0, 3), 7)
    assert set(archive.read_arrays(tmp_path / "a.npz", only=["one"])) == {"one"}


def test_values_without_bytes_are_no_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", edge_index=EDGES)
    with zipfile.ZipFile(tmp_path / "g.npz", "a") as opened:
        opened.writestr("class_names.npy", npy("<U0", "(1099511627776,)", b""))
    with pytest.raises(InputError, match=r"class_names cannot be read .*have no bytes"):
        read_npz(tmp_path / "g.npz")


def test_names_of_classes_are_texts(tmp_path: Path) -> None:
    names = np.array([(1, 2)], dtype=[("a", "i4"), ("b", "i4")])
    np.savez(tmp_path / "g.npz", edge_index=EDGES, labels=np.array([0, 0, 0]), class_names=names)
    with pytest.raises(InputError, match="class_names must hold texts, got"):
        read_npz(tmp_path / "g.npz")
    np.savez(tmp_path / "g.npz", edge_index=EDGES, labels=np.zeros(3, int), class_names=[b"\xff"])
    with pytest.raises(InputError, match="class_names has texts that are not ASCII"):
        read_npz(tmp_path / "g.npz")


def test_a_header_that_is_too_long_gives_no_advice_to_unpickle(tmp_path: Path) -> None:
    (tmp_path / "edge_index.npy").write_bytes(npy("<i8", "(3,)", bytes(24), length=20000))
    with pytest.raises(InputError, match="its header is too long") as raised:
        load(tmp_path)
    assert "pickle" not in str(raised.value)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("suffix", [".csv.gz", ".csv"])
def test_text_above_the_free_memory_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"edges{suffix}"
    text = b"0,1\n" * (1 << 20)
    path.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    sentence = "has more than .* GB of text, and reading it takes 10 times as much memory"
    assert peak_of(lambda: refused(path)) < 4 << 20
    with pytest.raises(InputError, match=rf"{sentence}.* distgnn partition --out-of-core on"):
        load(path)


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv.gz"
    path.write_bytes(gzip.compress(bytes(80 << 20)))
    with pytest.raises(InputError, match=r"has a line of more than .* bytes, so it is no table"):
        list(whole_lines(path, 1 << 20))


@pytest.mark.usefixtures("little_memory")
def test_a_column_with_one_long_field_is_refused(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("a,b\n" * 1000 + "c" * 4000 + ",d\n")
    with pytest.raises(InputError, match=r"column 1 of .*edges.csv takes .* of memory"):
        load(tmp_path / "edges.csv")


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("9 9 1000000000000", "it promises 1000000000000 entries, for which it is too short"),
        ("1000000000000000 1000000000000000 1", "with 1000000000000000 rows takes .* of memory"),
    ],
)
@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz"])
def test_a_matrix_that_promises_too_much(
    tmp_path: Path, head: str, message: str, suffix: str
) -> None:
    text = f"%%MatrixMarket matrix coordinate pattern general\n{head}\n1 2\n".encode()
    path = tmp_path / f"m{suffix}"
    path.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    with pytest.raises(InputError, match=message):
        read_matrix_market(path)


@pytest.mark.usefixtures("little_memory")
def test_a_dense_matrix_is_refused_before_it_is_read(tmp_path: Path) -> None:
    head = "%%MatrixMarket matrix array real general\n1000 1000\n"
    (tmp_path / "m.mtx").write_text(head + "0\n" * 1_000_000)
    assert peak_of(lambda: refused(tmp_path / "m.mtx")) < 4 << 20
    (tmp_path / "m.mtx").write_text(head)
    with pytest.raises(InputError, match=r"m.mtx holds a dense matrix; an adjacency matrix is in"):
        read_matrix_market(tmp_path / "m.mtx")


@pytest.mark.usefixtures("little_memory")
def test_a_symmetric_matrix_counts_with_both_of_its_halves(tmp_path: Path) -> None:
    path, lines = tmp_path / "m.mtx", "2 1\n" * 30_000
    path.write_text(f"%%MatrixMarket matrix coordinate pattern general\n9 9 30000\n{lines}")
    assert read_matrix_market(path).num_edges == 30_000
    path.write_text(f"%%MatrixMarket matrix coordinate pattern symmetric\n9 9 30000\n{lines}")
    with pytest.raises(InputError, match=r"m.mtx with 60000 entries takes 0.00144 GB of memory"):
        read_matrix_market(path)


def test_parquet_integers_above_two_to_the_53_are_rounded_as_texts_are(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    numbers = [2**53 + 1, 3, 4]
    columns = {"src": [0, 1, 2], "dst": [1, 2, 0], "size": numbers}
    parquet.write_table(arrow.table(columns), tmp_path / "edges.parquet")
    rows = zip(*columns.values(), strict=True)
    lines = ["src,dst,size", *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "edges.csv").write_text("\n".join(lines))
    found, wanted = (load(tmp_path / f"edges.{kind}") for kind in ("parquet", "csv"))
    np.testing.assert_array_equal(found.edge_features, wanted.edge_features)


def test_parquet_labels_above_two_to_the_53_may_have_gaps(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "edges.csv").write_text("0,1\n")
    columns = {"id": [0, 1], "label_a": [2**60 + 1, None], "label_b": [1, 0]}
    parquet.write_table(arrow.table(columns), tmp_path / "vertices.parquet")
    with pytest.raises(InputError, match="label"):
        load(tmp_path)


def test_parquet_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = arrow.array([b"\xff\xfe", b"b"], "binary").view("string")
    table = arrow.table({"src": column, "dst": column})
    parquet.write_table(table, tmp_path / "edges.parquet")
    with pytest.raises(InputError, match="text that is not UTF-8"):
        load(tmp_path / "edges.parquet")


@pytest.mark.usefixtures("little_memory")
def test_a_small_parquet_file_of_very_many_rows_is_refused(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    same = np.zeros(1 << 20, np.int64)
    parquet.write_table(arrow.table({"src": same, "dst": same}), tmp_path / "edges.parquet")
    with pytest.raises(InputError, match=r"edges.parquet takes 0.0168 GB of memory"):
        load(tmp_path / "edges.parquet")


@pytest.mark.usefixtures("little_memory")
def test_a_file_above_the_free_memory_is_not_read_whole(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(2 << 20))
    with pytest.raises(OSError, match=r"it has 0.0021 GB, but 0.00105 GB of memory are free"):
        files.read_whole(tmp_path / "big")


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is a named pipe, not a file"):
        files.read_whole(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is a device, not a file"):
        files.check_regular(Path("/dev/zero"))


def test_a_pipe_with_the_name_of_an_archive_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "graph.zip")
    assert not is_reddit(tmp_path / "graph.zip")


def test_names_with_lone_surrogates_are_refused() -> None:
    with pytest.raises(InputError, match=r"the name '\\ud800' has characters that do not exist"):
        Graph(
            name="g",
            num_vertices=2,
            src=np.array([0]),
            dst=np.array([1]),
            labels=np.array([0, 0]),
            class_names=("\ud800",),
        )


def test_sentences_are_bounded_and_print_no_control_characters() -> None:
    error = InputError("\x1b[2J\x00" + "\n" + "x" * 9000 + "\ud800 remedy")
    assert len(str(error)) <= 500
    assert str(error).isprintable()
    assert str(error).startswith(r"\x1b[2J\x00 xxx")
    assert str(error).endswith(r"xxx\ud800 remedy")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_that_zipfile_unpacks_without_limit_is_refused(
    tmp_path: Path, method: int
) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", method) as packed:
        packed.writestr("edge_index.npy", npy("<i8", "(2, 3)", EDGES.tobytes()))
    with pytest.raises(InputError, match=rf"compressed by method {method}, not by deflate"):
        read_npz(path)
    with pytest.raises(InputError, match=rf"compressed by method {method}, not by deflate"):
        open_member(path, "edge_index")


def test_a_negative_size_is_no_shape(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(npy("<i8", "(-5,)", b""))
    with pytest.raises(InputError, match=r"its shape is \(-5,\)"):
        read_header(tmp_path / "a.npy")


@pytest.mark.usefixtures("little_memory")
def test_more_vertices_than_can_be_numbered_in_memory_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", edge_index=EDGES, num_vertices=2_000_000_000)
    with pytest.raises(InputError, match="a graph of 2000000000 vertices takes 16 GB of memory"):
        load(tmp_path / "g.npz")


@pytest.mark.parametrize("shape", [np.array([3, 2**63], np.uint64), np.array([3, -1])])
def test_a_shape_of_features_that_nothing_has_is_refused(tmp_path: Path, shape: Any) -> None:
    features = {"indptr": np.zeros(4, int), "indices": np.zeros(0, int), "data": np.zeros(0)}
    arrays = {f"features_{name}": value for name, value in features.items()}
    np.savez(tmp_path / "g.npz", edge_index=EDGES, features_shape=shape, **arrays)
    with pytest.raises(InputError, match="CSR arrays of the features contradict each other"):
        load(tmp_path / "g.npz")


@pytest.mark.parametrize(
    "shape", [np.array([np.nan, 2]), np.array(["3", "2"]), np.array([-3, 2]), np.array([3])]
)
def test_a_folder_tells_its_vertices_by_whole_numbers(tmp_path: Path, shape: Any) -> None:
    np.save(tmp_path / "features_shape.npy", shape)
    with pytest.raises(InputError, match="must hold the numbers of rows and columns of the feat"):
        num_vertices_of(tmp_path)


def test_a_file_that_may_not_be_opened_is_no_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "g.npz", edge_index=EDGES)

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(PermissionError):
        archive.read_arrays(tmp_path / "g.npz")


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("is_sliced", [False, True])
def test_a_long_text_that_is_stored_once_counts_in_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_sliced: bool
) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(parquet_table, "available_memory", lambda: 1 << 20)
    monkeypatch.setattr(parquet_table, "_FEW_BYTES", 1 << 10)
    path, ids = tmp_path / "v.parquet", np.arange(1000)

    def read() -> Any:
        return list(parquet_slices(path)) if is_sliced else [read_parquet(path)]

    parquet.write_table(arrow.table({"id": ids, "name": ["x" * 100, None] * 500}), path)
    (table,) = read()
    assert table.strings(1).tolist() == ["x" * 100, ""] * 500
    parquet.write_table(arrow.table({"id": ids, "name": ["x" * 10_000] * 1000}), path)
    assert path.stat().st_size < 10_000
    with pytest.raises(InputError, match=r"column 'name' of .* takes 0.01 GB of memory"):
        read()


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("kind", "num_rows", "size"), [("binary", 2000, "0.00202"), ("decimal", 90_000, "0.00216")]
)
def test_values_of_one_length_count_with_it_in_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, num_rows: int, size: str
) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(parquet_table, "available_memory", lambda: 1 << 20)
    monkeypatch.setattr(parquet_table, "_FEW_BYTES", 1 << 10)
    type_of = {"binary": arrow.binary(1000), "decimal": arrow.decimal128(9, 0)}[kind]
    value = {"binary": b"x" * 1000, "decimal": Decimal(7)}[kind]
    column = arrow.array([value] * num_rows, type_of)
    table = arrow.table({"id": np.zeros(num_rows, np.int64), "a": column})
    parquet.write_table(table, tmp_path / "v.parquet")
    with pytest.raises(InputError, match=rf"v.parquet takes {size} GB of memory"):
        read_parquet(tmp_path / "v.parquet")
    slices = list(parquet_slices(tmp_path / "v.parquet"))
    assert sum(some.num_rows for some in slices) == num_rows
    assert max(some.columns[1].nbytes for some in slices) < 1 << 19


@pytest.mark.usefixtures("little_memory")
def test_a_beginning_that_is_stored_once_counts_in_every_text_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(parquet_table, "available_memory", lambda: 1 << 20)
    monkeypatch.setattr(parquet_table, "_FEW_BYTES", 1 << 10)
    path, words = tmp_path / "v.parquet", {"column_encoding": {"name": "DELTA_BYTE_ARRAY"}}
    for length in (100, 10_000):
        names = [f"{'x' * length}{number}" for number in range(1000)]
        table = arrow.table({"id": np.arange(1000), "name": names})
        parquet.write_table(table, path, use_dictionary=False, **words)
        slices = list(parquet_slices(path))
        assert [name for some in slices for name in some.columns[1].to_pylist()] == names
        assert [some.first_row for some in slices][:2] == [0, slices[0].num_rows][: len(slices)]
        assert max(some.columns[1].nbytes for some in slices) < 1 << 19
        if length == 100:
            assert (len(slices), read_parquet(path).num_rows) == (1, 1000)
    assert path.stat().st_size < 20_000
    with pytest.raises(InputError, match=r"v.parquet takes 0.0010\d GB of memory"):
        read_parquet(path)


@pytest.mark.usefixtures("little_memory")
def test_lists_of_a_parquet_file_count_with_all_their_values(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    lists = arrow.array([[0] * 1000] * 1000)
    parquet.write_table(arrow.table({"id": np.arange(1000), "more": lists}), tmp_path / "v.parquet")
    with pytest.raises(InputError, match=r"v.parquet takes 0.00801 GB of memory"):
        read_parquet(tmp_path / "v.parquet")


@pytest.mark.parametrize("is_sliced", [False, True])
def test_two_columns_of_one_name_are_told(tmp_path: Path, is_sliced: bool) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, ids = tmp_path / "e.parquet", arrow.array([0, 1])
    parquet.write_table(arrow.Table.from_arrays([ids, ids, ids], ["src", "dst", "src"]), path)
    with pytest.raises(InputError, match=r"e.parquet has two columns named 'src'; give each col"):
        list(parquet_slices(path)) if is_sliced else read_parquet(path)


@pytest.mark.parametrize("row", ["1,2{}", "{}1,2", "1{},2", "1,{}2"])
def test_blanks_beside_fields_are_left_out_but_not_without_end(tmp_path: Path, row: str) -> None:
    path = tmp_path / "e.csv"
    path.write_text("0,1\n" + row.format(" " * 3000) + "\n")
    assert load(path).num_edges == 2
    path.write_text("0,1\n" + row.format(" " * 5000) + "\n")
    with pytest.raises(InputError, match=r"line 2 of .* has more than 4096 blanks beside a field"):
        load(path)
