"""Optimizers, which turn gradients into steps.

`Kfac` steps models of a loop of your own; it is loaded when it is used first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distgnn.optim.kfac import Kfac

__all__ = ["Kfac"]


def __getattr__(name: str) -> type[Kfac]:
    if name != "Kfac":
        raise AttributeError(f"module 'distgnn.optim' has no attribute '{name}'")
    from distgnn.optim.kfac import Kfac

    return Kfac
