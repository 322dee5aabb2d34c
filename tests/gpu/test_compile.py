from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = re.compile(r"@triton\.jit.*\ndef (\w+)\(")
# Called by others, which are compiled with them.
PARTS = {
    "segment_of_program",
    "heads_of_program",
    "mask_of_edges",
    "stored",
    "_mix64",
    "column_hash",
    "_add_state",
    "_store_state",
    "_put_bytes",
    "_get_bytes",
    "_key",
    "_of_key",
    "_up",
    "_halves",
    "_folded",
    "_leave",
}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_kernel_compiles_for_a_gpu_that_is_not_there(repository, tmp_path):
    pytest.importorskip("triton")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    result = subprocess.run(
        [sys.executable, Path(__file__).with_name("compile_script.py"), "90"],
        capture_output=True,
        text=True,
        check=False,
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
    )
    assert result.returncode == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert all(is_made == "True" for _, is_made in lines)
    sources = [path.read_text() for path in (repository / "distgnn" / "gpu").glob("*.py")]
    kernels = {name for source in sources for name in KERNEL.findall(source)}
    assert {name for name, _ in lines} == kernels - PARTS
