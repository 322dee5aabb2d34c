"""Weights of trained runs, in files for programs without distgnn."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.api.run import Run
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

_SUFFIX = ".pt"


def export_weights(
    run: str | os.PathLike[str] | Run, to: str, out: str | os.PathLike[str]
) -> list[str]:
    """Write the weights of the best epoch under the names of a library.

    Args:
        run: The run, or its directory.
        to: Library: torch for our own names, pyg for those of `Run.to_pyg`, dgl for
            `layers.N.NAME` with the names of DGL's layers.
        out: File to write, which ends in .pt; `torch.load` reads a dict of tensors.

    Returns:
        Names of the tensors.

    Raises:
        InputError: If the run has not ended, the library has no such model, or the file cannot be
            written.
    """
    import torch

    path = Path(out)
    if path.suffix != _SUFFIX:
        raise InputError(f"--out must end in {_SUFFIX}, got '{path}'")
    found = run if isinstance(run, Run) else Run(run)
    state = {"torch": _own, "pyg": _of_pyg, "dgl": _of_dgl}[to](found)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        torch.save(state, temporary)
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot write '{path}': {reason}; choose another --out") from error
    finally:
        temporary.unlink(missing_ok=True)
    return list(state)


def _own(run: Run) -> dict[str, Tensor]:
    return run.state_dict()


def _of_pyg(run: Run) -> dict[str, Tensor]:
    state: dict[str, Tensor] = run.to_pyg().state_dict()
    return state


def _of_dgl(run: Run) -> dict[str, Tensor]:
    from distgnn.interop.weights import to_dgl
    from distgnn.nn.models import GNN
    from distgnn.training.run.directory import RunDirectory
    from distgnn.training.run.inference import TrainedRun

    model = TrainedRun(RunDirectory(run.path), run.model).load_model()
    if not isinstance(model, GNN):
        raise InputError(
            f"run '{run.path}' is of a model of your own, whose layers DGL need not have; use "
            "--to torch"
        )
    layers = model.convolutions
    state = {
        f"layers.{number}.{name}": tensor
        for number, layer in enumerate(layers)
        for name, tensor in to_dgl(layer).items()
    }
    # Norms, residuals and the linear layer of --jumping are torch's own: they keep their names.
    ours = {id(weight) for layer in layers for weight in layer.state_dict(keep_vars=True).values()}
    others = model.state_dict(keep_vars=True)
    return state | {n: t.detach() for n, t in others.items() if id(t) not in ours}
