"""The safetensors file format: a JSON header and raw little-endian data, so nothing is unpickled.

Format: 8 bytes little-endian length of the header; the header, JSON, {name: {dtype, shape,
data_offsets}}; the data. Written here with the standard library alone, because it is small and the
core install is to stay small; the `safetensors` package reads these files. The header's metadata
holds a SHA-256 of all the rest: a flipped bit of a weight is otherwise as good as any other.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from distgnn.datasets.errors import InputError
from distgnn.datasets.files import check_regular, check_room

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import BufferedReader
    from pathlib import Path

    from torch import Tensor

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_METADATA = "__metadata__"
_DIGEST = "sha256"
# A tensor takes some 100 bytes of it, and what JSON makes of a byte takes up to 25.
_MAX_HEADER_BYTES = 8_000_000
_MAX_DIMS = 64


class _DamagedError(Exception):
    """Says how a file is damaged."""


class _Entry(NamedTuple):
    name: str
    dtype: torch.dtype
    shape: list[int]
    start: int
    stop: int


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to a file, whole or not at all.

    Args:
        path: Target; replaced when the new file is complete.
        tensors: By name.

    Raises:
        OSError: If the file cannot be written; the old one is then as it was.
    """
    # Wide items first: every tensor then starts at a multiple of its item's size, which readers
    # that map the file need.
    ordered = dict(sorted(tensors.items(), key=lambda item: -item[1].element_size()))
    ordered = {name: tensor.detach().cpu().contiguous() for name, tensor in ordered.items()}
    header: dict[str, Any] = {}
    start = 0
    for name, tensor in ordered.items():
        stop = start + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, stop],
        }
        start = stop
    digest = hashlib.sha256(json.dumps(header).encode())
    for tensor in ordered.values():
        digest.update(_bytes_of(tensor))
    text = json.dumps({_METADATA: {_DIGEST: digest.hexdigest()}, **header}).encode()
    text += b" " * (-len(text) % 8)
    # Ranks, on this machine or another, may write the same file at the same time.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(len(text).to_bytes(8, "little"))
            file.write(text)
            for tensor in ordered.values():
                file.write(_bytes_of(tensor))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_tensors(
    path: Path, *, remedy: str = "train again or restore the file"
) -> dict[str, Tensor]:
    """Read a file that `write_tensors` or safetensors wrote.

    The whole header is checked before memory is taken, which is never more than the file is long.

    Args:
        path: The file.
        remedy: Advice for a damaged file.

    Returns:
        Tensors by name.

    Raises:
        InputError: If the file is missing or damaged.
    """
    try:
        check_regular(path)
        with path.open("rb") as file:
            header = _read_header(file)
            expected = header.pop(_METADATA, None)
            digest = hashlib.sha256(json.dumps(header).encode())
            tensors = {}
            entries = _entries(file, header)
            check_room(sum(entry.stop - entry.start for entry in entries), f"'{path}'")
            for entry in entries:
                tensors[entry.name] = _read_data(file, entry)
                digest.update(_bytes_of(tensors[entry.name]))
    except _DamagedError as error:
        raise InputError(f"'{path}' is damaged: {error}; {remedy}") from error
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from error
    is_ours = isinstance(expected, dict) and _DIGEST in expected
    if is_ours and expected[_DIGEST] != digest.hexdigest():
        raise InputError(f"'{path}' is damaged: its checksum is not that of its data; {remedy}")
    return tensors


def _read_header(file: BufferedReader) -> dict[str, Any]:
    num_bytes = os.fstat(file.fileno()).st_size - 8
    size = int.from_bytes(file.read(8), "little")
    if num_bytes < 0 or size > num_bytes:
        raise _DamagedError("its header is cut off")
    if size > _MAX_HEADER_BYTES:
        raise _DamagedError(f"its header has {size} bytes, above {_MAX_HEADER_BYTES}")
    try:
        header = json.loads(file.read(size))
    except (ValueError, RecursionError) as error:
        raise _DamagedError("its header is not JSON") from error
    if not isinstance(header, dict):
        raise _DamagedError("its header is not a JSON object")
    return header


def _entries(file: BufferedReader, header: dict[str, Any]) -> list[_Entry]:
    """Check the header; the entries come in the order of their data, which begins here."""
    num_bytes = os.fstat(file.fileno()).st_size - file.tell()
    entries = [_parse(name, values) for name, values in header.items()]
    entries.sort(key=lambda entry: (entry.start, entry.stop))
    position = 0
    for entry in entries:
        if entry.start != position:
            raise _DamagedError(f"the data of '{entry.name}' overlaps others or leaves a gap")
        position = entry.stop
    if position != num_bytes:
        raise _DamagedError(f"it should hold {position} bytes of data, but holds {num_bytes}")
    return entries


def _parse(name: str, values: Any) -> _Entry:
    try:
        dtype, shape = _DTYPES[values["dtype"]], list(values["shape"])
        start, stop = values["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise _DamagedError(f"the entry of '{name}' is malformed") from error
    # Exactly int: true and 2.0 are not sizes, and infinity is none either.
    are_sizes = all(type(number) is int and 0 <= number < 2**63 for number in (*shape, start, stop))
    if not are_sizes or len(shape) > _MAX_DIMS:
        raise _DamagedError(f"the entry of '{name}' is malformed")
    # A size of 0 hides the others from the product, but not from torch's strides.
    reach = math.prod(max(size, 1) for size in shape) * dtype.itemsize
    if reach >= 2**63 or stop - start != math.prod(shape) * dtype.itemsize:
        raise _DamagedError(f"the data of '{name}' has another size than its shape")
    return _Entry(name, dtype, shape, start, stop)


def _read_data(file: BufferedReader, entry: _Entry) -> Tensor:
    tensor = torch.empty(entry.shape, dtype=entry.dtype)
    if file.readinto(_bytes_of(tensor)) != entry.stop - entry.start:
        raise _DamagedError(f"the data of '{entry.name}' is cut off")
    return tensor


def _bytes_of(tensor: Tensor) -> Any:
    """View a contiguous tensor as a flat buffer, without a copy."""
    # An empty tensor may have a stride of 0, which cannot be viewed as bytes.
    flat = tensor.reshape(-1) if tensor.numel() else tensor.new_empty(0)
    return flat.view(torch.uint8).numpy()
