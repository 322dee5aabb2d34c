"""README files: each room has one, and the files that one names are there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ROOMS = ("distgnn", "partition", "datasets", "csrc")
# Folders of adapters, which the README of the folder above describes.
WITHOUT_README = {
    "distgnn/bench/peers",
    "distgnn/comm/transports",
    "distgnn/interop/accelerate",
}
MAX_LINES = 50
"""Longest README of a room."""
_FILE = re.compile(r"`([\w/]+\.(?:py|cpp|h|inc))`")


def readmes(root: Path, *names: str) -> list[Path]:
    folders = [root / name for name in (*ROOMS, *names)]
    return [path for folder in folders for path in folder.rglob("README.md")]


def bases(readme: Path, root: Path) -> tuple[Path, ...]:
    """Folders that the names in a README may start from."""
    return readme.parent, root, root / "distgnn"


def test_each_room_says_what_it_is_for(repository):
    packages = {
        path.parent.relative_to(repository)
        for room in ROOMS
        for path in (repository / room).rglob("__init__.py")
    }
    without = {str(room) for room in packages if not (repository / room / "README.md").is_file()}
    assert without <= WITHOUT_README


def test_a_readme_of_a_room_is_short(repository):
    long = {
        str(path.relative_to(repository)): count
        for path in readmes(repository)
        if (count := len(path.read_text("utf-8").splitlines())) > MAX_LINES
    }
    assert not long


def test_the_files_that_a_readme_names_are_there(repository):
    missing = [
        f"{path.relative_to(repository)}: {name}"
        for path in readmes(repository, "tests", "examples")
        for name in _FILE.findall(path.read_text("utf-8"))
        if not any((base / name).is_file() for base in bases(path, repository))
    ]
    assert not missing
