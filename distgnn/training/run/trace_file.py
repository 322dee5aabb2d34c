"""The file of --trace: a picture of what every rank did when."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from distgnn.comm.group import Group
    from distgnn.training.loop.trace import NoTrace

_MAX_EPOCHS = 2**31 - 1


@dataclass(frozen=True)
class TraceFile:
    """A picture that is asked for.

    Attributes:
        path: File to write; None for no picture.
        epochs: Epochs in the picture; None for all.
    """

    path: Path | None = None
    epochs: range | None = None

    def check(self, num_epochs: int) -> None:
        """Refuse epochs that no file or no run has.

        Args:
            num_epochs: Number of epochs of the run.

        Raises:
            InputError: If there are such.
        """
        epochs = self.epochs
        if epochs is None:
            return
        shown = f"--trace-epochs {epochs.start}:{epochs.stop}"
        if self.path is None:
            raise InputError(f"{shown} has no effect without --trace FILE; drop it or name a file")
        if epochs.start >= num_epochs:
            raise InputError(
                f"{shown} picks none of the {num_epochs} epochs; begin below {num_epochs}"
            )

    def check_path(self, run: Path) -> None:
        """Check that the file can be written and is none of the run's own files.

        Args:
            run: Directory of the run, which need not exist yet.

        Raises:
            InputError: If the file cannot be written there.
        """
        from distgnn.training.loop.trace import why_unwritable
        from distgnn.training.run.directory import RunDirectory

        file = self.path
        if file is None:
            return
        if Path(os.path.realpath(run)).is_relative_to(os.path.realpath(file)):
            raise InputError(
                f"cannot write trace '{file}': it is a directory, of --run '{run}' or above it; "
                "give a file's name"
            )
        if RunDirectory(run).holds(file):
            raise InputError(
                f"cannot write trace '{file}': the run keeps files of its own there; choose "
                "another file with --trace"
            )
        # The run's directory is made later, and checked on its own.
        if os.path.realpath(file.parent) == os.path.realpath(run) and not run.exists():
            return
        error = why_unwritable(file)
        if error is not None:
            raise error

    def open(self, group: Group) -> NoTrace:
        """Begin the picture; collective.

        Args:
            group: All ranks.

        Returns:
            A context to enter around the run.
        """
        from distgnn.training.loop.trace import NoTrace, Trace

        if self.path is None:
            return NoTrace(group.device)
        return Trace(self.path, group, self.epochs or range(_MAX_EPOCHS))
