"""The notebook of examples/: valid, without outputs, and executed cell by cell."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples/tutorial.ipynb"


def cells():
    notebook = json.loads(NOTEBOOK.read_text())
    assert (notebook["nbformat"], notebook["metadata"]["language_info"]["name"]) == (4, "python")
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_no_cell_was_stored_with_its_output():
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells())


@pytest.mark.slow
@pytest.mark.mpi
def test_every_cell_runs(tmp_path, monkeypatch, mpirun):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("OMPI_", "PMIX_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(mpirun).parent), os.environ["PATH"]]))
    names = {"__name__": "tutorial"}
    num_threads = torch.get_num_threads()
    for number, cell in enumerate(cells()):
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
    torch.set_num_threads(num_threads)
    assert {name: len(run.metrics) for name, run in names["runs"].items()} == {
        "one process": 40,
        "cd-0": 40,
        "cd-2": 40,
    }
    exact, one = names["runs"]["cd-0"], names["runs"]["one process"]
    assert exact.metrics[-1]["loss"] == pytest.approx(one.metrics[-1]["loss"], rel=1e-4)
    assert exact.summary["halo_bytes_per_epoch"] > 0
    if hasattr(names["picture"], "_repr_html_"):
        assert names["picture"]._repr_html_().count("<polyline") == 3
    assert names["accuracy"] > 0.7
