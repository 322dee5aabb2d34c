"""N-Triples: RDF as text, a statement `subject predicate object .` a line, as numbered arrays.

References:
    Carothers, Seaborne, "RDF 1.1 N-Triples", W3C Recommendation, 2014.
"""

from __future__ import annotations

import gzip
import itertools
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.datasets.whole_lines import whole_lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_SLICE_BYTES = 1 << 25
_RESOURCE = rb"<[^<>\"\s]*>|_:[^\s<\"]+"
# Runs of plain characters are one step: of a choice for each, `re` keeps some memory for each.
_LITERAL = rb"\"[^\"\\\n\r]*(?:\\.[^\"\\\n\r]*)*\"(?:@[A-Za-z0-9-]+|\^\^<[^<>\"\s]*>)?"
_STATEMENT = re.compile(
    rb"^[ \t]*("
    + _RESOURCE
    + rb")[ \t]*(<[^<>\"\s]*>)[ \t]*("
    + _RESOURCE
    + rb"|"
    + _LITERAL
    + rb")"
    rb"[ \t]*\.[ \t]*(?:#[^\n\r]*)?\r?$",
    re.MULTILINE,
)
_NO_STATEMENT = re.compile(rb"^[ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE)
_ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})|\\([tbnrf\"'\\])")
_CHARACTERS = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, eq=False)
class Triples:
    """The distinct statements of a file; terms are numbered in the order of the file."""

    subject: NDArray[np.int64]
    """(num_triples,) int64. Index into `terms`."""
    predicate: NDArray[np.int64]
    """(num_triples,) int64. Index into `predicates`."""
    object: NDArray[np.int64]
    """(num_triples,) int64. Index into `terms`."""
    terms: list[bytes]
    """Subjects and objects as they are written: <URI>, _:blank, "literal"@en."""
    predicates: list[bytes]
    """Predicates as they are written."""


def read_ntriples(path: Path) -> Triples:
    """Read an N-Triples file. As RDF is a set of statements, repetitions are dropped.

    Args:
        path: A .nt or .nt.gz file, which exists.

    Raises:
        InputError: If the file is damaged, or a line is not a statement.
    """
    numbers: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
    found: list[NDArray[np.int64]] = []
    num_lines = 0
    for text in _slices(path):
        statements = _STATEMENT.findall(text)
        lines = text.count(b"\n")
        if len(statements) + len(_NO_STATEMENT.findall(text[:-1])) != lines:
            raise InputError(_bad_line(path, text, num_lines))
        num_lines += lines
        columns = list(zip(*statements, strict=True)) or [(), (), ()]
        ends = itertools.chain.from_iterable(zip(columns[0], columns[2], strict=True))
        for kind, column in ((0, ends), (1, columns[1])):
            table = numbers[kind]
            fresh = [term for term in dict.fromkeys(column) if term not in table]
            table.update(zip(fresh, range(len(table), len(table) + len(fresh)), strict=True))
        found.append(
            np.stack(
                [
                    np.fromiter(map(numbers[kind].__getitem__, column), np.int64, len(column))
                    for kind, column in zip((0, 1, 0), columns, strict=True)
                ]
            )
        )
    if not found or not numbers[1]:
        raise InputError(f"{path} has no statements; give an N-Triples file with some")
    subject, predicate, obj = _distinct(np.concatenate(found, axis=1), numbers)
    return Triples(subject, predicate, obj, list(numbers[0]), list(numbers[1]))


def text_of(term: bytes) -> str:
    """Return a URI without its brackets, or another term as it is, with escapes resolved."""
    text = term.decode("utf-8", errors="replace")
    if text.startswith("<"):
        text = text[1:-1]
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(found: re.Match[str]) -> str:
    code = found[1] or found[2]
    if code is None:
        return _CHARACTERS.get(found[3], found[3])
    number = int(code, 16)
    is_character = number < 0xD800 or 0xDFFF < number <= 0x10FFFF
    return chr(number) if is_character else "\N{REPLACEMENT CHARACTER}"


def _distinct(
    triples: NDArray[np.int64], numbers: tuple[dict[bytes, int], dict[bytes, int]]
) -> NDArray[np.int64]:
    """Drop repetitions; keep the order of the file."""
    pair = triples[0] * len(numbers[0]) + triples[2]
    # Pairs are numbered densely first, so that pair and predicate fit one key.
    dense = np.unique(pair, return_inverse=True)[1].reshape(-1)
    first = np.unique(dense * len(numbers[1]) + triples[1], return_index=True)[1]
    first.sort()
    return triples[:, first]


def _slices(path: Path) -> Iterator[bytes]:
    """Yield the file in pieces of whole lines, each ending with a line end."""
    try:
        for lines in whole_lines(path, _SLICE_BYTES):
            yield lines if lines.endswith(b"\n") else lines + b"\n"
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"{path} cannot be unpacked ({error}); the file is cut or damaged, so fetch it again"
        ) from error


def _bad_line(path: Path, text: bytes, num_before: int) -> str:
    for number, line in enumerate(text.split(b"\n")):
        if not _STATEMENT.match(line) and not _NO_STATEMENT.match(line):
            shown = line[:80].decode(errors="replace")
            return (
                f"line {num_before + number + 1} of {path} is {shown!r}, but a statement of "
                "N-Triples is '<subject> <predicate> <object> .'; correct the line"
            )
    return f"{path} has lines that are not N-Triples; write each statement on a line of its own"
