from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
import torch
from fronts import Fronts

from distgnn import kernels

kernels = Fronts(kernels)

WRONG_TENSORS = {
    "half precision": (
        torch.zeros(3, 2).half(),
        TypeError,
        r"x must be torch.float32 or torch.flo",
    ),
    "one dimension": (torch.zeros(3), ValueError, r"x must have 2 dimensions, got shape \(3,\)"),
    "strided": (
        torch.zeros(2, 3).T,
        ValueError,
        r"x must be contiguous, got strides \(1, 3\); call \.contiguous\(\)",
    ),
    "another device": (
        torch.empty(3, 2, device="meta"),
        ValueError,
        r"x must be on the CPU or a CUDA device, got device meta; call x\.cpu\(\)",
    ),
    "tracked": (
        torch.zeros(3, 2, requires_grad=True),
        ValueError,
        r"x requires a gradient, which kernels do not track; .* or pass x\.detach\(\)",
    ),
}


def graph(num_rows=2, num_edges=4):
    indptr = torch.tensor([0] + [num_edges] * num_rows)
    return indptr, torch.zeros(num_edges, dtype=torch.int32)


def spmm_sum(**changes):
    indptr, indices = graph()
    given = {
        "indptr": indptr,
        "indices": indices,
        "weight": None,
        "x": torch.zeros(3, 2),
        "out": torch.zeros(2, 2),
        "accumulate": False,
    }
    kernels.spmm_sum(**(given | changes))


@pytest.mark.parametrize("case", WRONG_TENSORS)
def test_a_tensor_the_kernels_cannot_read_is_refused_with_the_remedy(case):
    tensor, error, message = WRONG_TENSORS[case]
    with pytest.raises(error, match=message):
        spmm_sum(x=tensor)


def test_gradients_are_allowed_where_autograd_is_off():
    with torch.no_grad():
        spmm_sum(x=torch.zeros(3, 2, requires_grad=True))


def test_all_values_of_a_call_have_one_dtype():
    with pytest.raises(
        TypeError, match=r"out must be torch.float32, got torch.float64; call out\.to\(torch.float"
    ):
        spmm_sum(out=torch.zeros(2, 2).double())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indptr": torch.empty(0, dtype=torch.int64)}, "indptr is empty, expected one more than"),
        ({"indptr": torch.tensor([1, 4, 4])}, "indptr starts at the wrong edge, got 1, expected 0"),
        (
            {"indptr": torch.tensor([0, 4, 5])},
            "indices and the end of indptr differ in the number of edges, got 4, expected 5",
        ),
        ({"x": torch.zeros(0, 2)}, "the edges read from no rows"),
        ({"weight": torch.zeros(3)}, "weight has the wrong length, got 3, expected 4"),
        ({"out": torch.zeros(3, 2)}, "out has the wrong number of rows, got 3, expected 2"),
        ({"out": torch.zeros(2, 3)}, "out has the wrong width, got 3, expected 2"),
    ],
)
def test_a_sum_over_arrays_that_do_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        spmm_sum(**changes)


@pytest.mark.parametrize(
    ("x", "out", "message"),
    [
        ((0, 2), (3, 2), "the rows read come from no rows"),
        ((4, 2), (2, 2), "out has the wrong number of rows, got 2, expected 3"),
        ((4, 2), (3, 1), "out has the wrong width, got 1, expected 2"),
    ],
)
def test_gather_refuses_arrays_that_do_not_fit(x, out, message):
    rows = torch.zeros(3, dtype=torch.int32)
    with pytest.raises(ValueError, match=message):
        kernels.gather_rows(torch.zeros(x), rows, torch.zeros(out))


@pytest.mark.parametrize(
    ("x", "out", "message"),
    [
        ((3, 2), (0, 2), "the rows added go to no rows"),
        ((4, 2), (5, 2), "rows has the wrong length, got 3, expected 4"),
        ((3, 2), (5, 1), "out has the wrong width, got 1, expected 2"),
    ],
)
def test_scatter_refuses_arrays_that_do_not_fit(x, out, message):
    rows = torch.zeros(3, dtype=torch.int32)
    with pytest.raises(ValueError, match=message):
        kernels.scatter_add_rows(torch.zeros(x), rows, torch.zeros(out))


@pytest.mark.parametrize(
    ("x", "out", "message"),
    [
        ((3, 2), (0, 2), "the rows blended go to no rows"),
        ((4, 2), (5, 2), "rows has the wrong length, got 3, expected 4"),
        ((3, 2), (5, 1), "out has the wrong width, got 1, expected 2"),
    ],
)
def test_blending_refuses_arrays_that_do_not_fit(x, out, message):
    rows = torch.zeros(3, dtype=torch.int32)
    with pytest.raises(ValueError, match=message):
        kernels.blend_rows(torch.zeros(x), rows, torch.zeros(out), weight=1)


@pytest.mark.parametrize("probability", [-0.1, 1.0, float("nan")])
def test_dropout_refuses_a_probability_outside_its_range(probability):
    x, row_key = torch.zeros(2, 2), torch.arange(2)
    values, column = torch.zeros(2), torch.zeros(2, dtype=torch.int32)
    expected = r"probability must be in \[0, 1\), got"
    with pytest.raises(ValueError, match=expected):
        kernels.dropout(x, row_key, x, seed=0, probability=probability)
    with pytest.raises(ValueError, match=expected):
        kernels.dropout_values(values, row_key, column, values, seed=0, probability=probability)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_dropout_refuses_a_seed_that_is_no_unsigned_64_bit_number(seed):
    x = torch.zeros(2, 2)
    with pytest.raises(ValueError, match=r"seed must be in \[0, 2\*\*64\), got -?[0-9]+"):
        kernels.dropout(x, torch.arange(2), x, seed=seed, probability=0.5)


def test_dropout_refuses_arrays_that_do_not_fit():
    x, values, column = torch.zeros(2, 2), torch.zeros(2), torch.zeros(2, dtype=torch.int32)
    keys, options = torch.arange(2), {"seed": 0, "probability": 0.5}
    with pytest.raises(ValueError, match="row_key has the wrong length, got 3, expected 2"):
        kernels.dropout(x, torch.arange(3), x, **options)
    with pytest.raises(ValueError, match="out has the wrong width, got 3, expected 2"):
        kernels.dropout(x, keys, torch.zeros(2, 3), **options)
    with pytest.raises(ValueError, match="row_key has the wrong length, got 3, expected 2"):
        kernels.dropout_values(values, torch.arange(3), column, values, **options)
    with pytest.raises(ValueError, match="column has the wrong length, got 1, expected 2"):
        kernels.dropout_values(values, keys, column[:1].clone(), values, **options)
    with pytest.raises(ValueError, match="out has the wrong length, got 1, expected 2"):
        kernels.dropout_values(values, keys, column, values[:1].clone(), **options)


def test_the_kernels_use_the_threads_of_torch(num_threads):
    assert kernels.num_threads() == num_threads


def test_the_instruction_set_has_a_known_name():
    assert kernels.instruction_set() in {"baseline", "x86-64-v3", "x86-64-v4", "neon"}


def test_an_import_without_compiled_kernels_says_how_to_get_them(repository, tmp_path):
    shutil.copytree(repository / "distgnn", tmp_path / "distgnn")
    command = (
        "import sys\n"
        "sys.meta_path = [finder for finder in sys.meta_path if 'ditable' not in repr(finder)]\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import distgnn.kernels"
    )
    result = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert result.returncode == 1
    assert f"ImportError: distgnn was imported from {tmp_path / 'distgnn'}, which has no" in (
        result.stderr
    )
    assert "install it with `pip install --no-build-isolation -e .`" in result.stderr


SCRIPT = """
import numpy as np, torch
from distgnn.comm.single import SingleGroup
from distgnn.graph.local_graph import LocalGraph
from distgnn.interop.arrays import from_numpy
from distgnn.nn.gat import GATConv
from distgnn.partition.directory.store import whole_part
ends = np.random.default_rng(0).integers(0, 40_000, (2, 200_000))
graph = from_numpy(ends, features=np.zeros((40_000, 1), np.float32))
local = LocalGraph.exact(whole_part(graph), SingleGroup())
rows = torch.ones(40_000, 8)
conv = GATConv(8, 64, heads=4)
result = (lambda rows: conv(local, rows))(rows)
"""


def test_a_script_whose_variables_hold_a_graph_ends_in_silence():
    command = [sys.executable, "-c", SCRIPT]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    assert ended.stderr == ended.stdout == ""
