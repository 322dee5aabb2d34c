"""Shared memory between two ends, here in one process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from distgnn.comm import lane
from distgnn.comm.lane import Inbox, Lanes, Outbox, SharedFile
from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks

pytestmark = pytest.mark.skipif(lane._create() < 0, reason="no shared memory of this kind")


@pytest.fixture
def descriptor() -> Iterator[int]:
    number = lane._create()
    yield number
    os.close(number)


@pytest.fixture
def ends(descriptor: int) -> tuple[Outbox, Inbox]:
    """The outbox of one rank and the inbox of its second reader, mapped apart."""
    return Outbox(SharedFile(descriptor), 2), Inbox(SharedFile(descriptor), 1)


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
    for turn in range(3 * lane._SLOTS):
        outbox.write(1, torch.full((1000,), float(turn)), 0)
        assert take(inbox, inbox.expect(0), 1000)[999] == turn
        if turn == 10:
            end = outbox._end
    assert outbox._end == end


def test_an_outbox_is_full_until_its_oldest_message_is_taken(ends: tuple[Outbox, Inbox]) -> None:
    outbox, inbox = ends
    for turn in range(lane._SLOTS):
        assert outbox.has_room(1)
        outbox.write(1, torch.full((1,), float(turn)), turn % 2)
    assert not outbox.has_room(1)
    assert outbox.has_room(0)
    first, second = inbox.expect(0), inbox.expect(1)
    take(inbox, second, 1)
    assert not outbox.has_room(1)
    take(inbox, first, 1)
    assert outbox.has_room(1)


def test_a_message_of_another_size_is_not_copied(ends: tuple[Outbox, Inbox]) -> None:
    outbox, inbox = ends
    outbox.write(1, torch.ones(3), 0)
    name, tensor = inbox.expect(0), torch.zeros(2)
    assert inbox.has(name)
    assert inbox.take(name, tensor) == 12
    assert tensor.tolist() == [0.0, 0.0]


def test_a_file_that_cannot_be_opened_makes_no_lane(descriptor: int) -> None:
    assert lane._open(os.getpid(), descriptor) is not None
    assert lane._open(os.getpid(), 1_000_000) is None
    null = os.open(os.devnull, os.O_RDWR)  # which nobody can map
    assert lane._open(os.getpid(), null) is None
    os.close(null)


def test_other_processors_have_no_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert lane._create() == -1
    assert Lanes(SingleGroup()).inboxes == {}
    assert run_ranks(2, lambda group: Lanes(group).takes(1 - group.rank, torch.zeros(1))) == [
        False,
        False,
    ]
