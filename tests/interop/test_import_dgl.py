"""A DGL that is older than torch can be imported all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

torch = pytest.importorskip("torch")
VERSION = torch.__version__.partition("+")[0]
DGL = """
import pandas as pd
from . import graphbolt as gb
from .graphbolt import __name__ as name
__version__ = "2.1.0"
"""
GRAPHBOLT = "from torchdata.datapipes import iter\nloaded = True\n"
BEGIN = "from distgnn.interop import import_dgl\nfrom distgnn.datasets import InputError\n"


@pytest.fixture
def folder(tmp_path):
    """A package that imports what DGL 2.1 imports."""
    (tmp_path / "dgl/graphbolt").mkdir(parents=True)
    (tmp_path / "dgl/__init__.py").write_text(DGL)
    (tmp_path / "dgl/graphbolt/__init__.py").write_text(GRAPHBOLT)
    return tmp_path


def run(folder, code):
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_empty_module_takes_the_place_of_what_cannot_be_loaded(folder):
    code = (
        "dgl = import_dgl()\nimport dgl as again\nassert dgl is again is import_dgl()\n"
        "import os, sys\n"
        "print(dgl.__version__, os.environ['DGLBACKEND'], 'pandas' in sys.modules)\n"
        "try: dgl.gb.ItemSampler\nexcept AttributeError as error: print(error)\n"
    )
    first, second = run(folder, code)
    assert first == f"2.1.0 pytorch {find_spec('pandas') is not None}"
    assert second == (
        f"dgl.graphbolt.ItemSampler is not there: it has no compiled file for torch {VERSION}; "
        "sample with dgl.dataloading"
    )


def test_graphbolt_is_loaded_where_it_can_be(folder):
    (folder / f"dgl/graphbolt/libgraphbolt_pytorch_{VERSION}.so").touch()
    lacking = "try: import_dgl().gb.loaded\nexcept AttributeError as error: print(error)\n"
    (said,) = run(folder, lacking)
    assert "it needs torchdata.datapipes; sample" in said
    (folder / "torchdata/datapipes").mkdir(parents=True)
    (folder / "torchdata/datapipes/__init__.py").write_text("iter = None\n")
    (folder / "torchdata/__init__.py").touch()
    (folder / "pandas.py").write_text("real = True\n")
    code = "dgl = import_dgl()\nimport pandas\nprint(dgl.gb.loaded, dgl.pd.real, pandas.real)\n"
    assert run(folder, code) == ["True True True"]


def test_a_dgl_that_is_missing_or_broken_is_one_sentence(folder):
    code = "try: import_dgl()\nexcept InputError as error: print(error)\n"
    (folder / "dgl/__init__.py").write_text("import nosuch_module\n")
    (said,) = run(folder, code)
    assert said == (
        f"DGL is installed in '{folder}/dgl' but cannot be imported (No module named "
        "'nosuch_module'); install a DGL for this Python and this torch"
    )
    if find_spec("dgl") is None:
        (folder / "dgl/__init__.py").unlink()
        (said,) = run(folder, code)
        assert said.startswith("DGL is not installed; pip install 'distgnn[dgl]', or dgl, into")
