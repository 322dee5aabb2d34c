"""Changes of files as disks, networks, other programs and people make them; drawn from a seed."""

from __future__ import annotations

import io
import json
import random
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

HUGE = (
    *(b"-1", b"0", b"2147483648", b"9223372036854775807", b"18446744073709551616", b"1e999"),
    *(b"nan", b"-inf", b"9" * 400, b"null", b"true", b'"\\ud800"', b"[" * 3000, b"{}", b"[]"),
)
SPECIAL = (
    b"\0",
    b"\n",
    b"\r",
    b'"',
    b",",
    b"\t",
    b"#",
    b" ",
    b"\xff\xfe",
    b"\x1b[2J",
    b"\xed\xa0\x80",
)
DTYPES = ("<i8", ">i4", "<f4", "<f8", "u1", "?", "<U3", "S2", "<c8", "<M8[s]", "<u8", "<f2")


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Return a file with one to three changes.

    Args:
        content: The sound file.
        draw: Source of all choices.
    """
    for _ in range(draw.randint(1, 3)):
        content = draw.choice(_CHANGES)(content, draw)
    return content


def mutated_archive(content: bytes, draw: random.Random) -> bytes:
    """Return an .npz file with a member changed, added or gone, under a sound table of contents."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as sound:
        names = sound.namelist()
        victim = draw.choice(names)
        kind = draw.choice(("bytes", "array", "array", "array", "remove", "rename"))
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
            for name in names:
                value = sound.read(name)
                if name == victim and kind == "remove":
                    continue
                if name == victim and kind == "rename":
                    name = draw.choice((draw.choice(names), "features.npy", "\x1b[0m.npy", "x"))
                elif name == victim:
                    value = mutated(value, draw) if kind == "bytes" else mutated_array(value, draw)
                out.writestr(name, value)
    return packed.getvalue()


def mutated_array(content: bytes, draw: random.Random) -> bytes:
    """Return an .npy file that is sound, with other values, another dtype or another shape."""
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except ValueError:
        return mutated(content, draw)
    changed = io.BytesIO()
    with np.errstate(all="ignore"):
        try:
            np.save(changed, draw.choice(_ARRAYS)(array, draw))
        except (ValueError, TypeError, OverflowError):
            return mutated(content, draw)
    return changed.getvalue()


def mutated_json(content: bytes, draw: random.Random) -> bytes:
    """Return JSON with a value of another kind somewhere, or a key gone."""
    values = json.loads(content)
    place: Any = values
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = draw.choice(keys)
        if isinstance(place[key], dict | list) and draw.random() < 0.7:
            place = place[key]
            continue
        if draw.random() < 0.25:
            del place[key]
        else:
            place[key] = draw.choice(
                (None, -1, 0, 1.5, 10**30, True, "", "x", "\ud800", [], {}, [[]], float("nan"))
            )
        break
    return json.dumps(values).encode()


def _flip(content: bytes, draw: random.Random) -> bytes:
    if not content:
        return content
    changed = bytearray(content)
    changed[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randint(0, len(content))]


def _splice(content: bytes, draw: random.Random) -> bytes:
    first, last = sorted(draw.randint(0, len(content)) for _ in range(2))
    place = draw.randint(0, len(content))
    return content[:place] + content[first : min(last, first + 4096)] + content[place:]


def _remove(content: bytes, draw: random.Random) -> bytes:
    first = draw.randint(0, len(content))
    return content[:first] + content[first + draw.randint(1, 64) :]


def _insert(content: bytes, draw: random.Random) -> bytes:
    place = draw.randint(0, len(content))
    return content[:place] + draw.choice((*HUGE, *SPECIAL)) + content[place:]


def _number(content: bytes, draw: random.Random) -> bytes:
    """Put a huge number or a word in place of a number that is written as text."""
    digits = [i for i, byte in enumerate(content[:65536]) if 48 <= byte <= 57]
    if not digits:
        return _insert(content, draw)
    start = end = draw.choice(digits)
    while start > 0 and 48 <= content[start - 1] <= 57:
        start -= 1
    while end < len(content) and 48 <= content[end] <= 57:
        end += 1
    return content[:start] + draw.choice(HUGE) + content[end:]


_CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(_flip, _cut, _splice, _remove, _insert, _number, _number),
)


def _values(array: Any, draw: random.Random) -> Any:
    changed = array.copy()
    flat = changed.reshape(-1)
    if flat.size:
        numbers: tuple[Any, ...] = (
            -1,
            0,
            1,
            2**31,
            2**62,
            -(2**63),
            1e300,
            np.nan,
            np.inf,
            "\x1b[",
        )
        flat[draw.randrange(flat.size)] = draw.choice(numbers)
    return changed


def _dtype(array: Any, draw: random.Random) -> Any:
    return array.astype(draw.choice(DTYPES))


def _structured(array: Any, draw: random.Random) -> Any:
    del draw
    return np.zeros(array.shape, [("a", "<i4"), ("b", "<f8", (2,))])


def _shape(array: Any, draw: random.Random) -> Any:
    shapes = ((-1,), (1, -1), (-1, 1), (*array.shape, 1), (0, *array.shape[1:]))
    shape = draw.choice(shapes)
    return np.zeros(shape, array.dtype) if 0 in shape else array.reshape(shape)


def _longer(array: Any, draw: random.Random) -> Any:
    del draw
    return np.concatenate([array.reshape(-1), array.reshape(-1)[:1]])


def _other(array: Any, draw: random.Random) -> Any:
    backwards = array[..., ::-1] if array.ndim else array
    choices: tuple[Any, ...] = (np.zeros((), array.dtype), array.T, backwards, np.zeros(0))
    return draw.choice(choices)


_ARRAYS: tuple[Callable[[Any, random.Random], Any], ...] = (
    *(_values, _values, _dtype, _structured, _shape, _longer, _other),
)
