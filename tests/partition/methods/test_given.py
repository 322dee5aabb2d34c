from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distgnn.datasets import Graph, InputError
from distgnn.partition.methods.given import assignment_of, kind_of, read_parts
from distgnn.partition.quality import measure

RING = Graph(name="r", num_vertices=6, src=np.arange(6), dst=(np.arange(6) + 1) % 6)
PATH = Graph(name="p", num_vertices=6, src=np.arange(5), dst=np.arange(5) + 1)


def test_parts_of_edges_get_the_best_roots() -> None:
    parts = np.array([0, 0, 1, 1, 1])
    assert kind_of(parts, PATH) == "edges"
    found = assignment_of(parts, "edges", PATH, 2)
    assert found.edge_part.tolist() == parts.tolist()
    assert measure(PATH, found).halo_rows == 1


def test_parts_of_vertices_are_the_roots_and_edges_are_covered() -> None:
    parts = np.array([1, 1, 1, 0, 0, 0], np.uint8)
    assert kind_of(parts, PATH) == "vertices"
    found = assignment_of(parts, "vertices", PATH, 2)
    assert found.root_part.tolist() == parts.tolist()
    assert measure(PATH, found).halo_rows == 1


def test_a_length_that_fits_both_or_neither_is_refused() -> None:
    with pytest.raises(InputError, match="6 parts may be of the edges or of the vertices, for gr"):
        kind_of(np.zeros(6, int), RING)
    with pytest.raises(InputError, match="4 parts are given, but graph 'p' has 5 edges and 6 ver"):
        kind_of(np.zeros(4, int), PATH)


@pytest.mark.parametrize(("parts", "shown"), [([0, 0, 2, 0, 0], "0..2"), ([-1] * 5, "-1..-1")])
def test_parts_that_do_not_exist_are_refused(parts: list[int], shown: str) -> None:
    with pytest.raises(InputError, match=f"the given parts are {shown}, but 2 parts are numbered"):
        assignment_of(np.array(parts), "edges", PATH, 2)


def test_parts_of_something_else_are_refused() -> None:
    with pytest.raises(InputError, match="5 parts are given for 6 vertices of graph 'p'"):
        assignment_of(np.zeros(5, int), "vertices", PATH, 2)


@pytest.mark.parametrize(
    ("array", "shown"),
    [(np.zeros(3), r"float64 \(3,\)"), (np.zeros((2, 2), int), r"int64 \(2, 2\)")],
)
def test_arrays_of_another_kind_are_refused(tmp_path: Path, array: np.ndarray, shown: str) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InputError, match=f"one-dimensional array of whole numbers, got {shown}"):
        read_parts(str(tmp_path / "a.npy"))


def test_archives_text_and_missing_files_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.zeros(2))
    with pytest.raises(InputError, match="got an archive; write one part per edge"):
        read_parts(str(tmp_path / "a.npz"))
    (tmp_path / "b").write_text("0 1 1")
    with pytest.raises(
        InputError, match=r"cannot read parts from '.*b': .*; write them with numpy"
    ):
        read_parts(str(tmp_path / "b"))
    with pytest.raises(InputError, match=r"cannot read parts from '.*c': No such file"):
        read_parts(str(tmp_path / "c"))


DAMAGED_HEADERS = (
    "((((",
    "  x\n y",
    "{[]: 1}",
    "{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000000,)}\n",
    "{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000000000000000000000,)}\n",
)


@pytest.mark.parametrize("header", DAMAGED_HEADERS)
def test_damaged_headers_are_refused(tmp_path: Path, header: str) -> None:
    magic = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
    (tmp_path / "a.npy").write_bytes(magic + header.encode() + bytes(64))
    with pytest.raises(InputError, match=r"cannot read parts from '.*a.npy': .*; write them with"):
        read_parts(str(tmp_path / "a.npy"))


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"PK\x03\x04, but no archive")
    with pytest.raises(InputError, match=r"cannot read parts from '.*a.npy': File is not a zip"):
        read_parts(str(tmp_path / "a.npy"))
