"""Autograd operations of one rank: dropout that no partition changes, products, losses, rows."""

from __future__ import annotations

import torch

from distgnn.ops.activations import dropout as dropout
from distgnn.ops.activations import relu_dropout as relu_dropout
from distgnn.ops.dense import linear as linear
from distgnn.ops.dense import pick_rows as pick_rows
from distgnn.ops.losses import cross_entropy as cross_entropy
from distgnn.ops.sparse_rows import SparseRows as SparseRows

LoadedRows = torch.Tensor | SparseRows
"""Rows as a source gives them."""
