from __future__ import annotations

import numba

from distgnn.partition.compilation import noting_compilation


def test_compilation_is_noted_once_and_only_inside() -> None:
    lines: list[str] = []
    functions = [numba.njit(lambda x, k=k: x + k) for k in range(3)]
    assert functions[0](1) == 1
    with noting_compilation(lines.append):
        assert not lines
        assert functions[1](1) == 2
        assert functions[2](1) == 3
    assert lines == [
        "compiling the partitioners, once; it takes up to a minute and is kept on disk"
    ]
    numba.njit(lambda x: -x)(1)
    assert len(lines) == 1
