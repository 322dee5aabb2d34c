"""Folders beside a partition directory, and what is left of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from distgnn.cli import main
from distgnn.partition.directory.atomic import complete_or_absent
from distgnn.partition.directory.temporary import PREVIOUS

WRITES = """
import sys
from pathlib import Path
from distgnn.partition.directory.temporary import folder_beside
with folder_beside(Path(sys.argv[1])) as folder:
    (folder / "new").mkdir()
    (folder / "new" / "half").write_bytes(bytes(1000))
    for name in sys.argv[2:]:
        (folder / name).mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


@contextmanager
def writing(target: Path, *names: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Start a process that has written half of a directory; the process, and its folder."""
    command = [sys.executable, "-c", WRITES, str(target), *names]
    with subprocess.Popen(command, stdin=-1, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        folder = Path(started.stdout.readline().strip())
        assert (folder / "new" / "half").exists()
        try:
            yield started, folder
        finally:
            started.kill()


def killed(target: Path, *names: str) -> Path:
    """Return the folder of a process that was killed while it wrote."""
    with writing(target, *names) as (_, folder):
        pass
    assert (folder / "new" / "half").exists()
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


def test_what_a_killed_partition_left_is_removed_by_the_next(ring: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "parts"
    out.parent.mkdir()
    other = killed(out.parent / "parts.b")
    killed(out)
    assert main(["partition", str(ring), "--parts", "2", "--out", str(out), "--json"]) == 0
    assert names_in(out.parent) == sorted([other.name, "parts"])
    with writing(out) as (process, folder):
        words = ["partition", str(ring), "--parts", "3", "--out", str(out), "--json", "--overwrite"]
        assert main(words) == 0
        assert (folder / "new" / "half").exists(), "of a process that lives"
        process.communicate("")
    assert names_in(out.parent) == sorted([other.name, "parts"])


def test_folders_of_this_process_and_of_nobody_stay(tmp_path: Path) -> None:
    target = tmp_path / "parts"
    nobody = tmp_path / ".parts.abcd1234"
    nobody.mkdir()
    with complete_or_absent(target) as first:
        with complete_or_absent(target) as second:
            assert first.exists()
            assert first != second
        assert first.exists()
    assert names_in(tmp_path) == [nobody.name, "parts"]


def test_the_only_copy_of_a_directory_stays(tmp_path: Path) -> None:
    """The process was killed between the two changes of a name."""
    target = tmp_path / "parts"
    folder = killed(target, PREVIOUS)
    with pytest.raises(ZeroDivisionError), complete_or_absent(target):
        raise ZeroDivisionError
    assert (folder / PREVIOUS).exists()
    target.mkdir()
    with complete_or_absent(target):
        pass
    assert names_in(tmp_path) == ["parts"]


def test_a_folder_of_this_process_stays_under_another_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with complete_or_absent(tmp_path / "real" / "parts") as first:
        with complete_or_absent(tmp_path / "link" / "parts"):
            pass
        assert first.exists()


@pytest.mark.parametrize("kind", ["another host", "something of the user's"])
def test_what_may_belong_to_others_stays(kind: str, tmp_path: Path) -> None:
    folder = killed(tmp_path / "parts")
    if kind == "another host":
        (folder / "distgnn-lock").write_text("6f1c8a52-0000-4000-8000-000000000000\n")
    else:
        (folder / "notes").write_text("mine")
    with complete_or_absent(tmp_path / "parts"):
        pass
    assert names_in(tmp_path) == [folder.name, "parts"]


@pytest.mark.parametrize("name", ["distgnn-lock", PREVIOUS, "new"])
def test_a_directory_may_have_any_name(name: str, tmp_path: Path) -> None:
    for content in "ab":
        with complete_or_absent(tmp_path / name) as folder:
            (folder / "file").write_text(content)
        assert (tmp_path / name / "file").read_text() == content
    assert names_in(tmp_path) == [name]


def test_a_disk_without_locks_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.lockf", refuse)
    with complete_or_absent(tmp_path / "parts"):
        pass
    assert names_in(tmp_path) == ["parts"]
