from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graphs import make_graph
from large_graphs import open_folder, write_folder
from large_parts import compare
from large_runs import StoppedError, communities, content, run

from distgnn.datasets import InputError
from distgnn.partition.large import budget, clock, dealing
from distgnn.partition.large.dealing import Dealt
from distgnn.partition.large.source import Table
from distgnn.partition.structure import VertexTables


def shares(root_part: np.ndarray, num_parts: int) -> VertexTables:
    """Roots in any order on their parts."""
    shuffled = np.random.default_rng(1).permutation(root_part.size)
    vertex_at = shuffled[np.argsort(root_part[shuffled], kind="stable")].astype(np.int32)
    counts = np.bincount(root_part, minlength=num_parts)
    none = np.zeros(root_part.size, np.int32)
    return VertexTables(
        vertex_at=vertex_at,
        place=np.argsort(vertex_at).astype(np.int32),
        root_start=np.concatenate([[0], np.cumsum(counts)]),
        in_degree=none,
        out_degree=none,
        self_loops=none,
        local_id=none,
    )


def table_of(features: np.ndarray, path: Path) -> Table:
    """Numbers without a header."""
    features.tofile(path)
    return Table(path, features.dtype, 0, *features.shape)


@pytest.mark.parametrize("pile_bytes", [1, 100, 1000])
@pytest.mark.parametrize("append_bytes", [1, 100])
def test_features_through_small_buffers_are_those_of_parts_built_in_memory(
    pile_bytes: int, append_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A row has 24 bytes: buffers that do not hold one take one nevertheless.
    monkeypatch.setattr(dealing, "PILE_BYTES", pile_bytes)
    monkeypatch.setattr(dealing, "APPEND_BYTES", append_bytes)
    compare(write_folder(tmp_path / "graph", make_graph("random")), tmp_path, "rabbit")


@pytest.mark.parametrize("kind", ["<f2", ">f4", "<f8", "<i8", "|u1", "|b1"])
def test_features_stored_as_other_numbers_are_those_of_parts_built_in_memory(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dealing, "PILE_BYTES", 200)
    folder = write_folder(tmp_path / "graph", make_graph("random"))
    features = np.maximum(np.load(folder / "features.npy"), 0) * 3
    np.save(folder / "features.npy", features.astype(kind))
    compare(folder, tmp_path, "rabbit")


def test_more_piles_than_files_may_be_open_are_dealt_in_the_order_of_the_roots(
    tmp_path: Path,
) -> None:
    features = np.arange(3000, dtype=np.float32).reshape(1000, 3)
    root_part = np.random.default_rng(0).integers(0, 300, 1000).astype(np.int32)
    root_part[root_part == 17] = 18
    tables = shares(root_part, 300)
    dealt = Dealt(table_of(features, tmp_path / "table"), tables, tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, limits[1]))
    try:
        dealt.deal(0, None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(list(tmp_path.glob("features-*"))) == np.unique(root_part).size > 256
    assert list(dealt.rows(17)) == []
    rows = np.concatenate([rows for part in range(300) for rows in dealt.rows(part)])
    assert np.array_equal(rows, features[tables.vertex_at])
    for part in range(300):
        dealt.remove(part)
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


def test_as_much_is_in_hand_as_memory_and_piles_ask_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "INTERVAL_S", 0.0)
    monkeypatch.setattr(dealing, "PILE_BYTES", 400)
    monkeypatch.setattr(dealing, "APPEND_BYTES", 100)
    features = np.zeros((1000, 25), np.float32)
    tables = shares(np.arange(1000, dtype=np.int32) // 500, 2)
    dealt = Dealt(table_of(features, tmp_path / "table"), tables, tmp_path)

    def slices(most_bytes: int) -> int:
        lines: list[str] = []
        dealt.deal(most_bytes, lines.append)
        return len(lines) - 1

    # A row is read, checked and copied in 225 bytes; 32 say where to.
    assert slices(0) == 1000
    assert slices(257 * 50) == 20
    # 100 bytes for each of 250 piles are 250 rows.
    assert slices(1 << 30) == 4


CHILD = """
import os, signal, sys
from pathlib import Path
from large_runs import run
from distgnn.partition.large import clock, dealing

clock.INTERVAL_S = 0.0
dealing.PILE_BYTES = 400
dealing.APPEND_BYTES = 1
told = 0
def note(line):
    global told
    told += line.startswith("dealing")
    if told == 5:
        os.kill(os.getpid(), signal.SIGKILL)

folder = Path(sys.argv[1])
run(folder / "graph", folder / "out", progress=note)
"""


def test_a_run_that_is_killed_while_it_deals_goes_on_to_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = replace(communities(200), name="graph")
    folder = write_folder(tmp_path / "graph", graph)
    straight = run(folder, tmp_path / "straight")
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    here = str(Path(__file__).parents[2])
    ended = subprocess.run(command, env={"PYTHONPATH": here}, check=False)
    assert ended.returncode == -signal.SIGKILL
    work = tmp_path / "out.work"
    assert "is_dealt" not in json.loads((work / "state.json").read_text())
    left = sum(path.stat().st_size for path in work.glob("features-*"))
    assert 0 < left < graph.features.nbytes
    monkeypatch.setattr(dealing, "PILE_BYTES", 400)
    assert content(run(folder, tmp_path / "out")) == content(straight)
    assert not work.exists()


def test_what_was_dealt_is_not_dealt_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "INTERVAL_S", 0.0)
    folder = write_folder(tmp_path / "graph", communities(200))
    straight = run(folder, tmp_path / "straight")
    monkeypatch.setattr(budget, "DEAL_BYTE_S", 7200 / open_folder(folder).features_bytes)
    told: list[str] = []

    def stop(line: str) -> None:
        told.append(line)
        if sum(line.startswith("writing") for line in told) == 2:
            raise StoppedError

    with pytest.raises(StoppedError):
        run(folder, tmp_path / "out", progress=stop)
    assert [line.split(" (")[0] for line in told if line.startswith("dealing")][-1:] == [
        "dealing features: 200 rows"
    ]
    assert told[0].endswith(" and 2.0 hours")
    told.clear()
    assert content(run(folder, tmp_path / "out", progress=told.append)) == content(straight)
    assert not [line for line in told if line.startswith("dealing")]
    assert told[0].endswith(" and 0.0 minutes")


def test_dealt_features_that_are_gone_are_an_input_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "INTERVAL_S", 0.0)
    folder = write_folder(tmp_path / "graph", communities(200))

    def stop(line: str) -> None:
        if line.startswith("writing"):
            raise StoppedError

    with pytest.raises(StoppedError):
        run(folder, tmp_path / "out", progress=stop)
    (tmp_path / "out.work" / "features-00002").unlink()
    with pytest.raises(InputError, match=r"00002' holds 0 of \d+ rows of features of part 2; rem"):
        run(folder, tmp_path / "out")


def test_features_that_cannot_be_dealt_are_an_input_error(tmp_path: Path) -> None:
    features = np.ones((50, 4))
    features[17, 2] = 1e39
    tables = shares(np.zeros(50, np.int32), 1)
    table = table_of(features, tmp_path / "table")
    with pytest.raises(InputError, match="table: row 17 has values that are NaN or infinite in fl"):
        Dealt(table, tables, tmp_path).deal(0, None)
    table = table_of(features[:10], tmp_path / "table")
    with pytest.raises(InputError, match=r"cannot be read any more .* has to stay as it is until"):
        Dealt(replace(table, num_rows=50), tables, tmp_path).deal(0, None)


def test_what_dealing_takes_is_told_beforehand(tmp_path: Path) -> None:
    graph = communities(200)
    whole = open_folder(write_folder(tmp_path / "graph", graph))
    without = replace(whole, features=None, vertices=replace(whole.vertices, features=None))

    def disk(num_parts: int) -> int:
        return budget.disk_bytes(whole, 8, num_parts) - budget.disk_bytes(without, 8, num_parts)

    # Those of as many parts as are written at a time are in their files and in piles.
    features = whole.features_bytes
    assert graph.features is not None
    assert features == graph.features.nbytes
    assert without.features_bytes == 0
    assert disk(1) == pytest.approx(2 * features, abs=1)
    twice = budget.ROOTS_GUESS * budget.MOST_THREADS / 10
    assert disk(10) == pytest.approx((1 + twice) * features, abs=1)

    def seconds(deal_bytes: int) -> float:
        return budget.seconds(10, 3, 5, is_rooted=True, deal_bytes=deal_bytes)

    assert seconds(10**9) - seconds(0) == pytest.approx(3, rel=0.1)
