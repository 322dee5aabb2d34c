"""Other parts of the same graph: nothing is lost, whatever the numbers of parts."""

from __future__ import annotations

import dataclasses
import json
import resource

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import EDGE_KIND, KINDS, TYPED_KINDS, make_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from training import ends_of, make_config

from distgnn.comm.threads import run_ranks
from distgnn.datasets import Graph, InputError
from distgnn.datasets.planted import planted
from distgnn.partition import assign
from distgnn.partition.assignment import Assignment
from distgnn.partition.directory.store import read_manifest, read_part, write
from distgnn.partition.methods import auto
from distgnn.partition.quality import measure
from distgnn.partition.repartition.gather import gather
from distgnn.partition.repartition.regroup import group, num_pieces, shares
from distgnn.partition.repartition.repartition import Wish, peak_bytes, repartition
from distgnn.training.loop.trainer import Trainer

GIB = 1 << 30


def store(folder, graph, num_parts, *, method="random"):
    assignment = assign(method, graph, num_parts, seed=2)
    quality = measure(graph, assignment)
    write(folder, graph, assignment, method=method, options={"split": "x"}, seed=2, quality=quality)
    return folder


def again(folder, out, num_parts, **wish):
    return repartition(folder, out, Wish(num_parts=num_parts, **wish), available=lambda: GIB)


def sorted_edges(graph):
    weight = np.zeros(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    kind = np.zeros(graph.num_edges) if graph.edge_type is None else graph.edge_type
    features = np.zeros((graph.num_edges, 1))
    if graph.edge_features is not None:
        features = graph.edge_features
    order = np.lexsort((features[:, 0], weight, kind, graph.dst, graph.src))
    return graph.src[order], graph.dst[order], weight[order], kind[order], features[order]


def check_same_graph(found: Graph, expected: Graph) -> None:
    """The same multiset of edges with what they have, and the same of every vertex, bit by bit."""
    for left, right in zip(sorted_edges(found), sorted_edges(expected), strict=True):
        assert np.array_equal(left, right)
    for name in ("labels", "train_mask", "val_mask", "test_mask", "vertex_id", "vertex_type"):
        left, right = getattr(found, name), getattr(expected, name)
        assert (left is None) == (right is None)
        if right is not None:
            assert left.dtype == right.dtype
            assert np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
    if sp.issparse(expected.features):
        assert (found.features != expected.features).nnz == 0
        assert found.features.nnz == expected.features.nnz
    else:
        assert np.array_equal(found.features, expected.features)
    for name in ("name", "num_vertices", "class_names", "relation_names", "source", "checksum"):
        assert getattr(found, name) == getattr(expected, name)


def graph_of(folder, scratch):
    return gather(folder, read_manifest(folder), scratch=scratch)


@pytest.mark.parametrize("kind", [*KINDS, *TYPED_KINDS, EDGE_KIND])
@pytest.mark.parametrize(("num_parts", "wanted"), [(4, 2), (4, 3), (2, 4), (2, 3), (3, 7), (3, 3)])
def test_no_edge_and_nothing_of_a_vertex_is_lost(kind, num_parts, wanted, tmp_path):
    graph = make_graph(kind, num_vertices=60)
    names = np.array([f"v{number}" for number in range(60)])
    graph = dataclasses.replace(graph, vertex_id=names, source="file", checksum="abc")
    folder = store(tmp_path / "p", graph, num_parts)
    manifest = again(folder, tmp_path / "q", wanted)
    assert manifest == read_manifest(tmp_path / "q")
    assert manifest.num_parts == wanted
    check_same_graph(graph_of(tmp_path / "q", tmp_path).graph, graph)


def test_no_edges_keep_the_width_of_their_features(tmp_path):
    nobody = np.zeros(0, np.int64)
    none = np.ones((0, 3), np.float32)
    graph = Graph(name="bare", num_vertices=4, src=nobody, dst=nobody, edge_features=none)
    folder = store(tmp_path / "p", graph, 2)
    assert again(folder, tmp_path / "q", 1).num_edge_features == 3
    assert graph_of(tmp_path / "q", tmp_path).graph.edge_features.shape == (0, 3)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**31),
    num_vertices=st.integers(5, 40),
    num_parts=st.integers(1, 5),
    wanted=st.integers(1, 9),
    refine=st.booleans(),
    kind=st.sampled_from(KINDS),
)
def test_any_cut_of_any_graph(
    seed, num_vertices, num_parts, wanted, refine, kind, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("any")
    graph = make_graph(kind, num_vertices=num_vertices, seed=seed)
    rng = np.random.default_rng(seed)
    assignment = Assignment(
        num_parts,
        rng.integers(0, num_parts, graph.num_edges).astype(np.int32),
        rng.integers(0, num_parts, num_vertices).astype(np.int32),
    )
    quality = measure(graph, assignment)
    write(folder / "p", graph, assignment, method="m", options={}, seed=0, quality=quality)
    if wanted > num_vertices:
        with pytest.raises(InputError, match="more parts than vertices"):
            again(folder / "p", folder / "q", wanted)
        return
    manifest = again(folder / "p", folder / "q", wanted, refine=refine)
    found = graph_of(folder / "q", folder)
    check_same_graph(found.graph, graph)
    written = measure(found.graph, found.assignment)
    assert written.to_json() == manifest.quality
    roots = np.concatenate(
        [
            part.global_id[: part.num_roots]
            for part in (read_part(folder / "q", number) for number in range(wanted))
        ]
    )
    assert np.array_equal(np.sort(roots), np.arange(num_vertices))


def test_the_graph_comes_back_with_its_assignment(tmp_path):
    graph = make_graph("weighted", num_vertices=50)
    assignment = assign("libra", graph, 3)
    quality = measure(graph, assignment)
    write(tmp_path / "p", graph, assignment, method="libra", options={}, seed=0, quality=quality)
    found = graph_of(tmp_path / "p", tmp_path)
    assert np.array_equal(found.assignment.root_part, assignment.root_part)
    assert np.diff(found.start).tolist() == np.bincount(assignment.edge_part).tolist()
    assert measure(found.graph, found.assignment).to_json() == quality.to_json()


def losses(folder, graph, num_ranks):
    config = make_config(epochs=4, hidden=8, dropout=0.3)

    def on_rank(group):
        part = read_part(folder, group.rank)
        return list(Trainer(config, ends_of(graph), part, group).epochs())

    return [record["loss"] for record in run_ranks(num_ranks, on_rank)[0]]


@pytest.mark.parametrize("wanted", [1, 2, 3, 7])
def test_training_has_the_same_losses(wanted, tmp_path):
    graph = make_graph("random", num_vertices=80)
    folder = store(tmp_path / "p", graph, 4, method="metis")
    again(folder, tmp_path / "q", wanted)
    expected = losses(folder, graph, 4)
    assert losses(tmp_path / "q", graph, wanted) == pytest.approx(expected, rel=1e-5)


def test_the_same_wish_gives_the_same_bytes_and_the_manifest_says_where_from(tmp_path):
    graph = make_graph("random", num_vertices=60)
    folder = store(tmp_path / "p", graph, 2)
    one, two = (again(folder, tmp_path / name, 5, seed=3, imbalance=1.2) for name in "ab")
    assert one.fingerprint == two.fingerprint
    assert one.method == "repartition"
    assert one.options == {
        "split": "x",
        "refine": True,
        "imbalance": 1.2,
        "from_method": "random",
        "from_parts": 2,
        "from_seed": 2,
        "from_partition": read_manifest(folder).fingerprint,
    }


@pytest.fixture(scope="module")
def community(tmp_path_factory):
    """A graph with communities in 6 parts by METIS."""
    graph = planted(num_vertices=3000, num_classes=24, homophily=0.9, seed=1)
    return graph, store(tmp_path_factory.mktemp("planted") / "p", graph, 6, method="metis")


@pytest.mark.parametrize("wanted", [2, 3, 4, 12, 17])
def test_rows_and_balance_are_near_those_of_a_new_partition(wanted, community, tmp_path):
    graph, folder = community
    found = again(folder, tmp_path / "q", wanted).quality
    fresh = measure(graph, assign("metis", graph, wanted))
    assert found["halo_rows"] <= 1.3 * fresh.halo_rows
    assert found["edge_balance"] <= 1.06


def test_merging_without_refinement_keeps_whole_parts_and_balance(community, tmp_path):
    _, folder = community
    source = read_manifest(folder)
    found = again(folder, tmp_path / "q", 2, refine=False)
    counts = [part.num_edges for part in source.parts]
    sums = {sum(counts[k] for k in trio) for trio in _trios()}
    assert {part.num_edges for part in found.parts} <= sums
    assert found.quality["halo_rows"] <= source.quality["halo_rows"]


def _trios():
    return [(a, b, c) for a in range(6) for b in range(a) for c in range(b)]


def test_parts_of_unequal_size_are_split_in_proportion(tmp_path):
    graph = planted(num_vertices=400, num_classes=8, homophily=0.9, seed=1)
    edge_part = (np.arange(graph.num_edges) >= graph.num_edges // 4).astype(np.int32)
    root_part = (np.arange(graph.num_vertices) >= graph.num_vertices // 4).astype(np.int32)
    assignment = Assignment(2, edge_part, root_part)
    quality = measure(graph, assignment)
    write(tmp_path / "p", graph, assignment, method="m", options={}, seed=0, quality=quality)
    found = again(tmp_path / "p", tmp_path / "q", 4, refine=False)
    assert found.quality["edge_balance"] <= 1.2


@pytest.mark.parametrize(("num_parts", "wanted"), [(4, 4), (8, 4), (2, 4)])
@pytest.mark.parametrize("share", [1.0, 0.4])
def test_parts_of_unequal_size_get_the_balance_that_is_asked_for(
    num_parts, wanted, share, tmp_path
):
    graph = planted(num_vertices=400, num_classes=8, homophily=0.9, seed=1)
    rng = np.random.default_rng(0)
    root_part = rng.integers(0, num_parts, graph.num_vertices).astype(np.int32)
    root_part[rng.random(graph.num_vertices) < share] = 0
    assignment = Assignment(num_parts, root_part[graph.dst], root_part)
    quality = measure(graph, assignment)
    write(tmp_path / "p", graph, assignment, method="m", options={}, seed=0, quality=quality)
    found = again(tmp_path / "p", tmp_path / "q", wanted, imbalance=1.05)
    assert found.quality["edge_balance"] <= 1.05
    assert found.quality["halo_rows"] <= 2 * measure(graph, assign("metis", graph, 4)).halo_rows
    plain = again(tmp_path / "p", tmp_path / "r", wanted, refine=False)
    assert plain.quality["edge_balance"] <= 1.6


def test_pieces_are_dealt_in_proportion_and_every_part_has_one():
    sizes, most = np.array([10, 1000, 490]), np.array([9, 9, 9])
    assert shares(sizes, most, 8).tolist() == [1, 5, 2]
    assert shares(sizes, np.array([9, 3, 9]), 8).tolist() == [1, 3, 4]
    assert shares(sizes, np.array([1, 2, 2]), 8).tolist() == [1, 2, 2]


@pytest.mark.parametrize(
    ("num_parts", "wanted", "expected"),
    [(4, 4, 4), (4, 2, 4), (2, 8, 8), (4, 3, 12), (2, 3, 6), (1, 5, 5), (6, 1, 6)],
)
def test_parts_are_split_only_as_far_as_balance_needs(num_parts, wanted, expected):
    assert num_pieces(num_parts, wanted) == expected
    count = num_pieces(64, 63)
    assert -(-count // 63) * 63 <= 1.05 * count < 1.05 * 64 * 63


def test_pieces_that_exchange_many_rows_are_grouped():
    rows = np.kron(np.eye(3, dtype=np.int64), np.full((2, 2), 50)) + 1
    ones = np.full(6, 10)
    groups = group(rows, ones, ones, 3)
    assert groups[0] == groups[1] != groups[2] == groups[3] != groups[4] == groups[5]
    apart = group(np.zeros_like(rows), ones, ones, 3)
    assert np.bincount(apart).tolist() == [2, 2, 2]


def test_a_directory_cannot_be_its_own_target(tmp_path):
    folder = store(tmp_path / "p", make_graph(), 2)
    with pytest.raises(InputError, match="is the partition that is read"):
        repartition(folder, folder, Wish(num_parts=3), available=lambda: GIB, overwrite=True)


def test_a_damaged_part_is_found_and_nothing_is_left_behind(tmp_path):
    folder = store(tmp_path / "p", make_graph(), 2)
    file = folder / "part-0001/labels.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match=r"labels.npy' was altered"):
        again(folder, tmp_path / "q", 3)
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_features_that_the_disk_has_no_room_for_are_an_input_error(tmp_path):
    folder = store(tmp_path / "p", make_graph(), 2)
    manifest = dataclasses.replace(read_manifest(folder), num_features=1 << 16)
    num_bytes = manifest.num_vertices << 18
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes - 1, limits[1]))
    try:
        with pytest.raises(InputError, match=rf"cannot write {num_bytes} bytes of features into"):
            gather(folder, manifest, scratch=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_room_for_the_features_is_asked_for_before_the_work(tmp_path):
    folder = store(tmp_path / "p", make_graph(num_vertices=9000), 2)
    file = folder / "manifest.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps({**values, "num_features": (1 << 31) - 1}))
    with pytest.raises(InputError, match=r"q' needs [0-9.]+ GiB, but [0-9.]+ GiB are free; make"):
        again(folder, tmp_path / "q", 3)
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_the_predicted_peak_grows_with_the_graph(tmp_path):
    small, large = (
        read_manifest(store(tmp_path / str(size), make_graph(num_vertices=size), 2))
        for size in (40, 80)
    )
    wish = Wish(num_parts=3)
    assert peak_bytes(large, wish) > peak_bytes(small, wish) > 0
    # Where parts are split, that may take the most.
    plain, refined = (Wish(num_parts=1, refine=is_refining) for is_refining in (False, True))
    assert peak_bytes(large, plain) < peak_bytes(large, refined)


def test_values_of_0_and_1_stay_values(tmp_path):
    graph = make_graph()
    values = (np.arange(graph.num_vertices) % 2).astype(np.float32)
    folder = store(tmp_path / "p", dataclasses.replace(graph, labels=values), 2)
    manifest = again(folder, tmp_path / "q", 3)
    assert (manifest.is_regression, manifest.is_multilabel) == (True, False)


def test_features_on_disk_have_no_name_that_a_killed_process_leaves(tmp_path):
    folder = store(tmp_path / "p", make_graph(EDGE_KIND), 2)
    found = graph_of(folder, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["p"]
    assert np.isfinite(found.graph.features).all()


def test_the_predicted_peak_counts_labels_and_pieces(tmp_path):
    manifest = read_manifest(store(tmp_path / "p", make_graph(), 2))
    wish = Wish(num_parts=3)
    record = manifest.files["part-0000/labels.npy"]
    wide = dataclasses.replace(record, bytes=record.bytes + 1000)
    files = {**manifest.files, "part-0000/labels.npy": wide}
    other = dataclasses.replace(manifest, files=files)
    assert peak_bytes(other, wish) == peak_bytes(manifest, wish) + 2000
    assert peak_bytes(manifest, Wish(num_parts=1001)) > 5 * 8 * 1001**2


def test_the_predicted_peak_counts_the_split_of_a_part_beside_the_graph(tmp_path):
    manifest = read_manifest(store(tmp_path / "p", make_graph(num_vertices=400), 1))
    (part,) = manifest.parts
    needed = auto.NEEDS[0].bytes(part.num_roots, part.num_edges)
    # One part is not split where it stays one.
    whole, split = (peak_bytes(manifest, Wish(num_parts=count)) for count in (1, 2))
    assert whole < split
    assert split >= needed + 40 * manifest.num_edges


def test_the_method_is_chosen_by_the_memory_beside_the_graph(tmp_path, monkeypatch):
    folder = store(tmp_path / "p", make_graph(num_vertices=60), 2)
    steps = []
    choose = auto.choose

    def gathering(*arguments, **options):
        steps.append("gather")
        return gather(*arguments, **options)

    def available():
        steps.append("ask")
        return GIB

    def choosing(num_vertices, num_edges, available_bytes):
        steps.append(available_bytes)
        return choose(num_vertices, num_edges, available_bytes)

    monkeypatch.setattr("distgnn.partition.repartition.repartition.gather", gathering)
    monkeypatch.setattr(auto, "choose", choosing)
    repartition(folder, tmp_path / "q", Wish(num_parts=4), available=available)
    assert steps == ["gather", "ask", GIB, "ask", GIB]
