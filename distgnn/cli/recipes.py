"""Recipes on the command line: their flags stand before those that the user gives."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from distgnn.api.recipes import read, words_of
from distgnn.cli.train_verb import add_recipe_flags
from distgnn.datasets.errors import InputError
from distgnn.partition.directory.store import MANIFEST_NAME, read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distgnn.api.recipes import Recipe

_RUNS = ("--seeds", "--split-index")
_WITH_RECIPES = ("train", "tune")


def recipe_words(recipe: Recipe, *, with_runs: bool = False, is_cut: bool = False) -> list[str]:
    """Return the flags of a recipe as words of a command line.

    Args:
        recipe: The recipe.
        with_runs: Whether to repeat the run as it was published, too.
        is_cut: Whether the graph is a partition directory, which takes no flags of the source.

    Raises:
        InputError: If a key is no flag that a recipe may set, or has a value of another kind.
    """
    words = [] if is_cut else recipe.source_words()
    known = _flags()
    for key, value in recipe.flags.items():
        action = known.get(f"--{key}")
        if action is None:
            raise InputError(
                f"recipe '{recipe.name}' has the key '{key}', which is no flag of a model or its "
                "training; see distgnn train --help"
            )
        words += words_of(recipe.name, key, value, takes_value=action.nargs != 0)
    for key, value in recipe.runs.items() if with_runs else ():
        words += words_of(recipe.name, key, value, takes_value=True)
    return words


def _flags() -> dict[str, argparse.Action]:
    """Return the flags that a recipe may set: those of the model and of its training."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_recipe_flags(parser)
    return {
        option: action
        for action in parser._actions
        for option in action.option_strings
        if option not in _RUNS and not option.startswith("--no-")
    }


def expanded(words: Sequence[str]) -> list[str]:
    """Put the flags of a recipe before those of the command line, so that the latter win.

    Args:
        words: Words of the command line.

    Returns:
        The same words unless they are `train ... --recipe NAME`, or of `tune`.

    Raises:
        InputError: If the recipe cannot be used, or there are two.
    """
    found = list(_recipes_of(words))
    if not found or words[0] not in _WITH_RECIPES:
        return list(words)
    if len(found) > 1:
        raise InputError(
            f"--recipe was given {len(found)} times, {' and '.join(found)}; give it once, and "
            "what is to differ as flags"
        )
    recipe = read(found[0])
    # Path.is_file fails on words that are longer than a name of a file may be.
    directories = [
        word
        for word in words[1:]
        if os.path.isfile(os.path.join(word, MANIFEST_NAME))  # noqa: PTH113, PTH118
    ]
    for directory in directories:
        recipe.check_cut(directory, read_manifest(directory))
    return [words[0], *recipe_words(recipe, is_cut=bool(directories)), *words[1:]]


def _recipes_of(words: Sequence[str]) -> Iterator[str]:
    for number, word in enumerate(words):
        if word == "--recipe" and number + 1 < len(words):
            yield words[number + 1]
        elif word.startswith("--recipe="):
            yield word.removeprefix("--recipe=")
