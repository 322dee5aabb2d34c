"""Memory that is used again: when, for what, and when it is given back."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch

from distgnn.ops.buffers import Buffers, _Block

ROWS, WIDTH = 3000, 64


def test_a_buffer_is_handed_out_again_when_its_tensor_has_died():
    buffers = Buffers()
    first = buffers.empty(ROWS, WIDTH, torch.float32)
    address = first.data_ptr()
    del first
    assert buffers.empty(ROWS, WIDTH, torch.float32).data_ptr() == address


def test_a_buffer_is_not_handed_out_while_a_view_of_its_tensor_lives():
    buffers = Buffers()
    first = buffers.empty(ROWS, WIDTH, torch.float32)
    view = first[10:20, 3].detach()
    del first
    second = buffers.empty(ROWS, WIDTH, torch.float32)
    view.fill_(1)
    second.fill_(2)
    assert view.tolist() == [1] * 10
    assert view.untyped_storage().data_ptr() != second.untyped_storage().data_ptr()


def test_a_buffer_is_not_handed_out_while_autograd_keeps_its_tensor():
    buffers = Buffers()
    weight = torch.ones(WIDTH, 2, requires_grad=True)
    rows = buffers.empty(ROWS, WIDTH, torch.float32).fill_(3)
    product = rows @ weight
    del rows
    buffers.empty(ROWS, WIDTH, torch.float32).fill_(4)
    product.sum().backward()
    assert weight.grad.unique().tolist() == [3.0 * ROWS]


def test_tensors_with_some_more_or_fewer_rows_share_memory():
    buffers = Buffers()
    address = buffers.empty(ROWS, WIDTH, torch.float32).data_ptr()
    assert buffers.empty(ROWS + 500, WIDTH, torch.float32).data_ptr() == address
    before = buffers.num_bytes
    buffers.empty(ROWS * 4, WIDTH // 2, torch.float64)
    assert buffers.num_bytes > before


def test_a_free_buffer_of_twice_the_size_serves():
    buffers = Buffers()
    address = buffers.empty(2 * ROWS, WIDTH, torch.float32).data_ptr()
    held = buffers.empty(ROWS, WIDTH, torch.float32)
    assert held.data_ptr() == address
    assert buffers.empty(ROWS, WIDTH, torch.float32).data_ptr() != address


def test_smaller_buffers_that_are_free_are_given_back_before_one_is_added():
    buffers = Buffers()
    held = buffers.empty(ROWS, WIDTH, torch.float32)
    alone = buffers.num_bytes
    buffers.empty(ROWS, WIDTH, torch.float32)
    assert buffers.num_bytes == 2 * alone
    large = buffers.empty(4 * ROWS, WIDTH, torch.float32)
    assert buffers.num_bytes < 5.5 * alone
    assert buffers.owns(held)
    assert buffers.owns(large)


def test_a_buffer_of_a_type_that_numpy_lacks_lives_as_long_as_its_tensor():
    buffers = Buffers()
    first = buffers.empty(ROWS, 100, torch.bfloat16)
    address = first.data_ptr()
    assert buffers.owns(first)
    assert buffers.empty(ROWS, 100, torch.bfloat16).data_ptr() != address
    gone = buffers.empty(ROWS, 100, torch.bfloat16).data_ptr()
    del first
    found = {buffers.empty(ROWS, 100, torch.bfloat16).data_ptr() for _ in range(2)}
    assert found <= {address, gone}


def test_two_threads_are_never_given_the_same_buffer(monkeypatch):
    buffers, is_free, both_looked = Buffers(), _Block.is_free, threading.Barrier(2)
    buffers.empty(ROWS, WIDTH, torch.float32)

    def looking(block):
        found = is_free(block)
        with suppress(threading.BrokenBarrierError):
            both_looked.wait(timeout=0.5)
        return found

    monkeypatch.setattr(_Block, "is_free", looking)
    with ThreadPoolExecutor(2) as pool:
        tensors = [pool.submit(buffers.empty, ROWS, WIDTH, torch.float32) for _ in range(2)]
        first, second = (tensor.result() for tensor in tensors)
    assert first.data_ptr() != second.data_ptr()


def test_buffers_are_aligned_and_have_the_shape_asked_for():
    buffers = Buffers()
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
        tensor = buffers.empty(ROWS, 100, dtype)
        assert tensor.shape == (ROWS, 100)
        assert tensor.dtype == dtype
        assert tensor.is_contiguous()
        assert tensor.data_ptr() % 64 == 0


def test_what_is_idle_for_some_epochs_is_given_back_and_what_lives_is_not():
    buffers = Buffers()
    held = buffers.empty(ROWS, WIDTH, torch.float32)
    buffers.empty(4 * ROWS, WIDTH, torch.float32)
    before = buffers.num_bytes
    for _ in range(2):
        buffers.end_epoch()
    assert buffers.num_bytes == before
    buffers.end_epoch()
    gc.collect()
    assert 0 < buffers.num_bytes < before
    assert buffers.owns(held)


def test_only_tensors_handed_out_are_owned():
    buffers = Buffers()
    tensor = buffers.empty(ROWS, WIDTH, torch.float32)
    assert buffers.owns(tensor)
    assert buffers.owns(tensor[5:])
    assert not buffers.owns(torch.empty(ROWS, WIDTH))
    assert not buffers.owns(buffers.empty(2, 2, torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_an_operation_leaves_in_a_buffer_may_be_written_to(dtype):
    buffers = Buffers()

    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return buffers.empty(*x.shape, x.dtype).copy_(x)

        @staticmethod
        def backward(ctx, grad):
            return grad

    x = torch.randn(1000, 100, dtype=dtype, requires_grad=True)
    Copy.apply(x).relu_().sum().backward()
    assert torch.equal(x.grad, (x > 0).to(dtype))
