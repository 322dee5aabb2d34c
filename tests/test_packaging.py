from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile

import pytest

# Only the plain install is tried: an editable install of the same environment would hide it.
WITHOUT_EDITABLE = (
    "import sys; sys.meta_path = [f for f in sys.meta_path if 'ditable' not in repr(f)]\n"
)
# The first test with the wheel waits until it is built. Without the build folder of the install, or
# after a change of the kernels, they are all compiled: half an hour on two cores with other work.
BUILD_S = 3600
LARGEST_WHEEL = 15_000_000
KERNEL_CALL = "import distgnn.kernels as k; assert k.num_threads() > 0\n"
LOADED_RUNTIMES = """
import pathlib
lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
names = {line.split()[-1] for line in lines if "/" in line}
runtimes = {n for n in names if n.rpartition("/")[2].startswith(("libgomp", "libomp", "libiomp"))}
sys.stdout.write("\\n".join(sorted(runtimes)))
"""


def run_python(code, cwd, **environment):
    return subprocess.run(
        [sys.executable, "-c", "import sys\n" + code],
        cwd=cwd,
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


@pytest.fixture(scope="module")
def wheel(repository, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", str(repository), "--wheel-dir", str(folder)]
    # In the build folder of the install: kernels that have not changed are not compiled again.
    options = ["--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run(command + options, check=True)
    return next(folder.glob("distgnn-*.whl"))


@pytest.fixture(scope="module")
def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.mark.packaging
@pytest.mark.timeout(BUILD_S)
def test_the_wheel_holds_the_three_rooms_and_the_kernels(names):
    for name in (
        "distgnn/__init__.py",
        "distgnn/py.typed",
        "distgnn/_kernels.pyi",
        "distgnn/_partitioner.pyi",
        "distgnn/cli/__init__.py",
        "distgnn/datasets/__init__.py",
        "distgnn/datasets/data/cora.npz",
        "distgnn/recipes/cora-gcn.json",
        "distgnn/partition/__init__.py",
        "distgnn/partition/directory/store.py",
    ):
        assert name in names
    assert [name for name in names if name.endswith("licenses/LICENSE")]


@pytest.mark.packaging
@pytest.mark.timeout(BUILD_S)
def test_one_small_wheel_serves_every_python(wheel, names):
    assert wheel.name.split("-")[2:4] == ["cp310", "abi3"]
    modules = [name for name in names if name.endswith(".so")]
    assert sorted(modules) == ["distgnn/_kernels.abi3.so", "distgnn/_partitioner.abi3.so"]
    assert wheel.stat().st_size <= LARGEST_WHEEL


@pytest.mark.packaging
@pytest.mark.timeout(BUILD_S)
def test_the_wheel_holds_nothing_else(names):
    assert {name.split("/")[0].split("-")[0] for name in names} == {"distgnn"}
    assert not [name for name in names if name.endswith((".md", ".cpp", ".h", ".pyc"))]


@pytest.mark.packaging
@pytest.mark.timeout(BUILD_S)
def test_the_plain_install_works_from_another_folder(wheel, tmp_path):
    target = tmp_path / "target"
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", "--no-index"]
    subprocess.run([*command, "--target", str(target), str(wheel)], check=True)
    code = WITHOUT_EDITABLE + (
        "import distgnn, distgnn.datasets, distgnn.partition.directory.store\n"
        f"{KERNEL_CALL}"
        "modules = (distgnn, distgnn.datasets, distgnn.partition, distgnn.kernels)\n"
        "sys.stdout.write('\\n'.join(module.__file__ for module in modules))\n"
    )
    files = run_python(code, tmp_path, PYTHONPATH=str(target)).splitlines()
    assert len(files) == 4
    assert all(name.startswith(str(target)) for name in files)


@pytest.mark.packaging
def test_the_source_archive_holds_what_a_build_needs_and_no_more(repository, tmp_path):
    code = f"from scikit_build_core.build import build_sdist\nbuild_sdist({str(tmp_path)!r})"
    run_python(code, repository)
    with tarfile.open(next(tmp_path.glob("distgnn-*.tar.gz"))) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert held >= {
        "CMakeLists.txt",
        "LICENSE",
        "pyproject.toml",
        "csrc/bindings.cpp",
        "datasets/data/cora.npz",
        "distgnn/kernels/__init__.py",
        "partition/directory/store.py",
    }
    assert not {name.split("/")[0] for name in held} & {".venv", "build", ".git", ".ci"}


@pytest.mark.parametrize("first", ["distgnn._kernels", "torch"])
def test_torch_and_the_kernels_share_one_openmp_runtime(first, tmp_path):
    code = f"import {first}, torch, distgnn._kernels\n{KERNEL_CALL}{LOADED_RUNTIMES}"
    assert len(run_python(code, tmp_path).splitlines()) == 1


def test_importing_the_package_loads_neither_torch_nor_numpy(tmp_path):
    code = (
        "import distgnn\nassert distgnn.__version__\n"
        "sys.stdout.write(' '.join(sorted({'torch', 'numpy', 'numba'} & set(sys.modules))))"
    )
    assert run_python(code, tmp_path) == ""


def test_the_version_of_the_package_is_the_version_of_the_distribution(tmp_path):
    code = (
        "import distgnn, importlib.metadata as m\n"
        "assert distgnn.__version__ == m.version('distgnn')"
    )
    run_python(code, tmp_path)
