from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.datasets import Graph, InputError
from distgnn.datasets.npz import read_npz, write_npz

EDGES = np.array([[0, 1, 2], [1, 2, 0]], dtype=np.int32)
CSR = {
    "features_indptr": np.array([0, 1, 1, 2]),
    "features_indices": np.array([1, 0], dtype=np.uint16),
    "features_data": np.array([3, 4], dtype=np.uint8),
    "features_shape": np.array([3, 2]),
}


def save(folder: Path, **arrays: Any) -> Path:
    path = folder / "small.npz"
    np.savez(path, **arrays)
    return path


def assert_equal(first: Graph, second: Graph) -> None:
    for field in (
        *("src", "dst", "labels", "train_mask", "val_mask", "test_mask"),
        *("edge_weight", "edge_features"),
    ):
        assert np.array_equal(getattr(first, field), getattr(second, field)), field
    assert first.num_vertices == second.num_vertices
    assert first.class_names == second.class_names
    assert (first.features is None) == (second.features is None)
    if first.features is not None and second.features is not None:
        difference = first.features != second.features
        assert scipy.sparse.csr_matrix(difference).nnz == 0


def test_file_with_edges_alone_takes_the_vertices_from_the_ids(tmp_path: Path) -> None:
    graph = read_npz(save(tmp_path, edge_index=EDGES))
    assert graph.name == "small"
    assert graph.num_vertices == 3
    assert graph.source.endswith("small.npz")
    assert len(graph.checksum) == 64


def test_sparse_features_of_small_integers_are_read(tmp_path: Path) -> None:
    features: Any = read_npz(save(tmp_path, edge_index=EDGES, **CSR)).features
    assert scipy.sparse.issparse(features)
    assert features.indices.dtype == np.int32
    assert np.array_equal(features.toarray(), [[0, 3], [0, 0], [4, 0]])


@pytest.mark.parametrize(
    "arrays",
    [
        {"features": np.ones((5, 2))},
        {"labels": np.zeros(5, dtype=int)},
        {"vertex_id": np.arange(10, 15)},
        {"num_vertices": np.array(5)},
        {"num_vertices": np.array([5])},
    ],
)
def test_isolated_vertices_at_the_end_are_counted(tmp_path: Path, arrays: dict[str, Any]) -> None:
    assert read_npz(save(tmp_path, edge_index=EDGES, **arrays)).num_vertices == 5


def test_arrays_that_a_graph_cannot_hold_are_listed_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = save(tmp_path, edge_index=EDGES, color=np.zeros(3), time=np.zeros(3))
    graph = read_npz(path)
    assert graph.unused == ("color", "time")
    assert "color and time are not used" in caplog.text


def test_types_and_a_split_without_validation_survive_a_file(tmp_path: Path) -> None:
    given = {
        "edge_index": EDGES,
        "edge_type": np.array([1, 0, 1], np.uint8),
        "vertex_type": np.array([0, 1, 0], np.uint8),
        "relation_names": np.array(["cites", "writes"]),
        "labels": np.array([0, 1, -1]),
        "train_mask": np.array([True, False, False]),
        "test_mask": np.array([False, True, False]),
    }
    first = read_npz(save(tmp_path, **given))
    write_npz(first, tmp_path / "again.npz")
    for graph in (first, read_npz(tmp_path / "again.npz")):
        assert graph.edge_type is not None
        assert graph.edge_type.tolist() == [1, 0, 1]
        assert graph.vertex_type is not None
        assert graph.vertex_type.tolist() == [0, 1, 0]
        assert graph.relation_names == ("cites", "writes")
        assert graph.val_mask is not None
        assert not graph.val_mask.any()
        assert graph.unused == ()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"row": EDGES}, r"edge_index is missing; .* this one has row"),
        ({"edge_index": EDGES.T}, r"edge_index must have shape \(2, num_edges\), got \(3, 2\)"),
        ({"edge_index": EDGES / 2}, "src must hold integers, got float64"),
        ({"edge_index": EDGES, "num_vertices": np.array(2)}, "vertex 2, but the graph has 2"),
        ({"edge_index": EDGES, "num_vertices": np.array([1, 2])}, "num_vertices must be a whole"),
        ({"edge_index": EDGES, "labels": np.zeros(3)}, "labels must hold integers"),
        (
            {"edge_index": EDGES, "labels": np.array([0, 2**40, 1])},
            "vertex 1 has label 1099511627776, but the labels of 3 vertices may be at most 999;",
        ),
        (
            {"edge_index": EDGES, "labels": np.array([0, 2**64 - 1, 1], np.uint64)},
            "vertex 1 has label 18446744073709551615, but the labels of 3 vertices may be at most",
        ),
        (
            {"edge_index": EDGES, **CSR, "features": np.ones((3, 2))},
            "features and features_indptr are both there",
        ),
        (
            {"edge_index": EDGES, "features_data": np.ones(2)},
            "features_indptr is missing; sparse features are",
        ),
        (
            {"edge_index": EDGES, **CSR, "features_indices": np.array([0.5, 1.5])},
            "features_indptr, features_indices and features_shape must hold integers",
        ),
        (
            {"edge_index": EDGES, **CSR, "features_indptr": np.array([0, 1])},
            "the CSR arrays of the features contradict each other",
        ),
        (
            {"edge_index": EDGES, **CSR, "features_indices": np.array([9, 0])},
            "not a valid CSR matrix|contradict each other",
        ),
        # Of these, scipy checks nothing more: the last row ends where the first one begins, or
        # before, or the difference of two neighbours overflows.
        *(
            (
                {"edge_index": EDGES, **CSR, "features_indptr": np.array([0, *ends])},
                "not a valid CSR matrix \\(indptr must be a non-decreasing sequence\\)",
            )
            for ends in ([2, 1 << 40, 0], [2, 0, -(1 << 31)], [3 << 61, -(3 << 61), 2])
        ),
        ({"edge_index": EDGES.astype(object)}, "edge_index cannot be read .*Python objects"),
    ],
)
def test_bad_file_is_named_with_the_array(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    path = save(tmp_path, **arrays)
    with pytest.raises(InputError, match=message) as raised:
        read_npz(path)
    assert str(raised.value).startswith(str(path))


@pytest.mark.parametrize("code", [0xD800, 0x110000, 0xFFFFFFFF])
@pytest.mark.parametrize("order", ["<", ">"])
def test_text_with_characters_that_do_not_exist_is_an_input_error(
    tmp_path: Path, code: int, order: str
) -> None:
    names = np.array([0x61, code], dtype=np.uint32).astype(f"{order}u4").view(f"{order}U1")
    path = save(tmp_path, edge_index=EDGES, labels=np.array([0, 1, 0]), class_names=names)
    with pytest.raises(InputError, match=r"class_names cannot be read .its text has characters"):
        read_npz(path)


def test_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_npz(tmp_path / "none.npz")


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\x93NUMPY"])
def test_file_of_another_kind_is_an_input_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"not an .npz file or its end is missing"):
        read_npz(path)


def test_truncated_file_is_an_input_error(tmp_path: Path) -> None:
    path = save(tmp_path, edge_index=EDGES)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match=r"not an .npz file or its end is missing"):
        read_npz(path)


def test_altered_file_is_an_input_error(tmp_path: Path) -> None:
    path = save(tmp_path, edge_index=np.zeros((2, 500), dtype=np.int64))
    content = bytearray(path.read_bytes())
    content[2000] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(InputError, match="edge_index cannot be read"):
        read_npz(path)


@settings(max_examples=25)
@given(
    num_vertices=st.integers(4, 30),
    num_edges=st.integers(0, 60),
    seed=st.integers(0, 2**32 - 1),
    is_sparse=st.booleans(),
    is_multilabel=st.booleans(),
)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    num_vertices: int,
    num_edges: int,
    seed: int,
    is_sparse: bool,
    is_multilabel: bool,
) -> None:
    generator = np.random.default_rng(seed)
    features: Any = generator.random((num_vertices, 3)).astype(np.float32)
    masks = np.arange(num_vertices) % 3 == np.arange(3)[:, None]
    graph = Graph(
        name="any",
        num_vertices=num_vertices,
        src=generator.integers(num_vertices, size=num_edges),
        dst=generator.integers(num_vertices, size=num_edges),
        features=scipy.sparse.csr_matrix(np.where(features > 0.5, features, 0))
        if is_sparse
        else features,
        labels=generator.integers(2, size=(num_vertices, 3) if is_multilabel else num_vertices),
        train_mask=masks[0],
        val_mask=masks[1],
        test_mask=masks[2],
        edge_weight=generator.random(num_edges).astype(np.float32),
        edge_features=generator.random((num_edges, 2)).astype(np.float32),
        vertex_id=np.array([f"v{i}" for i in range(num_vertices)]),
        class_names=("a", "b", "c"),
    )
    folder = tmp_path_factory.mktemp("npz")
    write_npz(graph, folder / "any.npz")
    again = read_npz(folder / "any.npz")
    assert_equal(graph, again)
    assert again.vertex_id is not None
    assert again.vertex_id.tolist() == [f"v{i}" for i in range(num_vertices)]
    assert [file.name for file in folder.iterdir()] == ["any.npz"]


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    graph = read_npz(save(tmp_path, edge_index=EDGES, **CSR))
    write_npz(graph, tmp_path / "a.npz")
    write_npz(graph, tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_writing_into_a_missing_folder_is_an_input_error(tmp_path: Path) -> None:
    graph = read_npz(save(tmp_path, edge_index=EDGES))
    with pytest.raises(InputError, match=r"the folder .* does not exist; create it first"):
        write_npz(graph, tmp_path / "none" / "a.npz")


def test_failed_write_leaves_no_file_behind(tmp_path: Path) -> None:
    graph = read_npz(save(tmp_path, edge_index=EDGES))
    (tmp_path / "taken.npz").mkdir()
    with pytest.raises(InputError, match=r"taken.npz: the file cannot be written \(Is a directory"):
        write_npz(graph, tmp_path / "taken.npz")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["small.npz", "taken.npz"]


REAL = sorted(Path(os.environ.get("DISTGNN_DATA", "/nonexistent")).glob("*.npz"))


@pytest.mark.skipif(not REAL, reason="DISTGNN_DATA names no folder with graphs")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_real_graph_loads_or_says_what_is_wrong(path: Path) -> None:
    graph = read_npz(path)
    with np.load(path) as arrays:
        assert graph.num_edges == arrays["edge_index"].shape[1]
        assert (graph.edge_type is not None) == ("edge_type" in arrays)


def test_ids_beyond_64_bits_with_a_sign_are_kept_as_texts(tmp_path: Path) -> None:
    ids = np.array([2**63 + 1, 5, 7], np.uint64)
    graph = read_npz(save(tmp_path, edge_index=EDGES, vertex_id=ids))
    assert graph.vertex_id is not None
    assert graph.vertex_id.tolist() == [str(2**63 + 1), "5", "7"]


@pytest.mark.parametrize(
    "arrays",
    [
        {"edge_index": np.array([[0.0, np.nan], [1.0, 2.0]])},
        {"edge_index": np.array([["a", "b"], ["b", "a"]])},
        {"edge_index": EDGES, "features": np.float32(3)},
    ],
)
def test_arrays_of_another_kind_are_a_sentence(arrays: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"small\.npz: (src|edge_index|features) must "):
        read_npz(save(tmp_path, **arrays))
