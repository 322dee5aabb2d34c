from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from distgnn import interop
from distgnn.datasets import Graph, InputError

# PyG and DGL use what torch is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
needs_dgl = pytest.mark.skipif(find_spec("dgl") is None, reason="dgl is not installed")
needs_pyg = pytest.mark.skipif(find_spec("torch_geometric") is None, reason="PyG is not installed")
PARTNERS = [
    pytest.param("dgl", marks=needs_dgl),
    pytest.param("pyg", marks=needs_pyg),
]
EDGES = np.array([[0, 1, 1, 3, 3], [1, 2, 2, 0, 3]])


def graph_of(**change: Any) -> Graph:
    """Parallel edges, a self-loop, an isolated vertex, two splits."""
    arrays = {
        "num_vertices": 5,
        "features": np.arange(10, dtype=np.float32).reshape(5, 2),
        "labels": np.array([0, 1, -1, 1, 0]),
        "train_mask": np.eye(5, dtype=bool)[[0, 1]],
        "val_mask": np.eye(5, dtype=bool)[[1, 3]],
        "test_mask": np.eye(5, dtype=bool)[[4, 4]],
        "edge_weight": np.arange(5) / 2,
        **change,
    }
    return interop.from_numpy(EDGES, name="small", **arrays)


@needs_pyg
def test_a_column_of_edges_is_a_weight_only_where_there_is_none() -> None:
    import torch

    there = interop.to_pyg(graph_of(edge_weight=None))
    there.edge_attr = torch.arange(5.0)[:, None]
    alone = interop.from_pyg(there)
    assert (alone.edge_weight.tolist(), alone.edge_features) == ([0, 1, 2, 3, 4], None)  # type: ignore[union-attr]
    there.edge_weight = torch.ones(5)
    beside = interop.from_pyg(there)
    assert beside.edge_weight.tolist() == [1] * 5  # type: ignore[union-attr]
    assert beside.edge_features.tolist() == [[0], [1], [2], [3], [4]]  # type: ignore[union-attr]


@pytest.mark.parametrize("partner", PARTNERS)
def test_no_edges_have_features_of_their_width(partner: str) -> None:
    bare = {"num_vertices": 3, "edge_features": np.zeros((0, 4)), "edge_weight": np.zeros(0)}
    graph = interop.from_numpy(np.zeros((2, 0), np.int64), **bare)
    there = getattr(interop, f"to_{partner}")(graph)
    assert getattr(interop, f"from_{partner}")(there).num_edge_features == 4


@needs_pyg
def test_attributes_of_other_edges_are_refused() -> None:
    import torch

    there = interop.to_pyg(graph_of())
    there.edge_attr = torch.zeros(10, 2)
    with pytest.raises(InputError, match=r"edge_features must hold numbers of shape \(5, num_edge"):
        interop.from_pyg(there)


@pytest.mark.parametrize(
    ("shape", "width"), [((3,), 1), ((3, 2), 2), ((3, 2, 4), 8), ((0,), 1), ((0, 2, 4), 8)]
)
def test_a_table_has_a_row_for_each_edge(shape: tuple[int, ...], width: int) -> None:
    values = np.arange(np.prod(shape)).reshape(shape)
    table = interop.arrays.as_table(values)
    assert table.shape == (shape[0], width)
    assert np.array_equal(table.ravel(), values.ravel())


def assert_equal(first: Graph, second: Graph) -> None:
    assert first.num_vertices == second.num_vertices
    for field in (
        *("src", "dst", "labels", "train_mask", "val_mask", "test_mask"),
        *("edge_weight", "edge_features", "edge_type", "vertex_type"),
    ):
        assert np.array_equal(getattr(first, field), getattr(second, field)), field
    assert np.array_equal(np.asarray(first.features), np.asarray(second.features))


@pytest.mark.parametrize("partner", PARTNERS)
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"labels": np.eye(5, 3, dtype=np.uint8)},
        {"edge_type": np.array([0, 1, 0, 2, 2]), "vertex_type": np.array([0, 1, 0, 1, 1])},
        {key: np.eye(5, dtype=bool)[[i]] for i, key in enumerate(interop.arrays.MASKS)}
        | {"labels": np.arange(5)},
        {"edge_features": np.arange(15, dtype=np.float32).reshape(5, 3)},
        {"edge_features": np.arange(5, dtype=np.float32).reshape(5, 1)},
        dict.fromkeys(("features", "labels", "edge_weight", *interop.arrays.MASKS)),
    ],
)
def test_a_graph_comes_back_from_its_partner(partner: str, change: dict[str, Any]) -> None:
    graph = graph_of(**change)
    there = getattr(interop, f"to_{partner}")(graph)
    back = getattr(interop, f"from_{partner}")(there, name="small")
    if graph.features is None:
        back = back.__class__(**{**back.__dict__, "features": None})
    assert_equal(back, graph)


@pytest.mark.parametrize("partner", PARTNERS)
def test_sparse_features_become_dense(partner: str) -> None:
    dense = np.eye(5, 4, dtype=np.float32)
    graph = graph_of(features=scipy.sparse.csr_matrix(dense))
    there = getattr(interop, f"to_{partner}")(graph)
    found = getattr(interop, f"from_{partner}")(there).features
    assert np.array_equal(found, dense)


@needs_pyg
@pytest.mark.filterwarnings("ignore:Sparse CS")
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
def test_sparse_tensors_stay_sparse(layout: str) -> None:
    import torch

    there = interop.to_pyg(graph_of())
    dense = torch.tensor([[0.0, 2], [0, 0], [1, 0], [0, 0], [3, 4]])
    there.x = getattr(dense, layout)()
    found = interop.from_pyg(there).features
    assert isinstance(found, scipy.sparse.csr_matrix)
    assert found.nnz == 4
    assert np.array_equal(found.toarray(), dense)


@needs_pyg
def test_a_matrix_that_becomes_one_of_scipy_does_so() -> None:
    class SparseTensor:
        """Stand-in for that of torch_sparse."""

        def to_scipy(self, layout: str) -> scipy.sparse.spmatrix:
            return scipy.sparse.eye(5, 2, format=layout)

    there = interop.to_pyg(graph_of())
    there.x = SparseTensor()
    found = interop.from_pyg(there).features
    assert isinstance(found, scipy.sparse.csr_matrix)
    assert found.nnz == 2


@pytest.mark.parametrize("partner", PARTNERS)
def test_rows_of_bfloat16_are_widened(partner: str) -> None:
    import torch

    there = getattr(interop, f"to_{partner}")(graph_of())
    narrow = torch.tensor([[0.5], [1], [2], [-3], [4]], dtype=torch.bfloat16)
    if partner == "dgl":
        there.ndata["feat"] = narrow
    else:
        there.x = narrow
    found = getattr(interop, f"from_{partner}")(there).features
    assert found is not None
    assert found.tolist() == [[0.5], [1], [2], [-3], [4]]


def heterograph() -> Any:
    """Two authors, two papers."""
    import dgl
    import torch

    ends = {
        ("author", "writes", "paper"): ([0, 1, 1], [0, 0, 1]),
        ("paper", "cites", "paper"): ([1], [0]),
    }
    return dgl.heterograph({key: tuple(map(torch.tensor, value)) for key, value in ends.items()})


@needs_dgl
def test_weights_and_masks_of_some_types_are_taken() -> None:
    import torch

    there = heterograph()
    assert interop.from_dgl(there).edge_weight is None
    there.edges["writes"].data["weight"] = torch.tensor([[2.0], [3.0], [4.0]])
    there.nodes["paper"].data["label"] = torch.tensor([1, 0])
    # Two splits, as columns.
    one = torch.eye(2, dtype=torch.bool)
    for key, mask in zip(interop.arrays.MASKS, (one, one & False, ~one), strict=True):
        there.nodes["paper"].data[key] = mask
    graph = interop.from_dgl(there)
    assert graph.edge_weight.tolist() == [2, 3, 4, 1]  # type: ignore[union-attr]
    assert graph.train_mask.tolist() == [[False, False, True, False], [False, False, False, True]]  # type: ignore[union-attr]


@needs_dgl
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.array([[0, 1], [1, 1]], np.uint8), [[255, 255], [255, 255], [0, 1], [1, 1]]),
        (np.array([[0, 1], [1, 1]]), [[255, 255], [255, 255], [0, 1], [1, 1]]),
        (np.array([[0, 1], [1, 1]], bool), [[255, 255], [255, 255], [0, 1], [1, 1]]),
        (np.array([0.5, 2], np.float32), [[np.nan], [np.nan], [0.5], [2]]),
        (np.array([1, 0], np.uint8), [-1, -1, 1, 0]),
    ],
)
def test_types_without_labels_get_those_that_say_unknown(given: Any, expected: Any) -> None:
    import torch

    there = heterograph()
    there.nodes["paper"].data["label"] = torch.from_numpy(given)
    assert np.array_equal(np.asarray(interop.from_dgl(there).labels), expected, equal_nan=True)
    there.nodes["author"].data["label"] = torch.zeros(2, 5)
    with pytest.raises(InputError, match=r"have labels of shapes \(2, 5\), \(2.*\), which cannot"):
        interop.from_dgl(there)


@needs_dgl
def test_a_heterograph_of_dgl_is_typed(caplog: pytest.LogCaptureFixture) -> None:
    import torch

    there = heterograph()
    there.nodes["paper"].data["label"] = torch.tensor([1, 0])
    there.nodes["paper"].data["feat"] = torch.ones(2, 3)
    graph = interop.from_dgl(there)
    assert graph.relation_names == ("author writes paper", "paper cites paper")
    edges = list(zip(graph.src.tolist(), graph.edge_type.tolist(), graph.dst.tolist(), strict=True))  # type: ignore[union-attr]
    assert edges == [(0, 0, 2), (1, 0, 2), (1, 0, 3), (3, 1, 2)]
    assert graph.vertex_type.tolist() == [0, 0, 1, 1]  # type: ignore[union-attr]
    assert graph.labels.tolist() == [-1, -1, 1, 0]  # type: ignore[union-attr]
    assert graph.features is None
    assert "features of paper are left out, as other types of vertices have none or" in caplog.text
    caplog.clear()
    there.nodes["author"].data["feat"] = torch.zeros(2, 3)
    assert interop.from_dgl(there).num_features == 3
    assert interop.from_dgl(heterograph()).num_features == 0
    assert not caplog.records


@needs_pyg
def test_heterodata_of_pyg_is_typed(caplog: pytest.LogCaptureFixture) -> None:
    import torch
    from torch_geometric.data import HeteroData

    data = HeteroData()
    data["author"].num_nodes = 2
    data["paper"].x, data["paper"].y = torch.ones(2, 3), torch.tensor([1, 0])
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [0, 1]])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[1], [0]])
    graph = interop.from_pyg(data)
    assert graph.relation_names == ("author writes paper", "paper cites paper")
    kinds = np.asarray(graph.vertex_type)
    assert sorted(kinds.tolist()) == [0, 0, 1, 1]
    assert graph.edge_type.tolist() == [0, 0, 1]  # type: ignore[union-attr]
    assert sorted(np.asarray(graph.labels).tolist()) == [-1, -1, 0, 1]
    assert graph.features is None
    assert "features of paper are left out, as other types of vertices have none or" in caplog.text
    data["author"].x = torch.ones(2, 4)
    caplog.clear()
    assert interop.from_pyg(data).features is None
    assert "features of author, paper are left out, as other types" in caplog.text
    data["author"].x = torch.ones(2, 3)
    caplog.clear()
    assert interop.from_pyg(data).num_features == 3
    assert not caplog.records


@needs_pyg
def test_one_column_of_edge_attributes_is_the_weight() -> None:
    import torch
    from torch_geometric.data import Data

    data = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), edge_attr=torch.tensor([[2.0], [3.0]]))
    weight = interop.from_pyg(data, num_vertices=2).edge_weight
    assert weight is not None
    assert weight.tolist() == [2, 3]
    with pytest.raises(InputError, match="from_pyg takes Data or HeteroData with edge_index"):
        interop.from_pyg(Data(x=torch.ones(2, 2)))


def test_scipy_there_and_back() -> None:
    graph = graph_of()
    matrix = interop.to_scipy(graph)
    assert matrix.shape == (5, 5)
    assert matrix[1, 2] == 0.5 + 1  # parallel edges are added
    again = interop.from_scipy(matrix, labels=graph.labels)
    assert (interop.to_scipy(again) != matrix).nnz == 0
    ones = interop.from_scipy(scipy.sparse.eye_array(3).tocsc())
    assert ones.edge_weight is None
    for wrong in (np.ones((2, 2)), scipy.sparse.csr_matrix((2, 3))):
        with pytest.raises(InputError, match="an adjacency matrix is a square sparse matrix"):
            interop.from_scipy(wrong)


def test_networkx_there_and_back() -> None:
    graph = graph_of(vertex_id=np.array(["a", "b", "c", "d", "e"]), edge_type=[0, 1, 0, 0, 1])
    there = interop.to_networkx(graph)
    assert there.nodes["b"]["label"] == 1
    assert sorted(data["weight"] for _, _, data in there.edges(data=True)) == [0, 0.5, 1, 1.5, 2]
    assert there["a"]["b"][0]["relation"] == 0
    back = interop.from_networkx(there)
    assert back.vertex_id is not None
    assert back.vertex_id.tolist() == ["a", "b", "c", "d", "e"]
    assert (interop.to_scipy(back) != interop.to_scipy(graph)).nnz == 0
    plain = interop.to_networkx(interop.from_numpy(EDGES))
    assert interop.from_networkx(plain).vertex_id is None
    assert plain.number_of_edges() == 5


def test_an_undirected_graph_of_networkx_gets_both_directions() -> None:
    import networkx

    club = networkx.karate_club_graph()
    labels = [data["club"] == "Officer" for _, data in club.nodes(data=True)]
    graph = interop.from_networkx(club, name="karate", labels=np.array(labels, dtype=int))
    assert (graph.num_vertices, graph.num_edges, graph.num_classes) == (34, 156, 2)
    matrix = interop.to_scipy(graph)
    assert (matrix != matrix.T).nnz == 0
    loop = networkx.Graph([(7, 7), (7, 9)])
    assert interop.from_networkx(loop).num_edges == 3
    with pytest.raises(InputError, match="all integers or all strings, got int, str"):
        interop.from_networkx(networkx.Graph([(1, "a")]))


def test_nodes_that_are_values_of_numpy_are_integers_and_strings() -> None:
    import networkx

    ends = np.array([[5, 7], [7, 9]])
    graph = interop.from_networkx(networkx.DiGraph([(first, second) for first, second in ends]))
    assert graph.vertex_id is not None
    assert graph.vertex_id.tolist() == [5, 7, 9]
    named = interop.from_networkx(networkx.DiGraph([tuple(np.array(["a", "b"]))]))
    assert named.vertex_id is not None
    assert named.vertex_id.tolist() == ["a", "b"]
    with pytest.raises(InputError, match="all integers or all strings, got bool, int"):
        interop.from_networkx(networkx.Graph([(True, 7)]))


def test_arrays_are_checked() -> None:
    assert interop.from_numpy([[0, 1], [1, 0]]).num_vertices == 2
    with pytest.raises(InputError, match="a graph has no 'feature'; it takes num_vertices, feat"):
        interop.from_numpy(EDGES, feature=np.ones((5, 2)))
    with pytest.raises(InputError, match=r"edge_index must have shape \(2, num_edges\)"):
        interop.from_numpy(EDGES.T)
    with pytest.raises(InputError, match="edge 3 leaves vertex 3, but the graph has 2"):
        interop.from_numpy(EDGES, num_vertices=2)
    with pytest.raises(InputError, match="from_dgl takes a DGLGraph, got str"):
        interop.from_dgl("graph")


def test_importing_the_package_loads_no_partner() -> None:
    code = (
        "import sys, distgnn.interop\n"
        "heavy = {'torch', 'dgl', 'torch_geometric', 'networkx'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
