"""Probabilities of links: those that are held out for the test, or pairs in a file."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distgnn.comm.collective import collectively
from distgnn.datasets.distinct import distinct
from distgnn.datasets.errors import InputError
from distgnn.datasets.files import check_room, read_whole
from distgnn.datasets.text_table import MAX_FIELD_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from distgnn.api.trained import PartOfRun
    from distgnn.comm.group import Group
    from distgnn.partition.directory.store import Part
    from distgnn.training.run.inference import TrainedRun

SEPARATORS = {".csv": ",", ".tsv": "\t"}
# Of a byte of the file: its text, twice, and the words of its lines.
_PAIR_BYTES = 40
HEADER = ("first", "second", "probability")


class LinkPredictions(NamedTuple):
    """Probabilities of pairs, the same on every rank.

    Attributes:
        names: (num, 2) int64 or str. Both ends, by the names of the user's files.
        probability: (num,) float32.
    """

    names: NDArray[np.generic]
    probability: NDArray[np.float32]

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns of a table: both ends, and the probability."""
        first, second = self.names.T
        return dict(zip(HEADER, (first, second, self.probability), strict=True))

    def array(self) -> NDArray[np.float32]:
        """Return the probabilities."""
        return self.probability


def predict_links(trained: TrainedRun, share: PartOfRun, pairs: str | None) -> LinkPredictions:
    """Score pairs; collective.

    Args:
        trained: A run that learned links.
        share: Work of this rank.
        pairs: File of pairs; None for the links that are held out for the test.

    Returns:
        The probabilities, in the order of the file, or of the vertices.

    Raises:
        InputError: If the file cannot be read or names what is no vertex.
    """
    part, group, walk_orders, crowded = share
    rows = trained.scores(part, group, walk_orders=walk_orders, crowded=crowded)
    if pairs is None:
        ends = _held_out(part, group)
        names = _named(ends, part, group)
    else:
        path = Path(pairs)
        lines = collectively(group, lambda: _read(path))
        names, ends = lines[1:], _numbered(lines, part, group, path)
    return LinkPredictions(names, trained.link_probability(part, group, rows, ends))


def gather_arrays(
    group: Group, arrays: Mapping[str, NDArray[Any]]
) -> list[dict[str, NDArray[Any]]]:
    """Return the arrays of all ranks, in rank order; collective.

    Args:
        group: All ranks.
        arrays: Arrays of any shape by name; without objects.
    """
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    gathered = []
    for data in group.all_gather_bytes(buffer.getvalue()):
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            gathered.append({name: found[name] for name in arrays})
    return gathered


def _held_out(part: Part, group: Group) -> NDArray[np.int64]:
    """Return (num, 2) test links of all parts, in the order of their ends."""
    assert part.test_links is not None, "the graph holds links out"
    parts = gather_arrays(group, {"links": np.asarray(part.test_links)})
    links = np.concatenate([one["links"] for one in parts])
    return links[np.lexsort((links[:, 1], links[:, 0]))]


def _names(part: Part) -> NDArray[Any]:
    """Return (num_roots,) names of the roots in the user's files."""
    if part.vertex_id is None:
        return np.asarray(part.global_id[: part.num_roots])
    return np.asarray(part.vertex_id)


def _named(ends: NDArray[np.int64], part: Part, group: Group) -> NDArray[Any]:
    wanted = distinct(ends)
    is_wanted = np.isin(part.global_id[: part.num_roots], wanted)
    own = {
        "id": np.asarray(part.global_id[: part.num_roots])[is_wanted],
        "name": _names(part)[is_wanted],
    }
    parts = gather_arrays(group, own)
    ids = np.concatenate([one["id"] for one in parts])
    names = np.concatenate([one["name"] for one in parts if len(one["id"])] or [own["name"]])
    order = np.argsort(ids)
    found: NDArray[Any] = names[order][np.searchsorted(ids[order], ends)]
    return found


def _read(path: Path) -> NDArray[np.str_]:
    """Return (1 + num, 2) words of the first two columns, the header among them."""
    separator = SEPARATORS.get(path.suffix)
    if separator is None:
        raise InputError(f"--pairs must end in .csv or .tsv, got '{path}'")
    try:
        data = read_whole(path)
        check_room(_PAIR_BYTES * len(data), f"'{path}'")
        lines = list(csv.reader(io.StringIO(data.decode(), newline=""), delimiter=separator))
    except InputError:
        raise
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read '{path}': {error}; give a table of pairs") from error
    while lines and not "".join(lines[-1]).strip():
        lines.pop()
    short = next((n for n, line in enumerate(lines) if len(line) < 2), None)
    if short is not None or len(lines) < 2:
        raise InputError(
            f"line {1 + (short or 0)} of '{path}' is no pair; write a header, then both ends of a "
            "pair a line"
        )
    width = max(len(word) for line in lines for word in line[:2])
    if width > MAX_FIELD_BYTES:
        wrong = next(n for n, line in enumerate(lines, 1) if max(map(len, line[:2])) == width)
        raise InputError(
            f"line {wrong} of '{path}' has a name of {width} characters, but at most "
            f"{MAX_FIELD_BYTES} are allowed; shorten it"
        )
    # Each name takes as much as the longest one.
    check_room(8 * width * len(lines), f"'{path}'")
    return np.array([line[:2] for line in lines])


def _numbered(names: NDArray[np.str_], part: Part, group: Group, path: Path) -> NDArray[np.int64]:
    """Return (num, 2) global ids of the names below the header; a rank knows those of its roots."""
    import torch

    own = _names(part).astype(str)
    order = np.argsort(own)
    place = np.searchsorted(own[order], names)
    is_own = place < len(own)
    is_own[is_own] = own[order][place[is_own]] == names[is_own]
    ids = np.full(names.shape, -1, dtype=np.int64)
    ids[is_own] = np.asarray(part.global_id)[order[place[is_own]]]
    found = torch.from_numpy(ids)
    group.all_reduce(found, "max")
    if (ids[0] >= 0).all():
        raise InputError(
            f"the first line of '{path}' looks like a pair, as both its names are vertices; write "
            "a header above it"
        )
    unknown = np.argwhere(ids[1:] < 0)
    if len(unknown):
        row, column = unknown[0].tolist()
        raise InputError(
            f"line {row + 2} of '{path}' names '{names[row + 1, column]}', which is no vertex of "
            "the graph; correct it"
        )
    return ids[1:]
