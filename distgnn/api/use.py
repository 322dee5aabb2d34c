"""The verbs that use a trained run: evaluate, predict and embed."""

from __future__ import annotations

import os
import reprlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from distgnn.api.job import Job
from distgnn.api.settings import ALL, Keywords, checked
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from torch import nn

    from distgnn.api.trained import PartOfRun, Use
    from distgnn.datasets.graph import Graph
    from distgnn.training.run.inference import TrainedRun
    from distgnn.training.tasks.smoothing import CorrectAndSmooth


@runtime_checkable
class Trained(Protocol):
    """A trained run: a `Run`."""

    path: Path
    graph: Graph | None
    model: Callable[[Any], nn.Module] | None


def evaluate(
    run: str | os.PathLike[str] | Trained,
    *,
    split_index: int | None = None,
    correct_and_smooth: tuple[float, float] | None = None,
    source: Any = None,
    **settings: Any,
) -> dict[str, Any]:
    """Score a trained run on its graph.

    Args:
        run: The run, or its directory.
        split_index: Row of the masks; None for that of the run.
        correct_and_smooth: Two shares, such as (0.8, 0.8): the errors on training vertices spread
            along edges, then their labels do (Huang et al., ICLR 2021).
        source: Graph in memory that the run was trained on, if it was one.
        settings: Flags of the machine: backend, device, threads, walk_cache and others.

    Returns:
        train_metric, val_metric and test_metric, val_loss, the name of the metric, and the split.

    Raises:
        InputError: If the run cannot be opened, or no longer fits its source.
        PeerError: If another rank failed.
    """
    from distgnn.api.predictions import evaluate_run

    if split_index is not None and checked("split_index", split_index, "int") == ALL:
        raise InputError("split_index must be one row of the masks, got 'all'; evaluate each")
    after = _smoothing(correct_and_smooth)
    options = {"split_index": split_index, "correct_and_smooth": correct_and_smooth}
    use = _use("evaluate", run, source, settings, options)
    return use.on_parts(lambda trained, share: evaluate_run(trained, share, split_index, after))[0]


def predict(
    run: str | os.PathLike[str] | Trained,
    *,
    out: str | os.PathLike[str] | None = None,
    pairs: str | os.PathLike[str] | None = None,
    probabilities: bool = False,
    correct_and_smooth: tuple[float, float] | None = None,
    source: Any = None,
    **settings: Any,
) -> NDArray[Any]:
    """Predict every vertex, or pairs of vertices, with a trained run.

    Args:
        run: The run, or its directory.
        out: File to write, too: .csv, .tsv or .parquet under original ids, or .npy; None for no
            file.
        pairs: File of pairs, for a run that learned links; None for those held out for the test.
        probabilities: Whether a table has the probabilities of all classes, too.
        correct_and_smooth: Two shares, as for `evaluate`.
        source: Graph in memory, as for `evaluate`.
        settings: Flags of the machine, as for `evaluate`.

    Returns:
        (num_vertices, num_classes) float32 probabilities, or values, in the order of the graph's
        vertices; (num_pairs,) float32 probabilities, of a run that learned links.

    Raises:
        InputError: If the run cannot be opened, no longer fits its source, or cannot be written.
        PeerError: If another rank failed.
    """
    from distgnn.api.predictions import Predictions, predict_run
    from distgnn.api.tables import check_target, write_table
    from distgnn.comm.collective import on_rank_0

    target, probabilities = _path(out), checked("probabilities", probabilities, "bool")
    if target is not None:
        check_target(target)
    after, file = _smoothing(correct_and_smooth), None if pairs is None else os.fspath(pairs)
    options = {"correct_and_smooth": correct_and_smooth, "probabilities": probabilities}
    # Ranks write it together, so that one that names a file waits for the others.
    options["out"] = target is not None
    use = _use("predict", run, source, settings, {**options, "pairs": file})

    def work(trained: TrainedRun, share: PartOfRun) -> NDArray[Any]:
        found = predict_run(trained, share, use.run, file, after)
        has_classes = isinstance(found, Predictions) and found.task != "regression"
        if probabilities and not has_classes:
            learned = "values" if isinstance(found, Predictions) else "links"
            raise InputError(
                f"--probabilities is for classes of vertices, but the run learned {learned}; leave "
                "it out"
            )
        if isinstance(found, Predictions):
            found = found._replace(has_all=probabilities)
        if target is not None:  # before the ranks part: the others would not wait for it then
            on_rank_0(share.group, lambda: write_table(target, found))
        return found.probability

    return use.on_parts(work)[0]


def embed(
    run: str | os.PathLike[str] | Trained,
    *,
    out: str | os.PathLike[str] | None = None,
    source: Any = None,
    **settings: Any,
) -> NDArray[Any]:
    """Compute the rows of the last hidden layer of a trained run.

    Args:
        run: The run, or its directory.
        out: File to write, too: .csv, .tsv or .parquet under original ids, or .npy; None for no
            file.
        source: Graph in memory, as for `evaluate`.
        settings: Flags of the machine, as for `evaluate`.

    Returns:
        (num_vertices, width) float32, in the order of the graph's vertices; of a run that learned
        links, the rows that its decoder reads.

    Raises:
        InputError: If the run cannot be opened, no longer fits its source, or has no hidden layer.
        PeerError: If another rank failed.
    """
    from distgnn.api.predictions import embed_run
    from distgnn.api.tables import check_target, write_table
    from distgnn.comm.collective import on_rank_0

    target = _path(out)
    if target is not None:
        check_target(target)

    def work(trained: TrainedRun, share: PartOfRun) -> NDArray[Any]:
        found = embed_run(trained, share)
        if target is not None:  # as in `predict`
            on_rank_0(share.group, lambda: write_table(target, found))
        return found.rows

    use = _use("embed", run, source, settings, {"out": target is not None})
    return use.on_parts(work)[0]


def to_pyg(run: Trained) -> Any:
    """Build the model of PyG that computes what a trained run does; see `Run.to_pyg`.

    Args:
        run: The run.

    Raises:
        InputError: If the run cannot be opened, or PyG has no such model.
    """
    from distgnn.interop.pyg_model import pyg_model
    from distgnn.training.run.directory import RunDirectory
    from distgnn.training.run.inference import TrainedRun

    trained = TrainedRun(RunDirectory(run.path), run.model)
    config = trained.config
    for reason, is_so in (
        (f"{config.model.own} is a model of your own; use its state_dict", config.model.own),
        ("--labels-as-input gives it labels of other vertices as input", config.labels_as_input),
    ):
        if is_so:
            raise InputError(f"run '{run.path}' has no equivalent in PyG, as {reason}")
    return pyg_model(
        trained.load_model(),  # type: ignore[arg-type]
        feature_norm=config.feature_norm,
        has_edge_weights=trained.ends.has_edge_weights,
    )


def _use(
    verb: str,
    run: Any,
    source: Any,
    settings: Mapping[str, Any],
    options: Mapping[str, object] | None = None,
) -> Use:
    """Return the use of a trained run that a verb is asked for."""
    from distgnn.api.graphs import from_memory
    from distgnn.api.trained import Use

    words = Keywords(verb, settings)
    path = run.path if isinstance(run, Trained) else run
    graph = run.graph if isinstance(run, Trained) else None
    if isinstance(source, str | os.PathLike):
        raise InputError(
            f"source must be a graph in memory, got {os.fspath(source)!r}; give the graph "
            "itself, or leave it out if the run was trained on a name or a path, which it knows"
        )
    if source is not None:
        graph = from_memory(source)
    job, walk_cache = job_of(words), words.take_checked("walk_cache", "str", "on")
    words.refuse_others(("source",))
    check_no_session(verb)
    factory = run.model if isinstance(run, Trained) else None
    return Use(
        *(os.fspath(path), write_note, verb),
        job=job,
        walk_cache=walk_cache,
        graph=graph,
        factory=factory,
        options=options or {},
    )


def check_no_session(verb: str) -> None:
    """Refuse a verb that opens the ranks itself while a session is open.

    Args:
        verb: Name of the verb.

    Raises:
        InputError: If a session is open in this thread.
    """
    # Without the module there is no session, and a run need not wait for its imports.
    module = sys.modules.get("distgnn.api.session")
    if module is not None:
        module.refuse_inside(f"distgnn.{verb}")


def job_of(words: Keywords) -> Job:
    """Return the job that keywords describe.

    Args:
        words: Keywords of a verb.

    Raises:
        InputError: If a value is of another type.
    """
    return Job(**words.fields_of(Job))


def _smoothing(alphas: tuple[float, float] | None) -> CorrectAndSmooth | None:
    from distgnn.training.tasks.smoothing import CorrectAndSmooth

    if alphas is None:
        return None
    try:
        first, second = map(float, alphas)
    except (TypeError, ValueError):
        first = second = -1.0
    if not (0 <= first < 1 and 0 <= second < 1):
        raise InputError(
            "correct_and_smooth must be two shares of at least 0 and below 1, such as (0.8, 0.8), "
            f"got {reprlib.repr(alphas)}"
        )
    return CorrectAndSmooth(first, second)


def _path(value: Any) -> Path | None:
    return None if value is None else Path(value)


def write_note(line: str) -> None:
    """Write a note about the work under way on standard error.

    Args:
        line: The note.
    """
    from distgnn.training.loop.progress import Lines

    Lines().note(line)
