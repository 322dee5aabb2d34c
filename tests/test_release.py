"""Files of a release say the same as the package, and the workflow does what .ci/run does."""

from __future__ import annotations

import re

import pytest

import distgnn

tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")


def test_the_version_is_the_same_everywhere(repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    cited = re.search(r"^version: (.*)$", (repository / "CITATION.cff").read_text(), re.MULTILINE)
    assert {project["version"], cited[1]} == {distgnn.__version__}


def test_the_workflow_runs_all_that_ci_runs(repository):
    ours = re.findall(r"^make ([\w-]+)$", (repository / ".ci/run").read_text(), re.MULTILINE)
    workflow = (repository / ".github/workflows/ci.yml").read_text("utf-8")
    theirs = re.findall(r"- run: make ([\w-]+)$", workflow, re.MULTILINE)
    assert sorted(theirs) == sorted(ours)
    targets = re.findall(r"^([\w-]+):", (repository / "Makefile").read_text(), re.MULTILINE)
    assert set(ours) <= set(targets)


def test_wheels_are_built_for_every_python_that_is_supported(repository):
    config = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))
    wheels = config["tool"]["cibuildwheel"]
    oldest = re.fullmatch(r">=3\.(\d+)", config["project"]["requires-python"])[1]
    assert wheels["build"] == [f"cp3{minor}-*" for minor in range(int(oldest), 15)]
    assert "--exclude libgomp.so.1" in wheels["linux"]["repair-wheel-command"]


def test_files_that_the_image_copies_and_names_are_there(repository):
    image = (repository / "Dockerfile").read_text("utf-8")
    extras = re.search(r"/src\[([\w,]+)\]", image)[1].split(",")
    config = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))
    assert set(extras) <= set(config["project"]["optional-dependencies"])
    assert (repository / "constraints.txt").is_file()
    job = (repository / "examples/launch/mpijob.yaml").read_text("utf-8")
    assert "runAsUser: 1000" in job
    assert "--uid 1000" in image
    assert "/home/mpiuser/.sshd_config" in job
    assert "/home/mpiuser/.sshd_config" in image
