from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.datasets import Graph, InputError
from distgnn.partition.assignment import Assignment
from distgnn.partition.build import Part, build_parts
from distgnn.partition.quality import measure

Case = tuple[Graph, Assignment, np.ndarray]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A multigraph, any assignment, whether or not roots live with their edges, and any order."""
    num_vertices = draw(st.integers(1, 10))
    num_parts = draw(st.integers(1, 5))
    vertex, part = st.integers(0, num_vertices - 1), st.integers(0, num_parts - 1)
    edges = draw(st.lists(st.tuples(vertex, vertex, part), max_size=30))
    src, dst, edge_part = np.array(edges, np.int64).reshape(-1, 3).T
    root_part = draw(st.lists(part, min_size=num_vertices, max_size=num_vertices))
    graph = Graph(
        name="drawn",
        num_vertices=num_vertices,
        src=src,
        dst=dst,
        edge_weight=np.arange(len(edges), dtype=np.float32),
    )
    assignment = Assignment(
        num_parts, edge_part.astype(np.int32), np.array(root_part, dtype=np.int32)
    )
    return graph, assignment, np.array(draw(st.permutations(range(num_vertices))), np.int64)


def parts_of(case: Case) -> list[Part]:
    graph, assignment, order = case
    return list(build_parts(graph, assignment, order=order))


def offsets(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)])


def leaves_of(part: Part, owner: int, chosen: np.ndarray) -> np.ndarray:
    """Global ids of the part's leaves whose root is on `owner`, where `chosen` says so."""
    begin, end = offsets(part.leaf_counts)[owner : owner + 2]
    leaves: np.ndarray = part.global_id[part.num_roots :][begin:end][chosen[begin:end]]
    return leaves


def destinations(part: Part) -> np.ndarray:
    return np.repeat(np.arange(part.num_clones), np.diff(part.indptr))


@settings(max_examples=150)
@given(case=cases())
def test_the_parts_together_are_the_graph(case: Case) -> None:
    graph, assignment, order = case
    edges: Counter[tuple[int, int, float]] = Counter()
    roots: list[int] = []
    for part in parts_of(case):
        ids = part.global_id
        assert part.edge_weight is not None
        edges.update(
            zip(
                ids[part.indices].tolist(),
                ids[destinations(part)].tolist(),
                part.edge_weight.tolist(),
                strict=True,
            )
        )
        roots += ids[: part.num_roots].tolist()
        assert (assignment.root_part[ids[: part.num_roots]] == part.part).all()
        assert np.array_equal(ids[: part.num_roots], order[np.isin(order, ids[: part.num_roots])])
    assert graph.edge_weight is not None
    assert edges == Counter(
        zip(graph.src.tolist(), graph.dst.tolist(), graph.edge_weight.tolist(), strict=True)
    )
    assert sorted(roots) == list(range(graph.num_vertices))


@settings(max_examples=150)
@given(case=cases())
def test_what_roots_send_is_what_leaves_expect(case: Case) -> None:
    parts = parts_of(case)
    for owner in parts:
        for peer in parts:
            for rows, counts, chosen in (
                (owner.send_rows, owner.send_counts, peer.is_reading),
                (owner.reduce_rows, owner.reduce_counts, peer.is_writing),
            ):
                begin, end = offsets(counts)[peer.part : peer.part + 2]
                expected = leaves_of(peer, owner.part, chosen)
                assert np.array_equal(owner.global_id[rows[begin:end]], expected)
                assert (rows < owner.num_roots).all()
                assert (np.diff(rows[begin:end]) > 0).all()


@settings(max_examples=150)
@given(case=cases())
def test_leaves_read_or_write_and_add_up_to_the_halo(case: Case) -> None:
    graph, assignment, _ = case
    quality = measure(graph, assignment)
    halo_rows = 0
    for part in parts_of(case):
        assert (part.is_reading | part.is_writing).all()
        assert part.leaf_counts[part.part] == 0
        halo_rows += int(part.is_reading.sum() + part.is_writing.sum())
        assert np.array_equal(part.send_counts, quality.read_rows[part.part])
        assert np.array_equal(part.reduce_counts, quality.write_rows[:, part.part])
        assert part.num_leaves == quality.num_leaves[part.part]
        owners = assignment.root_part[part.global_id[part.num_roots :]]
        assert np.array_equal(np.bincount(owners, minlength=part.num_parts), part.leaf_counts)
        assert (np.diff(owners) >= 0).all()
    assert halo_rows == quality.halo_rows


@settings(max_examples=100)
@given(case=cases())
def test_both_directions_hold_the_same_edges_by_global_id(case: Case) -> None:
    num_vertices = case[0].num_vertices
    for part in parts_of(case):
        rows = destinations(part)
        assert (np.diff(rows * num_vertices + part.global_id[part.indices]) >= 0).all()
        t_rows = np.repeat(np.arange(part.num_clones), np.diff(part.t_indptr))
        assert (np.diff(t_rows * num_vertices + part.global_id[part.t_indices]) >= 0).all()
        assert np.array_equal(part.indices[part.t_edge], t_rows)
        assert np.array_equal(rows[part.t_edge], part.t_indices)
        assert np.array_equal(np.sort(part.t_edge), np.arange(part.num_edges))


@settings(max_examples=100)
@given(case=cases())
def test_degrees_are_those_of_the_whole_graph(case: Case) -> None:
    graph = case[0]
    loops = graph.src[graph.src == graph.dst]
    for part in parts_of(case):
        for vertex, in_degree, out_degree in zip(
            part.global_id, part.in_degree, part.out_degree, strict=True
        ):
            assert in_degree == np.count_nonzero(graph.dst == vertex)
            assert out_degree == np.count_nonzero(graph.src == vertex)
        roots = part.global_id[: part.num_roots]
        expected = np.bincount(loops, minlength=graph.num_vertices)[roots]
        assert np.array_equal(part.self_loops, expected)


def test_without_an_order_roots_ascend() -> None:
    src, dst = np.random.default_rng(0).integers(0, 20, (2, 60))
    graph = Graph(name="g", num_vertices=20, src=src, dst=dst)
    root_part = (np.arange(20) % 3).astype(np.int32)
    assignment = Assignment(3, root_part[dst], root_part)
    for part in build_parts(graph, assignment):
        assert (np.diff(part.global_id[: part.num_roots]) > 0).all()


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [-1, 1, 2], [1, 2, 3]])
def test_an_order_lists_every_vertex_once(order: list[int]) -> None:
    graph = Graph(name="g", num_vertices=3, src=np.array([0]), dst=np.array([1]))
    assignment = Assignment(1, np.zeros(1, np.int32), np.zeros(3, np.int32))
    message = "the order does not list each of the 3 vertices of graph 'g' once; order this graph"
    with pytest.raises(InputError, match=message):
        build_parts(graph, assignment, order=np.array(order))


@pytest.mark.parametrize("is_sparse", [False, True])
def test_roots_bring_their_features_labels_masks_and_ids(is_sparse: bool) -> None:
    dense = np.arange(15, dtype=np.float32).reshape(5, 3)
    train = np.array([[True, True, False, False, False]])
    graph = Graph(
        name="g",
        num_vertices=5,
        src=np.array([0, 1, 2]),
        dst=np.array([1, 2, 3]),
        features=sp.csr_matrix(dense) if is_sparse else dense,
        labels=np.array([0, 1, 2, 1, 0]),
        train_mask=train,
        val_mask=np.roll(train, 2),
        test_mask=np.array([[False, False, False, False, True]]),
        vertex_id=np.array(["a", "b", "c", "d", "e"]),
    )
    assignment = Assignment(2, np.array([0, 1, 1], np.int32), np.array([1, 0, 1, 0, 1], np.int32))
    order = np.array([4, 3, 2, 1, 0])
    part = list(build_parts(graph, assignment, order=order))[1]
    assert part.features is not None
    features = part.features if isinstance(part.features, np.ndarray) else part.features.toarray()
    assert np.array_equal(features, dense[[4, 2, 0]])
    assert np.array_equal(part.labels, [0, 2, 0])  # type: ignore[arg-type]
    assert np.array_equal(part.train_mask, [[False, False, True]])  # type: ignore[arg-type]
    assert np.array_equal(part.val_mask, [[False, True, False]])  # type: ignore[arg-type]
    assert np.array_equal(part.test_mask, [[True, False, False]])  # type: ignore[arg-type]
    assert list(part.vertex_id) == ["e", "c", "a"]  # type: ignore[arg-type]


def test_arrays_have_the_promised_types() -> None:
    graph = Graph(name="g", num_vertices=3, src=np.array([0, 1, 1]), dst=np.array([1, 2, 1]))
    assignment = Assignment(2, np.array([0, 1, 1], np.int32), np.array([0, 1, 1], np.int32))
    expected = {
        "global_id": np.int64, "indptr": np.int64, "indices": np.int32, "t_indptr": np.int64,
        "t_indices": np.int32, "t_edge": np.int64, "leaf_counts": np.int64,
        "is_reading": np.bool_, "is_writing": np.bool_, "send_counts": np.int64,
        "send_rows": np.int32, "reduce_counts": np.int64, "reduce_rows": np.int32,
        "in_degree": np.int64, "out_degree": np.int64, "self_loops": np.int32,
    }  # fmt: skip
    for part in build_parts(graph, assignment):
        arrays = {k: v for k, v in vars(part).items() if isinstance(v, np.ndarray)}
        assert {name: array.dtype for name, array in arrays.items()} == expected
        assert all(array.flags.c_contiguous for array in arrays.values())
