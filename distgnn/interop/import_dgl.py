"""DGL on a torch that is younger than its compiled files."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

_GRAPHBOLT = "dgl.graphbolt"


def import_dgl() -> Any:
    """Import DGL; later imports of it in this process then succeed, too.

    DGL 2.1 loads GraphBolt, its sampler, as it is imported. GraphBolt has compiled files for torch
    2.0 to 2.2 only, and needs torchdata's old pipelines. Where those are missing an empty module
    takes its place: graphs, layers and DGL's own samplers work, GraphBolt does not. A reader of
    DGL's data sets imports pandas, which may be missing as well.

    Returns:
        The module `dgl`.

    Raises:
        InputError: If DGL is not installed, or cannot be imported all the same.
    """
    if "dgl" in sys.modules:
        return sys.modules["dgl"]
    spec = find_spec("dgl")
    if spec is None or spec.origin is None:
        raise InputError(
            "DGL is not installed; pip install 'distgnn[dgl]', or dgl, into this environment"
        )
    # DGL would write a file into the home of a user who has not chosen.
    os.environ.setdefault("DGLBACKEND", "pytorch")
    folder = Path(spec.origin).parent
    lack = _lack_of_graphbolt(folder)
    try:
        with _in_place_of_pandas(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its sources, which Python compiles now
            if lack:
                lack = f"{lack}; sample with dgl.dataloading"
                sys.modules[_GRAPHBOLT] = _Absent(_GRAPHBOLT, lack)
            return importlib.import_module("dgl")
    except (ImportError, OSError, AttributeError) as error:
        sys.modules.pop(_GRAPHBOLT, None)
        raise InputError(
            f"DGL is installed in '{folder}' but cannot be imported ({error}); install a DGL for "
            "this Python and this torch"
        ) from error


def _lack_of_graphbolt(folder: Path) -> str:
    """Return what GraphBolt lacks here; nothing if it can be loaded, or there is none."""
    import torch

    if not (folder / "graphbolt").is_dir():
        return ""
    version = torch.__version__.partition("+")[0]
    if not any(folder.glob(f"graphbolt/*graphbolt_pytorch_{version}.*")):
        return f"it has no compiled file for torch {version}"
    try:
        has_pipelines = find_spec("torchdata.datapipes") is not None
    except ModuleNotFoundError:
        has_pipelines = False
    return "" if has_pipelines else "it needs torchdata.datapipes"


class _Absent(ModuleType):
    """Module in the place of one that cannot be loaded.

    Args:
        name: Name of the module.
        lack: Reason why it cannot be loaded.
    """

    def __init__(self, name: str, lack: str) -> None:
        super().__init__(name)
        self._lack = lack

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.__name__}.{name} is not there: {self._lack}")


@contextmanager
def _in_place_of_pandas() -> Iterator[None]:
    """Let pandas be imported while DGL is, if it is missing; nobody else sees that."""
    if "pandas" in sys.modules or find_spec("pandas") is not None:
        yield
        return
    sys.modules["pandas"] = _Absent("pandas", "install pandas and start again")
    try:
        yield
    finally:
        del sys.modules["pandas"]
