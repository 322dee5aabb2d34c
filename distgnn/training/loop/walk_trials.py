"""Trials of the order in which sums walk a graph; the choice is kept beside the walk orders."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from typing import TYPE_CHECKING, Any

import torch

from distgnn import kernels
from distgnn.datasets.files import read_whole
from distgnn.edges.walk_orders import Chooser, Way, content_key, edges_per_piece, make_walk_order
from distgnn.kernels.walk_order import WALK_ORDER_VERSION
from distgnn.training.loop.graphs import why_not_static
from distgnn.training.loop.model import build_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from distgnn.edges.walk_orders import WalkOrderSource
    from distgnn.kernels.csr import Csr
    from distgnn.kernels.walk_order import WalkOrder
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.info import DataInfo

SUFFIX = ".choice.json"
_WAYS = {
    "none": None,
    "tasks": Way(clusters=False, blocks=False),
    "clusters": Way(clusters=True, blocks=False),
    "blocks": Way(clusters=False, blocks=True),
    "clusters and blocks": Way(clusters=True, blocks=True),
}
# Rows are not cut in trials that cannot win: at 2 edges a piece a cut doubles the time.
_LEAST_EDGES_PER_PIECE = 4
_SECONDS = 2.0
_ROUNDS = (3, 9)
# A way this much slower than the fastest in the first round is not tried again.
_HOPELESS = 1.5
# Another way must save this much to be taken: less is noise.
_WORTHWHILE = 0.97
# Rows of a trial and their sums; a block with more of them is tried with narrower rows.
_MAX_BYTES = 1 << 30
_USUAL_WIDTH = 64


def aggregated_widths(config: TrainConfig, ends: DataInfo) -> tuple[int, ...]:
    """Return the widths of the rows that layers sum in every epoch.

    A layer sums the narrower of its input and output. Static input is summed only once.

    Args:
        config: The run.
        ends: Widths of input and output.

    Returns:
        Distinct widths, ascending; a usual one for a model that the user wrote.
    """
    if config.model.own:
        return (_USUAL_WIDTH,)
    model = build_model(config, ends)
    is_static = not why_not_static(config, is_sparse=False)
    layers = model.traffic(is_sparse=False, is_static=is_static)
    # A model of one layer sums its static input once, and that is all.
    summed = {layer.width for layer in layers if layer.width} or {model.num_features}
    return tuple(sorted(summed))


class Tuner(Chooser):
    """Chooser that tries the ways of walking a block and takes the fastest.

    All of them give the same bits. A trial sums rows of ones of each width. It takes at most two
    seconds, or three rounds of all ways where they take longer, besides making the walk orders.

    Args:
        widths: Widths of the rows to sum, from `aggregated_widths`.
        source: Receives the walk order that was chosen.
        machine: Processor and threads; a choice is kept for this machine.
        folder: Folder of the choices; None keeps none.
        is_trying: Whether to try where no choice is kept, instead of choosing by size.
        say: Called with a line after a trial, or when a choice cannot be read or written.
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        source: WalkOrderSource,
        machine: str,
        folder: Path | None,
        is_trying: bool,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(widths)
        self._source = source
        self._machine = machine
        self._folder = folder
        self._is_trying = is_trying
        self._say = say
        self._known: dict[str, Way | None] = {}

    def choose(self, block: Csr) -> Way | None:
        """Return the fastest known way for a block, or the one that its size suggests."""
        by_size = super().choose(block)
        if by_size is None:
            return None
        key = self._key(block)
        if key not in self._known:
            record = self._read(key)
            if record is None and self._is_trying:
                record = self._try(block, by_size)
                self._write(key, record)
            if record is not None:
                self.records.append(record)
            name = None if record is None else record["way"]
            self._known[key] = by_size if name in (None, "by size") else _WAYS[name]
        return self._known[key]

    def _key(self, block: Csr) -> str:
        about = [
            WALK_ORDER_VERSION,
            block.fingerprint,
            block.weight is None,
            self.widths,
            self._machine,
        ]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]

    def _try(self, block: Csr, by_size: Way) -> dict[str, Any]:
        start = time.perf_counter()
        first = make_walk_order(block, by_size)
        found = first.describe()
        usual = next(
            name
            for name, way in _WAYS.items()
            if way == Way(bool(found["is_clustered"]), bool(found["is_cut"]))
        )
        walks: dict[str, WalkOrder | None] = {usual: first}
        for name, way in _WAYS.items():
            if name != usual and _may_win(block, way):
                walks[name] = None if way is None else make_walk_order(block, way)
        seconds = time_walk_orders(block, walks, self.widths)
        fastest = fastest_of(seconds, usual)
        way = by_size if fastest == usual else _WAYS[fastest]
        walk = walks[fastest]
        if way is not None and walk is not None:
            self._source.offer(content_key(block, way), walk)
        milliseconds = {name: round(1e3 * value, 3) for name, value in seconds.items()}
        record = {
            "rows": block.num_rows,
            "columns": block.num_columns,
            "edges": block.num_edges,
            "widths": list(self.widths),
            "way": "by size" if fastest == usual else fastest,
            "by_size": usual,
            "ms": milliseconds,
        }
        times = ", ".join(f"{name} {value:.1f} ms" for name, value in milliseconds.items())
        self._say(
            f"kernels: {block.num_edges} edges: {times}: {fastest}, "
            f"tried in {time.perf_counter() - start:.1f} s"
        )
        return record

    def _read(self, key: str) -> dict[str, Any] | None:
        if self._folder is None:
            return None
        path = self._folder / f"{key}{SUFFIX}"
        try:
            record = json.loads(read_whole(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            self._say(f"cannot read '{path}': {error}; its block is walked as its size suggests")
            return None
        if isinstance(record, dict) and record.get("way") in (*_WAYS, "by size"):
            return record
        self._say(f"'{path}' holds no choice; its block is walked as its size suggests")
        return None

    def _write(self, key: str, record: dict[str, Any]) -> None:
        if self._folder is None:
            return
        temporary = self._folder / f".{key}.{uuid.uuid4().hex[:12]}.tmp"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(record, indent=2) + "\n")
            temporary.replace(self._folder / f"{key}{SUFFIX}")
        except OSError as error:
            self._say(f"cannot keep what was tried in '{self._folder}': {error.strerror}")


def _may_win(block: Csr, way: Way | None) -> bool:
    if way is None:
        return True
    if way.clusters and block.num_columns != block.num_rows:
        return False
    return not way.blocks or edges_per_piece(block) >= _LEAST_EDGES_PER_PIECE


def fastest_of(seconds: Mapping[str, float], usual: str) -> str:
    """Return the name of the fastest way, or the usual one where others hardly save time.

    Args:
        seconds: Seconds by name.
        usual: One of the names.
    """
    fastest = min(seconds, key=lambda name: seconds[name])
    return usual if seconds[fastest] > _WORTHWHILE * seconds[usual] else fastest


def time_walk_orders(
    block: Csr, walks: Mapping[str, WalkOrder | None], widths: Sequence[int]
) -> dict[str, float]:
    """Time the sums over a block, in rounds of all walk orders.

    Args:
        block: Block with edges.
        walks: Walk orders by name; None for the order of the rows.
        widths: Widths of the rows; narrower ones where these would take more than 1 GiB.

    Returns:
        Seconds of one sum at each width together, by name: the fastest round, because other work on
        the machine only adds time. A way that was given up has the time of its first round.
    """
    fits = _MAX_BYTES // (4 * (block.num_columns + block.num_rows))
    narrowed = sorted({max(min(width, fits), 1) for width in widths})
    rows = [torch.ones(block.num_columns, width) for width in narrowed]
    sums = [torch.zeros(block.num_rows, width) for width in narrowed]
    seconds: dict[str, list[float]] = {name: [] for name in walks}
    deadline = time.perf_counter() + _SECONDS
    for number in range(_ROUNDS[1]):
        if number >= _ROUNDS[0] and time.perf_counter() > deadline:
            break
        best = min((values[0] for values in seconds.values() if values), default=float("inf"))
        for name, walk in walks.items():
            if number and seconds[name][0] > _HOPELESS * best:
                continue
            walked = block.walked(walk)
            start = time.perf_counter()
            for x, out in zip(rows, sums, strict=True):
                kernels.spmm_sum(walked, block.weight, x, out, accumulate=False)
            seconds[name].append(time.perf_counter() - start)
    return {name: min(values) for name, values in seconds.items()}
