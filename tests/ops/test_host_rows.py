"""Rows in host memory that a device reads slice by slice."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from distgnn import ops
from distgnn.ops import host_rows
from distgnn.ops.host_rows import Beside, HostRows, Lane

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _slices_of_five_rows(monkeypatch):
    monkeypatch.setattr(host_rows, "SLICE_BYTES", 5 * 7 * 4)


def rows_of(num_rows, width=7, seed=0):
    return torch.randn(num_rows, width, generator=torch.Generator().manual_seed(seed))


def product_and_gradient(rows, weight, grad):
    weight = weight.clone().requires_grad_()
    if isinstance(rows, torch.Tensor):
        out = ops.linear(rows, weight, None)
    else:
        out = rows.matmul(weight.t())
    out.backward(grad)
    return out.detach(), weight.grad


class Logged(host_rows.BlockingCopies):
    """Notes what is asked for; copies as late as may be, when a buffer is about to be read."""

    def __init__(self):
        self.calls, self._due = [], {}

    def copy(self, target, rows, number):
        assert number not in self._due, "a copy that nobody has read yet is overwritten"
        self.calls.append(("copy", number, len(rows)))
        self._due[number] = (target, rows)

    def begin(self, number):
        self.calls.append(("begin", number))
        target, rows = self._due.pop(number)
        target.copy_(rows)

    def end(self, number):
        self.calls.append(("end", number))


@pytest.mark.parametrize("num_rows", [0, 1, 5, 6, 23])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_product_and_its_gradient_are_those_of_all_rows_at_once(num_rows, is_late):
    rows, weight, grad = rows_of(num_rows), rows_of(3, seed=1), rows_of(num_rows, 3, seed=2)
    from_host = HostRows.of(rows, CPU)
    assert [len(part) for part in from_host.slices] == [5] * (num_rows // 5) + (
        [num_rows % 5] if num_rows % 5 else []
    )
    if is_late:
        from_host.lane._copies = Logged()
    got = product_and_gradient(from_host, weight, grad)
    expected = product_and_gradient(rows, weight, grad)
    torch.testing.assert_close(got, expected)
    again = product_and_gradient(from_host, weight, grad)
    assert all(torch.equal(*both) for both in zip(got, again, strict=True))


def test_bfloat16_rows_are_multiplied_as_those_on_the_device_are():
    rows = rows_of(23).bfloat16()
    weight, grad = rows_of(3, seed=1), rows_of(23, 3, seed=2)
    got = product_and_gradient(HostRows.of(rows, CPU), weight, grad)
    torch.testing.assert_close(got, product_and_gradient(rows, weight, grad))


def test_a_row_longer_than_a_slice_is_a_slice():
    rows = rows_of(3, 100)
    from_host = HostRows.of(rows, CPU)
    assert [len(part) for part in from_host.slices] == [1, 1, 1]
    assert torch.equal(from_host.to_dense(), rows)
    assert from_host.lane.num_bytes == 2 * 400


def test_a_mask_is_the_same_in_every_slice_and_pass():
    rows, key = rows_of(23), torch.arange(100, 123)
    weight, grad = rows_of(3, seed=1), rows_of(23, 3, seed=2)
    options = {"seed": 9, "probability": 0.4}
    from_host = HostRows.of(rows, CPU)
    dropped = ops.dropout(rows, key, **options)
    got = from_host.dropout(key, **options)
    assert torch.equal(got.to_dense(), dropped)
    torch.testing.assert_close(
        product_and_gradient(got, weight, grad), product_and_gradient(dropped, weight, grad)
    )
    # What was dropped is there again without the mask.
    assert torch.equal(from_host.to_dense(), rows)


def test_rows_are_picked_in_any_order():
    rows, numbers = rows_of(23), torch.tensor([22, 0, 7, 7, 13, 1, 21])
    picked = HostRows.of(rows, CPU)[numbers]
    assert picked.shape == (7, 7)
    assert torch.equal(picked.to_host(), rows[numbers])


def test_other_rows_are_made_some_columns_at_a_time(monkeypatch):
    monkeypatch.setattr(host_rows, "COLUMNS", 3)
    rows, seen = rows_of(23), []

    def last_eleven(block):
        seen.append(tuple(block.shape))
        assert block.is_contiguous()
        return 2 * block[-11:]

    made = HostRows.of(rows, CPU).by_columns(last_eleven)
    assert seen == [(23, 3), (23, 3), (23, 1)]
    assert made.shape == (11, 7)
    assert torch.equal(made.to_host(), 2 * rows[-11:])


def test_the_copy_of_a_slice_is_told_before_what_reads_the_one_before():
    lane = Lane(CPU, 140)
    lane._copies = log = Logged()
    rows = rows_of(13)
    for part, expected in zip(lane.carry(rows.split(5)), rows.split(5), strict=True):
        log.calls.append("read")
        assert torch.equal(part, expected)
    assert log.calls == [
        *[("copy", 0, 5), ("copy", 1, 5), ("begin", 0), "read", ("end", 0)],
        *[("copy", 0, 3), ("begin", 1), "read", ("end", 1)],
        *[("begin", 0), "read", ("end", 0)],
    ]


def test_one_pass_at_a_time_has_the_buffers():
    rows = HostRows.of(rows_of(13), CPU)
    passing = rows.on_device()
    next(passing)
    with pytest.raises(AssertionError, match="slices of one pass at a time"):
        rows.to_dense()
    passing.close()
    assert torch.equal(rows.to_dense(), rows.to_host())


class Cuda:
    """Streams and events that note in which order they are used."""

    def __init__(self):
        self.log, self.streams, self.names = [], ["default"], iter(range(100))

    def Stream(self, device):  # noqa: N802 - as torch calls it
        return FakeStream(self, "side")

    def Event(self):  # noqa: N802
        return FakeEvent(self, next(self.names))

    def current_stream(self, device):
        return FakeStream(self, self.streams[-1])

    @contextmanager
    def stream(self, stream):
        self.streams.append(stream.name)
        yield
        self.streams.pop()


class FakeStream:
    def __init__(self, cuda, name):
        self._cuda, self.name = cuda, name

    def wait_stream(self, other):
        self._cuda.log.append((self.name, "waits for stream", other.name))

    def wait_event(self, event):
        self._cuda.log.append((self.name, "waits for", event.number))


class FakeEvent:
    def __init__(self, cuda, number):
        self._cuda, self.number = cuda, number

    def record(self, stream):
        self._cuda.log.append((stream.name, "records", self.number))


class FakeTensor:
    """Stand-in for a buffer or a slice of it."""

    def __init__(self, cuda):
        self._cuda = cuda

    def record_stream(self, stream):
        self._cuda.log.append((stream.name, "has the buffer"))

    def copy_(self, rows, non_blocking=False):
        assert non_blocking
        self._cuda.log.append((self._cuda.streams[-1], "copies", rows))


def test_copies_and_products_wait_for_each_other_by_events(monkeypatch):
    cuda = Cuda()
    monkeypatch.setattr(torch, "cuda", cuda)
    buffers = [FakeTensor(cuda), FakeTensor(cuda)]
    lane = Lane(CPU, 0)
    lane._copies = Beside(CPU, buffers)
    arrived, read = (0, 1), (2, 3)
    assert cuda.log == [
        ("side", "waits for stream", "default"),
        ("side", "has the buffer"),
        ("side", "has the buffer"),
    ]
    cuda.log.clear()
    monkeypatch.setattr(
        lane,
        "_copied",
        lambda rows, number: lane._copies.copy(buffers[number % 2], rows, number % 2) or rows,
    )
    for rows in lane.carry(["first", "second", "third"]):
        cuda.log.append(("default", "reads", rows))

    def copies(number, rows):
        return [
            ("side", "waits for", read[number]),
            ("side", "copies", rows),
            ("side", "records", arrived[number]),
        ]

    def reads(number, rows):
        return [
            ("default", "waits for", arrived[number]),
            ("default", "has the buffer"),
            ("default", "reads", rows),
            ("default", "records", read[number]),
        ]

    assert cuda.log == [
        *copies(0, "first"),
        *copies(1, "second"),
        *reads(0, "first"),
        *copies(0, "third"),
        *reads(1, "second"),
        *reads(0, "third"),
    ]
