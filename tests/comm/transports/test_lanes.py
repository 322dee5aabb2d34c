"""Shared memory between two ends, here in one process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.comm.transports import lanes
from distgnn.comm.transports.lanes import Extent, Inbox, Lanes, Outbox, SharedFile

EXTENT = Extent(lanes._SLOTS, lanes._FILE_BYTES)
pytestmark = pytest.mark.skipif(lanes._create(EXTENT) < 0, reason="no shared memory of this kind")


@pytest.fixture
def descriptor() -> Iterator[int]:
    number = lanes._create(EXTENT)
    yield number
    os.close(number)


@pytest.fixture
def ends(descriptor: int) -> tuple[Outbox, Inbox]:
    """The outbox of one rank and the inbox of its second reader, mapped apart."""
    outbox = Outbox(SharedFile(descriptor, EXTENT), 2)
    return outbox, Inbox(SharedFile(descriptor, EXTENT), 1, os.getpid())


def two_lanes(descriptor: int) -> Lanes:
    """The ways of rank 0 to a rank 1 of the same process."""
    pair = Lanes(SingleGroup())
    file = SharedFile(descriptor, EXTENT)
    pair._readers, pair._outbox = [0, 1], Outbox(file, 2)
    pair.inboxes = {1: Inbox(file, 0, os.getpid())}
    return pair


def take(inbox: Inbox, name: tuple[int, int], length: int) -> list[float]:
    tensor = torch.zeros(length)
    assert inbox.has(name)
    assert inbox.take(name, tensor) == 4 * length
    return tensor.tolist()


def test_messages_of_a_tag_come_in_order_and_tags_do_not_wait_for_each_other(
    ends: tuple[Outbox, Inbox],
) -> None:
    outbox, inbox = ends
    first, second, other = inbox.expect(3), inbox.expect(3), inbox.expect(4)
    assert not inbox.has(first)
    outbox.write(0, torch.ones(9), 3)  # for somebody else
    assert not inbox.has(first)
    for value, tag in ((1.0, 3), (2.0, 3), (3.0, 4)):
        outbox.write(1, torch.full((2,), value), tag)
    assert take(inbox, other, 2) == [3.0, 3.0]
    assert take(inbox, second, 2) == [2.0, 2.0]
    assert take(inbox, first, 2) == [1.0, 1.0]


def test_memory_and_slots_are_used_again(ends: tuple[Outbox, Inbox]) -> None:
    outbox, inbox = ends
    for turn in range(3 * lanes._SLOTS):
        outbox.write(1, torch.full((1000,), float(turn)), 0)
        assert take(inbox, inbox.expect(0), 1000)[999] == turn
        if turn == 10:
            end = outbox._end
    assert outbox._end == end


def test_slots_are_used_up_until_the_oldest_message_is_taken(ends: tuple[Outbox, Inbox]) -> None:
    outbox, inbox = ends
    for turn in range(lanes._SLOTS - 1):  # one is kept
        assert outbox.has_slot(1)
        outbox.write(1, torch.full((1,), float(turn)), turn % 2)
    assert not outbox.has_slot(1)
    assert outbox.has_slot(0)
    first, second = inbox.expect(0), inbox.expect(1)
    take(inbox, second, 1)
    assert not outbox.has_slot(1)
    take(inbox, first, 1)
    assert outbox.has_slot(1)


def test_memory_is_used_up_until_a_message_of_that_size_is_taken() -> None:
    extent = Extent(8, 2 * 8 * 32 + 3 * 4096)
    number = lanes._create(extent)
    file = SharedFile(number, extent)
    os.close(number)
    outbox, inbox = Outbox(file, 2), Inbox(file, 1, os.getpid())
    for _ in range(3):
        assert outbox.has_room(torch.ones(9))
        outbox.write(1, torch.ones(9), 0)
    assert not outbox.has_room(torch.ones(1))
    take(inbox, inbox.expect(0), 9)
    assert outbox.has_room(torch.ones(1024))
    assert not outbox.has_room(torch.ones(1025))


def test_a_full_outbox_goes_on_in_a_larger_file_and_closes_it_once_it_was_opened(
    descriptor: int,
) -> None:
    pair = two_lanes(descriptor)
    inbox = Inbox(SharedFile(descriptor, EXTENT), 1, os.getpid())
    number = 2 * lanes._SLOTS
    for value in range(number):
        pair.send(torch.full((2,), float(value)), 1, value % 2)
    assert pair._outbox is not None
    assert pair._outbox.file.extent.num_slots == 2 * lanes._SLOTS
    assert len(pair._opening) == 1
    names = [inbox.expect(value % 2) for value in range(number)]
    for value in reversed(range(number)):
        assert take(inbox, names[value], 2) == [value, value]
    opened = pair._opening[0][0]
    pair.send(torch.ones(1), 1, 0)
    assert pair._opening == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened)
    assert take(inbox, inbox.expect(0), 1) == [1.0]


def test_files_that_cannot_be_had_are_an_error(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = two_lanes(descriptor)
    inbox = Inbox(SharedFile(descriptor, EXTENT), 1, 0)  # no process has this number
    for _ in range(lanes._SLOTS):
        pair.send(torch.ones(1), 1, 0)
    name = inbox.expect(1)
    message = r"process 0 go on in a file in memory of \d+ bytes that cannot be opened; raise the"
    with pytest.raises(RuntimeError, match=message):
        inbox.has(name)
    os.close(pair._opening[0][0])
    pair = two_lanes(descriptor)
    assert pair._outbox is not None
    pair._outbox._end = lanes._FILE_BYTES
    message = r"no file in memory of \d+ bytes can be created for messages under way; raise the l"
    for kept in ((lambda extent: -1), lanes._create):
        monkeypatch.setattr(lanes, "_create", kept)
        monkeypatch.setattr(lanes, "_open", lambda *words: None)
        with pytest.raises(RuntimeError, match=message):
            pair.send(torch.ones(1), 1, 0)


def test_a_message_of_another_size_is_not_copied(ends: tuple[Outbox, Inbox]) -> None:
    outbox, inbox = ends
    outbox.write(1, torch.ones(3), 0)
    name, tensor = inbox.expect(0), torch.zeros(2)
    assert inbox.has(name)
    assert inbox.take(name, tensor) == 12
    assert tensor.tolist() == [0.0, 0.0]


def test_a_file_that_cannot_be_opened_makes_no_lane(descriptor: int) -> None:
    assert lanes._open(os.getpid(), descriptor, EXTENT) is not None
    assert lanes._open(os.getpid(), 1_000_000, EXTENT) is None
    null = os.open(os.devnull, os.O_RDWR)  # which nobody can map
    assert lanes._open(os.getpid(), null, EXTENT) is None
    os.close(null)


def test_other_processors_have_no_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert lanes._create(EXTENT) == -1
    assert Lanes(SingleGroup()).inboxes == {}
    assert run_ranks(2, lambda group: Lanes(group).takes(1 - group.rank, torch.zeros(1))) == [
        False,
        False,
    ]
