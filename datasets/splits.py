"""Random train/val/test splits for graphs that come without masks."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from distgnn.datasets._checks import without_label
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distgnn.datasets.graph import Graph


def parse_fractions(text: str) -> tuple[float, float, float]:
    """Return the fractions of a text such as "0.6/0.2/0.2".

    Raises:
        InputError: If these are not three numbers that `random_split` takes.
    """
    try:
        train, val, test = (float(part) for part in text.split("/"))
    except ValueError as error:
        raise InputError(
            f"a split is three fractions for train, val and test, got {text!r}; write 0.6/0.2/0.2"
        ) from error
    _check_fractions((train, val, test))
    return train, val, test


def random_split(
    graph: Graph, fractions: Sequence[float], *, num_splits: int = 1, seed: int = 0
) -> Graph:
    """Return the graph with random masks over its labelled vertices, replacing any it had.

    Args:
        graph: A graph with labels.
        fractions: The shares of train, val and test among the labelled vertices; above 0, and at
            most 1 together. What is left over is in no mask.
        num_splits: Number of independent splits, at least 1.
        seed: Determines the splits.

    Raises:
        InputError: If the graph has no labels, or a fraction is out of range or selects no vertex.
    """
    _check_fractions(fractions)
    if num_splits < 1:
        raise InputError(f"num_splits must be at least 1, got {num_splits}; ask for one split")
    if graph.labels is None:
        raise InputError(f"graph {graph.name!r} has no labels, so it cannot be split; give labels")
    candidates = np.flatnonzero(~without_label(graph.labels))
    if candidates.size == 0:
        raise InputError(
            f"all labels of graph {graph.name!r} are unknown, so it cannot be split; give labels"
        )
    # Rounding the running sum gives counts that add up, whatever the fractions are.
    bounds = [round(share * candidates.size) for share in np.cumsum(fractions)]
    counts = np.diff([0, *bounds])
    if counts.min() < 1:
        raise InputError(
            f"the split {'/'.join(f'{f:g}' for f in fractions)} of {candidates.size} labelled "
            "vertices leaves train, val or test empty; give it a larger fraction"
        )
    generator = np.random.default_rng(seed)
    masks = np.zeros((3, num_splits, graph.num_vertices), dtype=np.bool_)
    for split in range(num_splits):
        order = generator.permutation(candidates)
        for mask, begin, end in zip(masks, [0, *bounds], bounds, strict=False):
            mask[split, order[begin:end]] = True
    return dataclasses.replace(graph, train_mask=masks[0], val_mask=masks[1], test_mask=masks[2])


def _check_fractions(fractions: Sequence[float]) -> None:
    is_valid = len(fractions) == 3 and all(0 < f < 1 for f in fractions)
    if not is_valid or math.fsum(fractions) > 1 + 1e-9:
        raise InputError(
            f"the fractions of a split must be three numbers above 0 that sum to at most 1, got "
            f"{'/'.join(f'{f:g}' for f in fractions)}; write for example 0.6/0.2/0.2"
        )
