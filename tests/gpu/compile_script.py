"""Compiles the kernels for a GPU that need not be there, and prints their names.

Launching one with tensors of the CPU compiles it for their types instead.
"""

from __future__ import annotations

import sys

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from distgnn import gpu

NAMES = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
INDPTR, INDICES = torch.tensor([0, 2, 300]), torch.zeros(300, dtype=torch.int32)
IDS = torch.zeros(300, dtype=torch.int64)


def compile_only(kernel, *args, grid, warmup, **constants):
    values = dict(zip(kernel.arg_names, args, strict=False)) | constants
    signature, fixed = {}, {}
    for number, parameter in enumerate(kernel.params):
        value = values[parameter.name]
        if isinstance(value, torch.Tensor):
            signature[parameter.name] = NAMES[value.dtype]
        elif parameter.is_constexpr or value is None:
            signature[parameter.name], fixed[(number,)] = "constexpr", value
        else:
            signature[parameter.name] = "i32" if value < 2**31 else "i64"
    source = ASTSource(kernel, signature, fixed)
    compiled = triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32))
    sys.stdout.write(f"{kernel.__name__} {bool(compiled.asm['cubin'])}\n")


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


def compile_sums_and_rows(dtype):
    x, out, factor = zeros(5, 12, dtype=dtype), zeros(2, 12, dtype=dtype), zeros(2)
    gpu.spmm_sum(INDPTR, INDICES, zeros(300), x, out, accumulate=False, row_factor=factor)
    gpu.spmm_sum(INDPTR, INDICES, None, x, out, accumulate=True, source_factor=zeros(5))
    gpu.gather_rows(x, INDICES, zeros(300, 12, dtype=torch.bfloat16))
    gpu.scatter_add_rows(zeros(300, 12, dtype=dtype), INDICES, zeros(5, 12))
    gpu.dropout(zeros(5, 12), IDS[:5], x, seed=3, probability=0.5)


def compile_extremes():
    x, out, source = zeros(5, 12), zeros(2, 12), zeros(2, 12, dtype=torch.int32)
    gpu.spmm_extreme(INDPTR, INDICES, x, out, source=source, is_max=True)
    options = {"scratch": None, "accumulate": True, "first_source": 3}
    gpu.spmm_extreme_backward(INDPTR, INDICES, source, out, out=out.clone(), **options)
    received = zeros(300, 12), zeros(300, 12, dtype=torch.int64)
    gpu.merge_received_max(out, source, INDICES, *received, source_id=IDS)


def compile_edges_and_attention():
    x, y, heads, scores = zeros(5, 12), zeros(2, 12), zeros(300, 3), zeros(5, 3)
    gpu.spmm_heads(INDPTR, INDICES, heads, x, y, accumulate=False)
    gpu.sddmm_dot(INDPTR, INDICES, x, y, heads)
    gpu.sddmm_add(INDPTR, INDICES, x, y, zeros(300, 12))
    state = {"out": y, "maximum": zeros(2, 3), "denominator": zeros(2, 3)}
    attend = (INDPTR, INDICES, scores, zeros(2, 3), x)
    for accumulate in (False, True):
        gpu.attend(*attend, **state, slope=0.2, accumulate=accumulate)
    gpu.merge_attention(zeros(300, 18), INDICES, **state)
    given = {"log_sum": scores, "x": y, "grad": x, "delta": scores}
    made = {"grad_x": y.clone(), "grad_source": zeros(2, 3), "edge_grad": heads}
    ends = (INDPTR, INDICES, IDS, zeros(2, 3), scores)
    gpu.attend_backward(*ends, **given, **made, slope=0.2, accumulate=False)


JITFunction.run = compile_only
for dtype in (torch.float32, torch.bfloat16):
    compile_sums_and_rows(dtype)
compile_extremes()
compile_edges_and_attention()
