"""Input of a rank that learns links: features, edges, links that are held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from distgnn.datasets.errors import InputError
from distgnn.training.data.inputs import input_rows
from distgnn.training.tasks.tasks import LINK_METRICS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from distgnn.comm.group import Group
    from distgnn.ops.rows import Rows
    from distgnn.partition.directory.store import Part
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.tasks.link_measures import LinkMeasure

HELD_OUT = ("val", "test")
"""Splits of links that are held out."""


@dataclass(frozen=True)
class LinkInputs:
    """A rank's share of the task.

    Attributes:
        features: (num_roots, num_features), normalised.
        root_id: (num_roots,) int64. Global ids of the roots.
        num_vertices: Number of vertices of the whole graph.
        edges: (num, 2) int64. Global ids of both ends of this part's edges, without self-loops:
            the links that are learned.
        held_out: (num, 2) int64 by name of the split. Links whose first end is a root here.
        counts: Edges that are learned, and links of each split, over all ranks.
        measure: Measure of the task.
    """

    features: Rows
    root_id: Tensor
    num_vertices: int
    edges: NDArray[np.int64]
    held_out: dict[str, NDArray[np.int64]]
    counts: dict[str, int]
    measure: LinkMeasure

    @property
    def wanted(self) -> Tensor:
        """(num_roots,) int64. Roots whose rows the loss reads: any may be drawn."""
        return torch.arange(len(self.root_id))


def load_link_inputs(part: Part, group: Group, config: TrainConfig) -> LinkInputs:
    """Find what a rank learns of links; collective.

    Args:
        part: This rank's part, of a graph that holds links out.
        group: One rank per part.
        config: The run.

    Returns:
        This rank's share.

    Raises:
        InputError: If there are no features, no links to learn, or too few to measure.
    """
    kind = config.model.kind
    norm, dtype = config.feature_norm, config.features_dtype
    features = input_rows(part, group, norm=norm, dtype=dtype, needs=not kind.is_typed)
    ids = np.asarray(part.global_id)
    source, target = ids[part.indices], np.repeat(ids, np.diff(part.indptr))
    edges = np.stack([source, target], axis=1)[source != target]
    assert part.val_links is not None, "the graph holds links out"
    assert part.test_links is not None, "the graph holds links out"
    held_out = {"val": np.asarray(part.val_links), "test": np.asarray(part.test_links)}
    sizes = [part.num_roots, len(edges), *(len(held_out[name]) for name in HELD_OUT)]
    counts = torch.tensor(sizes)
    group.all_reduce(counts)
    num_vertices, *numbers = counts.tolist()
    measure = LINK_METRICS[config.metric]
    found = dict(zip(("train", *HELD_OUT), numbers, strict=True))
    _check_counts(found, measure)
    root_id = torch.from_numpy(ids[: part.num_roots].copy())
    return LinkInputs(features, root_id, num_vertices, edges, held_out, found, measure)


def _check_counts(counts: dict[str, int], measure: LinkMeasure) -> None:
    if not counts["train"]:
        raise InputError(
            "the graph has no edge between two vertices, so there is no link to learn; hold fewer "
            "links out, or check the source"
        )
    fewest = min(counts[name] for name in HELD_OUT)
    if fewest < measure.num_shared:
        raise InputError(
            f"--metric {measure.name} ranks links among as many other pairs as links are held out, "
            f"of which validation or test has {fewest}; use --metric mrr, or hold out at least "
            f"{measure.num_shared} for each"
        )
