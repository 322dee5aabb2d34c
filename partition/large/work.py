"""The work folder of a partitioning, a record of stages from which an interrupted one continues."""

from __future__ import annotations

import errno
import fcntl
import importlib.metadata
import json
import os
import shutil
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.files import sync_directory

PARTS = "parts"
"""Name of the folder that becomes the partition directory."""
MOVED = "moved"
"""Name of the record, made before `PARTS` is moved away, of the partition's fingerprint."""
LOCK = "lock"
"""Name of the file that is locked by the process that works in the folder."""
CREW = "crew"
"""Beginning of the names of files by which ranks share the work."""
_STATE = "state.json"
_VERSION = "version"
_REMOVALS = 20


def is_begun(folder: Path) -> bool:
    """Return whether a folder is that of a partitioning, from which the same one can continue."""
    return (folder / _STATE).is_file()


class WorkFolder:
    """A folder of files and a record of what is done, which is replaced as a whole.

    A stage writes files under names of its own, forces them to disk and then records that it is
    done. What an interrupted stage leaves behind is written again.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        """Open the folder of a partitioning, or begin one.

        Args:
            folder: Where to; its parent folders are made.
            about: Values that the partitioning depends on, for JSON.

        Raises:
            InputError: If the folder holds something else, or it cannot be written.
        """
        self.folder = folder
        self.is_new = True
        self._state: dict[str, Any] = {"about": dict(about), _VERSION: _version()}
        try:
            self._open()
        except OSError as error:
            raise InputError(
                f"cannot write work folder {str(folder)!r}: {error.strerror}; choose another one"
            ) from error

    @classmethod
    def shared(cls, folder: Path) -> WorkFolder:
        """Look into the folder of a partitioning that another process leads, as it is now.

        Args:
            folder: The folder. Nothing may be recorded through what is returned.
        """
        found = cls.__new__(cls)
        found.folder, found.is_new = folder, False
        found._state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        return found

    def _open(self) -> None:
        path = self.folder / _STATE
        if not self.folder.exists():
            self.folder.mkdir(parents=True)
        if not path.exists():
            # An empty folder may be left by a run that ended before its first record, and other
            # ranks of this one may have said that they are there.
            own = (LOCK, f"{_STATE}.new")
            names = (item.name for item in self.folder.iterdir())
            if any(name not in own and not name.startswith(CREW) for name in names):
                raise InputError(
                    f"work folder {str(self.folder)!r} holds files that are not of a "
                    "partitioning; choose another one"
                )
            self._lock()
            self.record()
            return
        self._lock()
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            about = found["about"]
        except (ValueError, LookupError, TypeError) as error:
            raise InputError(
                f"{str(path)!r} is damaged, so nothing can continue from there; remove the folder "
                f"{str(self.folder)!r} and start again"
            ) from error
        # What a folder holds is of the version that made it. Once complete, nothing of it is read.
        if found.get(_VERSION) != self._state[_VERSION] and not is_complete(self.folder):
            raise InputError(
                f"work folder {str(self.folder)!r} is of another version: its distgnn version is "
                f"{found.get(_VERSION)!r}, not {self._state[_VERSION]!r}; go on with that version, "
                "or remove the folder to start again"
            )
        differing = [
            name
            for name in {**about, **self._state["about"]}
            if about.get(name) != self._state["about"].get(name)
        ]
        if differing:
            name = differing[0]
            raise InputError(
                f"work folder {str(self.folder)!r} is of another partitioning: its {name} is "
                f"{about.get(name)!r}, not {self._state['about'].get(name)!r}; give the options it "
                "was begun with to go on, or remove it to start again"
            )
        self._state, self.is_new = found, False

    def _lock(self) -> None:
        """Keep other processes out; the system ends that with this one.

        The first byte of the lock's file is of the process that leads, byte r of rank r. Ranks of
        this job take theirs later, so any that is taken now is of one that another job has left.
        """
        descriptor = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT)
        weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_UN, 0, 1)
        except BlockingIOError as error:
            raise InputError(
                f"another process works in folder {str(self.folder)!r}; wait for its end, or "
                "choose another folder"
            ) from error

    def __getitem__(self, name: str) -> Any:
        """Get a recorded value; None before there is one."""
        return self._state.get(name)

    def record(self, **values: Any) -> None:
        """Add to what is recorded: all of it or, after an interruption, nothing.

        Args:
            **values: JSON values.
        """
        self._state.update(values)
        self.save_json(_STATE, self._state)
        sync_directory(self.folder)

    def path(self, name: str) -> Path:
        """Name a file of the folder."""
        return self.folder / name

    def save(self, name: str, array: NDArray[Any]) -> None:
        """Write an array that appears under its name when it is complete.

        Args:
            name: Name of the file, without a suffix.
            array: The array.
        """
        temporary = self.path(f"{name}.npy.new")
        with temporary.open("wb") as file:
            np.save(file, array)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path(f"{name}.npy"))

    def save_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Write values to a file of their own, which appears when it is complete.

        Args:
            name: Name of the file.
            values: JSON values.
        """
        temporary = self.path(f"{name}.new")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(dict(values), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path(name))

    def load(self, name: str) -> NDArray[Any]:
        """Read what `save` wrote."""
        array: NDArray[Any] = np.load(self.path(f"{name}.npy"))
        return array

    def has(self, name: str) -> bool:
        """Return whether `save` wrote it."""
        return self.path(f"{name}.npy").exists()

    def remove(self) -> None:
        """Remove the folder and all that is in it, last of all what is recorded."""
        for item in self.folder.iterdir():
            if item.is_dir() and not item.is_symlink():
                shutil.rmtree(item)
            elif item.name not in (_STATE, LOCK):
                item.unlink(missing_ok=True)
        # A rank that has not heard yet that all is done may write into it meanwhile.
        for left in reversed(range(_REMOVALS)):
            try:
                shutil.rmtree(self.folder)
            except OSError as error:
                if not left or error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise
            if not self.folder.exists():
                return


def is_complete(folder: Path) -> bool:
    """Return whether a partitioning has nothing left to do but to remove its work folder.

    Args:
        folder: Folder of its files, or none.

    Returns:
        Whether its parts were moved away to where they belong.
    """
    try:
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    is_moving = isinstance(state, dict) and state.get(MOVED) is not None
    return is_moving and not (folder / PARTS).exists()


def _version() -> str:
    """Name the version of the package; one that lies on the path without being installed has none.

    This room may not import the package itself.
    """
    try:
        return importlib.metadata.version("distgnn")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
