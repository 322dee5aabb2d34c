from __future__ import annotations

import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from distgnn import datasets
from distgnn.datasets import InputError
from distgnn.datasets.gnn_benchmark import read_gnn_benchmark

EDGES = {(0, 1), (1, 0), (1, 2), (2, 1)}
LABELS = np.array([0, 1, 1])


def adjacency() -> scipy.sparse.csr_matrix:
    """Directed, with a weight and a self-loop, as some of the files have them."""
    return scipy.sparse.csr_matrix(np.array([[0, 1, 0], [1, 5, 0], [0, 2, 0]], dtype=np.float32))


def attributes() -> scipy.sparse.csr_matrix:
    return scipy.sparse.csr_matrix(np.array([[0, 2], [1, 0], [0, 0]], dtype=np.float32))


def arrays_of() -> dict[str, Any]:
    """The layout of gnn-benchmark, the pickled names included."""
    arrays: dict[str, Any] = {"labels": LABELS}
    for kind, matrix in (("adj", adjacency()), ("attr", attributes())):
        for part in ("data", "indices", "indptr", "shape"):
            arrays[f"{kind}_{part}"] = np.asarray(getattr(matrix, part))
    arrays["idx_to_node"] = np.array({0: "a"}, dtype=object)
    arrays["class_names"] = np.array(["red", "blue"])
    return arrays


def check(graph: Any) -> None:
    assert set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True)) == EDGES
    assert graph.num_edges == len(EDGES)
    assert graph.edge_weight is None
    assert graph.labels.tolist() == LABELS.tolist()
    dense = graph.features.toarray() if scipy.sparse.issparse(graph.features) else graph.features
    assert dense.tolist() == attributes().toarray().tolist()
    assert graph.train_mask is None


def test_both_directions_without_loops_and_weights(tmp_path: Path) -> None:
    np.savez(tmp_path / "amazon_electronics_photo.npz", **arrays_of())
    graph = datasets.load(tmp_path / "amazon_electronics_photo.npz")
    check(graph)
    assert graph.name == "amazon_electronics_photo"
    assert graph.class_names == ("red", "blue")


@pytest.mark.parametrize("number", ["<f2", ">f2", ">f4"])
def test_matrices_of_two_bytes_or_another_byte_order_are_read(tmp_path: Path, number: str) -> None:
    arrays = arrays_of()
    for kind in ("adj", "attr"):
        arrays[f"{kind}_data"] = arrays[f"{kind}_data"].astype(number)
    np.savez(tmp_path / "g.npz", **arrays)
    check(read_gnn_benchmark(tmp_path / "g.npz"))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (np.array(["red", "blue"], dtype=object), ("red", "blue")),
        (np.array({0: "red", 1: "blue"}, dtype=object), None),
        (np.array([], dtype=object), None),
    ],
)
def test_pickled_names_of_classes_are_read_or_left(
    tmp_path: Path, names: Any, expected: tuple[str, ...] | None
) -> None:
    np.savez(tmp_path / "g.npz", **{**arrays_of(), "class_names": names})
    graph = read_gnn_benchmark(tmp_path / "g.npz")
    check(graph)
    assert graph.class_names == expected


@pytest.mark.parametrize("feature_key", ["attr_matrix", "node_attr"])
@pytest.mark.parametrize("label_key", ["label", "node_label", "labels"])
def test_recompressed_copies_are_read(tmp_path: Path, feature_key: str, label_key: str) -> None:
    for features in (attributes(), attributes().toarray()):
        held: Any = (
            np.array(features, dtype=object) if scipy.sparse.issparse(features) else features
        )
        arrays = {feature_key: held, label_key: LABELS[:, None]}
        np.savez_compressed(
            tmp_path / "g.npz", adj_matrix=np.array(adjacency(), dtype=object), **arrays
        )
        check(datasets.load(tmp_path / "g.npz"))


def test_features_as_a_dense_matrix(tmp_path: Path) -> None:
    arrays = {key: value for key, value in arrays_of().items() if not key.startswith("attr_")}
    np.savez(tmp_path / "g.npz", **arrays, attr_matrix=attributes().toarray())
    check(datasets.load(tmp_path / "g.npz"))


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"adj_indptr": None}, r"g\.npz: adj_indptr is missing beside adj_data; fetch the whole"),
    ({"attr_shape": None}, "attr_shape is missing beside attr_data"),
    ({"adj_indices": np.array([0, 1, 2, 9])}, "adj_data, adj_indices, .* are no CSR matrix"),
    ({"adj_indptr": np.array([0, 4, 1 << 30, 0])}, "no CSR matrix .*non-decreasing"),
    ({"adj_shape": np.array([3, 4])}, "must have a square adjacency matrix"),
    ({"labels": np.array([0, 1])}, r"labels must have shape \(3,\)"),
    ({"labels": np.array([object()], dtype=object)}, "labels: the pickle asks for"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES)
def test_wrong_files_are_one_sentence(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    arrays = {key: value for key, value in {**arrays_of(), **change}.items() if value is not None}
    if change.get("labels") is not None and change["labels"].dtype == object:
        arrays["labels"] = np.array([Path("x")], dtype=object)
    np.savez(tmp_path / "g.npz", **arrays)
    with pytest.raises(InputError, match=message):
        datasets.load(tmp_path / "g.npz")


RAGGED = np.array([[1], [1, 2], [3]], dtype=object)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": RAGGED}, r"g\.npz: labels has rows of several lengths; fetch the file again"),
        ({"attr_matrix": RAGGED}, "attr_matrix has rows of several lengths"),
        ({"labels": np.array({"a": 1}, dtype=object)}, "labels must hold numbers, got dict of obj"),
        ({"adj_data": np.array(["a"] * 4)}, "adj_data must hold numbers, got ndarray of <U1"),
        ({"adj_shape": np.array(["3", "3"])}, "adj_shape must hold numbers, got ndarray of <U1"),
    ],
)
def test_what_holds_no_numbers_is_one_sentence(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    arrays = {**arrays_of(), **change}
    if "attr_matrix" in change:
        arrays = {key: value for key, value in arrays.items() if not key.startswith("attr_")}
        arrays["attr_matrix"] = RAGGED
    np.savez(tmp_path / "g.npz", **arrays)
    with pytest.raises(InputError, match=message):
        datasets.load(tmp_path / "g.npz")


def test_labels_as_a_pickled_array_of_integers_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **{**arrays_of(), "labels": LABELS.astype(object)})
    check(datasets.load(tmp_path / "g.npz"))


def test_a_shape_that_no_matrix_has_is_one_sentence(tmp_path: Path) -> None:
    arrays = {**arrays_of(), "adj_shape": np.array([2**63, 2**63], np.uint64)}
    np.savez(tmp_path / "g.npz", **arrays)
    with pytest.raises(InputError, match=r"adj_data, .*, adj_shape are no CSR matrix \("):
        read_gnn_benchmark(tmp_path / "g.npz")


def test_the_pickled_part_of_an_archive_is_unpacked_no_further_than_it_tells(
    tmp_path: Path,
) -> None:
    path, told, held = tmp_path / "g.npz", 98_765, 1 << 26
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("adj_matrix.npy", bytes(held))
    content = path.read_bytes()
    path.write_bytes(content.replace(held.to_bytes(4, "little"), told.to_bytes(4, "little")))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="adj_matrix cannot be read"):
            read_gnn_benchmark(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_cut_file_is_one_sentence(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **arrays_of())
    data = (tmp_path / "g.npz").read_bytes()
    (tmp_path / "g.npz").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=r"not an .npz file or its end is missing"):
        datasets.load(tmp_path / "g.npz")
    (tmp_path / "g.npz").write_bytes(data.replace(b"\x93NUMPY", b"\x93NUMPX"))
    with pytest.raises(InputError, match="cannot be read"):
        read_gnn_benchmark(tmp_path / "g.npz")
