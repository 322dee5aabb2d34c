"""The owner of a RUN directory: one job writes there, and a second one is refused by name."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distgnn.comm import process
from distgnn.comm.daemon import DaemonThread
from distgnn.datasets.errors import InputError
from distgnn.datasets.files import check_regular

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

NAME = ".lock"
# Names of a job, as its launcher gives them, from the outermost on.
_JOBS = ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE")
_BEAT_S = 3.0
_STALE_S = 20.0
# Longer files are not a lock's.
_MOST_BYTES = 1 << 16


class RunLock:
    """A file in the RUN directory that names the process that may write there.

    The file is made by a link, which fails where there is one, on NFS too. Its time is set anew
    every few seconds. An owner of this machine is dead when its process is; one of another machine
    when the time stands still. So clocks of two machines are never compared.

    Args:
        folder: RUN directory; must exist when the lock is taken.
        say: Receives a note about a wait.

    Attributes:
        is_lost: Whether another job was seen to have taken the directory over; see `check`.
    """

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda _: None) -> None:
        self._file = folder / NAME
        self._folder = folder
        self._say = say
        self._token = secrets.token_hex(8)
        self._is_taken = self.is_lost = False
        self._is_over = threading.Event()
        self._thread = DaemonThread(self._beat, name="distgnn-lock")

    def __enter__(self) -> RunLock:
        """Give the lock back at the end of the block, if it was taken in it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the lock back."""
        self.release()

    def take(self) -> None:
        """Become the owner, unless this lock is taken already.

        Raises:
            InputError: If another job owns the directory and lives, or it cannot be written.
        """
        if self._is_taken:
            return
        try:
            while not self._make(self._file):
                self._judge()
        except OSError as error:
            raise InputError(
                f"cannot write run directory '{self._folder}': {error.strerror}; "
                "choose another with --run"
            ) from error
        self._is_taken = True
        self._thread.start()

    def release(self) -> None:
        """Remove the file, if it is this lock's, and end its thread."""
        if not self._is_taken:
            return
        self._is_taken = False
        self._is_over.set()
        self._thread.join()
        with suppress(OSError):
            if self._read().get("token") == self._token:
                self._file.unlink()

    def check(self) -> None:
        """Find out whether another job took the directory over while this one stood still.

        Raises:
            InputError: If so.
        """
        if not self._is_taken:
            return
        try:
            found = self._read()
        except OSError:
            if self._is_gone():
                raise InputError(
                    f"'{self._file}' is gone: somebody removed it, or another job took the "
                    "directory over while this one stood still; continue with --resume"
                ) from None
            return  # the server of the files is away
        if found.get("token", self._token) != self._token:
            raise InputError(
                f"'{self._folder}' was taken over by {_named(found)} while this job stood still; "
                "let one of them go on"
            )

    def _is_gone(self) -> bool:
        """Whether the file was removed, as by a job that took the directory over and has ended."""
        try:
            return self._folder.is_dir() and not self._file.exists()
        except OSError:
            return False

    def _make(self, file: Path) -> bool:
        """Make a file that names this owner, whole; return whether there was none."""
        me = process.this_process()
        jobs = [f"{name}={os.environ[name]}" for name in _JOBS if name in os.environ]
        content = {
            "host": socket.gethostname(),
            "machine": me.machine,
            "pid": me.pid,
            "start": me.start,
            "job": jobs[0] if jobs else "",
            "token": self._token,
        }
        temporary = self._file.with_name(f"{NAME}.{self._token}")
        try:
            temporary.write_text(json.dumps(content), encoding="utf-8")
            try:
                os.link(temporary, file)
            except FileExistsError:
                pass
            except OSError:
                # A file system without links; or NFS, which did it and lost the answer.
                if temporary.stat().st_nlink < 2:
                    return _make_without_link(file, json.dumps(content))
            return temporary.stat().st_nlink > 1
        finally:
            temporary.unlink(missing_ok=True)

    def _judge(self) -> None:
        """Remove the file of an owner that is dead.

        Raises:
            InputError: If the owner lives.
        """
        try:
            found = self._read()
        except FileNotFoundError:  # given back meanwhile
            return
        if self._lives(self._file, found):
            raise InputError(
                f"'{self._folder}' is in use by {_named(found)}; wait until that job has ended, or "
                "choose another --run"
            )
        self._remove(self._file, found.get("token"))

    def _lives(self, file: Path, found: dict[str, Any]) -> bool:
        """Whether the owner of a file, which that names, still runs."""
        owner = process.ProcessId(
            str(found.get("machine", "")), int(found.get("pid", 0)), int(found.get("start", 0))
        )
        is_near = owner.machine == process.machine()
        return process.is_alive(owner) if is_near else self._is_beating(file, found)

    def _remove(self, file: Path, token: object) -> None:
        """Remove the file of a dead owner, unless another job is at it or has done it.

        Only who has made the mark of a token removes the file with that token. The file of a
        living owner is never away, or a third job would make its own in that moment. A mark has an
        owner too, who may have slept since it looked; if it is dead, its mark goes the same way.
        """
        mark = _mark_of(file, token)
        if not self._make(mark):
            self._outwait(mark)
            return
        try:
            if self._read(file).get("token") == token:
                file.unlink()
        except FileNotFoundError:
            pass
        finally:
            with suppress(OSError):
                if self._read(mark).get("token") == self._token:
                    mark.unlink()

    def _outwait(self, mark: Path) -> None:
        """Wait until another job has removed a file; clear up after it if it died meanwhile."""
        with suppress(FileNotFoundError):
            while self._lives(mark, found := self._read(mark)):
                time.sleep(0.01)
            self._remove(mark, found.get("token"))

    def _is_beating(self, file: Path, found: dict[str, Any]) -> bool:
        """Watch the time of a file for as long as it may stand still."""
        self._say(
            f"waiting {_STALE_S:g} s to see whether {_named(found)} still uses '{self._folder}'"
        )
        deadline_s = time.monotonic() + _STALE_S
        first = now = _time_of(file)
        while now == first and time.monotonic() < deadline_s:
            time.sleep(min(1.0, _STALE_S / 4))
            now = _time_of(file)
        # An owner that gives it back has ended.
        return now not in (0, first)

    def _beat(self) -> None:
        while not self._is_over.wait(_BEAT_S):
            try:
                self.is_lost = self._read().get("token", self._token) != self._token
                if not self.is_lost:
                    os.utime(self._file)
            except OSError:
                self.is_lost = self._is_gone()

    def _read(self, file: Path | None = None) -> dict[str, Any]:
        """Return the content; nothing for a file that is not ours or only half there."""
        file = file or self._file
        check_regular(file)
        if file.stat().st_size > _MOST_BYTES:
            return {}
        with suppress(ValueError, RecursionError):
            content = json.loads(file.read_text(encoding="utf-8"))
            numbers = {"pid": 31, "start": 63}
            if isinstance(content, dict) and all(
                isinstance(content.get(name, 0), int) and 0 <= content.get(name, 0) < 1 << bits
                for name, bits in numbers.items()
            ):
                return content
        return {}


def _mark_of(file: Path, token: object) -> Path:
    """Return the mark of whoever removes the file with a token."""
    # The token is whatever the file says, and no part of a path.
    name = hashlib.sha256(str(token).encode(errors="replace")).hexdigest()[:16]
    return file.with_name(f"{NAME}.{name}.dead")


def _make_without_link(file: Path, text: str) -> bool:
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        return False
    return True


def _time_of(file: Path) -> int:
    """Return the time of a file; a fresh one, as NFS gives to whoever opens it."""
    try:
        with file.open("rb") as opened:
            return os.fstat(opened.fileno()).st_mtime_ns
    except FileNotFoundError:
        return 0


def _named(found: dict[str, Any]) -> str:
    job = f", {found['job']}" if found.get("job") else ""
    return f"a job on host {found.get('host', 'unknown')} (pid {found.get('pid', 'unknown')}{job})"
