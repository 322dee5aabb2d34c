from __future__ import annotations

import arrows
import pytest

GOOD = {
    "datasets/__init__.py": "import numpy\nfrom distgnn.datasets.graph import Graph\n",
    "datasets/graph.py": "def read():\n    import pyarrow\n",
    "partition/__init__.py": "def assign():\n    import distgnn.partition.hdrf\n",
    "partition/hdrf.py": "import numba\n",
    "partition/directory/store.py": "from distgnn.partition import build\n",
    "partition/build.py": "from distgnn.datasets.graph import Graph\n",
    "partition/arcs.py": "from distgnn import _partitioner\n",
    "distgnn/__init__.py": "",
    "distgnn/kernels/__init__.py": "from distgnn import _kernels\n",
    "distgnn/comm/group.py": "import torch\n",
    "distgnn/exchange/plan.py": "from distgnn import kernels, ops\nimport distgnn.comm.group\n",
    "distgnn/graph/local_graph.py": "from distgnn.partition.directory import store\n",
    "distgnn/ops/__init__.py": "from distgnn.datasets.errors import InputError\n",
    "distgnn/nn/sage.py": "from distgnn.datasets import InputError\n",
    "distgnn/cli/__init__.py": "from distgnn.partition import assign\n",
    "distgnn/interop/dgl.py": "import dgl\n",
    "distgnn/kernels/devices.py": "def load():\n    from distgnn import gpu\n",
    "distgnn/gpu/__init__.py": "from distgnn.gpu import sums\n",
    "distgnn/gpu/sums.py": "import triton\n",
    "distgnn/exchange/other.py": "from distgnn.exchange import plan\n",
    "csrc/rows.cpp": '#include "rows.h"\n',
    "csrc/bind_rows.cpp": "#include <nanobind/nanobind.h>\n",
}
BROKEN = [
    ("partition/bad.py", "import torch", "imports torch, which partition/ may not"),
    (
        "partition/bad.py",
        "from distgnn import ops",
        "imports distgnn.ops, which partition/ may not",
    ),
    ("datasets/bad.py", "import numba", "imports numba, which datasets/ may not"),
    (
        "datasets/bad.py",
        "from distgnn.partition import build",
        "imports distgnn.partition.build, which datasets/ may not",
    ),
    ("datasets/bad.py", "import pyarrow", "imports pyarrow, an optional package, at its top level"),
    ("distgnn/nn/bad.py", "import numba", "imports numba, which distgnn/ may not"),
    ("distgnn/nn/bad.py", "import dgl", "imports dgl, which distgnn/ may not"),
    (
        "distgnn/nn/bad.py",
        "import importlib\nx = importlib.import_module('pymetis')",
        "imports pymetis, which distgnn/ may not",
    ),
    (
        "distgnn/ops/__init__.py",
        "from distgnn import _kernels",
        "imports distgnn._kernels, which only distgnn/kernels/ may",
    ),
    (
        "distgnn/ops/__init__.py",
        "from distgnn import _partitioner",
        "imports distgnn._partitioner, which only partition/ may",
    ),
    (
        "distgnn/kernels/__init__.py",
        "def late():\n    from distgnn import ops",
        "imports distgnn.ops, which is above kernels",
    ),
    (
        "distgnn/graph/local_graph.py",
        "from distgnn.partition.build import Part",
        "imports distgnn.partition.build, which only the cli may",
    ),
    (
        "distgnn/graph/local_graph.py",
        "import distgnn.datasets",
        "imports distgnn.datasets, which only the cli",
    ),
    (
        "distgnn/graph/local_graph.py",
        "from distgnn.datasets import load",
        "imports distgnn.datasets, which only the cli may",
    ),
    ("distgnn/nn/bad.py", "from datasets import load", "imports datasets, a bare name that is not"),
    ("distgnn/nn/bad.py", "from .x import y", "imports .x, a relative name"),
    ("distgnn/new.py", "from distgnn import ops", "imports distgnn.ops, but has no layer"),
    (
        "distgnn/nn/bad.py",
        "import triton",
        "imports triton, an optional package, at its top level",
    ),
    (
        "distgnn/kernels/devices.py",
        "from distgnn import gpu",
        "imports distgnn.gpu, at its top level; import it where it is used",
    ),
    ("distgnn/nn/bad.py", "import pickle", "imports pickle, which runs code from files"),
    ("distgnn/nn/bad.py", "x = torch.load('f')", "contains torch.load("),
    ("distgnn/nn/bad.py", "x = 1\n" * 800, "has 801 lines, at most 800 are allowed"),
    ("distgnn/nn/bad.py", "x = '\u00d7'", "is not ASCII"),
    (
        "distgnn/edges/bad.py",
        "import distgnn.graph",
        "imports distgnn.graph, which is above edges",
    ),
    (
        "distgnn/exchange/plan.py",
        "if TYPE_CHECKING:\n    from distgnn.exchange import other",
        "distgnn.exchange.other, distgnn.exchange.plan import each other in a circle",
    ),
    ("partition/build.py", "import numba", "loads numba through distgnn.partition.build"),
    (
        "partition/__init__.py",
        "from distgnn.partition import hdrf",
        "distgnn.partition.directory.store loads numba through distgnn.partition.hdrf",
    ),
    ("csrc/bad.cpp", "#include <nanobind/ndarray.h>", "includes nanobind/ndarray.h, which only"),
    ("csrc/bad.h", "#include <Python.h>", "includes Python.h, which only bind* may"),
    ("csrc/bad.cpp", "void f() { std::exit(1); }", "uses exit, which a kernel may not"),
]


def write_tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_rooms_import_only_what_they_may(repository):
    found = arrows.violations(repository)
    assert not found, "\n".join(found)


def test_a_tree_that_follows_the_arrows_is_accepted(tmp_path):
    write_tree(tmp_path, GOOD)
    assert arrows.violations(tmp_path) == []


@pytest.mark.parametrize(("name", "text", "expected"), BROKEN)
def test_a_broken_arrow_is_named(name, text, expected, tmp_path):
    write_tree(tmp_path, GOOD | {name: text})
    found = arrows.violations(tmp_path)
    assert any(expected in sentence for sentence in found), found
    assert all(
        name.removesuffix(".py") in sentence or "loads" in sentence or "circle" in sentence
        for sentence in found
    )
