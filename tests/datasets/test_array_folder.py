from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from distgnn import datasets
from distgnn.datasets import Graph, InputError
from distgnn.datasets.array_folder import read_array_folder

SRC, DST = np.array([0, 1, 2], np.int32), np.array([1, 2, 0], np.int32)
EDGES = np.stack([SRC, DST])


def save(folder: Path, **arrays: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def test_the_members_of_a_graph_file_give_the_same_graph(tmp_path: Path) -> None:
    features = scipy.sparse.random(3, 4, 0.5, format="csr", random_state=0, dtype=np.float32)
    arrays: dict[str, Any] = {
        "edge_index": EDGES,
        "features_indptr": features.indptr,
        "features_indices": features.indices,
        "features_data": features.data,
        "features_shape": np.array(features.shape),
        "labels": np.array([0, 1, 0]),
        "edge_weight": np.array([1.0, 2.0, 3.0]),
        "vertex_id": np.array(["a", "b", "c"]),
        "class_names": np.array(["x", "y"]),
        **{f"{key}_mask": np.arange(3) == k for k, key in enumerate(("train", "val", "test"))},
    }
    np.savez(tmp_path / "g.npz", **arrays)
    one, other = datasets.load(tmp_path / "g.npz"), datasets.load(save(tmp_path / "g", **arrays))
    assert (one.name, one.num_vertices, one.class_names) == (
        other.name,
        other.num_vertices,
        other.class_names,
    )
    for name in ("src", "dst", "labels", "edge_weight", "vertex_id", "train_mask", "test_mask"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert isinstance(one.features, scipy.sparse.csr_matrix)
    assert isinstance(other.features, scipy.sparse.csr_matrix)
    assert np.array_equal(one.features.toarray(), other.features.toarray())
    assert other.source == str(tmp_path / "g")
    assert len(other.checksum) == 64


def test_sources_and_destinations_may_be_two_files(tmp_path: Path) -> None:
    graph = datasets.load(save(tmp_path, src=SRC, dst=DST, num_vertices=np.array(5)))
    assert graph.num_vertices == 5
    assert graph.src.tolist() == [0, 1, 2]
    assert graph.dst.tolist() == [1, 2, 0]
    assert graph.unused == ()


def is_mapped(graph: Graph) -> bool:
    base: Any = graph.features
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    return base is not None


@pytest.mark.parametrize(("width", "expected"), [(2, False), (1 << 17, True)])
def test_large_features_stay_on_disk(tmp_path: Path, width: int, expected: bool) -> None:
    features = np.ones((3, width), np.float32)
    graph = datasets.load(save(tmp_path, edge_index=EDGES, features=features))
    assert graph.num_features == width
    assert is_mapped(graph) == expected


def test_arrays_that_a_graph_cannot_hold_are_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graph = datasets.load(save(tmp_path, edge_index=EDGES, color=np.zeros(3)))
    assert graph.unused == ("color",)
    assert "color is not used" in caplog.text


def test_types_are_read(tmp_path: Path) -> None:
    types = {"edge_type": np.array([1, 0, 1], np.uint8), "vertex_type": np.arange(3)}
    graph = datasets.load(save(tmp_path, edge_index=EDGES, **types))
    assert graph.edge_type is not None
    assert graph.edge_type.tolist() == [1, 0, 1]
    assert (graph.num_relations, graph.num_vertex_types) == (2, 3)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"src": SRC}, r"dst.npy: there is no such file; check the path"),
        ({"src": SRC, "dst": EDGES}, r"dst.npy must have shape \(num_edges,\), got \(2, "),
        ({"src": SRC, "dst": DST[1:]}, "src has 3 ids of int32 and dst 2 of int32; give one of"),
        ({"src": SRC, "dst": DST.astype(np.int64)}, "src has 3 ids of int32 and dst 3 of int64"),
        ({"src": SRC / 2, "dst": DST / 2}, "must be int32 or int64, got float64; convert them"),
        ({"edge_index": EDGES.T}, r"edge_index must have shape \(2, num_edges\), got \(3, 2\)"),
        ({"edge_index": EDGES, "num_vertices": np.array(2)}, "vertex 2, but the graph has 2"),
        ({"edge_index": EDGES, "labels": np.zeros(3)}, "labels must hold integers"),
    ],
)
def test_a_contradiction_is_an_input_error_that_names_the_folder(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        datasets.load(save(tmp_path / "folder", **arrays))
    assert str(caught.value).startswith(str(tmp_path / "folder"))


def test_a_damaged_array_is_an_input_error(tmp_path: Path) -> None:
    folder = save(tmp_path, edge_index=EDGES)
    content = (folder / "edge_index.npy").read_bytes()
    (folder / "edge_index.npy").write_bytes(content[:-4])
    with pytest.raises(InputError, match=r"edge_index.npy cannot be read \(its last 4 bytes are"):
        read_array_folder(folder)
    (folder / "edge_index.npy").write_bytes(b"text")
    with pytest.raises(InputError, match=r"edge_index.npy cannot be read \(.*write it again with"):
        read_array_folder(folder)
    np.save(folder / "edge_index.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(InputError, match=r"cannot be read \(it holds Python objects\)"):
        read_array_folder(folder)
    broken = np.array([0x110000], np.uint32).view("U1")
    save(folder, edge_index=EDGES, vertex_id=broken)
    with pytest.raises(InputError, match=r"vertex_id.npy cannot be read \(its text has characters"):
        read_array_folder(folder)


def test_a_vertex_table_beside_arrays_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="takes no vertex table, only edge lists do"):
        datasets.load(save(tmp_path, edge_index=EDGES), vertices="v.csv")
