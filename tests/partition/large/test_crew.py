"""Ranks that share the work of a partitioning: the outcome of one, kills, and what goes wrong."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from large_graphs import write_folder
from large_runs import communities

from distgnn.datasets import InputError
from distgnn.partition.large import crew as crew_module
from distgnn.partition.large.crew import Crew, Task
from distgnn.partition.large.input import SourceText
from distgnn.partition.large.pipeline import Places, assist
from distgnn.partition.large.refining import TASK as REFINE
from distgnn.partition.large.refining import WindowShare, WindowTask
from distgnn.partition.large.work import CREW, WorkFolder

NUM_PARTS = 8

CHILD = """
import os, signal, sys
from pathlib import Path
from large_graphs import open_folder, roots_by_metis
from distgnn.partition.large import clock
from distgnn.partition.large.budget import least_bytes
from distgnn.partition.large.crew import Crew
from distgnn.partition.large.input import SourceText
from distgnn.partition.large.pipeline import Places, Settings, assist, partition
from distgnn.partition.large.windows import BYTES_PER_EDGE

clock.INTERVAL_S = 0.0
folder, out, rank, size, last = Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:])
told = 0
def note(line):
    global told
    told += 1
    print(line, flush=True)
    if told == last:
        os.kill(os.getpid(), signal.SIGKILL)

source = open_folder(folder)
memory = least_bytes(source, 8) + source.edges.num_edges // 6 * BYTES_PER_EDGE
places = Places(directory=out, work=out.with_suffix(".work"))
given = SourceText(source=str(folder))
crew = Crew(places.work, rank, size)
if rank:
    assist(lambda: given, places, crew)
else:
    settings = Settings(num_parts=8, memory_bytes=memory)
    partition(given, places, settings, choose_roots=roots_by_metis, crew=crew, progress=note)
"""


def start(folder: Path, out: Path, size: int, last: int = 0) -> list[subprocess.Popen[str]]:
    """Start the ranks of a job; the first one kills itself at a line of its progress."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, *map(str, (folder, out, rank, size, last))],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def ends(ranks: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Wait for the ranks; their statuses and what they said."""
    said = [rank.communicate(timeout=200) for rank in ranks]
    return [(rank.returncode, *words) for rank, words in zip(ranks, said, strict=True)]


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("crew") / "graph", communities(1500))


@pytest.fixture(scope="module")
def alone(graph: Path) -> Path:
    """The partition that one rank makes."""
    [(status, said, _)] = ends(start(graph, graph.parent / "alone", 1))
    assert status == 0
    # Windows that have no part in common, and others after them.
    (line,) = [one for one in said.splitlines() if "refining: " in one and " rows to " in one]
    assert int(line.split()[1]) > 3
    (graph.parent / "said").write_text(said)
    return graph.parent / "alone"


def test_a_folder_is_removed_while_a_rank_still_says_that_it_is_there(tmp_path):
    is_over = threading.Event()

    def keep_saying(folder):
        while not is_over.is_set():
            # A rank that has not heard of the end says so as often as it looks.
            Crew(folder, 1, 2)._say("here")
            (folder / "crew-00001.json").unlink(missing_ok=True)

    for number in range(30):
        folder = tmp_path / str(number)
        work = WorkFolder(folder, {})
        is_over.clear()
        rank = threading.Thread(target=keep_saying, args=(folder,))
        rank.start()
        try:
            work.remove()
        finally:
            is_over.set()
            rank.join()
        assert not folder.exists()


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_any_number_of_ranks_writes_the_files_of_one(
    size: int, graph: Path, alone: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    found = ends(start(graph, out, size))
    assert [one[0] for one in found] == [0] * size, found
    assert files_in(out) == files_in(alone)
    assert not out.with_suffix(".work").exists()


@pytest.mark.parametrize("share", [0.6, pytest.param(0.9, marks=pytest.mark.slow)])
def test_ranks_whose_first_one_was_killed_go_on_to_the_same_files(
    share: float, graph: Path, alone: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    num_lines = len((alone.parent / "said").read_text().splitlines())
    killed, other = ends(start(graph, out, 2, last=int(share * num_lines)))
    # The others of a job that no launcher ends go, too.
    assert (killed[0], other[0]) == (-9, 0), (killed, other)
    assert not out.exists()
    again = ends(start(graph, out, 2))
    assert [one[0] for one in again] == [0, 0], again
    assert files_in(out) == files_in(alone)


HOLDER = """
import sys, time
from pathlib import Path
from distgnn.partition.large.crew import Crew
for task in Crew(Path(sys.argv[1]), 1, 2).tasks():
    print(task.kind, flush=True)
    time.sleep(600)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    """Start rank 1 of 2, which stays at the items of its first task and says the task's name."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_no_job_begins_while_a_rank_of_another_one_still_works(tmp_path: Path) -> None:
    folder, is_over = tmp_path / "work", threading.Event()
    work = WorkFolder(folder, {})
    other = holder(folder)
    crew = Crew(folder, 0, 2)

    def lead() -> None:
        crew.begin()
        crew.share("x", [0, 1], lambda item: None, is_done=lambda item: is_over.is_set())

    leading = threading.Thread(target=lead)
    leading.start()
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "x\n"
        is_over.set()
        leading.join(60)
        # Rank 0 is gone, and the other one is still at its item.
        del work
        with pytest.raises(InputError, match=r"^another process works in folder '.*'; wait for"):
            WorkFolder(folder, {})
    finally:
        is_over.set()
        other.kill()
        other.communicate()
    assert not WorkFolder(folder, {}).is_new


def test_the_first_rank_does_not_wait_for_one_that_was_killed(tmp_path: Path) -> None:
    folder, said = tmp_path / "work", list[str]()
    work = WorkFolder(folder, {})
    other = holder(folder)
    crew = Crew(folder, 0, 2)

    def lead() -> None:
        crew.begin()
        try:
            crew.share("x", [0, 1], lambda item: None, is_done=lambda item: item == 0)
        except InputError as error:
            said.append(str(error))

    leading = threading.Thread(target=lead)
    leading.start()
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "x\n"
        deadline_s = time.monotonic() + 60
        while not crew._seen:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
    finally:
        other.kill()
        other.communicate()
    leading.join(60)
    assert said[0].startswith("rank 1 ended before its share of the work was done; see what it")
    del work


def test_a_rank_that_was_killed_before_there_was_work_is_missed(tmp_path: Path) -> None:
    work = WorkFolder(tmp_path / "work", {})
    other = holder(work.folder)
    crew = Crew(work.folder, 0, 2)
    try:
        # Once this ends, the other rank has locked its byte, and this one has seen it.
        crew.begin()
    finally:
        other.kill()
        other.communicate()
    with pytest.raises(InputError, match=r"^rank 1 ended before its share of the work was done"):
        crew.share("x", [0, 1], lambda item: None, is_done=lambda item: item == 0)


def test_a_rank_that_says_no_more_than_its_name_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over, other, tell = threading.Event(), Crew(tmp_path, 1, 2), Crew._tell

    def tell_in_a_hurry(crew: Crew, *given: Any) -> None:
        monkeypatch.setattr(crew_module, "START_S", 0.2)
        tell(crew, *given)

    monkeypatch.setattr(Crew, "_tell", tell_in_a_hurry)

    def keep_saying() -> None:
        while not is_over.is_set():
            other._say("here")
            time.sleep(0.01)

    saying = threading.Thread(target=keep_saying)
    saying.start()
    crew = Crew(tmp_path, 0, 2)
    try:
        with pytest.raises(InputError, match=r"^rank 1 ended before its share of the work was"):
            crew.begin()
    finally:
        is_over.set()
        saying.join()


def on_threads(folder: Path, size: int, lead: Callable[[Crew], None]) -> list[list[Any]]:
    """Let rank 0 lead, and the others note the items of their tasks."""
    done: list[list[Any]] = [[] for _ in range(size)]

    def assist(crew: Crew) -> None:
        for task in crew.tasks():
            for item in task.items:
                done[crew.rank].append((task.kind, task.facts, item))
                (folder / f"done-{item}").touch()

    others = [
        threading.Thread(target=assist, args=(Crew(folder, r, size),)) for r in range(1, size)
    ]
    for other in others:
        other.start()
    crew = Crew(folder, 0, size)
    try:
        crew.begin()
        lead(crew)
    finally:
        crew.end()
        for other in others:
            other.join(60)
    assert not any(other.is_alive() for other in others)
    return done


def test_items_are_dealt_in_turns_and_none_is_done_twice(tmp_path: Path) -> None:
    own: list[int] = []

    def lead(crew: Crew) -> None:
        def do(item: int) -> None:
            own.append(item)
            (tmp_path / f"done-{item}").touch()

        def is_done(item: int) -> bool:
            return (tmp_path / f"done-{item}").exists()

        (tmp_path / "done-1").touch()
        crew.share("first", range(7), do, is_done=is_done, facts={"x": 1})
        crew.share("second", [10, 11], do, is_done=is_done)

    done = on_threads(tmp_path, 3, lead)
    # Item 1 was there.
    assert own == [0, 4, 10]
    assert done[1] == [("first", {"x": 1}, 2), ("first", {"x": 1}, 5), ("second", {}, 11)]
    assert done[2] == [("first", {"x": 1}, 3), ("first", {"x": 1}, 6)]


def test_files_of_an_earlier_job_are_no_task(tmp_path: Path) -> None:
    members = {"1": "somebody else"}
    task = {"number": 1, "kind": "x", "members": members, "facts": {}, "items": [0, 1]}
    (tmp_path / f"{CREW}.json").write_text(json.dumps(task))
    (tmp_path / f"{CREW}-00001.json").write_text(json.dumps({"id": "somebody else"}))
    assert on_threads(tmp_path, 2, lambda crew: None) == [[], []]


def test_a_rank_that_failed_ends_the_first_with_its_sentence(tmp_path: Path) -> None:
    def fail() -> None:
        crew = Crew(tmp_path, 1, 2)
        for _ in crew.tasks():
            crew.fail("no space left")
            return

    other = threading.Thread(target=fail)
    other.start()
    crew = Crew(tmp_path, 0, 2)
    crew.begin()
    with pytest.raises(InputError, match=r"^rank 1: no space left$"):
        crew.share("x", [0, 1], lambda item: None, is_done=lambda item: False)
    other.join(60)


def test_an_end_that_a_full_disk_does_not_hold_hides_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(crew: Crew) -> None:
        def write_text(path: Path, text: str, **options: Any) -> None:
            path.write_bytes(text[:1].encode())
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Path, "write_text", write_text)
        try:
            with pytest.raises(OSError, match="No space left"):
                crew.share("x", [0, 1], lambda item: None, is_done=lambda item: False)
            crew.end()
        finally:
            monkeypatch.undo()
        # Nothing that is half written takes room.
        assert not list(tmp_path.glob("*.new"))

    assert on_threads(tmp_path, 2, fill) == [[], []]


def test_a_rank_opens_the_source_once_and_only_for_items(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    open_text = SourceText.open

    def opening(given: SourceText, work: WorkFolder, progress: Any) -> Any:
        opened.append(work.folder)
        return open_text(given, work, progress)

    monkeypatch.setattr(SourceText, "open", opening)
    monkeypatch.setattr(WindowShare, "refine", lambda *_: None)
    work = WorkFolder(tmp_path / "work", {})
    work.record(arrays=str(graph))
    work.save("root-part", np.zeros(1500, np.int32))
    work.save("between", np.zeros((8, 8), np.int64))
    facts = WindowTask([0], [0], 1, 0)._asdict()
    crew = Crew(work.folder, 1, 2)
    tasks = [Task(REFINE, facts, items) for items in ([], [[0, [0]]], [[1, [0]]])]
    monkeypatch.setattr(crew, "tasks", lambda: iter(tasks[:1]))
    places = Places(directory=tmp_path / "out", work=work.folder)
    assist(lambda: SourceText(source=str(graph)), places, crew)
    assert not opened
    monkeypatch.setattr(crew, "tasks", lambda: iter(tasks))
    assist(lambda: SourceText(source=str(graph)), places, crew)
    assert opened == [work.folder]


def test_ranks_that_do_not_see_each_other_do_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew_module, "START_S", 0.2)
    with pytest.raises(InputError, match=r"^rank 1 was not seen in '.*' within 0\.2 s; all ranks"):
        Crew(tmp_path, 0, 2).begin()
    with pytest.raises(InputError, match=r"^rank 0 did not begin to work in '.*' within 0\.2 s"):
        next(Crew(tmp_path / "elsewhere", 1, 2).tasks())


def test_a_folder_in_which_only_a_rank_has_spoken_is_new(tmp_path: Path) -> None:
    (tmp_path / f"{CREW}-00001.json").write_text("{}")
    assert WorkFolder(tmp_path, {"a": 1}).is_new
