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
    from distgnn.train.inference import TrainedRun
    from distgnn.train.smoothing import CorrectAndSmooth

HELP = "write a trained run's prediction for every vertex, under its original id"

_SEPARATORS = {".csv": ",", ".tsv": "\t"}


class _Predictions(NamedTuple):
    """Of the vertices of some parts.

    Attributes:
        global_id: (num,) int64.
        vertex_id: (num,) int64 or str. Ids in the user's files.
        output: (num, num_classes) float32. Probabilities, or values of a regression.
        task: () str. What was learnt.
    """

    global_id: NDArray[np.int64]
    vertex_id: NDArray[np.generic]
    output: NDArray[np.float32]
    task: NDArray[np.str_]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_run_arguments(parser)
    parser.add_argument(
        "--out",
        type=path,
        required=True,
        metavar="FILE",
        help=".csv or .tsv: id, label, probability, or id and values; .npy: probabilities, or "
        "values, in vertex order",
    )
    add_smoothing_argument(parser)
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Predict all vertices and write them."""
    out = Path(arguments.out)
    _check_target(out)

    def report(results: list[tuple[list[_Predictions], tuple[str, ...]]]) -> None:
        # In one process each rank holds the gathered whole; the first is enough.
        parts, class_names = results[0]
        everything = _merged(parts)
        _write(out, everything, class_names)
        if arguments.json:
            print_json({"file": str(out), "num_vertices": len(everything.global_id)})
        else:
            print_lines([f"wrote {len(everything.global_id)} predictions to {out}"])

    def work(trained: TrainedRun, share: Share) -> tuple[list[_Predictions], tuple[str, ...]]:
        return _predict(trained, share, smoothing(arguments))

    return run_on_parts(arguments, work, report)


def _predict(
    trained: TrainedRun, share: Share, after: CorrectAndSmooth | None
) -> tuple[list[_Predictions], tuple[str, ...]]:
    """Predictions of all parts, and the names of the classes."""
    part, group, planner = share
    scores = trained.scores(part, group, planner=planner, after=after)
    task = trained.learnt
    global_id = np.array(part.global_id[: part.num_roots])
    own = _Predictions(
        global_id,
        global_id if part.vertex_id is None else np.array(part.vertex_id),
        task.output(scores).numpy(),
        np.array(task.name),
    )
    buffer = io.BytesIO()
    np.savez(buffer, **own._asdict())
    gathered = group.all_gather_bytes(buffer.getvalue())
    return [_unpacked(data) for data in gathered], trained.ends.class_names


def _unpacked(data: bytes) -> _Predictions:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return _Predictions(*(arrays[name] for name in _Predictions._fields))


def _merged(parts: list[_Predictions]) -> _Predictions:
    """Put the vertices of all parts into the graph's order."""
    columns = list(zip(*parts, strict=True))
    joined = [np.concatenate(column) for column in columns[:-1]]
    order = np.argsort(joined[0])
    global_id, vertex_id, output = (column[order] for column in joined)
    return _Predictions(global_id, vertex_id, output, columns[-1][0])


def _check_target(out: Path) -> None:
    if out.suffix not in (*_SEPARATORS, ".npy"):
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


def _write(out: Path, predictions: _Predictions, class_names: tuple[str, ...]) -> None:
    """Write the file, whole or not at all."""
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        if out.suffix == ".npy":
            with temporary.open("wb") as file:
                np.save(file, predictions.output, allow_pickle=False)
        else:
            text = _as_text(predictions, _SEPARATORS[out.suffix], class_names)
            temporary.write_text(text, encoding="utf-8")
        temporary.replace(out)
    except OSError as error:
        raise InputError(f"cannot write '{out}': {error.strerror}; choose another --out") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _as_text(predictions: _Predictions, separator: str, class_names: tuple[str, ...]) -> str:
    text = io.StringIO()
    output = predictions.output
    names = np.array(class_names or range(output.shape[1]))
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    ids = predictions.vertex_id.tolist()
    if predictions.task == "regression":
        columns = [f"value_{name}" for name in names] if len(names) > 1 else ["value"]
        writer.writerow(["id", *columns])
        rows = output.astype(str).tolist()
        writer.writerows([name, *row] for name, row in zip(ids, rows, strict=True))
    elif predictions.task == "multi-label":
        writer.writerow(["id", *(f"label_{name}" for name in names)])
        writer.writerows(
            [name, *row] for name, row in zip(ids, (output > 0.5).astype(int).tolist(), strict=True)
        )
    else:
        writer.writerow(["id", "label", "probability"])
        best = output.argmax(axis=1)
        chance = np.take_along_axis(output, best[:, None], axis=1)[:, 0]
        shown = np.round(chance.astype(float), 6)
        writer.writerows(zip(ids, names[best].tolist(), shown.tolist(), strict=True))
    return text.getvalue()
