"""`distgnn predict`."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from distgnn.cli.flags import path
from distgnn.cli.link_predictions import (
    SEPARATORS,
    LinkPredictions,
    gather_arrays,
    predict_links,
)
from distgnn.cli.output import add_json_flag, print_json, print_lines
from distgnn.cli.runs import (
    add_run_arguments,
    add_smoothing_argument,
    run_on_parts,
    smoothing,
)
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    import argparse

    from numpy.typing import NDArray

    from distgnn.cli.runs import Share
    from distgnn.training.run.inference import TrainedRun
    from distgnn.training.tasks.smoothing import CorrectAndSmooth

HELP = "write a trained run's prediction for every vertex or pair, under original ids"


class _Predictions(NamedTuple):
    """Of all vertices, in the graph's order.

    Attributes:
        vertex_id: (num,) int64 or str. Ids in the user's files.
        probability: (num, num_classes) float32. Of a regression, values.
        task: What was learned.
        class_names: Of the columns; nothing where they are numbered.
    """

    vertex_id: NDArray[np.generic]
    probability: NDArray[np.float32]
    task: str
    class_names: tuple[str, ...]

    @property
    def counted(self) -> tuple[str, int]:
        """What this is of, and how many."""
        return "vertices", len(self.vertex_id)

    def as_text(self, separator: str) -> str:
        """Return a line for each vertex below a header."""
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_run_arguments(parser)
    parser.add_argument(
        "--out",
        type=path,
        required=True,
        metavar="FILE",
        help=".csv or .tsv: id, label, probability, or id and values, or both ends of a pair and "
        "its probability; .npy: probabilities, or values, in vertex order or that of the pairs",
    )
    parser.add_argument(
        "--pairs",
        type=path,
        metavar="FILE",
        help="of a run that learned links: .csv or .tsv with a header and both ends of a pair a "
        "line (default: the links that are held out for the test)",
    )
    add_smoothing_argument(parser)
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Predict all vertices and write them."""
    out = Path(arguments.out)
    _check_target(out)

    def report(results: list[_Predictions | LinkPredictions]) -> None:
        # In one process each rank holds the gathered whole; the first is enough.
        found = results[0]
        _write(out, found)
        what, count = found.counted
        if arguments.json:
            print_json({"file": str(out), f"num_{what}": count})
        else:
            print_lines([f"wrote {count} predictions to {out}"])

    def work(trained: TrainedRun, share: Share) -> _Predictions | LinkPredictions:
        is_of_links = trained.config.task == "link"
        if is_of_links and not arguments.correct_and_smooth:
            return predict_links(trained, share, arguments.pairs)
        if arguments.pairs and not is_of_links:
            raise InputError(
                f"--pairs is for a run that learned links, but '{arguments.run_dir}' learned a "
                f"{trained.config.task} task; leave it out"
            )
        return _predict(trained, share, smoothing(arguments))

    return run_on_parts(arguments, work, report)


def _predict(trained: TrainedRun, share: Share, after: CorrectAndSmooth | None) -> _Predictions:
    """Predictions for all vertices, in the graph's order."""
    part, group, planner = share
    scores = trained.scores(part, group, planner=planner, after=after)
    global_id = np.array(part.global_id[: part.num_roots])
    own = {
        "global_id": global_id,
        "vertex_id": global_id if part.vertex_id is None else np.array(part.vertex_id),
        "output": trained.learned.output(scores.cpu()).numpy(),
    }
    parts = gather_arrays(group, own)
    joined = {name: np.concatenate([one[name] for one in parts]) for name in own}
    order = np.argsort(joined["global_id"])
    return _Predictions(
        joined["vertex_id"][order],
        joined["output"][order],
        trained.config.task,
        trained.ends.class_names,
    )


def _check_target(out: Path) -> None:
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


def _write(out: Path, found: _Predictions | LinkPredictions) -> None:
    """Write the file, whole or not at all."""
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
