"""The verbs of the command line as functions, with the same settings and errors.

Under mpirun, srun or torchrun they find the ranks by themselves, as the command line does: every
rank calls the function, and every rank gets the result.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from distgnn.api.settings import ALL, Keywords, checked, config_of
from distgnn.api.source import options_of
from distgnn.api.use import check_no_session, embed, evaluate, job_of, predict, write_note
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch import nn

    from distgnn.api.run import Run, Series
    from distgnn.training.loop.progress import Progress

    Factory = Callable[[Any], nn.Module]

__all__ = ["embed", "evaluate", "predict", "train"]

# Parameters that are spelled out, which are named beside settings if one is misspelled.
_TRAIN = ("model", "out", "resume", "overwrite", "quiet", "progress", "seeds", "recipe")


@overload
def train(
    source: Any,
    *,
    model: str | Factory | None = ...,
    out: str | os.PathLike[str] = ...,
    resume: bool = ...,
    overwrite: bool = ...,
    quiet: bool | None = ...,
    progress: Progress | None = ...,
    seeds: None = ...,
    recipe: str | os.PathLike[str] | None = ...,
    **settings: Any,
) -> Run: ...


@overload
def train(
    source: Any,
    *,
    model: str | Factory | None = ...,
    out: str | os.PathLike[str] = ...,
    resume: bool = ...,
    overwrite: bool = ...,
    quiet: bool | None = ...,
    progress: Progress | None = ...,
    seeds: int,
    recipe: str | os.PathLike[str] | None = ...,
    **settings: Any,
) -> Series: ...


def train(
    source: Any,
    *,
    model: str | Factory | None = None,
    out: str | os.PathLike[str] = "run",
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool | None = None,
    progress: Progress | None = None,
    seeds: int | None = None,
    recipe: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Run | Series:
    """Train a model, on one process or under mpirun on one rank per part.

    Args:
        source: Name of a data set, a file, or a partition directory; or a graph in memory: a
            `Graph`, or one of PyG, DGL, scipy or networkx.
        model: Name of the model: sage, gcn, gat, gatv2, gin, sgc or appnp; of graphs with types of
            edges, rgcn or rsage. Or a module class of your own, or a function, that is called with
            the sizes of the data (num_features, num_classes and others) and returns a module with
            forward(graph, x). None for the model of the recipe, or else sage.
        out: Directory of the run.
        resume: Whether to continue from the run's newest checkpoint, if any.
        overwrite: Whether to replace an earlier run.
        quiet: Whether to show warnings only; None to do so unless standard error is a terminal.
        progress: Shows epochs and notes; None for a bar or lines on standard error.
        seeds: Number of runs, with seeds S to S + N - 1; None for one run.
        recipe: Name or file of a recipe, whose settings count where none is given here.
        settings: The flags of `distgnn train` with underscores for dashes, such as hidden=16,
            epochs=200, threads=4, device="cuda". A switch is True or False.

    Returns:
        The run; a series of runs if `seeds` is given or split_index is "all".

    Raises:
        InputError: If a setting is unknown or not allowed, or the run fails in a way that the
            user can correct.
        PeerError: If another rank failed; the same call with resume=True continues.
        StoppedError: If a signal ended the run in order, with a checkpoint.
    """
    from distgnn.api.run import Run, Series
    from distgnn.api.training import Training
    from distgnn.training.run.trace_file import TraceFile

    factory = None if model is None or isinstance(model, str) else model
    given = {**settings, "model": model if factory is None else None}
    words = Keywords("train", with_recipe(given, recipe, source))
    say, is_quiet = notes(quiet, progress)
    trace = words.take("trace")
    asked = Training(
        options_of(words, source),
        config_of(config_values(words, factory)),
        Path(out),
        say,
        job=job_of(words),
        progress=progress,
        resume=resume,
        overwrite=overwrite,
        force=words.take_checked("force", "bool", False),
        estimate=words.take_checked("estimate", "bool", False),
        quiet=is_quiet,
        walk_cache=words.take_checked("walk_cache", "str", "on"),
        tune_kernels=words.take_checked("tune_kernels", "bool", False),
        trace=TraceFile(None if trace is None else Path(trace), words.take("trace_epochs")),
        seeds=None if seeds is None else checked("seeds", seeds, "int"),
        all_splits=words.take("split_index") == ALL,
        factory=factory,
        pause_after=words.take_checked("pause_after", "int"),
        merge_parts=words.take_checked("merge_parts", "bool", False),
        cuts=_cuts_of(words.take("cuts", ())),
    )
    words.refuse_others(_TRAIN)
    check_no_session("train")
    values = asked.run()
    if asked.is_series:
        return Series(out, values, source=asked.source.graph, model=factory)
    return Run(out, values, source=asked.source.graph, model=factory)


def _cuts_of(given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return partition directories: a list, one path, or a text with commas between them."""
    if isinstance(given, os.PathLike):
        return (os.fspath(given),)
    names = given.split(",") if isinstance(given, str) else [os.fspath(one) for one in given]
    return tuple(name for name in names if name)


def with_recipe(
    given: Mapping[str, Any], name: str | os.PathLike[str] | None, source: Any
) -> dict[str, Any]:
    """Add the settings of a recipe where none is given.

    Args:
        given: Settings by name; None stands for one that is not given.
        name: Name or file of the recipe; None for none.
        source: Graph to train on.

    Raises:
        InputError: If the recipe cannot be used on this graph.
    """
    if name is None:
        return dict(given)
    from distgnn.api.recipes import read
    from distgnn.partition.directory.store import MANIFEST_NAME, read_manifest

    recipe = read(os.fspath(name))
    is_path = isinstance(source, str | os.PathLike)
    is_cut = is_path and (Path(source) / MANIFEST_NAME).is_file()
    if is_cut:
        recipe.check_cut(os.fspath(source), read_manifest(source))
    return {**recipe.settings(is_cut=is_cut), **_without_none(given)}


def config_values(words: Keywords, factory: Factory | None = None) -> dict[str, Any]:
    """Return the keywords that are settings of the model and of its training.

    Args:
        words: Keywords of a verb.
        factory: Class or function that makes the model, if the user wrote it.

    Raises:
        InputError: If a value is of another type.
    """
    from distgnn.nn.config import ModelConfig
    from distgnn.training.config.settings import TrainConfig

    model = words.fields_of(ModelConfig, but=("own",))
    if factory is not None:
        if hasattr(factory, "state_dict") and not isinstance(factory, type):
            kind = type(factory).__name__
            raise InputError(
                f"model must be a module class or a function, as each run makes a module of its "
                f"own, got a {kind} that was made before; give the class, model={kind}, or a "
                "function of the data that returns a new module"
            )
        if not callable(factory):
            raise InputError(
                "model must be the name of a model, or a module class or function that is called "
                f"with the data, got a {type(factory).__name__}"
            )
        from distgnn.training.loop.own_model import own_name

        model = {**model, "model": "own", "own": own_name(factory)}
    return {**words.fields_of(TrainConfig, but=("model",)), **model}


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def notes(quiet: bool | None, progress: Progress | None) -> tuple[Callable[[str], None], bool]:
    """Return who hears notes, and whether a verb shows warnings only.

    Args:
        quiet: Whether it does; None to do so unless standard error is a terminal.
        progress: Display of the caller, which also hears the notes; None for standard error.
    """
    import sys

    if progress is not None:
        return progress.note, bool(quiet)
    return write_note, not sys.stderr.isatty() if quiet is None else quiet
