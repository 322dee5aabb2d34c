"""Input of a rank: features, labels and masks of its roots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.sparse import issparse

from distgnn.aggregate.input_rows import leaf_inputs, place_leaves
from distgnn.datasets.errors import InputError
from distgnn.kernels.tensors import DTYPES, own
from distgnn.ops import SparseRows
from distgnn.training.tasks.tasks import TASKS, choose

if TYPE_CHECKING:
    from distgnn.comm.group import Group
    from distgnn.edges.blocks import Blocks
    from distgnn.exchange.base import Synchronous
    from distgnn.ops import LoadedRows
    from distgnn.ops.rows import Rows
    from distgnn.partition.directory.store import Part
    from distgnn.settings.names import DtypeName
    from distgnn.training.config.data import FeatureNorm
    from distgnn.training.tasks.measures import Measure
    from distgnn.training.tasks.tasks import VertexTask

SPLITS = ("train", "val", "test")

_BLOCK_ROWS = 1 << 14
_LINE_BYTES = 64


@dataclass(frozen=True)
class Inputs:
    """A rank's share of the task.

    Attributes:
        features: (num_roots, num_features), normalised.
        labels: (num_roots,) int64 classes, or (num_roots, num_classes) float32 flags or values.
        rows: Roots of each split that have a label, int64, by name of the split.
        counts: Vertices of each split over all ranks.
        task: Task of the run.
        measure: Measure of the task.
    """

    features: Rows
    labels: torch.Tensor
    rows: dict[str, torch.Tensor]
    counts: dict[str, int]
    task: VertexTask
    measure: Measure

    @property
    def wanted(self) -> torch.Tensor:
        """(num,) int64. Roots whose scores the loss reads."""
        return self.rows["train"]


def load_inputs(
    part: Part,
    group: Group,
    *,
    split_index: int,
    feature_norm: FeatureNorm,
    features_dtype: DtypeName = "fp32",
    needs_features: bool = True,
    task: str,
    metric: str,
) -> Inputs:
    """Copy a part's features, labels and masks into memory.

    Collective.

    Args:
        part: This rank's part.
        group: One rank per part.
        split_index: Row of the masks.
        feature_norm: How to normalise features.
        features_dtype: Type that dense features are stored as.
        needs_features: Whether a graph without features is an error; else it gets no columns.
        task: Task of the labels.
        metric: One of the task's.

    Returns:
        This rank's share.

    Raises:
        InputError: If the graph has no features, labels or masks, or no such split, or features of
            another kind than is asked for.
    """
    rows = split_rows(part, split_index, task)
    found, measure = choose(task, metric)
    counts = torch.tensor([len(rows[name]) for name in SPLITS], dtype=torch.int64)
    group.all_reduce(counts)
    needs = needs_features
    return Inputs(
        features=input_rows(part, group, norm=feature_norm, dtype=features_dtype, needs=needs),
        labels=found.targets(np.asarray(part.labels)),
        rows=rows,
        counts=dict(zip(SPLITS, counts.tolist(), strict=True)),
        task=found,
        measure=measure,
    )


def input_rows(
    part: Part, group: Group, *, norm: FeatureNorm, dtype: DtypeName, needs: bool = True
) -> LoadedRows:
    """Load a part's features as a model reads them; collective.

    Args:
        part: This rank's part.
        group: All ranks.
        norm: How to normalise them.
        dtype: Type that dense ones are stored as, after they were normalised.
        needs: Whether a graph without features is an error; else it gets no columns.

    Returns:
        (num_roots, num_features), not to be changed.

    Raises:
        InputError: If the graph has no features, or sparse ones where that does not do.
    """
    if part.features is None and not needs:
        return torch.empty(part.num_roots, 0)
    if dtype == "fp32":
        return normalised(load_features(part), norm, group)
    if issparse(part.features):
        raise InputError(
            f"--features-dtype {dtype} is for dense features, but the graph has sparse ones; "
            "use --features-dtype fp32"
        )
    if norm == "none" and part.features is not None:
        # Block by block: the features may lie in a file, and need not fit into memory as they are.
        rows = torch.empty(part.features.shape, dtype=DTYPES[dtype])
        for start in range(0, len(rows), _BLOCK_ROWS):
            block = part.features[start : start + _BLOCK_ROWS]
            rows[start : start + _BLOCK_ROWS] = own(block, np.float32)
        return rows
    wide = normalised(load_features(part), norm, group)
    return wide.to_dense().to(DTYPES[dtype])


def dense_input_bytes(stored_bytes: int, *, norm: FeatureNorm, dtype: DtypeName) -> int:
    """Say what `input_rows` takes for dense features at least.

    Args:
        stored_bytes: Bytes of the part's features, float32.
        norm: Norm of the features.
        dtype: Type that they are stored as in memory.

    Returns:
        Number of bytes. Features without a norm are read block by block, without a float32 copy.
    """
    if norm != "none":
        return stored_bytes
    return stored_bytes * DTYPES[dtype].itemsize // DTYPES["fp32"].itemsize


def load_features(part: Part) -> LoadedRows:
    """Take a part's features, or copy them into memory where that is better.

    Args:
        part: This rank's part.

    Returns:
        (num_roots, num_features) float32, dense or sparse as they are stored; not to be changed, as
        they may be the part's own.

    Raises:
        InputError: If the graph has none.
    """
    if part.features is None:
        raise InputError(
            "the graph has no features, so nothing can be learned from; add features to the "
            "source, learn a row for each vertex (--one-hot, given to what reads the source), or "
            "use --model rgcn if its edges have types"
        )
    if issparse(part.features):
        return SparseRows.from_scipy(part.features)
    if part.features.shape[1] * part.features.itemsize % _LINE_BYTES:
        return own(part.features, np.float32)
    # Memory of torch, not of numpy: rows of whole cache lines then start where a line does.
    rows = torch.empty(part.features.shape, dtype=torch.float32)
    rows.numpy()[...] = part.features
    return rows


def split_rows(part: Part, split_index: int, task: str) -> dict[str, torch.Tensor]:
    """Find the labelled roots of each split.

    Args:
        part: This rank's part.
        split_index: Row of the masks.
        task: Task of the labels.

    Returns:
        (num,) int64 local rows by name of the split.

    Raises:
        InputError: If the graph has no labels, no masks, or no such split.
    """
    if part.labels is None:
        raise InputError("the graph has no labels to train on; add labels to the source")
    masks = (part.train_mask, part.val_mask, part.test_mask)
    if any(mask is None for mask in masks):
        raise InputError(
            "the graph has no train, validation and test masks; "
            "make a split with --split 0.6/0.2/0.2"
        )
    has_label = TASKS[task].is_labelled(np.asarray(part.labels))
    rows = {}
    for name, mask in zip(SPLITS, masks, strict=True):
        assert mask is not None, "checked above"
        if not 0 <= split_index < len(mask):
            raise InputError(
                f"--split-index {split_index} is out of range: the graph has {len(mask)} splits "
                f"(0..{len(mask) - 1})"
            )
        rows[name] = torch.from_numpy(np.flatnonzero(mask[split_index] & has_label))
    return rows


def normalised(features: LoadedRows, how: FeatureNorm, group: Group) -> LoadedRows:
    """Normalise input features over the whole graph.

    Args:
        features: (num_roots, num_features).
        how: `none`; `row`: divide each row by its sum (rows that sum to 0 stay); `standard`: mean 0
            and variance 1 per column over all vertices.
        group: All ranks.

    Returns:
        Features of the same kind.

    Raises:
        InputError: For `standard` on sparse features, which it would make dense.
    """
    if how == "none":
        return features
    if isinstance(features, SparseRows):
        if how == "standard":
            raise InputError(
                "--feature-norm standard would make sparse features dense; "
                "use --feature-norm row or none"
            )
        sums = torch.zeros(features.shape[0]).index_add_(0, features.row_of_entry, features.values)
        return features.with_values(features.values * _inverse(sums)[features.row_of_entry])
    if how == "row":
        return features * _inverse(features.sum(dim=1, keepdim=True))
    return _standardised(features, group)


def _standardised(features: torch.Tensor, group: Group) -> torch.Tensor:
    """Mean first, then squared deviations, in float64 and by blocks, to hold no wide copy."""
    count = torch.tensor([features.shape[0]], dtype=torch.float64)
    sums = torch.cat([features.sum(dim=0, dtype=torch.float64), count])
    group.all_reduce(sums)
    mean = sums[:-1] / sums[-1]
    squares = torch.zeros_like(mean)
    for block in torch.split(features, _BLOCK_ROWS):
        squares += (block - mean).square().sum(dim=0)
    group.all_reduce(squares)
    deviation = (squares / sums[-1]).sqrt()
    # A constant float32 column deviates by exactly 0: its float64 sum and mean do not round.
    scale = torch.where(deviation > 0, 1 / deviation, 0)
    out = torch.empty_like(features)
    for source, target in zip(
        torch.split(features, _BLOCK_ROWS), torch.split(out, _BLOCK_ROWS), strict=True
    ):
        target.copy_((source - mean) * scale)
    return out


def _inverse(sums: torch.Tensor) -> torch.Tensor:
    return torch.where(sums != 0, 1 / sums, 1)


def clone_features(
    features: LoadedRows, part: Part, blocks: Blocks, exchange: Synchronous
) -> tuple[LoadedRows, int]:
    """Add the leaves' features to the roots', for a part that trains alone (0c).

    Collective.

    Args:
        features: (num_roots, num_features).
        part: This rank's part.
        blocks: Its planned edges and routes.
        exchange: Any synchronous exchange whose tags are free.

    Returns:
        (num_clones, num_features) features, and the bytes that this rank sent for them.
    """
    leaves = leaf_inputs(blocks.forward.send, exchange, features)
    is_reading = torch.from_numpy(np.array(part.is_reading, dtype=bool))
    return place_leaves(features, leaves, is_reading), exchange.take_bytes()
