from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graphs import KINDS, make_graph
from large_graphs import assignment_in, numbered, open_folder, write_folder
from large_runs import StoppedError, communities, content, run

from distgnn import __version__
from distgnn.datasets import Graph, InputError, load
from distgnn.partition import assign
from distgnn.partition.build import relation_degrees
from distgnn.partition.directory.store import read_part
from distgnn.partition.large import budget, clock
from distgnn.partition.large.budget import least_bytes
from distgnn.partition.large.clock import Progress
from distgnn.partition.large.piles import Piles
from distgnn.partition.large.refining import RefineLimits
from distgnn.partition.large.windows import BYTES_PER_EDGE
from distgnn.partition.large.work import WorkFolder
from distgnn.partition.quality import Quality, measure


@pytest.mark.parametrize(
    ("kind", "num_parts"),
    [(kind, count) for kind in (*KINDS, "no-edges") for count in (1, 3)]
    + [(kind, 40) for kind in ("random", "few-edges", "no-edges")],
)
def test_parts_made_from_disk_are_the_graph(kind: str, num_parts: int, tmp_path: Path) -> None:
    none = np.zeros(0, np.int64)
    empty = Graph(name=kind, num_vertices=40, src=none, dst=none)
    graph = numbered(empty if kind == "no-edges" else make_graph(kind))
    folder = write_folder(tmp_path / "graph", graph)
    manifest = run(folder, tmp_path / "out", num_parts, order="rabbit")
    assignment = assignment_in(tmp_path / "out")
    assert not (tmp_path / "out.work").exists()
    assert manifest.num_edges == graph.num_edges
    assert manifest.source_checksum == load(folder).checksum
    # Whatever refinement moved, what the manifest says is what the edges cost.
    assert manifest.quality == measure(graph, assignment).to_json()


@pytest.mark.parametrize("names", [None, ("cites", "likes", "writes")])
def test_a_typed_graph_is_partitioned_from_disk(
    names: tuple[str, ...] | None, tmp_path: Path
) -> None:
    plain = numbered(communities())
    types = np.random.default_rng(0).integers(0, 3, plain.num_edges)
    graph = replace(plain, edge_type=types, relation_names=names)
    manifest = run(write_folder(tmp_path / "graph", graph), tmp_path / "out", 4)
    assert (manifest.num_relations, manifest.relation_names) == (3, names or ())
    degrees = relation_degrees(graph.dst, types)
    for number in range(4):
        part = read_part(tmp_path / "out", number)
        assert part.edge_weight is not None
        edge = part.edge_weight.astype(np.int64)
        assert np.array_equal(part.edge_type, types[edge])
        assert np.array_equal(part.relation_degree, degrees[edge])
    assert sum(one.num_edges for one in manifest.parts) == graph.num_edges


@pytest.mark.parametrize("is_refining", [False, True])
def test_quality_from_disk_is_close_to_that_of_the_method_in_memory(
    is_refining: bool, tmp_path: Path
) -> None:
    graph = communities()
    folder = write_folder(tmp_path / "graph", graph)
    manifest = run(folder, tmp_path / "out", 6, is_refining=is_refining, memory_bytes=2 << 30)
    found = Quality.from_json(manifest.quality)
    in_memory = measure(graph, assign("metis", graph, 6, refine=is_refining))
    # In memory refinement moves roots too.
    assert found.halo_rows <= 1.1 * in_memory.halo_rows
    assert found.edge_balance <= (1.05 if is_refining else 1.6)


def test_windows_save_rows_and_keep_the_limit_of_edges(tmp_path: Path) -> None:
    graph = communities(1500)
    folder = write_folder(tmp_path / "graph", graph)
    # Edges between parts of half of the parts or so.
    memory = least_bytes(open_folder(folder), 8) + graph.num_edges // 6 * BYTES_PER_EDGE
    lines: list[str] = []
    unrefined = run(folder, tmp_path / "first", 8, is_refining=False)
    refined = run(folder, tmp_path / "second", 8, memory_bytes=memory, progress=lines.append)
    before, after = (Quality.from_json(one.quality) for one in (unrefined, refined))
    (line,) = [line for line in lines if line.startswith("refining: ") and " rows to " in line]
    assert int(line.split()[1]) > 2
    assert f"{before.halo_rows} rows to {after.halo_rows}" in line
    assert after.halo_rows < 0.95 * before.halo_rows
    assert before.edge_balance > after.edge_balance
    assert after.edge_balance <= 1.05 + 1e-9


@pytest.mark.parametrize(("window_edges", "end"), [(10**6, "allows"), (50, "refined together")])
def test_a_part_that_stays_above_the_limit_of_edges_is_told(
    window_edges: int, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Windows are counted, and move nothing.
    def rest(work: WorkFolder, _cut: object, goal: RefineLimits, *_: object) -> None:
        object.__setattr__(goal, "window_edges", window_edges)
        work.record(refined={**work["refined"], "windows": 1})

    monkeypatch.setattr("distgnn.partition.large.pipeline.refine", rest)
    said: list[str] = []
    graph, folder = communities(1500), tmp_path / "graph"
    manifest = run(write_folder(folder, graph), tmp_path / "out", 8, progress=said.append)
    (line,) = [line for line in said if line.startswith("the fullest part holds ")]
    fullest = max(part.num_edges for part in manifest.parts)
    most = int(1.05 * graph.num_edges / len(manifest.parts))
    assert f"{fullest} edges, above the {most} that a balance of 1.05 allows" in line
    assert line.endswith(end)


def test_the_order_of_the_edges_hardly_matters(tmp_path: Path) -> None:
    graph = communities()
    rng = np.random.default_rng(0)
    rows = []
    for name, order in (
        ("sorted", np.lexsort((graph.dst, graph.src))),
        ("shuffled", rng.permutation(graph.num_edges)),
    ):
        moved = replace(graph, src=graph.src[order], dst=graph.dst[order])
        folder = write_folder(tmp_path / name, moved)
        rows.append(Quality.from_json(run(folder, tmp_path / f"{name}-out").quality).halo_rows)
    assert rows[0] == rows[1]


def test_a_run_that_is_stopped_anywhere_goes_on_to_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "INTERVAL_S", 0.0)
    folder = write_folder(tmp_path / "graph", communities(200))
    lines: list[str] = []
    straight = run(folder, tmp_path / "straight", progress=lines.append)

    def stop_at(number: int) -> Progress:
        told: list[str] = []

        def note(line: str) -> None:
            told.append(line)
            if len(told) == number:
                raise StoppedError

        return note

    for number in range(1, len(lines) + 1, 3):
        out = tmp_path / f"stopped-{number}"
        with pytest.raises(StoppedError):
            run(folder, out, progress=stop_at(number))
        assert not out.exists()
        assert content(run(folder, out)) == content(straight), lines[number - 1]


CHILD = """
import os, signal, sys
from pathlib import Path
from large_graphs import open_folder, roots_by_metis
from distgnn.partition.large import budget, clock
from distgnn.partition.large.budget import least_bytes
from distgnn.partition.large.input import SourceText
from distgnn.partition.large.pipeline import Places, Settings, partition

clock.INTERVAL_S = 0.0
told = 0
def note(line):
    global told
    told += 1
    if told == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

out = Path(sys.argv[1])
source = open_folder(out.parent / "graph")
settings = Settings(num_parts=4, memory_bytes=least_bytes(source, 4))
places = Places(directory=out, work=out.with_suffix(".work"))
given = SourceText(source=str(out.parent / "graph"))
partition(given, places, settings, choose_roots=roots_by_metis, progress=note)
"""


def test_a_run_that_is_killed_again_and_again_goes_on_to_the_same_result(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "graph", communities(200))
    straight = run(folder, tmp_path / "straight")
    out = tmp_path / "out"
    codes = []
    for number in (3, 7, 11, 10**6):
        command = [sys.executable, "-c", CHILD, str(out), str(number)]
        here = str(Path(__file__).parents[2])
        codes.append(subprocess.run(command, env={"PYTHONPATH": here}, check=False).returncode)
    assert codes == [-signal.SIGKILL] * 3 + [0]
    manifest = json.loads((out / "manifest.json").read_text())
    assert {name: record["sha256"] for name, record in manifest["files"].items()} == {
        name: record.sha256 for name, record in straight.files.items()
    }


def test_a_work_folder_of_other_options_is_an_input_error(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "graph", communities(100))

    def stop(line: str) -> None:
        raise StoppedError

    out = tmp_path / "out"
    with pytest.raises(StoppedError):
        run(folder, out, progress=stop)
    with pytest.raises(InputError, match=r"out\.work' is of another partitioning: its seed is 0"):
        run(folder, out, seed=1)
    state = tmp_path / "out.work" / "state.json"
    state.write_text(state.read_text().replace(f'"{__version__}"', '"0.0.9"'))
    with pytest.raises(InputError, match=r"its distgnn version is '0\.0\.9', not '"):
        run(folder, out)
    state.write_text("{")
    with pytest.raises(InputError, match="is damaged, so nothing can continue from there; remove"):
        run(folder, out)


def test_a_work_folder_with_foreign_files_is_an_input_error(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "graph", communities(100))
    (tmp_path / "out.work").mkdir()
    (tmp_path / "out.work" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="holds files that are not of a partitioning; choose an"):
        run(folder, tmp_path / "out")


def test_too_little_memory_is_an_input_error(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "graph", communities(100))
    least = least_bytes(open_folder(folder), 4)
    with pytest.raises(InputError, match=r"not enough for 4 parts of 100 vertices and \d+ edges"):
        run(folder, tmp_path / "out", memory_bytes=least - 1)
    # Nothing is left that another bound would contradict.
    run(folder, tmp_path / "out", memory_bytes=least)


def test_more_parts_than_vertices_are_an_input_error(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "graph", communities(100))
    with pytest.raises(InputError, match="num_parts is 101, but 'graph' has 100; ask for fewer"):
        run(folder, tmp_path / "out", 101)


def test_too_little_disk_is_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "graph", communities(100))
    monkeypatch.setattr(budget, "STORED_EDGE_BYTES", 1 << 50)
    with pytest.raises(InputError, match=r"takes about \d+\.\d GiB of disk for .* are free; make"):
        run(folder, tmp_path / "out")


def test_a_full_disk_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "graph", communities(100))

    def append(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Piles, "append", append)
        with pytest.raises(InputError, match=r"No space left on device; make room and run the sam"):
            run(folder, tmp_path / "out")
    run(folder, tmp_path / "out")


def test_the_time_that_is_left_grows_with_what_is_refined_and_how_far_apart_it_lies() -> None:
    edges, cut = 404_000_000, 141_000_000

    def hours(window: int, *, num_cut: int = cut, is_rooted: bool = True) -> float:
        return budget.seconds(edges, num_cut, window, is_rooted=is_rooted, deal_bytes=0) / 3600

    # The twin of ogbn-papers100M at 1/4 took 74 s for covers and 822 for windows.
    assert hours(16_000_000) - hours(16_000_000, num_cut=0) == pytest.approx(0.25, rel=0.1)
    assert hours(1 << 19) == hours(1 << 10) < hours(1 << 22) < hours(16_000_000)
    assert hours(1 << 22) < hours(1 << 22, is_rooted=False)
    # All at once is refined once.
    assert hours(cut) < hours(cut - 1) / 2
