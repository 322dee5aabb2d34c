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


NUM_RESULTS = 2408
CROSS, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64-static"


def sources_of(repository: Path) -> list[str]:
    """The driver, and the kernels without their bindings."""
    kernels_alone = (
        path for path in (repository / "csrc").glob("*.cpp") if "bind" not in path.name
    )
    return list(map(str, [repository / "tests" / "kernels" / "all_bits.cpp", *kernels_alone]))


def options_of(repository: Path) -> list[str]:
    """The same for all: an empty macro compiles the program for one instruction set."""
    options = ["-std=c++20", "-O2", "-ftree-vectorize", "-ffp-contract=off", "-fopenmp"]
    return [*options, "-DDISTGNN_PER_ISA=", f"-I{repository / 'csrc'}"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_instruction_sets_of_this_cpu_give_the_same_bits(repository, tmp_path):
    compiler = os.environ.get("CXX") or shutil.which("g++")
    levels = LEVELS[kernels.instruction_set()]
    if compiler is None or len(levels) == 1:
        pytest.skip("needs g++ and a CPU with several instruction sets")
    compilations = {}
    for level in levels:
        binary = tmp_path / level
        options = [*options_of(repository), f"-march={level}"]
        if level == "x86-64-v4" and "avx512_bf16" in Path("/proc/cpuinfo").read_text():
            options.append("-mavx512bf16")
        command = [compiler, *options, *sources_of(repository), "-o", str(binary)]
        compilations[level] = subprocess.Popen(command)
    outputs = {}
    for level, compilation in compilations.items():
        assert compilation.wait() == 0, level
        command = [tmp_path / level]
        outputs[level] = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert outputs[levels[0]].count("\n") == NUM_RESULTS
    for level in levels[1:]:
        assert outputs[level].splitlines() == outputs[levels[0]].splitlines(), level


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_neon_gives_the_same_bits_where_it_is_emulated(repository, tmp_path):
    compilers = {os.environ.get("CXX") or shutil.which("g++"): [], shutil.which(CROSS): ["-static"]}
    if None in compilers or shutil.which(EMULATOR) is None:
        pytest.skip(f"needs g++, {CROSS} and {EMULATOR}")
    outputs = []
    for compiler, options in compilers.items():
        binary = str(tmp_path / str(len(outputs)))
        command = [compiler, *options_of(repository), *sources_of(repository), *options]
        subprocess.run([*command, "-o", binary], check=True)
        run = [EMULATOR, binary] if options else [binary]
        found = subprocess.run(run, check=True, capture_output=True, text=True)
        outputs.append(found.stdout.splitlines())
    assert len(outputs[0]) == NUM_RESULTS
    assert outputs[0] == outputs[1]
