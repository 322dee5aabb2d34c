"""Progress of a run on stderr, shown by rank 0."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any, Protocol

from distgnn.training.loop.screened import SCREENED

if TYPE_CHECKING:
    from collections.abc import Mapping


class Progress(Protocol):
    """Shows the epochs of a run."""

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Show a finished epoch; `record` is its line of metrics.jsonl."""

    def note(self, line: str) -> None:
        """Show a line about the current work."""

    def warn(self, line: str) -> None:
        """Show a line that even a quiet run shows."""

    def close(self) -> None:
        """Restore the terminal."""


def describe_epoch(record: Mapping[str, Any]) -> str:
    """Return one line for an epoch, with units in the names."""
    parts = [f"epoch {record['epoch']:4d}", f"loss {record['loss']:.4f}"]
    for split in ("train", "val", "test"):
        value = record.get(f"{split}_metric")
        if value is not None:
            parts.append(f"{split} {value:.4f}")
    screened = record.get(SCREENED)
    if screened is not None:
        parts.append(f"screened val {screened:.4f}")
    parts.append(f"epoch_s {record['epoch_s']:.3f}")
    parts.append(f"wait_s {record['exchange_wait_s']:.3f}")
    parts.append(f"sent_MiB {record['halo_bytes_sent'] / 2**20:.2f}")
    return "  ".join(parts)


class Lines:
    """Progress as one line an epoch, for logs and pipes."""

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Write a line."""
        self.note(describe_epoch(record))

    def note(self, line: str) -> None:
        """Write the line."""
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    def warn(self, line: str) -> None:
        """Write the line."""
        self.note(f"warning: {line}")

    def close(self) -> None:
        """Nothing to restore."""


class Silent:
    """Progress that shows nothing."""

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Ignore the epoch."""

    def note(self, line: str) -> None:
        """Ignore the line."""

    def warn(self, line: str) -> None:
        """Ignore the line."""

    def close(self) -> None:
        """Nothing to restore."""


class Quiet(Silent):
    """Progress that shows only warnings."""

    def warn(self, line: str) -> None:
        """Write the line."""
        Lines().warn(line)


class Bar:
    """Progress bar with the time left, on a line that is redrawn.

    Args:
        num_epochs: Number of epochs of the run.
        done: Number of epochs done before it was resumed.
    """

    def __init__(self, num_epochs: int, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("", total=num_epochs, completed=done)
        self._bar.start()

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Redraw the line."""
        self._bar.update(self._task, advance=1, description=describe_epoch(record))

    def note(self, line: str) -> None:
        """Write the line above the bar."""
        self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def warn(self, line: str) -> None:
        """Write the line above the bar."""
        self.note(f"warning: {line}")

    def close(self) -> None:
        """Keep the last line on the screen."""
        self._bar.stop()


def choose_progress(
    *, rank: int, num_epochs: int, done: int = 0, is_quiet: bool = False
) -> Progress:
    """Choose how to show progress: a bar on a terminal where rich is installed, else lines.

    Args:
        rank: Only rank 0 shows anything.
        num_epochs: Number of epochs of the run.
        done: Number of epochs done before it was resumed.
        is_quiet: Whether to show only warnings.

    Returns:
        The display.
    """
    if rank != 0:
        return Silent()
    if is_quiet:
        return Quiet()
    if sys.stderr.isatty() and importlib.util.find_spec("rich") is not None:
        return Bar(num_epochs, done)
    return Lines()
