"""Folder of data sets that are named rather than given by a path."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "DISTGNN_DATASETS"
"""Environment variable that names the folder where none is given."""
DEFAULT = "dataset"
"""The folder, where the variable is not set either; the one that OGB's own package takes."""


def root_of(root: str | Path | None) -> Path:
    """Return the folder of the data sets that have a name.

    Args:
        root: Folder that the user gives; None without.

    Returns:
        The folder, which may not exist: the one given, that of `DISTGNN_DATASETS`, or ./dataset.
    """
    return Path(root or os.environ.get(VARIABLE) or DEFAULT)
