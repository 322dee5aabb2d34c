"""The RUN directory: configuration, metrics, summary, model."""

from __future__ import annotations

import errno
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.datasets.errors import InputError
from distgnn.datasets.files import read_whole
from distgnn.training.loop.metrics import is_record
from distgnn.training.run.lock import RunLock
from distgnn.training.run.tensors import write_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

CONFIG = "config.json"
METRICS = "metrics.jsonl"
SUMMARY = "summary.json"
MODEL = "model.safetensors"
CHECKPOINTS = "checkpoints"
FORMAT = 1
"""Form of the configuration; others are refused."""
# The configuration goes last when a run is removed: a directory without it is no run's any more.
_FILES = (METRICS, SUMMARY, MODEL, CONFIG)


class RunDirectory:
    """Reads and writes one RUN directory; only rank 0 writes.

    Args:
        path: The directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = RunLock(path)

    def owned(self, say: Callable[[str], None]) -> RunLock:
        """Return a lock that this job may take; see `RunLock`.

        Args:
            say: Receives a note about a wait for an owner that may be dead.
        """
        self.lock = RunLock(self.path, say)
        return self.lock

    @property
    def model_path(self) -> Path:
        """Weights of the best epoch."""
        return self.path / MODEL

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self.path / CHECKPOINTS

    def has_run(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / CONFIG).exists()

    def holds(self, file: Path) -> bool:
        """Whether a file is one that the run writes, or lies among its checkpoints.

        Args:
            file: Need not exist.
        """
        # A link is replaced, not what it points to. Links in a circle are found out on opening.
        place = Path(os.path.realpath(file.parent)) / file.name
        run = Path(os.path.realpath(self.path))
        inside = place.relative_to(run).parts if place.is_relative_to(run) else ()
        return inside[:1] == (CHECKPOINTS,) or inside in {(name,) for name in _FILES}

    def create(self) -> None:
        """Make the directory, and find out before training whether it can be written.

        Raises:
            InputError: If it cannot be made or written, or holds files that are not a run's.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            names = [] if self.has_run() else [item.name for item in self.path.iterdir()]
            probe = self.path / f".probe.{os.getpid()}"
            probe.write_text("")
            probe.unlink()
        except OSError as error:
            raise InputError(
                f"cannot write run directory '{self.path}': {error.strerror}; "
                "choose another with --run"
            ) from error
        # Hidden files are our own, left by a run that was killed, or the system's.
        foreign = [name for name in names if not name.startswith(".")]
        if foreign:
            raise InputError(
                f"'{self.path}' holds files that are not a run's, such as '{min(foreign)}'; "
                "choose an empty or new directory with --run"
            )

    def clear(self) -> None:
        """Remove what an earlier run left, and nothing else.

        Raises:
            InputError: If something cannot be removed.
        """
        try:
            # An old checkpoint that stayed would later be taken for the new run's.
            if self.checkpoints.exists():
                shutil.rmtree(self.checkpoints)
            for name in _FILES:
                (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot remove '{error.filename}' of an earlier run: {error.strerror}; "
                "remove it or choose another --run"
            ) from error

    def drop_summary(self) -> None:
        """Remove the summary of a run that goes on: it is of fewer epochs than it will have.

        Raises:
            InputError: If it cannot be removed.
        """
        try:
            (self.path / SUMMARY).unlink(missing_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot remove '{error.filename}': {error.strerror}; choose another --run"
            ) from error

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Write a JSON file, whole or not at all.

        Raises:
            InputError: If it cannot be written; the old one is then as it was.
        """
        self._write_text(name, json.dumps(values, indent=2) + "\n")

    def write_model(self, state: Mapping[str, Tensor]) -> None:
        """Write the weights of the best epoch.

        Args:
            state: By name.

        Raises:
            InputError: If they cannot be written; the old ones are then as they were.
        """
        try:
            write_tensors(self.model_path, state)
        except OSError as error:
            needed = sum(tensor.nbytes for tensor in state.values())
            raise self._unwritable(MODEL, error, needed) from error

    def _write_text(self, name: str, text: str) -> None:
        temporary = self.path / f".{name}.{os.getpid()}.tmp"
        try:
            with temporary.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path / name)
        except OSError as error:
            raise self._unwritable(name, error, len(text)) from error
        finally:
            temporary.unlink(missing_ok=True)

    def _unwritable(self, name: str, error: OSError, num_bytes: int) -> InputError:
        return InputError(
            f"{unwritable(self.path / name, error, num_bytes)}; "
            "put that right and continue with the same command and --resume"
        )

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON file of the run.

        Raises:
            InputError: If it is missing or not a JSON object.
        """
        path = self.path / name
        try:
            values = json.loads(read_whole(path))
        except FileNotFoundError as error:
            raise InputError(
                f"'{self.path}' is not a run directory: it has no {name}; "
                "give the --run of a training run"
            ) from error
        except OSError as error:
            raise InputError(f"cannot read '{path}': {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"'{path}' is not JSON; train again or restore the file") from error
        if not isinstance(values, dict):
            raise InputError(f"'{path}' is not a JSON object; train again or restore the file")
        return values

    def write_config(self, values: Mapping[str, Any]) -> None:
        """Write the configuration of the run, with its format.

        Args:
            values: By name.

        Raises:
            InputError: If it cannot be written.
        """
        self.write_json(CONFIG, {"format": FORMAT, **values})

    def read_config(self) -> dict[str, Any]:
        """Read the configuration of the run.

        Raises:
            InputError: If it is missing, not a JSON object, or of another format.
        """
        values = self.read_json(CONFIG)
        if "format" not in values:
            raise InputError(f"'{self.path / CONFIG}' is not a run's configuration; train again")
        if values["format"] != FORMAT:
            raise InputError(
                f"'{self.path / CONFIG}' has format {values['format']!r}, but this version of "
                f"distgnn reads {FORMAT}; train again"
            )
        return values

    def append_metrics(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Add epochs to metrics.jsonl, all or none.

        Raises:
            InputError: If they cannot be written; the file is then as it was.
        """
        text = "".join(json.dumps(record) + "\n" for record in records).encode()
        try:
            with (self.path / METRICS).open("ab", buffering=0) as file:
                end = file.tell()
                try:
                    if file.write(text) != len(text):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                except OSError:
                    with suppress(OSError):
                        file.truncate(end)
                    raise
        except OSError as error:
            raise self._unwritable(METRICS, error, len(text)) from error

    def sync_metrics(self) -> None:
        """Force metrics.jsonl to disk, so that a checkpoint that follows lacks no epoch there."""
        with suppress(OSError), (self.path / METRICS).open("rb") as file:
            os.fsync(file.fileno())

    def keep_metrics(self, num_epochs: int) -> list[dict[str, Any]]:
        """Drop the records of epochs that are trained again, and return the others.

        Args:
            num_epochs: Epochs that are not trained again.

        Raises:
            InputError: If metrics.jsonl cannot be read or written.
        """
        records = {record["epoch"]: record for record in self.read_metrics()}
        kept = [record for epoch, record in sorted(records.items()) if epoch < num_epochs]
        self._write_text(METRICS, "".join(json.dumps(record) + "\n" for record in kept))
        return kept

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the records of all epochs; a line that a killed run left unfinished is none.

        Raises:
            InputError: If metrics.jsonl cannot be read.
        """
        path = self.path / METRICS
        try:
            lines = read_whole(path).decode(errors="replace").splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(f"cannot read '{path}': {error.strerror}") from error
        return [record for line in lines if (record := _parsed(line)) is not None]


def unwritable(path: Path, error: OSError, num_bytes: int) -> str:
    """Say which file could not be written, and, if that was for want of space, how much it needs.

    Args:
        path: The file.
        error: Error of the system.
        num_bytes: Length of the file, or of what is added to it.
    """
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason += f" ({num_bytes} bytes are needed)"
    return f"cannot write '{path}': {reason}"


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and is_record(record) else None
