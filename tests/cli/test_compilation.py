from __future__ import annotations

import numba

from distgnn.cli.compilation import noting_compilation


def test_compilation_is_noted_once_and_only_inside(capsys):
    functions = [numba.njit(lambda x, k=k: x + k) for k in range(3)]
    with noting_compilation():
        assert functions[0](1) == 1
        assert functions[1](1) == 2
    assert functions[2](1) == 3
    assert capsys.readouterr().err == (
        "compiling the partitioners, once; this takes about 20 s and is kept on disk\n"
    )


def test_nothing_is_noted_where_nothing_is_compiled(capsys):
    with noting_compilation():
        pass
    assert not capsys.readouterr().err
