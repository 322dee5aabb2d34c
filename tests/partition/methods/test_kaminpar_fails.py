"""KaMinPar that dies, by a module of its name that stands in for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from distgnn.api.methods import chosen_method, run_method
from distgnn.api.partition_options import PartitionOptions
from distgnn.api.source import SourceOptions
from distgnn.datasets import Graph, InputError
from distgnn.partition import assign
from distgnn.partition.methods import auto, kaminpar_library, starts
from distgnn.partition.methods.auto import MethodChoice
from distgnn.partition.methods.library_process import LibraryFailedError

NO_MEMORY = "raise MemoryError('std::bad_alloc')"
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
ENDED_EARLY = "import sys; sys.exit(0)"
SENTENCES = {
    NO_MEMORY: r"^KaMinPar ended with status 1: MemoryError: std::bad_alloc; free memory, or cut ",
    KILLED: r"^KaMinPar was ended by signal 9 \(Killed\); free memory, or cut with --method metis ",
    ENDED_EARLY: r"^KaMinPar wrote 0 parts for 40 vertices; make room in '.*', or cut with",
}


def graph_of(num_vertices: int = 40, num_edges: int = 200) -> Graph:
    ends = np.random.default_rng(0).integers(0, num_vertices, (2, num_edges))
    return Graph(name="random", num_vertices=num_vertices, src=ends[0], dst=ends[1])


@pytest.fixture(params=SENTENCES)
def sentence(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The sentence for the way in which KaMinPar dies."""
    stand_in(tmp_path, request.param)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for module in (kaminpar_library, starts):
        monkeypatch.setattr(module, "is_installed", lambda: True)
    return SENTENCES[request.param]


def stand_in(folder: Path, code: str) -> None:
    (folder / "kaminpar.py").write_text(code)


def test_kaminpar_alone_fails_with_one_sentence(sentence: str) -> None:
    with pytest.raises(LibraryFailedError, match=sentence):
        assign("metis", graph_of(), 2, roots="kaminpar")


def test_modules_of_the_working_directory_are_not_those_of_kaminpar(
    sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = tmp_path / "working"
    working.mkdir()
    for name in ("json", "kaminpar", "signal"):
        (working / f"{name}.py").write_text("raise SystemExit('of the user')\n")
    monkeypatch.chdir(working)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with pytest.raises(LibraryFailedError, match=sentence):
        assign("metis", graph_of(), 2, roots="kaminpar")


def test_a_process_that_cannot_be_started_is_one_sentence(
    sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(InputError, match=r"^cannot start a process for KaMinPar: No such file or "):
        assign("metis", graph_of(), 2, roots="kaminpar")


@pytest.mark.parametrize("quality", ["default", "best"])
def test_the_roots_of_metis_are_kept(sentence: str, quality: str) -> None:
    said: list[str] = []
    found = assign("metis", graph_of(), 2, roots="best", quality=quality, progress=said.append)
    alone = assign("metis", graph_of(), 2, roots="metis", quality=quality)
    np.testing.assert_array_equal(found.edge_part, alone.edge_part)
    np.testing.assert_array_equal(found.root_part, alone.root_part)
    (line,) = (line for line in said if "no more roots by KaMinPar" in line)
    assert "those so far are kept: KaMinPar " in line


def test_auto_chooses_again_without_kaminpar(
    sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[bool] = []
    looks: list[Graph] = []

    def choose(
        *_: object, has_kaminpar: bool, takes_little: Callable[[], bool], **__: object
    ) -> MethodChoice:
        asked_for.append(has_kaminpar)
        options = {"roots": "kaminpar"} if has_kaminpar else {}
        return MethodChoice("metis", "it fits", options, takes_little())

    def look(graph: Graph) -> bool:
        looks.append(graph)
        return False

    monkeypatch.setattr(kaminpar_library, "is_installed", lambda: True)
    monkeypatch.setattr(auto, "choose", choose)
    monkeypatch.setattr(auto, "takes_little", look)
    said: list[str] = []
    asked = PartitionOptions(SourceOptions("random"), 2, "out", said.append, method="auto")
    found, method, options = run_method(asked, graph_of(), chosen_method(asked, graph_of()))
    assert (asked_for, method, options["chosen"]) == ([True, False], "metis", "it fits")
    assert len(looks) == 1, "the second choice takes what the first found out"
    assert "roots" not in options
    assert any(line.startswith("no roots by KaMinPar: KaMinPar ") for line in said)
    np.testing.assert_array_equal(found.edge_part, assign("metis", graph_of(), 2).edge_part)


PROGRAM = """
import numpy as np
from distgnn.datasets import Graph
from distgnn.partition import assign
ends = np.random.default_rng(0).integers(0, 40, (2, 200))
assign("metis", Graph(name="r", num_vertices=40, src=ends[0], dst=ends[1]), 2, roots="kaminpar")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends it with its parent")
def test_a_killed_cut_leaves_no_file_and_no_process(tmp_path: Path) -> None:
    modules, temporary, told = tmp_path / "modules", tmp_path / "temporary", tmp_path / "pid"
    modules.mkdir()
    temporary.mkdir()
    stand_in(
        modules,
        "import os, pathlib, time\n"
        f"pathlib.Path({str(told)!r}).write_text(f'{{os.getpid()}} ')\n"
        "time.sleep(600)\n",
    )
    env = os.environ | {"PYTHONPATH": str(modules), "TMPDIR": str(temporary)}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=env) as cut:
        wait_until(lambda: told.exists() and told.read_text().endswith(" "))
        pid = int(told.read_text())
        assert is_running(pid)
        cut.send_signal(signal.SIGKILL)
    assert list(temporary.iterdir()) == []
    wait_until(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    """Return whether there is a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 250
    while not is_so():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
