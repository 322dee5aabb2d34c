"""Rows of every kind: one contract, the same values."""

from __future__ import annotations

import pytest
import torch
from scipy.sparse import csr_matrix

from distgnn import ops
from distgnn.ops.host_rows import HostRows
from distgnn.ops.rows import is_tensor

CPU = torch.device("cpu")
VALUES = torch.randn(9, 5, generator=torch.Generator().manual_seed(0)).relu()
KINDS = {
    "tensor": VALUES,
    "sparse": ops.SparseRows.from_scipy(csr_matrix(VALUES.numpy())),
    "host": HostRows.of(VALUES, CPU),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_kind_have_the_members_of_rows(kind):
    rows = KINDS[kind]
    assert tuple(rows.shape) == (9, 5)
    assert (rows.dtype, rows.device) == (torch.float32, CPU)
    assert (is_tensor(rows), rows.is_sparse) == (kind == "tensor", kind == "sparse")
    numbers = torch.tensor([7, 0, 0])
    assert torch.equal(rows[numbers].to_dense(), VALUES[numbers])
    assert torch.equal(rows.detach().to_dense(), VALUES)
    assert torch.equal(rows.to(CPU).to_dense(), VALUES)
    weight = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(rows.matmul(weight), VALUES @ weight)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_draws_one_mask_for_every_kind(kind):
    dropped = [
        ops.dropout(rows, torch.arange(9), seed=3, probability=0.4)
        for rows in (KINDS[kind], VALUES)
    ]
    assert type(dropped[0]) is type(KINDS[kind])
    assert torch.equal(dropped[0].to_dense(), dropped[1])


def test_a_tensor_is_dense_already():
    rows = VALUES.clone().requires_grad_()
    assert rows.to_dense() is rows
