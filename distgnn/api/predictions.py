"""Predictions, scores and embeddings of a trained run, gathered from all parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distgnn.api.link_predictions import LinkPredictions, gather_arrays, predict_links
from distgnn.datasets.errors import InputError
from distgnn.kernels.tensors import computed

if TYPE_CHECKING:
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
        has_all: Whether a table has the probabilities of all classes.
    """

    vertex_id: NDArray[np.generic]
    probability: NDArray[np.float32]
    task: str
    class_names: tuple[str, ...]
    has_all: bool = False

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns of a table: ids, and what is predicted."""
        output, names = self.probability, self.class_names or range(self.probability.shape[1])
        if self.task == "regression":
            titles = [f"value_{name}" for name in names] if len(names) > 1 else ["value"]
            return {"id": self.vertex_id, **dict(zip(titles, output.T, strict=True))}
        every = {f"probability_{name}": output[:, c] for c, name in enumerate(names)}
        shown = every if self.has_all else {}
        if self.task == "multi-label":
            flags = (output > 0.5).astype(int)
            yes = {f"label_{name}": flags[:, c] for c, name in enumerate(names)}
            return {"id": self.vertex_id, **yes, **shown}
        best = output.argmax(axis=1)
        chance = np.take_along_axis(output, best[:, None], axis=1)[:, 0]
        labels = np.array(names)[best]
        return {"id": self.vertex_id, "label": labels, "probability": chance, **shown}

    def array(self) -> NDArray[np.float32]:
        """Return the probabilities, or values, of all vertices."""
        return self.probability


class Embeddings(NamedTuple):
    """Rows of all vertices, in the graph's order.

    Attributes:
        vertex_id: (num,) int64 or str. Ids of the user's files.
        rows: (num, width) float32.
    """

    vertex_id: NDArray[np.generic]
    rows: NDArray[np.float32]

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns of a table: ids, and those of the rows."""
        return {"id": self.vertex_id, **{f"h{n}": row for n, row in enumerate(self.rows.T)}}

    def array(self) -> NDArray[np.float32]:
        """Return the rows."""
        return self.rows


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
    part, group, walk_orders, crowded = share
    scores = trained.scores(part, group, walk_orders=walk_orders, after=after, crowded=crowded)
    output = trained.learned.output(scores.cpu().to(computed(scores.dtype))).numpy()
    joined = _gathered(share, output)
    return Predictions(
        joined["vertex_id"],
        joined["rows"],
        trained.config.task,
        trained.ends.class_names,
    )


def embed_run(trained: TrainedRun, share: PartOfRun) -> Embeddings:
    """Return the rows of the last hidden layer; collective.

    Args:
        trained: The run.
        share: Work of this rank.

    Returns:
        The rows, the same on every rank. Those of a run that learned links are the rows that its
        decoder reads.

    Raises:
        InputError: If the model has no hidden layer.
    """
    part, group, walk_orders, crowded = share
    rows = trained.hidden(part, group, walk_orders=walk_orders, crowded=crowded)
    joined = _gathered(share, rows.float().cpu().numpy())
    return Embeddings(joined["vertex_id"], joined["rows"])


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

    part, group, walk_orders, crowded = share
    index = trained.config.split_index if split_index is None else split_index
    config = replace(trained.config, split_index=index)
    check_split_index(config)
    num_classes = trained.ends.num_classes
    inputs = load_task(part, group, config, num_classes=num_classes)
    inputs = place(inputs, config, device=group.device, crowded=crowded)
    # Labels that the model reads are those of the vertices that it was trained on.
    features = inputs.features if index == trained.config.split_index else None
    scores = trained.scores(
        part, group, features=features, walk_orders=walk_orders, after=after, crowded=crowded
    )
    result = evaluate_task(inputs, scores, trained.load_model(group.device), group)
    metrics = {f"{split}_metric": value for split, value in result.metric.items()}
    return {
        **metrics,
        "val_loss": result.val_loss if inputs.counts["val"] else None,
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
