"""Kernels on tensors of one device: the typed front of the compiled module, and of `distgnn.gpu`.

Every function writes into tensors that the caller allocated, and allocates nothing. One thread owns
an output row and adds in a fixed order. Results have the same bits for any number of threads
(`torch.set_num_threads` counts here too), on any instruction set and with any walk order.

Values are float32 or float64, the same in all arguments of a call. Where stated, rows may be stored
as bfloat16 and are computed with as float32. Offsets and keys are int64, vertex ids and row numbers
int32: more than 2**31 - 1 rows or sources are refused. Tensors are contiguous, and an output
overlaps no input unless stated.

Every function raises TypeError if a dtype is not the documented one. It raises ValueError if
shapes do not fit, or a tensor is not contiguous or is on another device.
A docstring lists only what is raised beside that. Indices are not checked: an index out of range
reads or writes foreign memory. Whoever loads a graph checks it, once.

Nothing here is seen by autograd; `distgnn.ops` and `distgnn.aggregate` hold the differentiable
operations. README.md of this folder says which module holds what.
"""

from __future__ import annotations

from pathlib import Path

# First: it brings libgomp.so.1, which the kernels share with it. Slim images have no other.
import torch  # noqa: F401

try:
    from distgnn import _kernels
except ImportError as error:
    _message = (
        f"distgnn was imported from {Path(__file__).parents[1]}, which has no usable compiled "
        f"kernels ({error}); install it with `pip install --no-build-isolation -e .`, or start "
        "Python outside the source folder"
    )
    raise ImportError(_message) from error

from distgnn.kernels.checksum import checksum as checksum
from distgnn.kernels.csr import Csr as Csr
from distgnn.kernels.losses import cross_entropy as cross_entropy
from distgnn.kernels.rows import blend_rows as blend_rows
from distgnn.kernels.rows import dropout as dropout
from distgnn.kernels.rows import dropout_values as dropout_values
from distgnn.kernels.rows import gather_rows as gather_rows
from distgnn.kernels.rows import scale_rows as scale_rows
from distgnn.kernels.rows import scatter_add_rows as scatter_add_rows
from distgnn.kernels.sums import gather_roof as gather_roof
from distgnn.kernels.sums import spmm_sum as spmm_sum
from distgnn.kernels.walk_order import WalkOrder as WalkOrder


def num_threads() -> int:
    """Return the number of threads of the next kernel called from this thread."""
    return _kernels.num_threads()


def instruction_set() -> str:
    """Return "x86-64-v4", "x86-64-v3", "neon" or "baseline": the kernels chosen for this CPU."""
    return _kernels.instruction_set()
