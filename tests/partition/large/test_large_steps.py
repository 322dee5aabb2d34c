from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from large_graphs import open_folder, write_folder

from distgnn.datasets import Graph, InputError, array_folder
from distgnn.datasets.planted import planted
from distgnn.partition.assignment import Assignment
from distgnn.partition.groups import ROUNDS, eveners, leveller, windows
from distgnn.partition.large import clock, refining
from distgnn.partition.large import counts as counting
from distgnn.partition.large import split as splitting
from distgnn.partition.large.counts import count, narrow
from distgnn.partition.large.covers import cover
from distgnn.partition.large.crew import Crew
from distgnn.partition.large.piles import Piles, record_of
from distgnn.partition.large.split import plan, split
from distgnn.partition.large.work import WorkFolder
from distgnn.partition.methods.cover import place_edges
from distgnn.partition.quality import measure


def links(num_parts: int = 6, seed: int = 0) -> np.ndarray:
    """Edges between parts, some pairs without any."""
    between = np.random.default_rng(seed).integers(0, 50, (num_parts, num_parts))
    between[0, 1] = between[1, 0] = 0
    return between.astype(np.int64)


def test_windows_have_no_more_parts_than_they_may() -> None:
    found = windows(links(), np.full(6, 10), 60, most_parts=4, rounds=2)
    assert [len(window) for window in found] == [4, 2, 4, 2]
    assert sorted(found[0] + found[1]) == list(range(6))
    # Parts without anything take no room.
    assert all(len(window) <= 2 for window in windows(links(), np.zeros(6), 60, most_parts=2))


@pytest.mark.parametrize("most", [20, 100, 10**6])
def test_piles_hold_whole_pairs_and_no_more_than_fits(most: int) -> None:
    between = links()
    planned = plan(between, most)
    both = between + between.T
    held = np.zeros(planned.num_piles, np.int64)
    for one, other in zip(*np.triu_indices(6, 1), strict=True):
        first, pieces = planned.first[one, other], planned.pieces[one, other]
        assert (planned.first[other, one], planned.pieces[other, one]) == (first, pieces)
        assert pieces == max(-(-both[one, other] // most), 1)
        if both[one, other]:
            (step,) = [step for step in planned.steps if first in step]
            assert first + pieces <= step.stop
            held[first : first + pieces] += -(-both[one, other] // pieces)
    assert (held <= most).all()
    assert planned.first.diagonal().tolist() == list(range(6))
    assert [pile for step in planned.steps for pile in step] == list(range(6, planned.num_piles))


def test_no_edges_between_parts_need_no_pile() -> None:
    assert plan(np.diag(np.arange(3)), 10).num_piles == 3


def covered(
    folder: Path, graph: Graph, root_part: np.ndarray, most: int
) -> tuple[Assignment, int, int]:
    """Place the edges of a graph; also the number of piles, and the rows at destinations."""
    num_parts = int(root_part.max()) + 1
    source = open_folder(write_folder(folder / f"graph-{most}", graph))
    work = WorkFolder(folder / f"work-{most}", {})
    counts = count(source.edges, root_part, num_parts, chunk_edges=100, progress=None)
    planned = plan(counts.between, most)
    dtype = record_of(graph.num_vertices, has_position=True)
    piles, placed = (Piles(work.folder, name, dtype) for name in ("pile", "placed"))
    split(source, root_part, planned, piles, chunk_edges=100, progress=None)
    edge_part = np.full(graph.num_edges, -1, np.int32)
    for part in range(num_parts):
        edge_part[piles.read(part)["edge"]] = part
    cover(work, planned, root_part, piles=piles, placed=placed, threads=2, progress=None)
    for part in range(num_parts):
        edge_part[placed.read(part)["edge"]] = part
    return Assignment(num_parts, edge_part, root_part), planned.num_piles, work["covered"][2]


def test_covers_of_piles_are_those_of_the_whole(tmp_path: Path) -> None:
    graph = planted(num_vertices=300, num_classes=6, seed=2)
    root_part = np.random.default_rng(0).integers(0, 5, 300).astype(np.int32)
    at_once = Assignment(5, place_edges(graph, root_part, 5), root_part)
    for most in (10**6, 400):
        assignment, num_piles, at_destination = covered(tmp_path, graph, root_part, most)
        assert num_piles > 8 or most > 400
        quality = measure(graph, assignment)
        assert quality.halo_rows == measure(graph, at_once).halo_rows
        assert quality.halo_rows_at_destination == at_destination


@pytest.mark.parametrize("num_parts", [5, 70000])
def test_counts_and_piles_do_not_depend_on_the_number_of_threads(
    num_parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    src, dst = np.random.default_rng(1).integers(0, 300, (2, 4000)).astype(np.int32)
    graph = Graph(name="g", num_vertices=300, src=src, dst=dst)
    source = open_folder(write_folder(tmp_path / "graph", graph))
    root_part = np.random.default_rng(0).integers(0, 5, 300).astype(np.int32)
    expected = np.zeros((5, 5), np.int64)
    np.add.at(expected, (root_part[graph.src], root_part[graph.dst]), 1)
    found = []
    for threads in (1, 3):
        for module in (counting, splitting):
            monkeypatch.setattr(module, "available_threads", lambda count=threads: count)
            # More parts than 16 bits tell apart, without a table of all their pairs.
            monkeypatch.setattr(module, "narrow", lambda part, _: narrow(part, num_parts))
        counts = count(source.edges, root_part, 5, chunk_edges=100, progress=None)
        assert np.array_equal(counts.between, expected)
        assert np.array_equal(counts.out_degree, np.bincount(graph.src, minlength=300))
        assert np.array_equal(counts.in_degree, np.bincount(graph.dst, minlength=300))
        loops = np.bincount(graph.src[graph.src == graph.dst], minlength=300)
        assert np.array_equal(counts.self_loops, loops)
        folder = tmp_path / str(threads)
        folder.mkdir()
        planned = plan(counts.between, 200)
        assert planned.pieces.max() > 1
        piles = Piles(folder, "pile", record_of(300, has_position=True))
        split(source, root_part, planned, piles, chunk_edges=100, progress=None)
        for pile in range(planned.num_piles):
            ends = [piles.read(pile)[name] for name in ("src", "dst")]
            one, other = (root_part[end] for end in ends)
            low = np.where(one < other, *ends)
            expected_pile = planned.first[one, other] + low % planned.pieces[one, other]
            assert (expected_pile == pile).all()
        found.append([piles.read(pile).tobytes() for pile in range(planned.num_piles)])
    assert found[0] == found[1]
    assert sum(map(len, found[0])) == graph.num_edges * piles.dtype.itemsize


@pytest.mark.parametrize(("num_parts", "kind"), [(65536, np.uint16), (65537, np.int32)])
def test_the_last_part_has_its_number_in_a_narrow_table(num_parts: int, kind: type) -> None:
    root_part = np.array([0, num_parts - 1], np.int32)
    found = narrow(root_part, num_parts)
    assert found.dtype == kind
    assert found.tolist() == root_part.tolist()


def test_a_pair_that_does_not_fit_is_covered_in_pieces(tmp_path: Path) -> None:
    graph = planted(num_vertices=300, num_classes=6, seed=2)
    root_part = np.random.default_rng(0).integers(0, 2, 300).astype(np.int32)
    whole, _, _ = covered(tmp_path, graph, root_part, 10**6)
    pieces, num_piles, at_destination = covered(tmp_path, graph, root_part, 300)
    assert num_piles >= 2 + 4
    found, best = measure(graph, pieces), measure(graph, whole)
    assert found.halo_rows_at_destination == at_destination
    assert best.halo_rows <= found.halo_rows <= 1.5 * best.halo_rows


def test_every_part_is_in_as_many_windows_as_there_are_rounds() -> None:
    between = np.random.default_rng(0).integers(1, 50, (12, 12)).astype(np.int64)
    sizes = np.full(12, 10, np.int64)
    found = windows(between, sizes, 30)
    assert all(sizes[window].sum() <= 30 and window == sorted(window) for window in found)
    assert np.bincount(np.concatenate(found)).tolist() == [ROUNDS] * 12
    # Two parts that were together once are seldom together again.
    pairs = {(one, other) for window in found for one in window for other in window if one < other}
    assert len(pairs) >= 30


def test_parts_that_fit_together_are_one_window() -> None:
    assert windows(links(), np.full(6, 10), 60) == [[0, 1, 2, 3, 4, 5]]
    assert windows(np.ones((1, 1), np.int64), np.full(1, 10), 60) == []
    assert windows(links(), np.full(6, 10), 15) == []


def test_the_fullest_part_is_levelled_with_the_emptiest() -> None:
    load, sizes = np.array([10, 30, 12, 11]), np.array([5, 9, 4, 5])
    assert leveller(load, sizes, 20, 100) == [0, 1, 2, 3]
    assert leveller(load, sizes, 20, 20) == [0, 1, 3]
    assert leveller(load, sizes, 30, 100) == []
    assert leveller(load, sizes, 20, 10) == []


def test_a_planned_window_at_rest_keeps_no_other_parts_from_being_levelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root_part = np.arange(80, dtype=np.int32) // 20
    dtype = record_of(80, has_position=False)
    placed = Piles(tmp_path, "placed", dtype)
    rng = np.random.default_rng(0)
    # Parts 0 and 1 hold all edges, so that no window of these two can level them.
    for part in range(2):
        src, dst = rng.integers(0, 20, 200), rng.integers(20, 80, 200)
        placed.append(part, np.array(list(zip(src, dst, strict=True)), dtype))
    between = np.zeros((4, 4), np.int64)
    work = WorkFolder(tmp_path / "work", {})
    work.record(covered=[1, [200, 200, 0, 0], 0])
    monkeypatch.setattr(refining, "windows", lambda *_: [[0, 1], [2, 3]])
    cut = refining.Cut(placed=placed, root_part=root_part, between=between)
    refining.begin(work, cut)
    limits = refining.RefineLimits(most_edges=110, more_rows=1000, window_edges=10**6)
    refining.refine(work, cut, limits, Crew(work.folder), None)
    sizes = [placed.size(pile) for pile in work["refined"]["piles"]]
    assert sum(sizes) == 400
    assert max(sizes) <= 110


def test_each_crowded_part_is_beside_parts_with_room_for_three_times_its_excess() -> None:
    excess, sizes = np.array([10.0, -3, 4, -9, -9, -1]), np.full(6, 5)
    room = np.array([0.0, 20, 30, 15, 0, 1])
    # The roomiest goes to part 0, which lacks 30, the next one to part 2, which lacks 12 by then.
    assert eveners(excess, room, sizes, 100) == [[0, 1, 5], [2, 3]]
    assert eveners(excess, room, sizes, 10) == [[0, 1], [2, 3]]
    assert eveners(excess, room, sizes, 9) == []
    assert eveners(-np.abs(excess), room, sizes, 100) == []


@pytest.mark.parametrize("planned", [[[0, 1], [2, 3]], [[0, 2], [1, 3]]])
def test_leaves_of_a_crowded_part_go_where_the_other_ends_of_their_edges_are(
    planned: list[list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Vertex 0 has a root on part 0 and a leaf on part 1. The other ends of its edges on part 0 have
    # their roots on parts 2 and 3, which are full: they are beside one window, or within both.
    root_part = np.repeat(np.arange(4, dtype=np.int32), [1, 20, 50, 50])
    dtype = record_of(121, has_position=False)
    placed = Piles(tmp_path, "placed", dtype)
    placed.append(0, np.array([(leaf, 0) for leaf in range(21, 121)], dtype))
    placed.append(1, np.array([(own, 0) for own in range(1, 21)], dtype))
    between = np.diag(np.array([0, 0, 110, 110]))
    work = WorkFolder(tmp_path / "work", {})
    work.record(covered=[1, [100, 20, 0, 0], 0])
    monkeypatch.setattr(refining, "windows", lambda *_: planned)
    cut = refining.Cut(placed=placed, root_part=root_part, between=between)
    refining.begin(work, cut)
    before, state = np.array(work["refined"]["clones"]), work["refined"]
    assert before.max() > 1.5 * before.mean()
    limits = refining.RefineLimits(most_edges=110, more_rows=0, window_edges=10**6)
    for rounds in (0, refining._EVEN_ROUNDS - 1, refining._EVEN_ROUNDS):
        work.record(refined={**state, "peaks": [10**6] * rounds})
        assert bool(refining._crowded(work, cut, limits)) == (rounds < refining._EVEN_ROUNDS)
    work.record(refined=state)
    refining.refine(work, cut, limits, Crew(work.folder), None)
    after = np.array(work["refined"]["clones"])
    assert after.max() <= 1.5 * after.mean()
    assert work["refined"]["rows"] <= work["refined"]["before"]


def test_work_of_a_version_that_evened_no_clones_out_goes_on(tmp_path: Path) -> None:
    placed = Piles(tmp_path, "placed", record_of(4, has_position=False))
    work = WorkFolder(tmp_path / "work", {})
    state = {"windows": 0, "piles": [0, 1], "clones": [2, 2], "rows": 0, "before": 0}
    work.record(covered=[1, [0, 0], 0], refined={**state, "is_stuck": False})
    root_part, between = np.repeat(np.arange(2, dtype=np.int32), 2), np.zeros((2, 2), np.int64)
    cut = refining.Cut(placed=placed, root_part=root_part, between=between)
    refining.begin(work, cut)
    limits = refining.RefineLimits(most_edges=1, more_rows=0, window_edges=10)
    refining.refine(work, cut, limits, Crew(work.folder), None)
    assert work["refined"]["num_even"] == 1


def test_what_an_interrupted_step_added_is_dropped(tmp_path: Path) -> None:
    dtype = record_of(10, has_position=False)
    piles = Piles(tmp_path, "pile", dtype)
    records = np.array([(1, 2), (3, 4), (5, 6)], dtype)
    piles.append(0, records[:2])
    piles.append(1, records)
    piles.cut_back([1, 0, 0])
    assert piles.read(0).tolist() == [(1, 2)]
    assert [piles.size(pile) for pile in range(3)] == [1, 0, 0]
    piles.keep_only([1])
    assert not piles.path(0).exists()


@pytest.mark.parametrize(
    ("name", "array", "sentence"),
    [
        ("features", np.zeros((3, 2)), r"features\.npy must hold numbers of shape \(100, num_fe"),
        ("features", np.zeros((2, 100)).T, "row by row, got float64 of shape .* column by column"),
        ("edge_weight", np.zeros(3), r"edge_weight\.npy must hold \d+ numbers, one for each edge"),
        ("edge_weight", np.zeros((0, 5)), r"edge_weight\.npy must .* float64 of shape \(0, 5\)"),
        (
            "edge_features",
            np.zeros((3, 2)),
            r"of shape \(\d+, num_edge_features\), row by row, .* f",
        ),
        ("features_indptr", np.zeros(1, np.int64), "features_indices is missing; sparse features"),
        ("labels", np.zeros(3, np.int64), r"graph: labels must have shape \(100,\)"),
    ],
)
def test_arrays_that_do_not_fit_the_graph_are_input_errors(
    name: str, array: np.ndarray, sentence: str, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "graph", planted(num_vertices=100))
    np.save(folder / f"{name}.npy", array)
    with pytest.raises(InputError, match=sentence):
        open_folder(folder)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"edge_type": np.zeros(3)}, r"must hold 3 integers, one for each edge, got float64"),
        ({"edge_type": np.zeros(2, int)}, r"must hold 3 integers, .* of shape \(2,\); number"),
        (
            {"edge_type": np.array([0, 1, -1])},
            r"edge_type.npy: edge 2 has type -1, but types are 0, 1, 2",
        ),
        (
            {"edge_type": np.array([0, 1, 2]), "relation_names": np.array(["one", "two"])},
            "relation_names has 2 names, but edge_type uses 3 relations; give one name for each",
        ),
    ],
)
def test_types_of_edges_that_are_none_are_input_errors(
    arrays: dict[str, np.ndarray], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_folder, "_TYPES_AT_ONCE", 2)
    for name, array in {**arrays, "src": np.arange(3), "dst": np.arange(3)}.items():
        np.save(tmp_path / f"{name}.npy", array)
    with pytest.raises(InputError, match=sentence):
        open_folder(tmp_path)


def test_dense_and_sparse_features_exclude_each_other(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "graph", planted(num_vertices=100))
    for name, array in {
        "indptr": np.zeros(101, np.int64),
        "indices": np.zeros(0, np.int64),
        "data": np.zeros(0, np.float32),
        "shape": np.array([100, 4]),
    }.items():
        np.save(folder / f"features_{name}.npy", array)
    with pytest.raises(InputError, match="are both there; keep the dense or the CSR one"):
        open_folder(folder)


def test_a_work_folder_that_cannot_be_made_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write work folder .*: Not a directory; choose"):
        WorkFolder(tmp_path / "file" / "work", {})


HOLDER = """
import sys, time
from pathlib import Path
from distgnn.partition.large.work import WorkFolder
held = WorkFolder(Path(sys.argv[1]), {})
print("held", flush=True)
time.sleep(60)
"""


def test_two_processes_do_not_share_a_work_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "work")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=r"another process works in folder .*; wait for its"):
            WorkFolder(tmp_path / "work", {})
        holder.kill()
    WorkFolder(tmp_path / "work", {})


def test_a_stage_that_takes_more_steps_than_planned_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock, "INTERVAL_S", 0.0)
    lines: list[str] = []
    watch = clock.StageProgress("refining", "windows", 2, lines.append)
    for _ in range(3):
        watch.add(1)
    ends = [line.rsplit(", ", 1)[1] for line in lines]
    assert ends[1:] == ["about 0 s more", "1 more than planned"]
    assert lines[2].startswith("refining: 3 of 2 windows, ")
