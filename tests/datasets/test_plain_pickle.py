from __future__ import annotations

import collections
import os
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from distgnn.datasets import InputError
from distgnn.datasets.plain_pickle import read_pickle

PROTOCOLS = range(5)


class Thief:
    """Object that an attacker would put into a file."""

    def __reduce__(self) -> Any:
        return os.system, ("touch stolen",)


def round_trip(value: Any, protocol: int) -> Any:
    return read_pickle(pickle.dumps(value, protocol=protocol), "value")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_containers_and_numbers_come_back(protocol: int) -> None:
    value = {"a": [1, -2, 3.5, None, True, False, 2**70, 300, 70000], "b": (), "c": (1, 2, 3, {})}
    assert round_trip(value, protocol) == value
    lists = collections.defaultdict(list, {0: [1, 2], 1: [0], 7: []})
    assert round_trip(lists, protocol) == dict(lists)
    shared = [1]
    assert round_trip([shared, shared, "text"], protocol) == [[1], [1], "text"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["<f4", ">i8", "i4", "u1", "bool", "f8"])
def test_arrays_come_back(protocol: int, kind: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(kind)
    for given in (array, np.asfortranarray(array), array[:0]):
        found = round_trip(given, protocol)
        assert found.dtype == given.dtype
        assert np.array_equal(found, given)
    assert round_trip([array[0, 1], array], protocol)[0] == array[0, 1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_sparse_matrices_come_back_as_csr(protocol: int, form: str) -> None:
    matrix = scipy.sparse.random(5, 4, 0.4, format=form, dtype=np.float32, random_state=0)
    found = round_trip(matrix, protocol)
    assert found.format == "csr"
    assert np.array_equal(found.toarray(), matrix.toarray())


def array_of_python_2(*values: int) -> bytes:
    """Return cPickle's bytes of an int32 array in Python 2, by protocol 2 without its head."""
    return (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85U\x01b\x87Rq\x03"
        b"(K\x01K%c\x85cnumpy\ndtype\nq\x04U\x02i4K\x00K\x01\x87Rq\x05(K\x03U\x01<NNN"
        b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U%c%stb"
    ) % (len(values), 4 * len(values), np.array(values, "<i4").tobytes())


def test_texts_and_arrays_of_python_2_are_read() -> None:
    text = b"(lp1\nS'a\\xe9\\'\\n'\np2\naI7\na."
    assert read_pickle(text, "value") == ["a\xe9'\n", 7]
    assert read_pickle(b"\x80\x02" + array_of_python_2(1, 255) + b".", "v").tolist() == [1, 255]


@pytest.mark.parametrize("ends", [(1, 2), (1 << 30, 0)])
@pytest.mark.parametrize("columns", [(0, 1), (0, 9)])
def test_matrices_of_python_2_are_read_and_checked(
    columns: tuple[int, int], ends: tuple[int, int]
) -> None:
    arrays = {b"data": (5, 6), b"indices": columns, b"indptr": (0, *ends)}
    state = b"".join(
        b"U%c%s%s" % (len(key), key, array_of_python_2(*values)) for key, values in arrays.items()
    )
    maker = b"ccopy_reg\n_reconstructor\n(cscipy.sparse.csr\ncsr_matrix\nc__builtin__\nobject\nNtR"
    data = b"\x80\x02" + maker + b"}(" + state + b"U\x06_shapeK\x02K\x02\x86ub."
    if (columns[1], ends[1]) == (1, 2):
        assert read_pickle(data, "value").toarray().tolist() == [[5, 0], [0, 6]]
    else:
        with pytest.raises(InputError, match="value is damaged or is no pickle"):
            read_pickle(data, "value")


def test_a_matrix_of_rows_that_the_data_do_not_have_is_refused() -> None:
    matrix = scipy.sparse.csc_matrix(np.eye(3, dtype=np.float32))
    matrix.__dict__["_shape"] = (10**10, 3)
    with pytest.raises(InputError, match=r"value is damaged .*shape \(10000000000, 3\) has 3 entr"):
        round_trip(matrix, 2)


def test_an_array_of_objects_is_what_it_holds() -> None:
    matrix = scipy.sparse.eye(2, format="csr")
    assert round_trip(np.array(matrix, dtype=object), 2).nnz == 2
    assert round_trip(np.array(["x", 3], dtype=object), 2) == ["x", 3]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_run(protocol: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"asks for '\w+.system', and only arrays.*savez"):
        round_trip({"x": [Thief()]}, protocol)
    for name in (b"os\nsystem", b"builtins\neval", b"numpy\nload", b"collections\nOrderedDict"):
        with pytest.raises(InputError, match=f"asks for '{name.decode().replace(chr(10), '.')}'"):
            read_pickle(b"c" + name + b"\n(S'1'\ntR.", "value")
    assert not (tmp_path / "stolen").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it ends in the middle"),
        (b"]q\x01K", "is damaged or is no pickle"),
        (b"\xff.", "byte 255 is no instruction"),
        (b"hello", "is damaged"),
        (b"a.", "is damaged"),
        (b"K\x01K\x02a.", "a int is where a list belongs"),
        (b"S'x.", "a text lacks its quotes"),
        (b"g5\n.", "is damaged"),
        (b"cnumpy\nndarray\n)R.", "ndarray cannot be called"),
        (b"cnumpy\ndtype\n(S'V8'\ntR.", "arrays of 'V8' are not read"),
        (b"cnumpy\nndarray\n)\x81.", "ndarray cannot be made so"),
        (b"ccopy_reg\n_reconstructor\n(cnumpy\nndarray\nc__builtin__\nobject\nNtR.", "be called"),
        (b"P5\n.", "the pickle uses PERSID, which plain arrays"),
        (b"(i__main__\nX\n.", "the pickle uses INST"),
    ],
)
def test_what_is_damaged_or_foreign_is_one_sentence(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_pickle(data, "value")


def test_every_cut_of_a_pickle_is_refused() -> None:
    data = pickle.dumps({"x": np.arange(5), "m": scipy.sparse.eye(3, format="csr")}, protocol=2)
    for size in range(len(data)):
        with pytest.raises(InputError, match="value"):
            read_pickle(data[:size], "value")


def test_a_size_that_the_data_do_not_have_is_refused() -> None:
    data = pickle.dumps(np.arange(5, dtype=np.int32), protocol=2)
    for shape in (b"K\x06", b"J\xff\xff\xff\x7f"):
        with pytest.raises(InputError, match="is damaged"):
            read_pickle(data.replace(b"K\x05\x85", shape + b"\x85"), "value")
