"""Messages between ranks of one machine through shared memory, below a transport over TCP.

Each rank owns a file in memory that no folder names, so nothing is left of it when the ranks have
ended, however they did. A sender copies its message there at once and notes it in a slot; the
receiver copies it out when it waits for it. So messages move without a thread of their own, and no
wait for one peer holds up another. Slots and memory are used again once a message was taken.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import platform
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from distgnn.comm import process

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.comm.group import Group

# Beyond this the memory for messages under way would show.
MAX_LANE_BYTES = 1 << 26
_SLOTS = 1024
# A slot: number of the message + 1 (negative once it was taken), tag, place, bytes.
_WORDS = 4
_BLOCK_BYTES = _SLOTS * _WORDS * 8
# Pages take memory when they are first written, not before.
_FILE_BYTES = 1 << 34
_PAGE_BYTES = 1 << 12


class SharedFile:
    """A file in memory, mapped; pages that were never written take none.

    Attributes:
        words: The slots of all readers, as 64-bit integers.
        address: Where it is mapped.
    """

    def __init__(self, descriptor: int) -> None:
        """Map the file.

        Args:
            descriptor: Open for reading and writing; stays the caller's.

        Raises:
            OSError: If there are not enough addresses.
        """
        self._map = mmap.mmap(descriptor, _FILE_BYTES)
        self._first = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(self._first)
        self.words = memoryview(self._map).cast("q")


class Outbox:
    """The messages of this rank to all ranks of its machine."""

    def __init__(self, file: SharedFile, num_readers: int) -> None:
        """Start with an empty file.

        Args:
            file: Written by this rank; readers only mark what they have taken.
            num_readers: Ranks with slots in it.
        """
        self._file = file
        self._end = num_readers * _BLOCK_BYTES
        self._num_sent = [0] * num_readers
        self._under_way: list[tuple[int, int, int, int]] = []
        self._free: defaultdict[int, list[int]] = defaultdict(list)

    def has_room(self, reader: int) -> bool:
        """Whether a message may be written for a reader now."""
        slot, _ = self._slot(reader)
        return self._file.words[slot] <= 0 and self._end + MAX_LANE_BYTES <= _FILE_BYTES

    def write(self, reader: int, tensor: Tensor, tag: int) -> None:
        """Copy a message and tell its reader; there must be room."""
        num_bytes = tensor.numel() * tensor.element_size()
        slot, number = self._slot(reader)
        room = max(_PAGE_BYTES, 1 << (num_bytes - 1).bit_length())
        place = self._take(room)
        ctypes.memmove(self._file.address + place, tensor.data_ptr(), num_bytes)
        words = self._file.words
        words[slot + 1], words[slot + 2], words[slot + 3] = tag, place, num_bytes
        # Last: the reader looks at this word only. x86 lets no other core see it before the rest.
        words[slot] = number + 1
        self._num_sent[reader] = number + 1
        self._under_way.append((slot, number + 1, place, room))

    def _slot(self, reader: int) -> tuple[int, int]:
        number = self._num_sent[reader]
        return _word_of(reader, number), number

    def _take(self, room: int) -> int:
        if not self._free[room]:
            self._reclaim()
        if self._free[room]:
            return self._free[room].pop()
        place, self._end = self._end, self._end + room
        return place

    def _reclaim(self) -> None:
        words, kept = self._file.words, []
        for message in self._under_way:
            slot, number, place, room = message
            if words[slot] == number:
                kept.append(message)
            else:
                self._free[room].append(place)
        self._under_way = kept


class Inbox:
    """The messages of one other rank of this machine to this rank."""

    def __init__(self, file: SharedFile, reader: int) -> None:
        """Start before the first message.

        Args:
            file: Written by the other rank.
            reader: Number of this rank among its readers.
        """
        self._file = file
        self._reader = reader
        self._num_seen = 0
        self._num_posted: defaultdict[int, int] = defaultdict(int)
        self._num_arrived: defaultdict[int, int] = defaultdict(int)
        self._arrived: dict[tuple[int, int], tuple[int, int]] = {}

    def expect(self, tag: int) -> tuple[int, int]:
        """Return the name of the next message of a tag: receives are served as they were posted."""
        name = (tag, self._num_posted[tag])
        self._num_posted[tag] += 1
        return name

    def has(self, name: tuple[int, int]) -> bool:
        """Whether a message has been written."""
        words = self._file.words
        while True:
            slot = _word_of(self._reader, self._num_seen)
            if words[slot] != self._num_seen + 1:
                return name in self._arrived
            tag = words[slot + 1]
            self._num_seen += 1
            self._arrived[tag, self._num_arrived[tag]] = (slot, self._num_seen)
            self._num_arrived[tag] += 1

    def take(self, name: tuple[int, int], tensor: Tensor) -> int:
        """Copy a message that is there, and free its memory.

        Args:
            name: From `expect`.
            tensor: Where to.

        Returns:
            Its bytes; nothing is copied unless the tensor has as many.
        """
        slot, number = self._arrived.pop(name)
        words = self._file.words
        place, num_bytes = words[slot + 2], words[slot + 3]
        if num_bytes == tensor.numel() * tensor.element_size():
            ctypes.memmove(tensor.data_ptr(), self._file.address + place, num_bytes)
        words[slot] = -number
        return int(num_bytes)


def _word_of(reader: int, number: int) -> int:
    """First word of the slot of a message."""
    return (reader * _SLOTS + number % _SLOTS) * _WORDS


class Lanes:
    """The ways between this rank and the others of its machine.

    Attributes:
        inboxes: By rank; empty where shared memory cannot be used.
    """

    def __init__(self, group: Group) -> None:
        """Open the ways; collective.

        Between two ranks that cannot read each other's memory there is none. On processors that may
        show writes in another order than they were made there are none at all.

        Args:
            group: All ranks; its gathers are used.
        """
        self._group = group
        self._outbox: Outbox | None = None
        self.inboxes: dict[int, Inbox] = {}
        descriptor = _create()
        offers = _gather(group, [process.machine(), os.getpid(), descriptor])
        mine = offers[group.rank][0]
        self._readers = [rank for rank, offer in enumerate(offers) if offer[0] == mine]
        reader = self._readers.index(group.rank)
        files = {}
        for rank in self._readers:
            file = _open(*offers[rank][1:]) if descriptor >= 0 else None
            if file is not None:
                files[rank] = file
        reached = _gather(group, sorted(files))
        if descriptor >= 0:
            os.close(descriptor)
        if group.rank in files:
            self._outbox = Outbox(files.pop(group.rank), len(self._readers))
            self.inboxes = {
                rank: Inbox(file, reader)
                for rank, file in files.items()
                if {rank, group.rank} <= set(reached[rank]) and rank in reached[group.rank]
            }

    def takes(self, peer: int, tensor: Tensor) -> bool:
        """Whether messages of this size travel here; sender and receiver find the same."""
        num_bytes = tensor.numel() * tensor.element_size()
        return peer in self.inboxes and num_bytes <= MAX_LANE_BYTES

    def send(
        self, tensor: Tensor, peer: int, tag: int, wait: Callable[[Callable[[], bool], str], None]
    ) -> None:
        """Send a message; it is on its way when this returns.

        Args:
            tensor: What.
            peer: To whom.
            tag: As for Group.isend.
            wait: Returns when a condition holds.
        """
        outbox, reader = self._outbox, self._readers.index(peer)
        assert outbox is not None
        if not outbox.has_room(reader):
            wait(lambda: outbox.has_room(reader), f"rank {peer} to take a message")
        outbox.write(reader, tensor, tag)


def _create() -> int:
    """Descriptor of a new file, or -1 where this cannot work."""
    if platform.machine() not in {"x86_64", "AMD64"} or not hasattr(os, "memfd_create"):
        return -1
    try:
        descriptor = os.memfd_create("distgnn", os.MFD_CLOEXEC)
    except OSError:
        return -1
    try:
        os.ftruncate(descriptor, _FILE_BYTES)
    except OSError:
        os.close(descriptor)
        return -1
    return descriptor


def _open(pid: int, descriptor: int) -> SharedFile | None:
    """Map the file of a process of this user; None if that fails."""
    try:
        own = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return SharedFile(own)
    except OSError:
        return None
    finally:
        os.close(own)


def _gather(group: Group, row: list[Any]) -> list[list[Any]]:
    """The rows of all ranks."""
    return [list(json.loads(text)) for text in group.all_gather_bytes(json.dumps(row).encode())]
