"""Dropout that no partition changes, and sparse rows against the same rows written out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.ops import SparseRows, dropout, relu_dropout


def sparse_matrix(num_rows=7, width=5, *, density=0.4, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(num_rows, width)) * (rng.random((num_rows, width)) < density)
    return sp.csr_matrix(values.astype(np.float32))


def keys_of(num_rows):
    return torch.arange(num_rows) * 1_000_003


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_entry_is_dropped_or_scaled(dtype):
    rows = torch.ones(200, 50, dtype=dtype)
    out = dropout(rows, keys_of(200), seed=5, probability=0.3)
    assert out.dtype == dtype
    assert set(out.unique().tolist()) == {0.0, float(torch.tensor(1 / 0.7, dtype=dtype))}
    assert float((out == 0).double().mean()) == pytest.approx(0.3, abs=0.02)


def test_a_row_gets_the_same_mask_wherever_it_stands():
    rows = torch.randn(40, 9, generator=torch.Generator().manual_seed(0))
    keys = keys_of(40)
    whole = dropout(rows, keys, seed=1, probability=0.5)
    picked = torch.tensor([31, 2, 17])
    part = dropout(rows[picked], keys[picked], seed=1, probability=0.5)
    assert torch.equal(part, whole[picked])


def test_another_seed_draws_another_mask():
    rows = torch.ones(40, 9)
    one, two = (dropout(rows, keys_of(40), seed=seed, probability=0.5) for seed in (1, 2))
    assert not torch.equal(one, two)


def test_the_gradient_passes_the_same_mask():
    rows = torch.randn(30, 4, generator=torch.Generator().manual_seed(2)).requires_grad_()
    out = dropout(rows, keys_of(30), seed=3, probability=0.4)
    grad = torch.rand(30, 4, generator=torch.Generator().manual_seed(3)) + 1
    out.backward(grad)
    torch.testing.assert_close(rows.grad, grad * (out.detach() != 0) / 0.6)


def test_rows_that_are_not_contiguous_are_dropped_alike():
    rows = torch.randn(4, 30, generator=torch.Generator().manual_seed(4)).t()
    got = dropout(rows, keys_of(30), seed=3, probability=0.4)
    expected = dropout(rows.contiguous(), keys_of(30), seed=3, probability=0.4)
    assert torch.equal(got, expected)


def test_dropout_passes_a_gradient_check():
    rows = torch.randn(6, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)

    def apply(values):
        return dropout(values, keys_of(6), seed=9, probability=0.5)

    assert torch.autograd.gradcheck(apply, (rows.requires_grad_(),))


@settings(max_examples=25, derandomize=True)
@given(
    num_rows=st.integers(0, 6),
    width=st.integers(1, 6),
    out_width=st.integers(1, 4),
    density=st.sampled_from((0.0, 0.3, 1.0)),
    seed=st.integers(0, 99),
)
def test_products_and_gradients_are_those_of_dense_rows(num_rows, width, out_width, density, seed):
    matrix = sparse_matrix(num_rows, width, density=density, seed=seed)
    rows = SparseRows.from_scipy(matrix)
    assert torch.equal(rows.to_dense(), torch.from_numpy(matrix.toarray()))
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(width, out_width, generator=generator).requires_grad_()
    grad = torch.randn(num_rows, out_width, generator=generator)
    product = rows.matmul(weight)
    product.backward(grad)
    torch.testing.assert_close(product.detach(), rows.to_dense() @ weight.detach())
    torch.testing.assert_close(weight.grad, rows.to_dense().t() @ grad)


def test_a_transposed_weight_is_taken_as_it_is():
    rows = SparseRows.from_scipy(sparse_matrix())
    weight = torch.randn(3, 5, generator=torch.Generator().manual_seed(6))
    torch.testing.assert_close(rows.matmul(weight.t()), rows.to_dense() @ weight.t())


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_a_scipy_matrix_of_any_index_type_is_copied(index_type):
    matrix = sparse_matrix()
    arrays = (matrix.data, matrix.indices.astype(index_type), matrix.indptr.astype(index_type))
    rows = SparseRows.from_scipy(sp.csr_matrix(arrays, shape=matrix.shape))
    expected, row_of_entry = torch.from_numpy(matrix.toarray()), matrix.nonzero()[0]
    matrix.data[:] = 0
    assert torch.equal(rows.to_dense(), expected)
    assert rows.row_of_entry.tolist() == row_of_entry.tolist()


def test_other_values_keep_the_pattern_and_leave_the_first_ones():
    rows = SparseRows.from_scipy(sparse_matrix())
    weight = torch.randn(5, 2, generator=torch.Generator().manual_seed(7)).requires_grad_()
    rows.matmul(weight).sum().backward()
    doubled = rows.with_values(rows.values * 2)
    before, weight.grad = weight.grad, None
    doubled.matmul(weight).sum().backward()
    torch.testing.assert_close(weight.grad, 2 * before)
    torch.testing.assert_close(doubled.to_dense(), 2 * rows.to_dense())


def test_stored_entries_are_dropped_as_in_the_dense_matrix():
    rows = SparseRows.from_scipy(sparse_matrix(50, 20))
    keys = keys_of(50)
    got = rows.dropout(keys, seed=11, probability=0.4)
    expected = dropout(rows.to_dense(), keys, seed=11, probability=0.4)
    assert torch.equal(got.to_dense(), expected)
    weight = torch.randn(20, 3, generator=torch.Generator().manual_seed(8)).requires_grad_()
    got.matmul(weight).sum().backward()
    torch.testing.assert_close(weight.grad, expected.t() @ torch.ones(50, 3))


def test_what_the_pattern_alone_decides_is_made_once():
    rows = SparseRows.from_scipy(sparse_matrix())
    assert rows.row_of_entry is rows.row_of_entry
    assert rows.t_values is rows.t_values


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.9])
def test_relu_dropout_is_dropout_of_relu_and_so_is_its_gradient(probability):
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn(40, 7, generator=generator, dtype=torch.float64)
    rows[::5] = 0
    grad = torch.randn(40, 7, generator=generator, dtype=torch.float64)
    key = torch.arange(40) * 3
    one, two = (rows.clone().requires_grad_() for _ in range(2))
    fused = relu_dropout(one, key, seed=9, probability=probability)
    plain = dropout(torch.relu(two), key, seed=9, probability=probability)
    fused.backward(grad)
    plain.backward(grad)
    assert torch.equal(fused, plain)
    assert torch.equal(one.grad, two.grad)
