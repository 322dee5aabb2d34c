"""Compiles the kernels for a GPU that need not be there, and prints their names.

A launch compiles what it would start on a GPU of the given compute capability. It includes all that
Triton makes of its arguments there: of a 1, and of multiples of 16.
"""

from __future__ import annotations

import sys

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from distgnn import gpu
from distgnn.gpu.rows import DropoutMask, finish_rows
from distgnn.kernels.codec import BITS, row_bytes
from distgnn.kernels.seeds import Seed

# As many rows as fill a tile, one of them long; tiles of fewer rows are other kernels.
ROWS, EDGES, SOURCES = 2001, 6000, 5
INDPTR = torch.cat([torch.arange(ROWS) * 2, torch.tensor([EDGES])])
INDICES, IDS = torch.zeros(EDGES, dtype=torch.int32), torch.zeros(EDGES, dtype=torch.int64)


class AbsentGpu:
    """The part of a driver that is asked before a launch."""

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", int(sys.argv[1]), 32)


launched = JITFunction.run


def compile_only(kernel, *args, grid, warmup, **constants):
    compiled = launched(kernel, *args, grid=grid, warmup=True, **constants)
    sys.stdout.write(f"{kernel.__name__} {bool(compiled.asm['cubin'])}\n")


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


def compile_sums_and_rows(dtype, width):
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    x, out = zeros(SOURCES, width, dtype=dtype), zeros(ROWS, width, dtype=dtype)
    weight, factor, per_source = (zeros(n, dtype=wide) for n in (EDGES, ROWS, SOURCES))
    gpu.spmm_sum(INDPTR, INDICES, weight, x, out, accumulate=False, row_factor=factor)
    gpu.spmm_sum(INDPTR, INDICES, None, x, out, accumulate=True, source_factor=per_source)
    gpu.gather_rows(x, INDICES, zeros(EDGES, width, dtype=dtype))
    gpu.scatter_add_rows(
        zeros(EDGES, width, dtype=dtype), INDICES, zeros(SOURCES, width, dtype=wide)
    )
    total, mask = zeros(ROWS, width, dtype=wide), DropoutMask(IDS[:ROWS], 2**64 - 1, 0.5)
    parts = {"out_rows": INDICES[:ROWS], "factor": factor, "bias": zeros(width, dtype=wide)}
    finish_rows(total, out, **parts, has_relu=True, mask=mask)
    gpu.dropout_values(weight, IDS, INDICES, weight, seed=3, probability=0.3)


def compile_codecs(dtype, width, bits):
    x, picked = zeros(SOURCES, width, dtype=dtype), INDICES[:ROWS]
    exact_columns = min(2, width)
    size = row_bytes(width, bits, exact_columns)
    message = zeros(ROWS * size, dtype=torch.uint8)
    for seed in (None, 2**64 - 1):
        gpu.encode_rows(x, picked, ROWS, bits, None, None, exact_columns, seed, message)
    out = zeros(ROWS, width, dtype=dtype)
    shared = (message, ROWS, bits, None, None, exact_columns)
    gpu.decode_rows(*shared, picked, 0.5, False, out)
    gpu.decode_rows(*shared, None, 1.0, True, out)


def compile_extremes(dtype, width):
    x, out = zeros(SOURCES, width, dtype=dtype), zeros(ROWS, width, dtype=dtype)
    source = zeros(ROWS, width, dtype=torch.int32)
    gpu.spmm_extreme(INDPTR, INDICES, x, out, source=source, is_max=True)
    for first_source in (1, 3):
        options = {"scratch": None, "accumulate": True, "first_source": first_source}
        gpu.spmm_extreme_backward(INDPTR, INDICES, source, out, out=out.clone(), **options)
    received = zeros(EDGES, width, dtype=dtype), zeros(EDGES, width, dtype=torch.int64)
    gpu.merge_received_max(out, source, INDICES, *received, source_id=IDS)


def compile_edges(dtype, num_heads, width):
    columns = num_heads * width
    x, y = zeros(SOURCES, columns, dtype=dtype), zeros(ROWS, columns, dtype=dtype)
    of_edges = zeros(EDGES, num_heads, dtype=dtype)
    gpu.spmm_heads(INDPTR, INDICES, of_edges, x, y, accumulate=False)
    gpu.sddmm_dot(INDPTR, INDICES, x, y, of_edges)
    ends = INDPTR, INDICES
    gpu.sddmm_leaky(*ends, x, y, zeros(columns, dtype=dtype), of_edges, slope=0.2)
    for edge in (None, IDS):
        gpu.sddmm_leaky_backward(*ends, edge, of_edges, x, y, y.clone(), slope=0.2)
    gpu.sddmm_add(INDPTR, INDICES, x, y, zeros(EDGES, columns, dtype=dtype))


def compile_attention(dtype, num_heads, width, stored):
    columns = num_heads * width
    x, y = zeros(SOURCES, columns, dtype=stored), zeros(ROWS, columns, dtype=dtype)
    of_edges, of_sources, of_rows, more = (
        zeros(n, num_heads, dtype=dtype) for n in (EDGES, SOURCES, ROWS, ROWS)
    )
    state = {"out": y, "maximum": of_rows, "denominator": more}
    attend = (INDPTR, INDICES, of_sources, of_rows, x)
    place = Seed(3)
    place.place = IDS[:1]
    score, mask = {"edge_score": of_edges}, {"edge_key": IDS, "probability": 0.3}
    own = {}, score, mask | {"seed": 2**64 - 1}, score | mask | {"seed": place}
    for options in own:
        gpu.attend(*attend, **state, slope=0.2, accumulate=bool(options), **options)
    gpu.merge_attention(zeros(EDGES, columns + num_heads, dtype=dtype), INDICES, **state)
    for bias in (None, zeros(columns, dtype=dtype)):
        result = zeros(ROWS, columns, dtype=stored)
        gpu.attention_delta(result, result, of_rows, bias=bias, scale=0.5)
    rows = zeros(ROWS, columns, dtype=stored)
    given = {"log_sum": of_sources, "x": rows, "grad": x, "delta": of_sources}
    made = {"grad_x": rows.clone(), "grad_source": more, "edge_grad": of_edges}
    ends = (INDPTR, INDICES, IDS, of_rows, of_sources)
    for options in own:
        gpu.attend_backward(*ends, **given, **made, slope=0.2, accumulate=bool(options), **options)


driver.set_active(AbsentGpu())
JITFunction.run = compile_only
wide, narrow, double = torch.float32, torch.bfloat16, torch.float64
for dtype, widths in ((wide, (1, 16, 100, 300)), (narrow, (7, 64, 128)), (double, (1, 32))):
    for width in widths:
        compile_sums_and_rows(dtype, width)
for dtype, heads, width in (
    (wide, 1, 1),
    (wide, 3, 4),
    (wide, 4, 16),
    (wide, 4, 700),
    (double, 1, 7),
):
    compile_extremes(dtype, heads * width)
    compile_edges(dtype, heads, width)
    compile_attention(dtype, heads, width, dtype)
compile_attention(wide, 4, 16, narrow)
for bits in BITS:
    compile_codecs(wide, 33, bits)
compile_codecs(narrow, 1, 8)
