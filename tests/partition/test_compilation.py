from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from distgnn.partition.compilation import noting_compilation


def test_compilation_is_noted_once_and_only_inside() -> None:
    lines: list[str] = []
    importlib.import_module("distgnn.partition.jit")
    functions = [numba.njit(lambda x, k=k: x + k) for k in range(3)]
    assert functions[0](1) == 1
    with noting_compilation(lines.append):
        assert not lines
        assert functions[1](1) == 2
        assert functions[2](1) == 3
    assert lines == ["compiling the method, once; it takes some seconds and is kept on disk"]
    numba.njit(lambda x: -x)(1)
    assert len(lines) == 1


SOURCE = """
from typing import NamedTuple
import numpy as np
from distgnn.partition.jit import compiled

class {name}(NamedTuple):
    values: np.ndarray

@compiled
def total(pair):
    return pair.values.sum()

def run(values):
    return total({name}(values))
"""


@pytest.mark.parametrize("how", ["the class has another name", "the file is cut off"])
def test_compiled_code_that_cannot_be_read_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("First", "Second", "Second"):
        monkeypatch.delitem(sys.modules, "totals", raising=False)
        (tmp_path / "totals.py").write_text(SOURCE.format(name=name))
        importlib.invalidate_caches()
        for index in tmp_path.rglob("*.nbi") if how == "the file is cut off" else ():
            index.write_bytes(index.read_bytes()[:-20])
        assert importlib.import_module("totals").run(np.arange(4)) == 6
    assert list(tmp_path.rglob("*.nbi"))
