"""Recipes: settings of a published result in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import distgnn
from distgnn.api.source import SWITCHES
from distgnn.datasets.errors import InputError
from distgnn.datasets.files import read_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distgnn.partition.directory.store import Manifest

_KEYS = ("about", "data", "published", "runs", "source", "flags")
"""Keys of a recipe: only source and flags decide what is trained."""
_SWITCHES = tuple(name.replace("_", "-") for name in SWITCHES)


class Recipe(NamedTuple):
    """A recipe as it was read.

    Attributes:
        name: Name of its file.
        about: Publication that the settings come from.
        data: Names of the graphs that the settings are for.
        published: Published mean and standard deviation, in percent; or {}.
        runs: Flags that repeat a run as it was published: seeds, or all splits.
        source: Switches of the source; for `distgnn partition` if the graph is cut first.
        flags: Flags of the model and of its training, by name without dashes.
    """

    name: str
    about: str
    data: tuple[str, ...]
    published: dict[str, float]
    runs: dict[str, Any]
    source: dict[str, Any]
    flags: dict[str, Any]

    def settings(self, *, is_cut: bool = False) -> dict[str, Any]:
        """Return the keywords of `distgnn.train` that the recipe sets.

        Args:
            is_cut: Whether the graph is a partition directory, which takes no flags of the source.

        Raises:
            InputError: If a switch of the source is unknown, or is neither true nor false.
        """
        self.source_words()
        values = {**({} if is_cut else self.source), **self.flags}
        return {key.replace("-", "_"): value for key, value in values.items()}

    def source_words(self) -> list[str]:
        """Return how the graph is loaded as words of a command line.

        Raises:
            InputError: If a key is no switch of a source, or is neither true nor false.
        """
        words = []
        for key, value in self.source.items():
            if key not in _SWITCHES:
                raise InputError(
                    f"recipe '{self.name}' has source {key}, but it may have "
                    f"{', '.join(_SWITCHES)}; give other flags of a source on the command line"
                )
            words += words_of(self.name, key, value, takes_value=False) * bool(value)
        return words

    def check_cut(self, directory: str, manifest: Manifest) -> None:
        """Check that a graph was cut as the recipe loads it.

        Args:
            directory: The partition directory, for the message.
            manifest: Its manifest. One that `distgnn partition` did not write is trusted, as it
                need not say how its graph was loaded.

        Raises:
            InputError: If it was cut without a switch of the source, or as of `source_words`.
        """
        if "undirected" not in manifest.options:
            return
        missing = [
            word
            for word in self.source_words()
            if not manifest.options.get(word.removeprefix("--").replace("-", "_"))
        ]
        if missing:
            raise InputError(
                f"recipe '{self.name}' loads its graph with {' '.join(missing)}, but partition "
                f"directory '{directory}' was cut without; cut it again with distgnn partition "
                f"{' '.join(missing)}, or leave the recipe out and give its flags"
            )


def words_of(name: str, key: str, value: Any, *, takes_value: bool) -> list[str]:
    """Return one flag as words of a command line.

    Args:
        name: Name of the recipe, for the message.
        key: Name of the flag without dashes.
        value: Value of the flag; true or false for a switch.
        takes_value: Whether the flag takes a value, and is not a switch.

    Raises:
        InputError: If the value is of another kind.
    """
    is_right = isinstance(value, bool) != takes_value and isinstance(value, str | int | float)
    if not is_right:
        wanted = "a number or a text" if takes_value else "true or false"
        raise InputError(f"recipe '{name}' has {key} = {json.dumps(value)}, but it takes {wanted}")
    if takes_value:
        return [f"--{key}={value}"]
    return [f"--{key}" if value else f"--no-{key}"]


def folder() -> Path:
    """Return where the recipes lie that come with distgnn."""
    installed = Path(distgnn.__file__).parent / "recipes"
    return installed if installed.is_dir() else installed.parents[1] / "examples" / "recipes"


def names() -> list[str]:
    """Return the names of the recipes that come with distgnn."""
    return sorted(path.stem for path in folder().glob("*.json"))


def read(name: str) -> Recipe:
    """Read a recipe.

    Args:
        name: One of `names`, or a path that ends in .json.

    Raises:
        InputError: If there is none, or it is not of this form.
    """
    path = Path(name) if name.endswith(".json") else folder() / f"{name}.json"
    if not name.endswith(".json") and name not in names():
        raise InputError(
            f"there is no recipe '{name}'; use one of {', '.join(names())}, or a .json file"
        )
    try:
        values = json.loads(read_whole(path))
    except OSError as error:
        raise InputError(
            f"cannot read recipe '{path}': {error.strerror}; check the path"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"recipe '{path}' is not JSON: {error}; correct it") from error
    return _checked(name, values)


def _checked(name: str, values: Any) -> Recipe:
    if not isinstance(values, dict) or not isinstance(values.get("flags"), dict):
        raise InputError(
            f"recipe '{name}' is no object with flags; write "
            '{"flags": {"model": "gcn", "hidden": 16}}'
        )
    unknown = [key for key in values if key not in _KEYS]
    if unknown:
        raise InputError(
            f"recipe '{name}' has the key '{unknown[0]}', but it may have {', '.join(_KEYS)}; "
            "write flags of train below flags"
        )
    if not all(isinstance(values.get(key, {}), dict) for key in ("published", "runs", "source")):
        raise InputError(
            f"recipe '{name}' has published, runs or source that are no objects; correct them"
        )
    data, published = values.get("data", []), values.get("published", {})
    if not (isinstance(data, list) and all(isinstance(graph, str) for graph in data)):
        raise InputError(
            f"recipe '{name}' has data = {json.dumps(data)}, but it takes names of graphs; write "
            '["cora"]'
        )
    for key, value in published.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(
                f"recipe '{name}' has published {key} = {json.dumps(value)}, but it takes a "
                "number; write it in percent"
            )
    return Recipe(
        Path(name).stem,
        str(values.get("about", "")),
        tuple(data),
        dict(published),
        dict(values.get("runs", {})),
        dict(values.get("source", {})),
        dict(values["flags"]),
    )


def describe(values: Mapping[str, Any]) -> str:
    """Write published figures, in percent."""
    mean, std = values.get("mean"), values.get("std")
    if mean is None:
        return "-"
    return f"{mean:.2f}" if std is None else f"{mean:.2f} \u00b1 {std:.2f}"
