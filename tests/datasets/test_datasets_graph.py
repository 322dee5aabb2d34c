from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse
from graphs import EDGE_KIND, KINDS, TYPED_KINDS, make_graph

from distgnn.datasets import Graph, InputError
from distgnn.datasets.npz import read_npz, write_npz

if TYPE_CHECKING:
    from pathlib import Path


def make(**fields: Any) -> Graph:
    """A triangle 0 -> 1 -> 2 -> 0 with the given fields on top."""
    base: dict[str, Any] = {
        "name": "triangle",
        "num_vertices": 3,
        "src": np.array([0, 1, 2]),
        "dst": np.array([1, 2, 0]),
    }
    return Graph(**{**base, **fields})


def masks(train: list[int], val: list[int], test: list[int]) -> dict[str, Any]:
    given = {"train_mask": train, "val_mask": val, "test_mask": test}
    return {key: np.array(mask, dtype=np.bool_) for key, mask in given.items()}


LABELS = np.array([0, 1, 0])
TWO_EDGES = {"src": np.array([0, 1]), "dst": np.array([1, 2])}


def test_bare_graph_has_edges_and_nothing_else() -> None:
    graph = make()
    assert (graph.num_edges, graph.num_features, graph.num_classes, graph.num_splits) == (
        3,
        0,
        0,
        0,
    )
    assert not graph.is_multilabel


def test_edgeless_graph_is_allowed() -> None:
    graph = make(src=np.array([]), dst=np.array([]))
    assert graph.num_edges == 0
    assert graph.src.dtype == np.int64


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.uint8, np.bool_, np.int32])
def test_dense_features_become_contiguous_float32(dtype: type) -> None:
    features: Any = np.asfortranarray(np.eye(3, 2)).astype(dtype)
    graph = make(features=features)
    assert isinstance(graph.features, np.ndarray)
    assert graph.features.dtype == np.float32
    assert graph.features.flags.c_contiguous
    assert np.array_equal(graph.features, np.eye(3, 2))


def test_sparse_features_become_canonical_float32_csr_and_leave_the_input_alone() -> None:
    indices = np.array([1, 0, 1])
    matrix = scipy.sparse.csr_matrix(
        (np.array([1, 2, 3], dtype=np.float32), indices, np.array([0, 3, 3, 3])), shape=(3, 2)
    )
    graph = make(features=matrix)
    features: Any = graph.features
    assert scipy.sparse.issparse(features)
    assert features.dtype == np.float32
    assert features.has_canonical_format
    assert np.array_equal(features.toarray(), [[2, 4], [0, 0], [0, 0]])
    assert np.array_equal(matrix.indices, [1, 0, 1])
    assert graph.num_features == 2


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64])
def test_integer_labels_become_int64(dtype: type) -> None:
    graph = make(labels=np.array([0, 4, 0], dtype=dtype))
    assert graph.labels is not None
    assert graph.labels.dtype == np.int64
    assert graph.num_classes == 5


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.int64, np.int8, np.uint16])
def test_labels_of_several_columns_become_uint8(dtype: type) -> None:
    graph = make(labels=np.eye(3, 4).astype(dtype))
    assert graph.labels is not None
    assert graph.labels.dtype == np.uint8
    assert graph.is_multilabel
    assert graph.num_classes == 4


def test_values_of_another_byte_order_are_values() -> None:
    swapped = make(labels=np.array([[0.0], [1.0], [1.0]], ">f4"))
    assert swapped.is_regression
    assert make(labels=np.array([0.5, 1.5, 2.5], ">f4")).labels.dtype == np.float32


def test_one_dimensional_masks_become_one_split() -> None:
    graph = make(labels=LABELS, **masks([1, 0, 0], [0, 1, 0], [0, 0, 1]))
    assert graph.train_mask is not None
    assert graph.train_mask.shape == (1, 3)
    assert graph.num_splits == 1


def test_named_classes_count_even_where_no_vertex_has_one() -> None:
    assert make(labels=LABELS, class_names=("a", "b", "c")).num_classes == 3


def test_graph_cannot_be_changed_by_its_user() -> None:
    with pytest.raises(AttributeError, match="cannot assign"):
        make().num_vertices = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_vertices": 0}, "num_vertices must be a whole number of at least 1, got 0"),
        ({"num_vertices": 2.5}, "num_vertices must be a whole number of at least 1, got 2.5"),
        (
            {"dst": np.array([1, 3, 0])},
            r"edge 1 points to vertex 3, but the graph has 3 vertices \(0..2\)",
        ),
        ({"src": np.array([0, 1, -1])}, r"edge 2 leaves vertex -1, but the graph has 3 vertices"),
        ({"src": np.array([0, 1])}, "src has 2 edges and dst has 3"),
        ({"src": np.zeros((3, 1), int)}, r"src must have shape \(num_edges,\), got \(3, 1\)"),
        ({"dst": np.array([0.0, 1.0, 2.0])}, "dst must hold integers, got float64"),
        ({"features": np.zeros((2, 4))}, r"features must have shape \(3, num_features\).*\(2, 4\)"),
        ({"features": np.zeros(3)}, r"features must have shape .* got \(3,\)"),
        ({"features": np.zeros((3, 0))}, "at least one column"),
        ({"features": np.array([["a"], ["b"], ["c"]])}, "features must hold numbers, got <U1"),
        (
            {"features": np.array([[0, 1], [0, np.nan], [np.inf, 0]])},
            r"features have 2 values that are NaN or infinite .* first at vertex 1 \(nan\)",
        ),
        ({"features": np.array([[0.0], [1e300], [0.0]])}, r"1 values .* vertex 1 \(inf\)"),
        (
            {"features": scipy.sparse.csr_matrix([[1.0, 0.0], [0.0, 0.0], [2.0, np.nan]])},
            r"features have 1 values .* first at vertex 2 \(nan\)",
        ),
        ({"labels": np.array([0, 1])}, r"labels must have shape \(3,\) or \(3, num_labels\)"),
        ({"labels": np.array([0.0, 1.0, 2.0])}, "labels must hold integers, got float64"),
        ({"labels": np.array([0, -1, -2])}, "vertex 2 has label -2, but labels are -1"),
        (
            {"labels": np.array([[0, 1], [2, 0], [0, 0]])},
            "vertex 1 has value 2 in label column 0, but labels with several columns are 0 or 1",
        ),
        ({"labels": np.array([["a"], ["b"], ["c"]])}, "must hold 0 and 1, got <U1"),
        ({"edge_weight": np.ones(2)}, r"edge_weight must hold 3 numbers.*shape \(2,\)"),
        (
            {"edge_weight": np.array([1, np.nan, np.inf])},
            "edge_weight has 2 values that are NaN or infinite .* first at edge 1",
        ),
        (
            {"edge_features": np.ones((2, 4))},
            r"edge_features must hold numbers of shape \(3, num_edge_features\) .*shape \(2, 4\)",
        ),
        ({"edge_features": np.ones(3)}, r"got float64 of shape \(3,\); give one row for each edge"),
        ({"edge_features": np.ones((3, 0))}, r"with at least one column, got .* shape \(3, 0\)"),
        ({"edge_features": np.array([["a"]] * 3)}, "edge_features must hold numbers .* got <U1"),
        (
            {"edge_features": np.array([[0, 1], [2, np.nan], [np.inf, 0]])},
            r"edge_features have 2 values that are NaN or infinite .* first at edge 1 \(nan\)",
        ),
        ({"vertex_id": np.array([5, 7, 5])}, "vertex id 5 occurs more than once among 3"),
        ({"vertex_id": np.array(["a", "b", "a"])}, "vertex id a occurs more than once"),
        ({"vertex_id": np.array([0.5, 1, 2])}, "vertex_id must hold 3 integers or strings"),
        (
            {"labels": LABELS, "class_names": ("only",)},
            "class_names has 1 names, but the labels use 2 classes",
        ),
        ({"class_names": ("a",)}, "class_names has 1 names, but the labels use 0 classes"),
    ],
)
def test_bad_field_is_named_with_value_and_range(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**fields)


@pytest.mark.parametrize("build", [scipy.sparse.csr_matrix, scipy.sparse.csc_matrix])
@pytest.mark.parametrize(("part", "index"), [("indices", 1), ("indptr", 2)])
def test_a_matrix_that_points_outside_itself_is_rejected(build: Any, part: str, index: int) -> None:
    matrix = build(np.eye(3))
    getattr(matrix, part)[index] = 1 << 30
    with pytest.raises(InputError, match="the sparse features are not a valid CSR matrix"):
        make(features=matrix)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"labels": LABELS, **masks([1, 1, 0], [0, 1, 0], [0, 0, 1])},
            r"vertex 1 is in both train_mask and val_mask of split 0 \(1 vertices are\)",
        ),
        (
            {"labels": LABELS, **masks([1, 0, 0], [0, 1, 0], [1, 0, 1])},
            "vertex 0 is in both train_mask and test_mask of split 0",
        ),
        (
            {"labels": LABELS, **masks([1, 0, 0], [0, 1, 1], [0, 0, 1])},
            "vertex 2 is in both val_mask and test_mask of split 0",
        ),
        (
            {"labels": LABELS, **masks([0, 0, 0], [0, 1, 0], [0, 0, 1])},
            "train_mask of split 0 selects no vertex",
        ),
        (
            {
                "labels": LABELS,
                "train_mask": np.array([[1, 0, 0], [1, 0, 0]], dtype=np.bool_),
                "val_mask": np.array([[0, 1, 0], [0, 0, 0]], dtype=np.bool_),
                "test_mask": np.array([[0, 0, 1], [0, 0, 1]], dtype=np.bool_),
            },
            "val_mask of split 1 selects no vertex",
        ),
        (
            {"labels": LABELS, **masks([1, 0, 0], [0, 1, 0], [0, 0, 0])},
            "test_mask of split 0 selects no vertex",
        ),
        (
            {"labels": np.array([-1, 1, 0]), **masks([1, 0, 0], [0, 1, 0], [0, 0, 1])},
            r"train_mask of split 0 selects vertex 0, which has no label \(1 vertices are so\)",
        ),
        (
            {"labels": np.array([1, 0, -1]), **masks([1, 0, 0], [0, 1, 0], [0, 0, 1])},
            "test_mask of split 0 selects vertex 2, which has no label",
        ),
        (
            {"labels": LABELS, "train_mask": np.ones(3, dtype=np.bool_)},
            "val_mask is missing, but a split has train_mask, test_mask and perhaps val_mask",
        ),
        (masks([1, 0, 0], [0, 1, 0], [0, 0, 1]), "but no labels"),
        (
            {"labels": LABELS, **masks([1, 0], [0, 1], [0, 0])},
            r"train_mask must have shape \(3,\) or \(num_splits, 3\), got \(2,\)",
        ),
        (
            {
                "labels": LABELS,
                **masks([1, 0, 0], [0, 1, 0], [0, 0, 1]),
                "val_mask": np.array([0, 1, 0]),
            },
            "val_mask must be bool, got int64",
        ),
        (
            {
                "labels": LABELS,
                **masks([1, 0, 0], [0, 1, 0], [0, 0, 1]),
                "val_mask": np.array([[0, 1, 0], [0, 1, 0]], dtype=np.bool_),
            },
            r"different numbers of splits \(train_mask \(1, 3\), val_mask \(2, 3\)",
        ),
    ],
)
def test_bad_masks_are_named_with_vertex_and_split(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**fields)


def test_vertex_without_any_of_several_labels_may_train() -> None:
    labels = np.array([[0, 0], [1, 0], [0, 1]])
    assert make(labels=labels, **masks([1, 0, 0], [0, 1, 0], [0, 0, 1])).num_splits == 1


def test_a_source_may_lack_validation_vertices() -> None:
    given = masks([1, 0, 0], [0, 0, 0], [0, 0, 1])
    del given["val_mask"]
    graph = make(labels=LABELS, **given)
    assert graph.val_mask is not None
    assert not graph.val_mask.any()
    assert dataclasses.replace(graph, name="again").num_splits == 1


def test_types_are_int64_and_counted() -> None:
    graph = make(
        edge_type=np.array([0, 2], np.uint8), vertex_type=np.array([1, 0, 1], np.int8), **TWO_EDGES
    )
    assert graph.edge_type is not None
    assert graph.edge_type.dtype == np.int64
    assert (graph.num_relations, graph.num_vertex_types) == (3, 2)
    named = make(edge_type=np.array([0, 0]), relation_names=("cites", "writes"), **TWO_EDGES)
    assert (named.num_relations, named.num_vertex_types) == (2, 0)
    assert named.relation_names == ("cites", "writes")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"edge_type": np.zeros(3, int)},
            r"edge_type must hold 2 integers, one for each edge, got int64 of shape \(3,\)",
        ),
        ({"edge_type": np.zeros(2)}, "edge_type must hold 2 integers, .* got float64"),
        ({"vertex_type": np.zeros(2, int)}, "vertex_type must hold 3 integers, one for each verte"),
        ({"edge_type": np.array([0, -1])}, "edge 1 has type -1, but types are 0, 1, 2, ..., at mo"),
        ({"edge_type": np.array([0, 1 << 16])}, "edge 1 has type 65536, .* at most 65535"),
        ({"vertex_type": np.array([0, -1, 0])}, "vertex 1 has type -1"),
        (
            {"edge_type": np.array([0, 1]), "relation_names": ("one",)},
            "relation_names has 1 names, but edge_type uses 2 relations",
        ),
        ({"relation_names": ("one",)}, "relation_names has 1 names, but edge_type uses 0 relation"),
    ],
)
def test_bad_types_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**TWO_EDGES, **fields)


def test_float32_labels_are_values_to_be_learned() -> None:
    graph = make(labels=np.array([0.5, np.nan, 2.0], dtype=np.float32))
    assert graph.labels is not None
    assert (graph.labels.dtype, graph.labels.shape) == (np.float32, (3, 1))
    assert graph.is_regression
    assert not graph.is_multilabel
    assert graph.num_classes == 1
    with pytest.raises(InputError, match="vertex 1 has the value inf in label column 0"):
        make(labels=np.array([0.5, np.inf, 2.0], dtype=np.float32))
    with pytest.raises(InputError, match="train_mask of split 0 selects vertex 1, which has no"):
        make(labels=graph.labels, **masks([0, 1, 0], [1, 0, 0], [0, 0, 1]))


def test_flags_that_nobody_knows_are_kept_apart(tmp_path: Path) -> None:
    graph = make(labels=np.array([[0, 1], [np.nan, 1], [1, 0]]), metric="roc-auc")
    assert graph.labels is not None
    assert graph.labels.tolist() == [[0, 1], [255, 1], [1, 0]]
    write_npz(graph, tmp_path / "g.npz")
    again = read_npz(tmp_path / "g.npz")
    np.testing.assert_array_equal(again.labels, graph.labels)
    assert (again.is_multilabel, again.metric, again.unused) == (True, "roc-auc", ())


@pytest.mark.parametrize("kind", [*KINDS, *TYPED_KINDS, EDGE_KIND, "column"])
def test_a_graph_of_a_graph_is_the_same(kind: str) -> None:
    """Values to be learned that happen to be 0 and 1 are no flags."""
    graph = make_graph("random" if kind == "column" else kind)
    if kind == "column":
        values = np.arange(graph.num_vertices) % 2
        graph = dataclasses.replace(graph, labels=values.astype(np.float32))
    again = dataclasses.replace(graph)
    assert graph.labels is not None
    assert again.labels is not None
    assert again.labels.dtype == graph.labels.dtype
    np.testing.assert_array_equal(again.labels, graph.labels)
    assert again.is_regression == graph.is_regression == (kind in ("column", "regression"))


@pytest.mark.parametrize("name", ["src", "features", "labels", "edge_weight"])
def test_masked_values_are_refused_and_arrays_that_mask_nothing_are_taken(name: str) -> None:
    values: Any = {
        "src": np.array([0, 1, 2]),
        "features": np.eye(3, dtype=np.float32),
        "labels": LABELS,
        "edge_weight": np.ones(3, np.float32),
    }
    taken = getattr(make(**{name: np.ma.array(values[name])}), name)
    assert np.array_equal(taken, values[name])
    hidden = np.zeros(values[name].shape, np.bool_)
    hidden.flat[0] = True
    sentence = f"^{name} has 1 masked values, below which arbitrary numbers lie; replace them, "
    with pytest.raises(InputError, match=sentence):
        make(**{name: np.ma.array(values[name], mask=hidden)})
