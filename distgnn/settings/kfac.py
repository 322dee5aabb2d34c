"""Settings of K-FAC: their grammar, their bounds and what they are by default."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil
from typing import Any

from distgnn.datasets.errors import InputError

_SHARES = {"all": 1.0, "half": 0.5, "one": 0.0}
_INTERVALS = ("factors", "inverses", "first", "widest")
_ALLOWED = {
    "damping": "positive and finite",
    "factors": "a whole number of at least 1",
    "inverses": "a whole number of at least 1",
    "first": "a whole number of at least 1",
    "clip": "at least 0 and finite",
    "decay": "at least 0 and below 1",
    "workers": "all, half, one or a share above 0 and at most 1",
    "widest": "a whole number of at least 1",
}


@dataclass(frozen=True)
class KfacOptions:
    """How K-FAC preconditions.

    Attributes:
        damping: Number that is added to each product of two eigenvalues.
        factors: Steps from one reading of the factors to the next.
        inverses: Steps from one decomposition of the factors to the next.
        first: Steps at the beginning that each read and decompose the factors: there the weights
            move far, and older factors are those of another place.
        clip: Bound on the quadratic form of a step; 0 for none.
        decay: Share of an older factor that stays when a new one is read.
        workers: Share of the ranks that precondition a map: all, half, one or a number. The others
            get the result from them.
        widest: Factors of more columns are diagonals.
    """

    damping: float = 0.001
    factors: int = 5
    inverses: int = 5
    first: int = 10
    clip: float = 0.01
    decay: float = 0.0
    workers: str = "all"
    widest: int = 1024

    def __post_init__(self) -> None:
        """Check all values.

        Raises:
            InputError: If one is not allowed.
        """
        for name in _ALLOWED:
            if not self._is_allowed(name):
                raise InputError(_refusal(name, getattr(self, name)))

    def _is_allowed(self, name: str) -> bool:
        value = getattr(self, name)
        if name == "workers":
            return _share_of(value) is not None
        if name in _INTERVALS:
            return type(value) is int and value >= 1
        least = {"damping": value > 0, "clip": value >= 0, "decay": 0 <= value < 1}
        return bool(least[name] and value < float("inf"))

    def is_read(self, step: int) -> bool:
        """Return whether a step reads the factors.

        Args:
            step: From 0.
        """
        return step < self.first or step % self.factors == 0

    def is_decomposed(self, step: int) -> bool:
        """Return whether a step decomposes the factors that it finds.

        Args:
            step: From 0.
        """
        return step < self.first or step % self.inverses == 0

    def num_workers(self, num_ranks: int) -> int:
        """Return how many ranks precondition a map.

        Args:
            num_ranks: Number of all ranks.
        """
        return min(max(ceil((_share_of(self.workers) or 0.0) * num_ranks), 1), num_ranks)

    def __str__(self) -> str:
        """Return the settings that are not those by default, as `parse` reads them."""
        given = ((item.name, getattr(self, item.name), item.default) for item in fields(self))
        return ",".join(f"{name}={value}" for name, value, default in given if value != default)


def parse(text: str) -> KfacOptions:
    """Read settings from NAME=VALUE,NAME=VALUE.

    Args:
        text: Settings that are not those by default.

    Returns:
        All settings.

    Raises:
        InputError: If a name or a value is not allowed, or a name comes twice.
    """
    values: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        name, _, value = (part.strip() for part in item.partition("="))
        if name not in _ALLOWED:
            names = ", ".join(_ALLOWED)
            raise InputError(f"--kfac has no setting '{name}'; it has {names}")
        if name in values:
            raise InputError(f"--kfac sets {name} twice; keep one")
        values[name] = value
    made: dict[str, Any] = {name: _value_of(name, value) for name, value in values.items()}
    return KfacOptions(**made)


def _value_of(name: str, text: str) -> str | int | float:
    if name == "workers":
        return text
    try:
        return int(text) if name in _INTERVALS else float(text)
    except ValueError as error:
        raise InputError(_refusal(name, text)) from error


def _share_of(workers: str) -> float | None:
    """Return the share of ranks that a value of `workers` names; None if it is not allowed."""
    if workers in _SHARES:
        return _SHARES[workers]
    try:
        share = float(workers)
    except ValueError:
        return None
    return share if 0 < share <= 1 else None


def _refusal(name: str, value: object) -> str:
    return f"{name} of --kfac must be {_ALLOWED[name]}, got {value}"
