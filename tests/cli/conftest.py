"""Running the command line in this process, and small things to run it on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import torch
from ring import ring_arrays

from distgnn.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Outcome(NamedTuple):
    """Outcome of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The only JSON object on standard output."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        assert len(self.out.splitlines()) == 1
        return value

    @property
    def sentence(self) -> str:
        """The only sentence of a command that was refused."""
        assert self.status == 2, self
        assert self.out == ""
        (line,) = self.err.splitlines()
        assert line.startswith("distgnn: ")
        return line.removeprefix("distgnn: ")


@pytest.fixture(autouse=True)
def _same_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partition of cora in two parts."""
    folder = tmp_path_factory.mktemp("cora") / "parts"
    assert main(["partition", "cora", "--parts", "2", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def distgnn(here: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command line in an empty working directory."""

    def run(*words: object) -> Outcome:
        capsys.readouterr()
        status = main([str(word) for word in words])
        return Outcome(status, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound graph file."""
    path = tmp_path_factory.mktemp("ring") / "ring.npz"
    np.savez(path, **ring_arrays())
    return path


@pytest.fixture(scope="session")
def ring_parts(ring: Path) -> Path:
    """The ring in 3 parts."""
    out = ring.parent / "parts-3"
    command = ["partition", ring, "--parts", "3", "--out", out, "--json"]
    assert main([str(word) for word in command]) == 0
    return out


@pytest.fixture(scope="session")
def ring_run(ring: Path) -> Path:
    """A run on the whole ring."""
    out = ring.parent / "run"
    threads = torch.get_num_threads()
    command = ["train", ring, "--run", out, "--epochs", 3, "--hidden", 4, "--threads", threads]
    assert main([str(word) for word in command]) == 0
    return out
