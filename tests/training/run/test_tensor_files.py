"""Tensors in files, checked against the safetensors package and against damage of any kind."""

from __future__ import annotations

import json

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from distgnn.datasets import InputError, files
from distgnn.training.run.tensors import read_tensors, write_tensors

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)


def tensors_of(dtype):
    generator = torch.Generator().manual_seed(3)
    values = torch.randint(0, 2 if dtype == torch.bool else 100, (3, 5), generator=generator)
    return {
        "matrix": values.to(dtype),
        "scalar": values[0, 0].to(dtype),
        "empty": torch.empty((0, 4), dtype=dtype),
        "transposed": values.to(dtype).t(),
        'with "quotes" and \u00fc': values[1].to(dtype),
    }


def check_same(got, expected):
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        assert got[name].dtype == tensor.dtype
        assert got[name].shape == tensor.shape
        assert torch.equal(got[name], tensor)


def file_of(path, header, body=b""):
    """A file with this header, JSON or raw bytes, and this data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


def entry(start, stop, *, shape=None, dtype="U8"):
    shape = [stop - start] if shape is None else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


@pytest.mark.parametrize("dtype", DTYPES)
def test_safetensors_reads_what_we_write(dtype, tmp_path):
    write_tensors(tmp_path / "t", tensors_of(dtype))
    check_same(safetensors.torch.load_file(tmp_path / "t"), tensors_of(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_we_read_what_safetensors_writes(dtype, tmp_path):
    expected = {name: tensor.contiguous().clone() for name, tensor in tensors_of(dtype).items()}
    safetensors.torch.save_file(expected, tmp_path / "t", metadata={"format": "pt"})
    check_same(read_tensors(tmp_path / "t"), expected)


def test_tensors_of_all_types_in_one_file_are_aligned_and_come_back(tmp_path):
    tensors = {str(dtype): torch.ones(3).to(dtype) for dtype in reversed(DTYPES)}
    write_tensors(tmp_path / "t", tensors)
    check_same(read_tensors(tmp_path / "t"), tensors)
    with safe_open(tmp_path / "t", "pt") as file:
        check_same({name: file.get_tensor(name) for name in file.keys()}, tensors)  # noqa: SIM118
    data = (tmp_path / "t").read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert size % 8 == 0
    header = json.loads(data[8 : 8 + size])
    assert list(header.pop("__metadata__")) == ["sha256"]
    for name, values in header.items():
        assert values["data_offsets"][0] % tensors[name].element_size() == 0


def test_a_file_without_tensors_holds_none(tmp_path):
    write_tensors(tmp_path / "t", {})
    assert read_tensors(tmp_path / "t") == {}


def test_gradients_and_views_are_written_as_their_values(tmp_path):
    weight = torch.arange(6.0).reshape(2, 3).requires_grad_()
    write_tensors(tmp_path / "t", {"weight": weight, "column": weight[:, 1]})
    got = read_tensors(tmp_path / "t")
    assert not got["weight"].requires_grad
    assert got["column"].tolist() == [1.0, 4.0]


def test_what_is_read_is_writable_and_shares_no_memory(tmp_path):
    write_tensors(tmp_path / "t", {"a": torch.zeros(2), "b": torch.zeros(2)})
    got = read_tensors(tmp_path / "t")
    got["a"] += 1
    assert got["b"].tolist() == [0.0, 0.0]


def test_writing_replaces_the_file_whole_or_not_at_all(tmp_path):
    path = tmp_path / "t"
    write_tensors(path, {"a": torch.zeros(2)})
    write_tensors(path, {"b": torch.zeros(3)})
    assert list(read_tensors(path)) == ["b"]
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_tensors(tmp_path / "taken", {"a": torch.zeros(2)})
    with pytest.raises(OSError, match="missing"):
        write_tensors(tmp_path / "missing" / "t", {"a": torch.zeros(2)})
    assert sorted(item.name for item in tmp_path.iterdir()) == ["t", "taken"]


def test_a_missing_file_and_a_folder_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match=r"cannot read '.*missing': No such file"):
        read_tensors(tmp_path / "missing")
    with pytest.raises(InputError, match=r"cannot read '.*': Is a directory"):
        read_tensors(tmp_path)


OVERLAPPING = {str(index): entry(0, 1000) for index in range(1000)}
MALFORMED = {
    "unknown dtype": {"a": entry(0, 4, dtype="F7")},
    "dtype is a list": {"a": entry(0, 4, dtype=[])},
    "no shape": {"a": {"dtype": "U8", "data_offsets": [0, 4]}},
    "three offsets": {"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 2, 4]}},
    "an entry is a number": {"a": 4},
    "an entry is a text": {"a": "U8"},
    "a size is true": {"a": entry(0, 4, shape=[4, True])},
    "a size is a fraction": {"a": entry(0, 4, shape=[4.0])},
    "a size is infinite": b'{"a":{"dtype":"U8","shape":[1e999],"data_offsets":[0,4]}}',
    "the shape is a text": {"a": entry(0, 4, shape="4")},
    "a size is negative": {"a": entry(0, 4, shape=[-4])},
    "an offset is negative": {"a": entry(-4, 0)},
    "a size is beyond 64 bits": {"a": entry(0, 0, shape=[0, 2**63])},
    "too many sizes": {"a": entry(0, 4, shape=[4] + [1] * 64)},
}
DAMAGED = {
    **{name: (header, "the entry of 'a' is malformed") for name, header in MALFORMED.items()},
    "not JSON": (b"{", "its header is not JSON"),
    "not text": (b"\xff\xfe\xfd", "its header is not JSON"),
    "nested too deep": (b"[" * 200_000, "its header is not JSON"),
    "a list": ([1], "its header is not a JSON object"),
    "one tensor on another": (OVERLAPPING, "the data of '1' overlaps others or leaves a gap"),
    "a gap": ({"a": entry(1, 4)}, "the data of 'a' overlaps others or leaves a gap"),
    "half on another": (
        {"a": entry(0, 3), "b": entry(2, 4)},
        "the data of 'b' overlaps others or leaves a gap",
    ),
    "more data than described": ({"a": entry(0, 2)}, "it should hold 2 bytes of data, but holds 4"),
    "terabytes": (
        {"a": entry(0, 2**42, shape=[2**42])},
        "it should hold 4398046511104 bytes of data, but holds 4",
    ),
    "offsets swapped": (
        {"a": entry(4, 0, shape=[4])},
        "the data of 'a' has another size than its shape",
    ),
    "shape and data differ": (
        {"a": entry(0, 4, shape=[2, 3])},
        "the data of 'a' has another size than its shape",
    ),
    "strides overflow": (
        {"a": entry(0, 0, shape=[0, 2**62, 4])},
        "the data of 'a' has another size than its shape",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_named(case, tmp_path):
    header, expected = DAMAGED[case]
    path = file_of(tmp_path / "t", header, b"\1\2\3\4")
    with pytest.raises(InputError, match=f"t' is damaged: {expected}; train again or restore"):
        read_tensors(path)


@pytest.mark.parametrize("data", [b"", b"\1", (2**40).to_bytes(8, "little"), b"\xff" * 8 + b"{}"])
def test_a_header_that_is_cut_off_is_named(data, tmp_path):
    (tmp_path / "t").write_bytes(data)
    with pytest.raises(InputError, match="its header is cut off"):
        read_tensors(tmp_path / "t")


def read_damaged(path):
    """Read; at most an InputError, and never more memory than the file is long."""
    try:
        tensors = read_tensors(path)
    except InputError:
        return
    assert sum(tensor.nbytes for tensor in tensors.values()) <= path.stat().st_size


NUMBERS = st.one_of(
    st.integers(-2, 20), st.sampled_from((2**31, 2**62, 2**63, 2**64, -(2**63), 1e400, True, None))
)
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(("F64", "F32", "BF16", "U8", "BOOL", "X", 3, None)),
        "shape": st.one_of(st.lists(NUMBERS, max_size=3), st.text(max_size=2), NUMBERS),
        "data_offsets": st.one_of(st.lists(NUMBERS, max_size=3), NUMBERS),
    }
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(max_size=5), inner)),
    max_leaves=6,
)
HEADERS = st.one_of(JSON, st.dictionaries(st.text(max_size=3), st.one_of(ENTRIES, JSON)))
FUZZ = settings(
    max_examples=60,
    derandomize=True,
)


@FUZZ
@given(header=HEADERS, body=st.binary(max_size=40))
def test_any_header_is_read_or_refused(header, body, tmp_path):
    read_damaged(file_of(tmp_path / "t", header, body))


@FUZZ
@given(data=st.data())
def test_a_file_with_bytes_changed_or_cut_off_is_read_or_refused(data, tmp_path):
    write_tensors(tmp_path / "t", {"a": torch.arange(5), "b": torch.ones(3), "c": torch.tensor(1)})
    content = bytearray((tmp_path / "t").read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "t").write_bytes(content[: data.draw(st.integers(0, len(content)))])
    read_damaged(tmp_path / "t")


def test_no_byte_of_the_data_can_change_unnoticed(tmp_path):
    tensors = {"a": torch.arange(5), "b": torch.ones(3)}
    write_tensors(tmp_path / "t", tensors)
    content = (tmp_path / "t").read_bytes()
    for place in range(len(content) - 5 * 8 - 3 * 4, len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        (tmp_path / "t").write_bytes(changed)
        expected = r"t' is damaged: its checksum is not that of its data; train again or restore th"
        with pytest.raises(InputError, match=expected):
            read_tensors(tmp_path / "t")


@pytest.mark.parametrize("length", range(0, 250, 7))
def test_no_shorter_file_is_taken_for_whole(length, tmp_path):
    write_tensors(tmp_path / "t", {"a": torch.arange(5), "b": torch.ones(3), "c": torch.tensor(1)})
    content = (tmp_path / "t").read_bytes()
    assert length < len(content)
    (tmp_path / "t").write_bytes(content[:length])
    with pytest.raises(InputError, match="is damaged"):
        read_tensors(tmp_path / "t")


def test_an_empty_tensor_without_a_stride_is_written(tmp_path):
    empty = torch.empty(1, dtype=torch.int64).expand(3)[:0]
    assert empty.stride() == (0,)
    write_tensors(tmp_path / "t", {"empty": empty})
    assert read_tensors(tmp_path / "t")["empty"].shape == (0,)


def test_a_header_that_is_too_long_is_not_parsed(tmp_path):
    path = file_of(tmp_path / "t", b"{}" + b" " * 8_000_000)
    with pytest.raises(InputError, match="its header has 8000002 bytes, above 8000000; train ag"):
        read_tensors(path)


def test_tensors_above_the_free_memory_are_refused_before_they_are_read(tmp_path, monkeypatch):
    write_tensors(tmp_path / "t", {"a": torch.zeros(1 << 18), "b": torch.zeros(1 << 18)})
    monkeypatch.setattr(files, "_SMALL_BYTES", 1 << 10)
    monkeypatch.setattr(files, "available_memory", lambda: 3 << 19)
    with pytest.raises(InputError, match=r"t' takes 0.0021 GB of memory, but 0.00157 GB are free"):
        read_tensors(tmp_path / "t")
