from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.datasets import InputError
from distgnn.datasets.text_table import TextTable, read_text, text_slices, whole_numbers_of


def read(
    folder: Path, text: str | bytes, *, name: str = "t.csv", header: bool = False
) -> TextTable:
    path = folder / name
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return read_text(path, lambda first, second: header)


def strings(table: TextTable) -> list[list[str]]:
    return [table.strings(column).tolist() for column in range(table.num_columns)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "1,2\n3,4\n"),
        ("t.csv", "1,2\n3,4"),
        ("t.csv", "1;2\n3;4\n"),
        ("t.csv", "1\t2\n3\t4\n"),
        ("t.tsv", "1\t2\n3\t4\n"),
        ("t.tsv", "1,2\n3,4\n"),
        ("t.txt", "1 2\n3 4\n"),
        ("t.txt", "  1   2 \n\t3 \t 4\n"),
        ("t.edges", "1\t2\n3\t4\n"),
        ("t.csv", "1,2\r\n3,4\r\n"),
        ("t.csv", "\ufeff1,2\n3,4\n"),
        ("t.csv", " 1 , 2\n3,  4 \n"),
        ("t.csv", "# it's a \"comment\n\n1,2\n   \n#3\n3,4\n\n"),
        ("t.csv", '"1",2\n3,"4"\n'),
        ("t.csv.gz", "1,2\n3,4\n"),
    ],
)
def test_every_way_of_writing_the_same_table_reads_alike(
    tmp_path: Path, name: str, text: str
) -> None:
    table = read(tmp_path, text, name=name)
    assert strings(table) == [["1", "3"], ["2", "4"]]
    assert [column.tolist() for column in map(table.integers, range(2)) if column is not None] == [
        [1, 3],
        [2, 4],
    ]


def test_quoted_fields_keep_delimiters_and_doubled_quotes(tmp_path: Path) -> None:
    table = read(tmp_path, 'a,"b, ""c"""\n"",d\n')
    assert strings(table) == [["a", ""], ['b, "c"', "d"]]


def test_text_beyond_ascii_is_read(tmp_path: Path) -> None:
    assert strings(read(tmp_path, "Z\u00fcrich,\u5317\na,b\n")) == [
        ["Z\u00fcrich", "a"],
        ["\u5317", "b"],
    ]


@pytest.mark.parametrize("slice_bytes", [None, 3, 7, 1 << 20])
def test_a_row_that_is_taken_for_a_comment_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, slice_bytes: int | None
) -> None:
    def num_rows(text: str) -> int:
        table = read(tmp_path, text, header=True)
        if slice_bytes is None:
            return table.num_rows
        caplog.clear()
        slices = text_slices(table.path, lambda *_: True, slice_bytes=slice_bytes)
        return sum(one.num_rows for one in slices)

    assert num_rows("# free\n#\nsrc,dst\n3,4\n") == 1
    assert not caplog.records
    assert num_rows("#\nsrc,dst\n1,2\n#ai,ml\n#x,y\n3,4\n") == 2
    (record,) = caplog.records
    assert "t.csv: line 4 begins with #, so it is left out as a comment" in record.message
    assert "between double quotes" in record.message


def test_header_names_the_columns_and_is_no_row(tmp_path: Path) -> None:
    table = read(tmp_path, "#c\nsrc,dst\n1,2\n", header=True)
    assert table.names == ("src", "dst")
    assert table.num_rows == 1
    assert table.place(0).startswith("line 3 of ")


@pytest.mark.parametrize(
    "field", ["a", "1.5", "007", "-", "-0", "+1", "1a", "a1", "", "1" * 20, "1_0", "1e3", "1:1"]
)
def test_what_is_not_a_plain_integer_keeps_its_column_text(tmp_path: Path, field: str) -> None:
    assert read(tmp_path, f"1,2\n{field},3\n").integers(0) is None


def test_column_of_a_header_alone_is_empty(tmp_path: Path) -> None:
    table = read(tmp_path, "src,dst\n", header=True)
    values = table.integers(0)
    assert values is not None
    assert values.size == 0
    floats = table.floats(0)
    assert floats is not None
    assert floats.size == 0
    assert table.strings(1).size == 0


@settings(max_examples=50)
@given(
    rows=st.lists(
        st.tuples(st.integers(-(10**18) + 1, 10**18 - 1), st.integers(-99, 99)), min_size=1
    )
)
def test_integers_are_read_as_python_reads_them(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]]
) -> None:
    text = "".join(f"{a},{b}\n" for a, b in rows)
    table = read(tmp_path_factory.mktemp("text"), text)
    for column in range(2):
        values = table.integers(column)
        assert values is not None
        assert values.tolist() == [row[column] for row in rows]


_WORD = st.text('ab", \t;#\u00e9\u5317', max_size=6)


@settings(max_examples=50)
@given(rows=st.lists(st.tuples(_WORD, _WORD), min_size=1, max_size=20))
def test_quoted_text_is_read_as_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    def quoted(word: str) -> str:
        return '"' + word.replace('"', '""') + '"'

    text = "".join(f"{quoted(a)},{quoted(b)}\n" for a, b in rows)
    table = read(tmp_path_factory.mktemp("text"), text)
    assert strings(table) == [[row[0] for row in rows], [row[1] for row in rows]]


def test_floats_are_read_in_every_notation(tmp_path: Path) -> None:
    values = read(tmp_path, "1,x\n-2.5e-3,x\n.5,x\nnan,x\n").floats(0)
    assert np.allclose(np.asarray(values), [1, -0.0025, 0.5, np.nan], equal_nan=True)


@pytest.mark.parametrize(("yes", "no"), [("True", "False"), ("TRUE", "FALSE"), ("true", "false")])
def test_truths_are_one_and_zero(tmp_path: Path, yes: str, no: str) -> None:
    table = read(tmp_path, f"{yes},{no},{no},{yes}\n{no},{yes},,maybe\n")
    columns = [table.floats(0), table.floats(1), table.floats(2, has_gaps=True)]
    assert np.array_equal(np.array(columns), [[1, 0], [0, 1], [0, np.nan]], equal_nan=True)
    # A column with other words, too, is one of text.
    assert table.floats(3) is None
    with pytest.raises(InputError, match=r"line 2 of .* has no value in the numeric column 3"):
        table.floats(2)


def test_column_that_begins_with_text_has_no_floats(tmp_path: Path) -> None:
    assert read(tmp_path, "a,1\nb,2\n").floats(0) is None


def test_text_in_a_numeric_column_is_located(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i}\n" for i in range(100))
    table = read(tmp_path, f"x,y\n{rows}n/a,1\n{rows}oops,1\n", header=True)
    with pytest.raises(InputError, match=r"line 102 of .* has 'n/a' in the numeric column 'x'"):
        table.floats(0)


def test_missing_number_is_located(tmp_path: Path) -> None:
    message = "has no value in the numeric column 2; fill it or remove the column"
    for line, text in ((1, "1,\n1,2\n"), (2, "1,2\n1,\n")):
        with pytest.raises(InputError, match=f"line {line} of .* {message}"):
            read(tmp_path, text).floats(1)


def test_column_without_any_value_has_no_floats(tmp_path: Path) -> None:
    assert read(tmp_path, "1,\n1,\n").floats(1) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no rows; give at least one line that is not a comment"),
        ("# only\n\n", "has no rows"),
        ("\x02\n", "has no rows"),
        ("  # only\n", "has no rows"),
        ("1,2\n\n3,4,5\n", "line 3 of .* has 3 columns, but line 1 has 2; give every row the same"),
        ('a,b\n"c,d\n', "line 2 of .* has an odd number of double quotes; close the quoted field"),
        (
            b"1,2\n\0",
            r"is not a text file \(it has NUL bytes, as UTF-16 and packed files have\); exp",
        ),
        ("1,2\n".encode("utf-16"), "UTF-16 and packed files have.; export it as CSV in UTF-8"),
    ],
)
def test_file_that_is_not_a_table_is_an_input_error(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize("text", ["\x02\n1 2\n", " # only\n1 2\n", "1 2\n # only\n\x02\n"])
def test_lines_of_control_characters_and_comments_behind_blanks_are_left_out(
    tmp_path: Path, text: str
) -> None:
    assert strings(read(tmp_path, text)) == [["1"], ["2"]]
    for slice_bytes in (1, 6, 100):
        slices = text_slices(tmp_path / "t.csv", lambda *_: False, slice_bytes=slice_bytes)
        assert [strings(table) for table in slices] == [[["1"], ["2"]]]


def test_repeated_column_name_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has two columns named 'x'; give each column its own"):
        read(tmp_path, "id,x,x\n1,2,3\n", header=True)


def test_other_encodings_are_an_input_error(tmp_path: Path) -> None:
    table = read(tmp_path, b"a,\xff\n")
    with pytest.raises(InputError, match=r"has text that is not UTF-8 .*; save it as UTF-8"):
        table.strings(1)


def test_endless_field_is_an_input_error(tmp_path: Path) -> None:
    table = read(tmp_path, "a,b\n" + "c" * 5000 + ",d\n")
    with pytest.raises(
        InputError, match=r"line 2 of .* has a field of 5000 bytes, but at most 4096"
    ):
        table.strings(0)


def test_damaged_gzip_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"1,2\n" * 100)[:-12])
    with pytest.raises(InputError, match=r"cannot be read .*; check the path and the file"):
        read_text(path, lambda first, second: False)


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_a_comma_inside_a_number_separates_nothing(delimiter: str, tmp_path: Path) -> None:
    rows = [["1", "2", "0,5"], ["1", "3", "-12,75"]]
    text = "".join(delimiter.join(row) + "\n" for row in rows)
    assert strings(read(tmp_path, text)) == [["1", "1"], ["2", "3"], ["0,5", "-12,75"]]
    # Those that are between commas stay there.
    assert strings(read(tmp_path, "1,2;x\n3,4;y\n")) == [["1", "3"], ["2;x", "4;y"]]


def test_integers_reach_to_the_end_of_int64(tmp_path: Path) -> None:
    most = 2**63 - 1
    integers = read(tmp_path, f"{most}\n{-most}\n7\n").integers(0)
    assert integers is not None
    assert integers.tolist() == [most, -most, 7]
    assert read(tmp_path, f"{most + 1}\n7\n").integers(0) is None
    assert read(tmp_path, f"{'9' * 19}\n7\n").integers(0) is None


@given(st.lists(st.text("0127.-+_ ", max_size=21), max_size=3))
def test_whole_numbers_are_what_the_pattern_says(texts: list[str]) -> None:
    pattern = re.compile(r"(?:0|-?[1-9][0-9]{0,17})(?:\.0*)?")
    found = whole_numbers_of(np.array(texts, dtype=np.str_))
    if all(pattern.fullmatch(text) for text in texts):
        assert found is not None
        assert found.tolist() == [int(text.partition(".")[0]) for text in texts]
    else:
        assert found is None
