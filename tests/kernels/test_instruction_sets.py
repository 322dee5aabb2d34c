from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from distgnn import kernels

LEVELS = {
    "baseline": ["baseline"],
    "neon": ["neon"],
    "x86-64-v3": ["x86-64", "x86-64-v3"],
    "x86-64-v4": ["x86-64", "x86-64-v3", "x86-64-v4"],
}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_instruction_sets_of_this_cpu_give_the_same_bits(repository, tmp_path):
    compiler = os.environ.get("CXX") or shutil.which("g++")
    levels = LEVELS[kernels.instruction_set()]
    if compiler is None or len(levels) == 1:
        pytest.skip("needs g++ and a CPU with several instruction sets")
    compilations = {}
    sources = [path for path in (repository / "csrc").glob("*.cpp") if "bind" not in path.name]
    driver = repository / "tests" / "kernels" / "all_bits.cpp"
    for level in levels:
        binary = tmp_path / level
        options = ["-std=c++17", "-O2", "-ftree-vectorize", "-ffp-contract=off", "-fopenmp"]
        # An empty macro: the whole program is compiled for one instruction set, without clones.
        options += ["-DDISTGNN_PER_ISA=", f"-march={level}", f"-I{repository / 'csrc'}"]
        if level == "x86-64-v4" and "avx512_bf16" in Path("/proc/cpuinfo").read_text():
            options.append("-mavx512bf16")
        command = [compiler, *options, str(driver), *map(str, sources), "-o", str(binary)]
        compilations[level] = subprocess.Popen(command)
    outputs = {}
    for level, compilation in compilations.items():
        assert compilation.wait() == 0, level
        command = [tmp_path / level]
        outputs[level] = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert outputs[levels[0]].count("\n") == 1129
    for level in levels[1:]:
        assert outputs[level].splitlines() == outputs[levels[0]].splitlines(), level
