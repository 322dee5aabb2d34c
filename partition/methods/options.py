"""Options of methods as text: NAME=VALUE, checked against what the method takes."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from distgnn.datasets.errors import InputError

# The same limits as of flags: a count, and numbers that fit into float32 with room to compute.
MAX_WHOLE = 2**31 - 1
MAX_NUMBER = 1e30
# Values of the option "quality", of the methods that have it.
FAST, BEST = "fast", "best"
QUALITIES = (FAST, "default", BEST)
# Modules whose name is not that of their method.
_MODULES = {"2ps-l": "two_phase"}
# Keywords that are no options: arguments of `distgnn.partition.assign`, which hands them on.
_NO_OPTIONS = ("seed", "refine", "progress")


def module_of(method: str) -> ModuleType:
    """Import the module of a method.

    Args:
        method: One of METHODS.

    Returns:
        A module with a function `assign`.
    """
    name = _MODULES.get(method, method.replace("-", "_"))
    return import_module(f"distgnn.partition.methods.{name}")


def keywords(method: str) -> dict[str, Any]:
    """Look up the keywords of a method.

    Args:
        method: One of METHODS.

    Returns:
        The default of each, options or not.
    """
    return {
        name: parameter.default
        for name, parameter in inspect.signature(module_of(method).assign).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def defaults(method: str) -> dict[str, Any]:
    """Look up the options of a method.

    Args:
        method: One of METHODS.

    Returns:
        The default of each option.
    """
    return {k: v for k, v in keywords(method).items() if k not in _NO_OPTIONS}


def check(method: str, names: Sequence[str]) -> None:
    """Check that a method takes some options.

    Args:
        method: One of METHODS.
        names: Names of the options.

    Raises:
        InputError: If it does not take one.
    """
    known = defaults(method)
    if unknown := sorted(set(names) - set(known)):
        raise InputError(
            f"method {method!r} has no option {unknown[0]!r}; its options are: "
            f"{', '.join(known) or 'none'}"
        )


def check_imbalance(
    method: str, imbalance: float | None, names: Sequence[str], *, refine: bool
) -> None:
    """Check the balance of edges that is asked for.

    Args:
        method: One of METHODS.
        imbalance: Largest part's edges over the mean, or None.
        names: Names of the options that the method gets.
        refine: Whether the assignment is refined by request.

    Raises:
        InputError: If it is below 1, nothing takes it, or the option edge_balance says it, too.
    """
    if imbalance is None:
        return
    if not imbalance >= 1.0:
        raise InputError(f"imbalance must be at least 1, got {imbalance}; 1 is perfect balance")
    if "edge_balance" in names:
        raise InputError(
            f"imbalance {imbalance} and option 'edge_balance' are two names of one limit; leave "
            "one of them out"
        )
    if "edge_balance" not in defaults(method) and not refine:
        raise InputError(
            f"method {method!r} takes no imbalance; leave it out or refine the assignment"
        )


def check_quality(method: str, quality: str | None, names: Sequence[str]) -> None:
    """Check the quality that is asked for.

    Args:
        method: One of METHODS.
        quality: One of QUALITIES, or None.
        names: Names of the options that the method gets.

    Raises:
        InputError: If it is unknown, the method takes none, or the option quality says it, too.
    """
    if quality is None:
        return
    if quality not in QUALITIES:
        raise InputError(f"unknown quality {quality!r}; choose one of {', '.join(QUALITIES)}")
    if "quality" in names:
        raise InputError(
            f"quality {quality!r} and option 'quality' are two names of one choice; leave one of "
            "them out"
        )
    if "quality" not in defaults(method):
        raise InputError(f"method {method!r} takes no quality; leave it out or choose metis")


def parse(method: str, texts: Sequence[str]) -> dict[str, Any]:
    """Read options of a method.

    Args:
        method: One of METHODS.
        texts: NAME=VALUE each; the type of the value is that of the option's default.

    Returns:
        The values by name.

    Raises:
        InputError: If a text is not of this form, the method does not take the option, the value
            is of another type, or an option comes twice.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InputError(
                f"an option must be NAME=VALUE, got {text!r}; those of method {method!r} are: "
                + (", ".join(f"{key}={given}" for key, given in defaults(method).items()) or "none")
            )
        check(method, [name])
        if name in found:
            raise InputError(f"option {name!r} is given twice; give it once")
        found[name] = _convert(method, name, value)
    return found


def _convert(method: str, name: str, text: str) -> Any:
    default = defaults(method)[name]
    if isinstance(default, str):
        return text
    is_whole = isinstance(default, int)
    wanted, most = ("a whole number", MAX_WHOLE) if is_whole else ("a number", MAX_NUMBER)
    try:
        value = int(text) if is_whole else float(text)
    except ValueError:
        value = math.nan
    if not -most <= value <= most:
        raise InputError(
            f"option {name!r} of method {method!r} must be {wanted} such as {default} and at "
            f"most {most:.10g}, got {text!r}"
        )
    return value
