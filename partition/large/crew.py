"""Ranks that share the work of one partitioning: rank 0 leads, the others do a share of each task.

They share the work folder, on a file system that all of them see, and nothing else. Rank 0 writes
a task into it, a list of items. Rank r does every item r, r + size, r + 2 size, ... that is not
done. An item is done once its own file is there, so that an interrupted task goes on where it was.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from distgnn.datasets.errors import InputError
from distgnn.partition.large.work import CREW, LOCK
from distgnn.partition.threads import in_order

_TASK = f"{CREW}.json"
_BEGIN, _END = "begin", "end"
# Marks in a member's file: its name, and that it has locked its byte since.
_ID, _HOLDS = "id", "holds"
_IS_GONE = (
    "ended before its share of the work was done; see what it said, and run the same command "
    "again, which continues"
)
_MEMBER = CREW + "-{:05d}.json"
_POLL_S = 0.05
# Files of other hosts appear late on a network's file system, which looks up names less often.
_SLOW_POLL_S = 1.0
_QUICK_POLLS = 200
# Longest wait for ranks to see each other; a data set may be downloaded meanwhile.
START_S = 600.0


class Task(NamedTuple):
    """Share of a task.

    Attributes:
        kind: Name of the task.
        facts: Values that all ranks have to know, for JSON.
        items: Items of this rank, JSON values.
    """

    kind: str
    facts: dict[str, Any]
    items: list[Any]


class Crew:
    """Ranks of a partitioning.

    Args:
        folder: Work folder; rank 0 makes it.
        rank: This rank.
        size: Number of ranks.
    """

    def __init__(self, folder: Path, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self._folder = folder
        self._number = 0
        self._ids: list[str] = []
        self._seen = set[int]()
        self._lock: int | None = None

    def begin(self) -> None:
        """Wait for all ranks of this job; rank 0, once it holds the folder's lock.

        Raises:
            InputError: If another rank failed, or is not seen.
        """
        if self.size == 1:
            return
        # Those of an interrupted job.
        for path in (self._folder / _TASK, *self._folder.glob(f"{CREW}-[0-9]*")):
            path.unlink(missing_ok=True)
        self._wait_for(
            _ID,
            f"was not seen in {str(self._folder)!r} within {START_S:g} s; all ranks must see this "
            "folder, so put it on a file system that they share",
        )
        self._ids = [self._member(rank)[_ID] for rank in range(1, self.size)]
        self._tell(_BEGIN, [], {})
        # Only a lock that was seen once tells later that its rank is gone.
        self._wait_for(_HOLDS, _IS_GONE)
        for rank in range(1, self.size):
            self._is_gone(rank)

    def _wait_for(self, mark: str, sentence: str) -> None:
        """Wait until the files of all other ranks have a mark; too long, that is an error."""
        deadline_s = time.monotonic() + START_S

        def have_all() -> bool:
            missing = [rank for rank in range(1, self.size) if mark not in self._member(rank)]
            if missing and time.monotonic() > deadline_s:
                raise InputError(f"rank {missing[0]} {sentence}")
            return not missing

        self._wait(have_all)

    def share(
        self,
        kind: str,
        items: Sequence[Any],
        do: Callable[[Any], None],
        *,
        is_done: Callable[[Any], bool],
        facts: Mapping[str, Any] | None = None,
        threads: int = 1,
    ) -> None:
        """Do a task with all ranks; rank 0 calls this.

        Args:
            kind: Name of the task.
            items: Items, JSON values.
            do: Does an item of rank 0.
            is_done: Whether an item is done, by its file. It is asked of each item that is done at
                least once, in their order, as soon as this rank knows.
            facts: Values that the other ranks have to know beside their items.
            threads: Items of this rank that are done at a time, each on a thread.

        Raises:
            InputError: If another rank failed.
        """
        left = [item for item in items if not is_done(item)]
        if self.size > 1 and left:
            self._tell(kind, left, facts or {})
        own = left[:: self.size]
        with in_order(do, own, threads) as ended:
            for item, _ in zip(own, ended, strict=True):
                is_done(item)
        self._wait(lambda: all(map(is_done, left)))

    def end(self) -> None:
        """Let the other ranks go, which also go where the folder is no longer there."""
        if self._ids and self._folder.is_dir():
            # On a full disk the others are not told, but see that this process ends.
            with suppress(OSError):
                self._tell(_END, [], {})

    def tasks(self) -> Iterator[Task]:
        """Give the tasks of a rank other than 0, until rank 0 has ended.

        Raises:
            InputError: If rank 0 is not seen.
        """
        own, done, polls = uuid.uuid4().hex, 0, 0
        deadline_s = time.monotonic() + START_S
        has_said = has_led = False
        while True:
            if has_said and not self._folder.is_dir():
                return
            # Not once work has begun: rank 0 may be removing the folder.
            has_said = has_said if done else self._say(own) or has_said
            told = _read(self._folder / _TASK)
            if told.get("members", {}).get(str(self.rank)) == own and told["number"] != done:
                if told["kind"] == _END:
                    return
                if not done:  # the first task may have come after the beginning was told
                    self._hold()
                    with suppress(FileNotFoundError):  # rank 0 has ended, and removed the folder
                        _write(self._folder / _MEMBER.format(self.rank), {_ID: own, _HOLDS: True})
                done, polls = told["number"], 0
                if told["kind"] != _BEGIN:
                    items = told["items"][self.rank :: self.size]
                    yield Task(told["kind"], told["facts"], items)
                continue
            if not done and time.monotonic() > deadline_s:
                raise InputError(
                    f"rank 0 did not begin to work in {str(self._folder)!r} within {START_S:g} s; "
                    "see what it said, and put the folder on a file system that all ranks share"
                )
            is_led = self._is_held(0)
            if has_led and not is_led:
                return
            has_led = has_led or is_led
            polls += 1
            time.sleep(_POLL_S if polls < _QUICK_POLLS else _SLOW_POLL_S)

    def fail(self, sentence: str) -> None:
        """Tell rank 0 why this one cannot go on."""
        with suppress(OSError):
            _write(self._folder / _MEMBER.format(self.rank), {"failed": sentence})

    def _say(self, own: str) -> bool:
        """Say that this rank is there, again if rank 0 has begun since; whether that was needed."""
        path = self._folder / _MEMBER.format(self.rank)
        if not self._folder.is_dir() or _read(path).get(_ID) == own:
            return False
        with suppress(FileNotFoundError):
            _write(path, {_ID: own})
            return True
        return False

    def _hold(self) -> None:
        """Lock this rank's byte until the process ends.

        No other job begins in the folder while a rank that has lost its rank 0 still writes.
        """
        descriptor = self._lock_file()
        if descriptor is not None:
            fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, self.rank)

    def _is_held(self, rank: int) -> bool:
        """Whether a process holds that rank's byte of the folder's lock."""
        descriptor = self._lock_file()
        if descriptor is None:
            return False
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, rank, 1, 0)
        found = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
        return bool(struct.unpack_from("h", found)[0] != fcntl.F_UNLCK)

    def _lock_file(self) -> int | None:
        """Open the file of the lock once: closing it would give up what this process locked."""
        if self._lock is None:
            with suppress(OSError):
                self._lock = os.open(self._folder / LOCK, os.O_RDWR)
                weakref.finalize(self, os.close, self._lock)
        return self._lock

    def _tell(self, kind: str, items: Sequence[Any], facts: Mapping[str, Any]) -> None:
        self._number += 1
        members = {str(rank): own for rank, own in enumerate(self._ids, 1)}
        task = {"number": self._number, "kind": kind, "members": members}
        _write(self._folder / _TASK, {**task, "facts": dict(facts), "items": list(items)})

    def _member(self, rank: int) -> dict[str, Any]:
        return _read(self._folder / _MEMBER.format(rank))

    def _wait(self, is_over: Callable[[], bool]) -> None:
        """Wait for the other ranks; raise if one failed, or was killed."""
        polls = 0
        while not is_over():
            for rank in range(1, self.size):
                is_gone = self._is_gone(rank)
                if sentence := self._member(rank).get("failed"):
                    raise InputError(f"rank {rank}: {sentence}")
                if is_gone and not is_over():
                    raise InputError(f"rank {rank} {_IS_GONE}")
            polls += 1
            time.sleep(_POLL_S if polls < _QUICK_POLLS else _SLOW_POLL_S)

    def _is_gone(self, rank: int) -> bool:
        """Whether a rank has given up its byte, which it holds until its process ends."""
        if self._is_held(rank):
            self._seen.add(rank)
            return False
        return rank in self._seen


def _write(path: Path, values: Mapping[str, Any]) -> None:
    """Write a file that is there whole or not at all."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.new")
    try:
        temporary.write_text(json.dumps(dict(values)), encoding="utf-8")
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def _read(path: Path) -> dict[str, Any]:
    """Read a file; nothing where there is none, or it is damaged."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
