"""Labels as input: what a model reads of the labels of training vertices, drawn in each epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.sparse import csr_matrix, hstack
from torch.nn import functional

from distgnn import ops
from distgnn.ops import SparseRows

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.graph.local_graph import LocalGraph
    from distgnn.kernels.seeds import MaskSeeds
    from distgnn.ops import LoadedRows
    from distgnn.ops.rows import Rows


def append_labels(features: Rows, labels: Tensor, train: Tensor, num_classes: int) -> LoadedRows:
    """Add a column for each class, which holds the labels of training vertices; others have none.

    Args:
        features: (num_roots, num_features), normalised.
        labels: (num_roots,) int64 classes, or (num_roots, num_classes) flags, NaN where unknown.
        train: (num_train,) int64. Roots that are trained on.
        num_classes: Columns of the model's output.

    Returns:
        (num_roots, num_features + num_classes) of the same kind: 1 for a vertex's class, or for
        each flag that is known to be set, else 0.
    """
    known = labels[train]
    flags = functional.one_hot(known, num_classes) if known.ndim == 1 else known.nan_to_num(0)
    if isinstance(features, SparseRows):
        number, column = flags.numpy().nonzero()
        entries = np.ones(len(column), np.float32), (train.numpy()[number], column)
        beside = csr_matrix(entries, shape=(features.shape[0], num_classes))
        return SparseRows.from_scipy(hstack([features.to_scipy(), beside], format="csr"))
    rows = features.to_dense()
    beside_rows = rows.new_zeros(len(rows), num_classes)
    beside_rows[train] = flags.to(rows.dtype)
    return torch.cat([rows, beside_rows], dim=1)


class LabelDraw:
    """Draw of the training vertices whose labels an epoch gives; the loss is that of the others.

    Whether a vertex gives its label is a function of (seed, epoch, global vertex id) alone, so that
    neither the number of ranks nor a resumed run changes it.

    Args:
        fraction: Share of the training vertices, in (0, 1): each is drawn with this probability.
        mask_seeds: Seeds of the training graph's masks, which know seed and epoch.

    References:
        Wang et al., "Bag of Tricks for Node Classification with Graph Neural Networks", 2021,
        section 3.2.
    """

    def __init__(self, fraction: float, mask_seeds: MaskSeeds) -> None:
        self._fraction = fraction
        self._mask_seeds = mask_seeds

    def is_given(self, vertex_id: Tensor) -> Tensor:
        """Return (num,) bool: which of some vertices, (num,) int64 global ids, are drawn."""
        ones = torch.ones(len(vertex_id), 1, device=vertex_id.device)
        seed = self._mask_seeds.epoch_seed
        kept = ops.dropout(ones, vertex_id, seed=seed, probability=self._fraction)
        return kept[:, 0] == 0


class Input:
    """Input of a model in training: here the same rows in every epoch.

    Args:
        features: (num_rows, num_features).
    """

    def __init__(self, features: Rows) -> None:
        self._features = features

    def rows(self) -> Rows:
        """Return the (num_rows, num_features) rows of this epoch, until the next one's."""
        return self._features


class LabelInput(Input):
    """Dense rows whose last columns hold the labels that the epoch gives.

    Args:
        features: (num_rows, num_features) with the labels of all training vertices; not changed.
        num_classes: How many columns hold labels.
        vertex_id: (num_rows,) int64. Global ids.
        draw: Draw of the vertices that give their labels.
    """

    def __init__(
        self, features: Tensor, num_classes: int, vertex_id: Tensor, draw: LabelDraw
    ) -> None:
        # Evaluation reads the rows as they are, so training writes into its own.
        self._rows = features.clone()
        super().__init__(self._rows)
        self._labels = features[:, -num_classes:]
        self._vertex_id = vertex_id
        self._draw = draw

    def rows(self) -> Rows:
        """Return the rows of this epoch, in the memory of the last one's."""
        rows = self._rows
        is_given = self._draw.is_given(self._vertex_id)[:, None]
        torch.mul(self._labels, is_given, out=rows[:, -self._labels.shape[1] :])
        return rows


class SparseLabelInput(Input):
    """The same of sparse rows: labels that are not given are stored as 0.

    Args:
        features: (num_rows, num_features) with the labels of all training vertices.
        num_classes: How many columns hold labels.
        vertex_id: (num_rows,) int64. Global ids.
        draw: Draw of the vertices that give their labels.
    """

    def __init__(
        self, features: SparseRows, num_classes: int, vertex_id: Tensor, draw: LabelDraw
    ) -> None:
        super().__init__(features)
        self._rows = features
        is_label = features.columns >= features.shape[1] - num_classes
        self._entries = is_label.nonzero()[:, 0]
        self._values = features.values
        self._vertex_id = vertex_id[features.row_of_entry[self._entries]]
        self._draw = draw

    def rows(self) -> Rows:
        """Return the rows of this epoch."""
        values = self._values.clone()
        values[self._entries] *= self._draw.is_given(self._vertex_id)
        return self._rows.with_values(values)


def build_input(fraction: float, features: Rows, graph: LocalGraph, num_classes: int) -> Input:
    """Build the input of a model in training.

    Args:
        fraction: Share of the training vertices that give their labels; 0 for a run without.
        features: (num_rows, num_features), with the labels of all training vertices in the last
            columns if some give theirs.
        graph: Graph of the training pass.
        num_classes: Columns of the model's output.

    Returns:
        The input.
    """
    if not fraction:
        return Input(features)
    draw = LabelDraw(fraction, graph.mask_seeds)
    if isinstance(features, SparseRows):
        return SparseLabelInput(features, num_classes, graph.row_id, draw)
    return LabelInput(features.to_dense(), num_classes, graph.row_id, draw)
