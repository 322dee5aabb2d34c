"""Kernels called with the bare arrays of a graph, as the tests of kernels draw them."""

from __future__ import annotations

from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

from distgnn.kernels.csr import Csr

if TYPE_CHECKING:
    from types import ModuleType

# Fronts that read where each edge stands in another order, the third of the arrays.
_WITH_POSITION = {"attend_backward", "sddmm_leaky_backward"}
_ARRAYS = ("indptr", "indices", "position")


class Fronts:
    """The functions of a module, each with arrays and an order in place of its graph."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        front = getattr(self._module, name)
        if isinstance(front, type) or not callable(front):
            return front
        return partial(_call, front) if "graph" in signature(front).parameters else front


def _call(front: Any, *given: Any, order: Any = None, **named: Any) -> Any:
    names = _ARRAYS[: 3 if front.__name__ in _WITH_POSITION else 2]
    values = list(given[: len(names)]) or [named.pop(name) for name in names]
    indptr, indices, *position = values
    graph = Csr(indptr, indices, 0, position[0] if position else None).walked(order)
    return front(graph, *given[len(names) :], **named)
