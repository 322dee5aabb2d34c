"""The settings that all ranks of a job must share, as they compare them when they meet."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.datasets.files import read_whole
from distgnn.partition.directory.store import MANIFEST_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distgnn.api.source import SourceOptions
    from distgnn.training.config.settings import TrainConfig

# Settings of a rank alone: each machine may have its own room.
_OWN = frozenset({"features_on", "replay"})
# A folder of each machine, and a graph that is compared otherwise.
_OWN_OF_SOURCE = frozenset({"source", "root", "graph", "seed"})


def identity_of(verb: str, values: Mapping[str, object]) -> dict[str, str]:
    """Return the identity of a job.

    Args:
        verb: Name of the work of the ranks.
        values: Settings that all ranks must share, by name.

    Returns:
        Texts by name; settings under the names of their flags.
    """
    flags = {f"--{name.replace('_', '-')}": str(value) for name, value in values.items()}
    return {"verb": verb, **flags}


def identity_of_training(
    config: TrainConfig, source: SourceOptions, options: Mapping[str, object]
) -> dict[str, str]:
    """Return the identity of a run.

    Args:
        config: Settings of the run; of the first run in a series.
        source: Source to train on.
        options: Other values that all ranks must share, by name.
    """
    values = {**_of_config(config), **options}
    return {**identity_of("train", values), **of_source(source)}


def _of_config(config: TrainConfig) -> dict[str, Any]:
    """Return the settings of a run in one level."""
    values = config.to_json()
    model = values.pop("model")
    return {name: value for name, value in {**model, **values}.items() if name not in _OWN}


def of_source(source: SourceOptions) -> dict[str, str]:
    """Return the part of an identity that says on which graph a job works.

    A partition directory may lie elsewhere on each machine, and is known by its manifest.

    Args:
        source: The source.
    """
    found = {
        f"--{field.name.replace('_', '-')}": str(getattr(source, field.name))
        for field in fields(source)
        if field.name not in _OWN_OF_SOURCE
    }
    if source.graph is not None:
        return found
    try:
        manifest = read_whole(Path(source.source) / MANIFEST_NAME)
    except (OSError, ValueError):
        return {**found, "source": source.source}
    return {**found, "partition": hashlib.sha256(manifest).hexdigest()[:16]}
