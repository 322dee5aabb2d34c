"""Predictions, scores and embeddings of a trained run, gathered from all parts."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distgnn.api.link_predictions import (
    SEPARATORS,
    LinkPredictions,
    gather_arrays,
    predict_links,
)
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from distgnn.api.trained import PartOfRun
    from distgnn.training.run.inference import TrainedRun
    from distgnn.training.tasks.smoothing import CorrectAndSmooth


class Predictions(NamedTuple):
    """Predictions for all vertices, in the graph's order.

    Attributes:
        vertex_id: (num,) int64 or str. Ids of the user's files.
        probability: (num, num_classes) float32. Values, in a regression.
        task: Task that was learned.
        class_names: Names of the columns; nothing where they are numbered.
    """

    vertex_id: NDArray[np.generic]
    probability: NDArray[np.float32]
    task: str
    class_names: tuple[str, ...]

    def as_text(self, separator: str) -> str:
        """Return a line for each vertex below a header.

        Args:
            separator: Text between two columns.
        """
        text = io.StringIO()
        output = self.probability
        names = np.array(self.class_names or range(output.shape[1]))
        writer = csv.writer(text, delimiter=separator, lineterminator="\n")
        ids = self.vertex_id.tolist()
        if self.task == "regression":
            columns = [f"value_{name}" for name in names] if len(names) > 1 else ["value"]
            writer.writerow(["id", *columns])
            rows = output.astype(str).tolist()
            writer.writerows([name, *row] for name, row in zip(ids, rows, strict=True))
        elif self.task == "multi-label":
            writer.writerow(["id", *(f"label_{name}" for name in names)])
            flags = (output > 0.5).astype(int).tolist()
            writer.writerows([name, *row] for name, row in zip(ids, flags, strict=True))
        else:
            writer.writerow(["id", "label", "probability"])
            best = output.argmax(axis=1)
            chance = np.take_along_axis(output, best[:, None], axis=1)[:, 0]
            shown = np.round(chance.astype(float), 6)
            writer.writerows(zip(ids, names[best].tolist(), shown.tolist(), strict=True))
        return text.getvalue()


def predict_run(
    trained: TrainedRun,
    share: PartOfRun,
    run: str,
    pairs: str | None,
    after: CorrectAndSmooth | None,
) -> Predictions | LinkPredictions:
    """Predict all vertices, or pairs of them; collective.

    Args:
        trained: The run.
        share: Work of this rank.
        run: Directory of the run, for messages.
        pairs: File of pairs; None for the links that are held out for the test.
        after: Correction of the scores; None for none.

    Returns:
        The predictions, the same on every rank.

    Raises:
        InputError: If the run learned another task than is asked for.
    """
    is_of_links = trained.config.task == "link"
    if is_of_links and after is None:
        return predict_links(trained, share, pairs)
    if pairs and not is_of_links:
        raise InputError(
            f"--pairs is for a run that learned links, but '{run}' learned a "
            f"{trained.config.task} task; leave it out"
        )
    part, group, planner, crowded = share
    scores = trained.scores(part, group, planner=planner, after=after, crowded=crowded)
    output = trained.learned.output(scores.cpu()).numpy()
    joined = _gathered(share, output)
    return Predictions(
        joined["vertex_id"],
        joined["rows"],
        trained.config.task,
        trained.ends.class_names,
    )


def embed_run(trained: TrainedRun, share: PartOfRun) -> NDArray[np.float32]:
    """Return the rows of the last hidden layer; collective.

    Args:
        trained: The run.
        share: Work of this rank.

    Returns:
        (num_vertices, width) float32, in the graph's order and the same on every rank. Those of a
        run that learned links are the rows that its decoder reads.

    Raises:
        InputError: If the model has no hidden layer.
    """
    part, group, planner, crowded = share
    rows = trained.hidden(part, group, planner=planner, crowded=crowded)
    found: NDArray[np.float32] = _gathered(share, rows.float().cpu().numpy())["rows"]
    return found


def evaluate_run(
    trained: TrainedRun, share: PartOfRun, split_index: int | None, after: CorrectAndSmooth | None
) -> dict[str, Any]:
    """Score all splits; collective.

    Args:
        trained: The run.
        share: Work of this rank.
        split_index: Row of the masks; None for that of the run.
        after: Correction of the scores; None for none.

    Returns:
        JSON values by name, the same on every rank.

    Raises:
        InputError: If there is no such row, or the scores cannot be corrected.
    """
    from distgnn.training.data.placement import place
    from distgnn.training.tasks.learning import evaluate_task, load_task
    from distgnn.training.tasks.tasks import check_split_index

    part, group, planner, crowded = share
    index = trained.config.split_index if split_index is None else split_index
    config = replace(trained.config, split_index=index)
    check_split_index(config)
    num_classes = trained.ends.num_classes
    inputs = load_task(part, group, config, num_classes=num_classes)
    inputs = place(inputs, config, device=group.device, crowded=crowded)
    # Labels that the model reads are those of the vertices that it was trained on.
    features = inputs.features if index == trained.config.split_index else None
    scores = trained.scores(
        part, group, features=features, planner=planner, after=after, crowded=crowded
    )
    result = evaluate_task(inputs, scores, trained.load_model(group.device), group)
    metrics = {f"{split}_metric": value for split, value in result.metric.items()}
    return {
        **metrics,
        "val_loss": result.val_loss,
        "metric": inputs.measure.name,
        "split_index": index,
    }


def _gathered(share: PartOfRun, rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Gather rows of all roots, with their ids, in the graph's order; collective."""
    part = share.part
    global_id = np.array(part.global_id[: part.num_roots])
    own = {
        "global_id": global_id,
        "vertex_id": global_id if part.vertex_id is None else np.array(part.vertex_id),
        "rows": rows,
    }
    parts = gather_arrays(share.group, own)
    joined = {name: np.concatenate([one[name] for one in parts]) for name in own}
    order = np.argsort(joined["global_id"])
    return {name: values[order] for name, values in joined.items()}


def check_target(out: Path) -> None:
    """Check before the work that a file of predictions can be written.

    Args:
        out: The file.

    Raises:
        InputError: If it cannot.
    """
    if out.suffix not in (*SEPARATORS, ".npy"):
        raise InputError(f"--out must end in .csv, .tsv or .npy, got '{out}'")
    if out.is_dir():
        raise InputError(f"cannot write '{out}': it is a directory; choose another --out")
    if not out.parent.is_dir():
        raise InputError(
            f"cannot write '{out}': there is no directory '{out.parent}'; make it first"
        )
    if not os.access(out.parent, os.W_OK):
        raise InputError(
            f"cannot write '{out}': '{out.parent}' is not writable; choose another --out"
        )


def write_predictions(out: Path, found: Predictions | LinkPredictions) -> None:
    """Write the file, whole or not at all.

    Args:
        out: The file, whose suffix chooses its form.
        found: Predictions to write.

    Raises:
        InputError: If it cannot be written.
    """
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        if out.suffix == ".npy":
            with temporary.open("wb") as file:
                np.save(file, found.probability, allow_pickle=False)
        else:
            temporary.write_text(found.as_text(SEPARATORS[out.suffix]), encoding="utf-8")
        temporary.replace(out)
    except OSError as error:
        raise InputError(f"cannot write '{out}': {error.strerror}; choose another --out") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
