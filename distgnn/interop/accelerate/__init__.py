"""Models of PyG and DGL whose convolutions run on our kernels."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from torch import nn

    Model = TypeVar("Model", bound=nn.Module)

_LOG = logging.getLogger("distgnn")
# The module that has the convolutions of each library, and what they are made of.
_LIBRARIES = {"torch_geometric": "pyg", "dgl": "dgl"}


def accelerate(model: Model, *, strict: bool = False, undo: bool = False) -> Model:
    """Let the convolutions of PyG and DGL in a model run on our kernels, in place.

    Parameters, buffers, names and calls stay as they are, and so do results but for rounding. A
    call that our kernels do not answer, such as one with a SparseTensor or features of edges, runs
    as before. The log of `distgnn` names at level INFO the convolutions that stay as they are.

    What depends on a graph alone is made at the first call with an `edge_index` or DGLGraph, found
    again by the object, and freed with it. Rows that come again unchanged and without a gradient
    are taken for the input of the model: what is made of them with the graph alone is made once.
    Gradients of gradients are not supported.

    A change of a DGLGraph is noticed, and one of a tensor if torch counts it. Torch does not count
    what is written through `.data`, or by numpy into memory that both share. Then only a sample of
    the values is compared. A change that the sample misses leaves the results of the old values:
    pass a new tensor, such as `edge_index.clone()`, after writing in these ways.

    Args:
        model: Any module.
        strict: Whether every convolution has to be one that is known.
        undo: Whether to go back to the libraries' own.

    Returns:
        The model.

    Raises:
        InputError: If a convolution stays as it is, or there is none, and strict is true. Then the
            model is as it was.
    """
    libraries = [
        import_module(f"{__name__}.{ours}")
        for theirs, ours in _LIBRARIES.items()
        if theirs in sys.modules
    ]
    if undo:
        for module in model.modules():
            if any(type(module) in library.ACCELERATED for library in libraries):
                module.__class__ = type(module).__bases__[0]
        return model
    taken: list[tuple[Any, type]] = []
    left: list[str] = []
    for name, module, library in _convolutions(model, libraries):
        ours = _accelerated(module, library)
        reason = None if ours is None else ours.reason(module)
        if ours is not None and reason is None:
            taken.append((module, ours))
        else:
            about = type(module).__name__ + (f", {reason}" if reason else "")
            left.append(f"{name or 'the model'} ({about})")
    if strict:
        _check(taken, left)
    for module, ours in taken:
        module.__class__ = ours
    if left or not taken:
        _LOG.info(
            "accelerate: %d convolutions run on our kernels; as they were stay: %s",
            len(taken),
            ", ".join(left) or "none",
        )
    return model


def _check(taken: list[tuple[Any, type]], left: list[str]) -> None:
    if left:
        raise InputError(
            f"accelerate with strict=True knows no kernels for {', '.join(left)}; leave strict out "
            "to let them run as they are"
        )
    if not taken:
        raise InputError(
            "accelerate with strict=True found no convolution of PyG or DGL in the model; pass a "
            "module that has some"
        )


def _convolutions(
    model: nn.Module, libraries: list[ModuleType]
) -> Iterator[tuple[str, Any, ModuleType]]:
    for name, module in model.named_modules():
        for library in libraries:
            if library.is_convolution(module):
                yield name, module, library


def _accelerated(module: nn.Module, library: ModuleType) -> Any:
    """Return the class that takes the place of a module's, or None; itself if it is one."""
    for ours in library.ACCELERATED:
        # A class of the user that extends one of theirs may mean something else.
        if type(module) in (ours, ours.__bases__[0]):
            return ours
    return None
