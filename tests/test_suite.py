"""The suite itself: it ends, and says so, when one of its processes dies."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

DEADLY = """
import os
import pytest

@pytest.mark.parametrize("number", range(3))
def test_one(number):
    if number == 1:
        os.kill(os.getpid(), 9)
"""
SOUND = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_one(number):
    pass
"""


def test_the_suite_ends_when_one_of_its_processes_dies(repository: Path, tmp_path: Path) -> None:
    found = re.search(r"^PYTEST := (.*)$", (repository / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    words = found[1].replace("-n auto", "-n 2").split()
    (tmp_path / "test_a.py").write_text(DEADLY)
    for name in "bcd":
        (tmp_path / f"test_{name}.py").write_text(SOUND)
    done = subprocess.run(
        [sys.executable, *words, "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1
    assert "crashed while running 'test_a.py::test_one[1]'" in done.stdout
