"""Recipes: flags of `distgnn train` in a file, as results were published with them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import distgnn
from distgnn.datasets.errors import InputError
from distgnn.partition.directory.store import MANIFEST_NAME, read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from distgnn.partition.directory.store import Manifest

_KEYS = ("about", "data", "published", "runs", "source", "flags")
"""What a recipe may hold: only source and flags decide what is trained."""
_RUNS = ("--seeds", "--split-index")
_SWITCHES = ("undirected", "inverse-relations", "one-hot")


class Recipe(NamedTuple):
    """A recipe as it was read.

    Attributes:
        name: Of its file.
        about: Where the settings come from.
        data: Names of the graphs that they are for.
        published: Mean and standard deviation that were published with them, in percent; or {}.
        runs: Flags that repeat a run as it was published: seeds, or all splits.
        source: Switches of how the graph is loaded; for `distgnn partition` where it is cut first.
        flags: Of the model and of its training, by name without dashes.
    """

    name: str
    about: str
    data: tuple[str, ...]
    published: dict[str, float]
    runs: dict[str, Any]
    source: dict[str, Any]
    flags: dict[str, Any]

    def words(self, *, with_runs: bool = False, is_cut: bool = False) -> list[str]:
        """Return the flags as words of a command line.

        Args:
            with_runs: Whether to repeat the run, too.
            is_cut: Whether the graph is a partition directory, which takes no flags of the source.

        Raises:
            InputError: If a key is no flag that a recipe may set, or has a value of another kind.
        """
        words = [] if is_cut else self.source_words()
        known = _flags()
        for key, value in self.flags.items():
            action = known.get(f"--{key}")
            if action is None:
                raise InputError(
                    f"recipe '{self.name}' has the key '{key}', which is no flag of a model or its "
                    "training; see distgnn train --help"
                )
            words += _words_of(self.name, key, value, takes_value=action.nargs != 0)
        for key, value in self.runs.items() if with_runs else ():
            words += _words_of(self.name, key, value, takes_value=True)
        return words

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
            words += _words_of(self.name, key, value, takes_value=False)
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


def _words_of(name: str, key: str, value: Any, *, takes_value: bool) -> list[str]:
    """Return one flag; a switch is true or false."""
    is_right = isinstance(value, bool) != takes_value and isinstance(value, str | int | float)
    if not is_right:
        wanted = "a number or a text" if takes_value else "true or false"
        raise InputError(f"recipe '{name}' has {key} = {json.dumps(value)}, but it takes {wanted}")
    if takes_value:
        return [f"--{key}={value}"]
    return [f"--{key}"] * value


def _flags() -> dict[str, argparse.Action]:
    """The flags that a recipe may set: of the model and of its training."""
    from distgnn.cli.train_verb import add_recipe_flags

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_recipe_flags(parser)
    return {
        option: action
        for action in parser._actions
        for option in action.option_strings
        if option not in _RUNS and not option.startswith("--no-")
    }


def add_recipe_argument(parser: argparse.ArgumentParser) -> None:
    """Add the flag itself.

    Args:
        parser: Of `distgnn train`.
    """
    parser.add_argument(
        "--recipe",
        metavar="NAME|FILE",
        help="take flags from a recipe; those of the command line win (--no-residual unsets a "
        f"switch). One of {', '.join(names())}, or a .json file",
    )


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
        values = json.loads(path.read_text(encoding="utf-8"))
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


def expanded(words: Sequence[str]) -> list[str]:
    """Put the flags of a recipe before those of the command line, so that the latter win.

    Args:
        words: Of the command line; as they are unless they are `train ... --recipe NAME`.

    Raises:
        InputError: If the recipe cannot be used, or there are two.
    """
    found = list(_recipes_of(words))
    if not found or words[0] != "train":
        return list(words)
    if len(found) > 1:
        raise InputError(
            f"--recipe was given {len(found)} times, {' and '.join(found)}; give it once, and "
            "what is to differ as flags"
        )
    recipe = read(found[0])
    directories = [word for word in words[1:] if (Path(word) / MANIFEST_NAME).is_file()]
    for directory in directories:
        recipe.check_cut(directory, read_manifest(directory))
    return ["train", *recipe.words(is_cut=bool(directories)), *words[1:]]


def _recipes_of(words: Sequence[str]) -> Iterator[str]:
    for number, word in enumerate(words):
        if word == "--recipe" and number + 1 < len(words):
            yield words[number + 1]
        elif word.startswith("--recipe="):
            yield word.removeprefix("--recipe=")


def describe(values: Mapping[str, Any]) -> str:
    """Write published figures, in percent."""
    mean, std = values.get("mean"), values.get("std")
    if mean is None:
        return "-"
    return f"{mean:.2f}" if std is None else f"{mean:.2f} \u00b1 {std:.2f}"
