"""Messages between ranks of one machine through shared memory, below a transport over TCP.

Each rank owns a file in memory that no folder names, so nothing is left of it when the ranks have
ended, however they did. A sender copies its message there at once and notes it in a slot; the
receiver copies it out when it waits for it. So messages move without a thread of their own, and no
wait for one peer holds up another. Slots and memory are used again once a message was taken.

A sender never waits. A file may have no slot or no room left, because its readers wait for their
messages many epochs later. Then the sender continues in a larger file, and says so in a slot that
is kept for that. So a message can be read as soon as isend has been called, whatever its receiver
does meanwhile. The only waits are those of receivers, for calls of isend that do not wait for
anything: they cannot form a circle. The limit is the memory of the machine.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import platform
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from distgnn.comm import process

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.comm.group import Group

# Beyond this the memory for messages under way would show.
MAX_LANE_BYTES = 1 << 26
# Slots of the first file, for each reader.
_SLOTS = 1024
# A slot: number of the message + 1 (negative once it was taken), tag, place, bytes. In the last one
# that a file needs: the same number, -slots, descriptor and bytes of the next file.
_WORDS = 4
_SLOT_BYTES = _WORDS * 8
# Pages take memory when they are first written, not before.
_FILE_BYTES = 1 << 34
_PAGE_BYTES = 1 << 12


class Extent(NamedTuple):
    """Size of a file: slots for each reader, and bytes with all slots."""

    num_slots: int
    num_bytes: int


class SharedFile:
    """A file in memory, mapped; pages that were never written take none.

    Attributes:
        extent: Size of the file.
        words: The slots of all readers, as 64-bit integers.
        address: Address of the first byte.
    """

    def __init__(self, descriptor: int, extent: Extent) -> None:
        """Map the file.

        Args:
            descriptor: Open for reading and writing; stays the caller's.
            extent: Size of the file.

        Raises:
            OSError: If there are not enough addresses.
        """
        self.extent = extent
        self._map = mmap.mmap(descriptor, extent.num_bytes)
        self._first = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(self._first)
        self.words = memoryview(self._map).cast("q")

    def slot(self, reader: int, number: int) -> int:
        """First word of the slot of a message."""
        num_slots = self.extent.num_slots
        return (reader * num_slots + number % num_slots) * _WORDS


class Outbox:
    """The messages of this rank to all ranks of its machine, in one file."""

    def __init__(self, file: SharedFile, num_readers: int) -> None:
        """Start with an empty file.

        Args:
            file: Written by this rank; readers only mark what they have taken.
            num_readers: Ranks with slots in it.
        """
        self.file = file
        self._end = num_readers * file.extent.num_slots * _SLOT_BYTES
        self._num_sent = [0] * num_readers
        self._under_way: list[tuple[int, int, int, int]] = []
        self._free: defaultdict[int, list[int]] = defaultdict(list)

    def has_slot(self, reader: int) -> bool:
        """Whether there is a slot for a message and one more, for the way to the next file."""
        words, number = self.file.words, self._num_sent[reader]
        return all(words[self.file.slot(reader, n)] <= 0 for n in (number, number + 1))

    def has_room(self, tensor: Tensor) -> bool:
        """Whether there is memory for a message."""
        room = _room(tensor)
        if not self._free[room] and self._end + room > self.file.extent.num_bytes:
            self._reclaim()
        return bool(self._free[room]) or self._end + room <= self.file.extent.num_bytes

    def write(self, reader: int, tensor: Tensor, tag: int) -> None:
        """Copy a message and tell its reader; there must be a slot and room."""
        num_bytes = tensor.numel() * tensor.element_size()
        room = _room(tensor)
        place = self._take(room)
        ctypes.memmove(self.file.address + place, tensor.data_ptr(), num_bytes)
        slot, number = self._tell(reader, tag, place, num_bytes)
        self._under_way.append((slot, number, place, room))

    def leave(self, reader: int, descriptor: int, extent: Extent) -> tuple[int, int]:
        """Tell a reader that further messages are in another file.

        Args:
            reader: Number of the reader, which gets no more messages here.
            descriptor: Descriptor of the other file, open until the reader has marked the slot.
            extent: Size of the other file.

        Returns:
            The slot, and its first word until it is marked.
        """
        return self._tell(reader, -extent.num_slots, descriptor, extent.num_bytes)

    def _tell(self, reader: int, tag: int, place: int, num_bytes: int) -> tuple[int, int]:
        number = self._num_sent[reader]
        words, slot = self.file.words, self.file.slot(reader, number)
        assert words[slot] <= 0, "a slot was kept"
        words[slot + 1], words[slot + 2], words[slot + 3] = tag, place, num_bytes
        # Last: the reader looks at this word only. x86 lets no other core see it before the rest.
        words[slot] = number + 1
        self._num_sent[reader] = number + 1
        return slot, number + 1

    def _take(self, room: int) -> int:
        if not self._free[room]:
            self._reclaim()
        if self._free[room]:
            return self._free[room].pop()
        place, self._end = self._end, self._end + room
        return place

    def _reclaim(self) -> None:
        words, kept = self.file.words, []
        for message in self._under_way:
            slot, number, place, room = message
            if words[slot] == number:
                kept.append(message)
            else:
                self._free[room].append(place)
        self._under_way = kept


class Inbox:
    """The messages of one other rank of this machine to this rank."""

    def __init__(self, file: SharedFile, reader: int, pid: int) -> None:
        """Start before the first message.

        Args:
            file: Written by the other rank.
            reader: Number of this rank among its readers.
            pid: Process number of the other rank.
        """
        self._file = file
        self._pid = pid
        self._reader = reader
        self._num_seen = 0
        self._num_posted: defaultdict[int, int] = defaultdict(int)
        self._num_arrived: defaultdict[int, int] = defaultdict(int)
        self._arrived: dict[tuple[int, int], tuple[SharedFile, int, int]] = {}

    def expect(self, tag: int) -> tuple[int, int]:
        """Return the name of the next message of a tag: receives are served as they were posted."""
        name = (tag, self._num_posted[tag])
        self._num_posted[tag] += 1
        return name

    def has(self, name: tuple[int, int]) -> bool:
        """Whether a message has been written.

        Raises:
            RuntimeError: If the file it may be in cannot be opened.
        """
        while True:
            words, slot = self._file.words, self._file.slot(self._reader, self._num_seen)
            if words[slot] != self._num_seen + 1:
                return name in self._arrived
            tag = words[slot + 1]
            if tag < 0:
                self._follow(slot)
                continue
            self._num_seen += 1
            self._arrived[tag, self._num_arrived[tag]] = (self._file, slot, self._num_seen)
            self._num_arrived[tag] += 1

    def _follow(self, slot: int) -> None:
        """Continue in the next file; this one is unmapped when its last message was taken."""
        words = self._file.words
        descriptor, extent = words[slot + 2], Extent(-words[slot + 1], words[slot + 3])
        file = _open(self._pid, descriptor, extent)
        if file is None:
            raise RuntimeError(
                f"the messages of process {self._pid} go on in a file in memory of "
                f"{extent.num_bytes} bytes that cannot be opened; raise the limits of open files "
                "and of addresses, or use a shorter delay"
            )
        words[slot] = -words[slot]
        self._file, self._num_seen = file, 0

    def take(self, name: tuple[int, int], tensor: Tensor) -> int:
        """Copy a message that is there, and free its memory.

        Args:
            name: Name that `expect` returned.
            tensor: Place for the message.

        Returns:
            Its bytes; nothing is copied unless the tensor has as many.
        """
        file, slot, number = self._arrived.pop(name)
        words = file.words
        place, num_bytes = words[slot + 2], words[slot + 3]
        if num_bytes == tensor.numel() * tensor.element_size():
            ctypes.memmove(tensor.data_ptr(), file.address + place, num_bytes)
        words[slot] = -number
        return int(num_bytes)


def _room(tensor: Tensor) -> int:
    """Return the bytes that a message takes in a file, rounded so that few sizes are in use."""
    num_bytes = tensor.numel() * tensor.element_size()
    return max(_PAGE_BYTES, 1 << (num_bytes - 1).bit_length())


class Lanes:
    """The ways between this rank and the others of its machine.

    Attributes:
        inboxes: Inboxes by rank; empty where shared memory cannot be used.
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
        # Files of this rank that not all readers have opened yet, and where they will say so.
        self._opening: list[tuple[int, SharedFile, list[tuple[int, int]]]] = []
        extent = Extent(_SLOTS, _FILE_BYTES)
        descriptor = _create(extent)
        offers = _gather(group, [process.machine(), os.getpid(), descriptor])
        mine = offers[group.rank][0]
        self._readers = [rank for rank, offer in enumerate(offers) if offer[0] == mine]
        reader = self._readers.index(group.rank)
        files = {}
        for rank in self._readers:
            _, pid, number = offers[rank]
            file = _open(pid, number, extent) if descriptor >= 0 else None
            if file is not None:
                files[rank] = file
        reached = _gather(group, sorted(files))
        if descriptor >= 0:
            os.close(descriptor)
        if group.rank in files:
            self._outbox = Outbox(files.pop(group.rank), len(self._readers))
            self.inboxes = {
                rank: Inbox(file, reader, offers[rank][1])
                for rank, file in files.items()
                if {rank, group.rank} <= set(reached[rank]) and rank in reached[group.rank]
            }

    def takes(self, peer: int, tensor: Tensor) -> bool:
        """Whether messages of this size travel here; sender and receiver find the same."""
        num_bytes = tensor.numel() * tensor.element_size()
        return peer in self.inboxes and num_bytes <= MAX_LANE_BYTES

    def send(self, tensor: Tensor, peer: int, tag: int) -> None:
        """Send a message; it is on its way when this returns, which waits for nobody.

        Args:
            tensor: Content of the message.
            peer: Receiving rank.
            tag: Tag, see Group.isend.

        Raises:
            RuntimeError: If there is no memory for it.
        """
        assert self._outbox is not None
        if self._opening:
            self._close_opened()
        reader = self._readers.index(peer)
        has_slot, has_room = self._outbox.has_slot(reader), self._outbox.has_room(tensor)
        if not (has_slot and has_room):
            self._outbox = self._move(self._outbox, more_slots=not has_slot, more_room=not has_room)
        self._outbox.write(reader, tensor, tag)

    def _move(self, outbox: Outbox, *, more_slots: bool, more_room: bool) -> Outbox:
        """Continue in a file with twice the slots or twice the room, so that few are needed."""
        num_slots, num_bytes = outbox.file.extent
        slot_bytes = len(self._readers) * num_slots * _SLOT_BYTES
        extent = Extent(
            num_slots * (1 + more_slots),
            num_bytes + more_slots * slot_bytes + more_room * (num_bytes - slot_bytes),
        )
        descriptor = _create(extent)
        file = None if descriptor < 0 else _open(os.getpid(), descriptor, extent)
        if file is None:
            if descriptor >= 0:
                os.close(descriptor)
            raise RuntimeError(
                f"no file in memory of {extent.num_bytes} bytes can be created for messages under "
                "way; raise the limits of open files and of addresses, or use a shorter delay"
            )
        marks = [
            outbox.leave(self._readers.index(rank), descriptor, extent) for rank in self.inboxes
        ]
        self._opening.append((descriptor, outbox.file, marks))
        return Outbox(file, len(self._readers))

    def _close_opened(self) -> None:
        """Close what all readers have opened: the memory of a file then ends with its mappings."""
        kept = []
        for descriptor, left, marks in self._opening:
            if any(left.words[slot] == number for slot, number in marks):
                kept.append((descriptor, left, marks))
            else:
                os.close(descriptor)
        self._opening = kept


def _create(extent: Extent) -> int:
    """Return the descriptor of a new file, or -1 where this cannot work."""
    if platform.machine() not in {"x86_64", "AMD64"} or not hasattr(os, "memfd_create"):
        return -1
    try:
        descriptor = os.memfd_create("distgnn", os.MFD_CLOEXEC)
    except OSError:
        return -1
    try:
        os.ftruncate(descriptor, extent.num_bytes)
    except OSError:
        os.close(descriptor)
        return -1
    return descriptor


def _open(pid: int, descriptor: int, extent: Extent) -> SharedFile | None:
    """Map the file of a process of this user; None if that fails."""
    try:
        own = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return SharedFile(own, extent)
    except OSError:
        return None
    finally:
        os.close(own)


def _gather(group: Group, row: list[Any]) -> list[list[Any]]:
    """Return the rows of all ranks, in rank order."""
    return [list(json.loads(text)) for text in group.all_gather_bytes(json.dumps(row).encode())]
