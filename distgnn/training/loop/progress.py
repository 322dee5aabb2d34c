"""Progress of a run on stderr, shown by rank 0."""

from __future__ import annotations

import html
import importlib
import importlib.util
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from distgnn.machine.units import human_bytes
from distgnn.training.loop.screened import SCREENED

if TYPE_CHECKING:
    from collections.abc import Mapping

_BAR_WIDTH = 16
_NUM_LINES = 20
_REDRAW_S = 0.25
_LAUNCHERS = ("mpirun", "mpiexec", "prterun", "orterun", "mpiexec.hydra", "prte")
_MOST_ANCESTORS = 4


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
    """Progress as lines, for logs and pipes.

    Args:
        every: Number of epochs from line to line.
    """

    def __init__(self, every: int = 1) -> None:
        self._every = every
        self._hidden: Mapping[str, Any] | None = None

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Write a line if it is the turn of the epoch."""
        if (record["epoch"] + 1) % self._every:
            self._hidden = record
            return
        self._hidden = None
        self.note(describe_epoch(record))

    def note(self, line: str) -> None:
        """Write the line, unless it cannot be: a full disk of the log ends no run."""
        with suppress(OSError):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def warn(self, line: str) -> None:
        """Write the line."""
        self.note(f"warning: {line}")

    def close(self) -> None:
        """Write the last epoch, whether or not it was its turn."""
        if self._hidden is not None:
            self.note(describe_epoch(self._hidden))
            self._hidden = None


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
    """One line on a terminal that is redrawn: bar, percentage, time left, loss, metric, traffic.

    Args:
        num_epochs: Number of epochs of the run.
        done: Number of epochs done before it was resumed.
        width: Columns of the terminal where it is not that of standard error; None to ask.
    """

    def __init__(self, num_epochs: int, done: int, width: int | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column

        is_far = width is not None
        console = Console(stderr=True, width=width, force_terminal=True if is_far else None)
        counts = f"{num_epochs}/{num_epochs} "
        # All columns keep their widths: what is left is the text's.
        self._room = console.width - len(counts) - _BAR_WIDTH - len(" 100% 0:00:00 ")
        self._bar = RichProgress(
            TextColumn("{task.completed}/{task.total}"),
            BarColumn(bar_width=_BAR_WIDTH, table_column=Column(no_wrap=True)),
            TaskProgressColumn(),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.description}", markup=False),
            console=console,
            refresh_per_second=4,
        )
        self._task = self._bar.add_task("", total=num_epochs, completed=done)
        self._bar.start()

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Redraw the line, unless the terminal is gone: that ends no run."""
        with suppress(OSError):
            self._bar.update(self._task, advance=1, description=brief_epoch(record, self._room))

    def note(self, line: str) -> None:
        """Write the line above the bar."""
        with suppress(OSError):
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def warn(self, line: str) -> None:
        """Write the line above the bar."""
        self.note(f"warning: {line}")

    def close(self) -> None:
        """Keep the last line on the screen."""
        with suppress(OSError):
            self._bar.stop()


class NotebookBar(Lines):
    """Bar below the cell of a notebook, which is redrawn; notes are lines.

    Args:
        num_epochs: Number of epochs of the run.
        done: Number of epochs done before it was resumed.
    """

    def __init__(self, num_epochs: int, done: int) -> None:
        super().__init__()
        # IPython is there: a notebook runs in it.
        self._display = importlib.import_module("IPython.display")
        self._num_epochs = num_epochs
        self._begun = self._shown_at = time.monotonic()
        self._first = done
        self._handle = self._display.display(self._drawn(done, ""), display_id=True)

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Redraw the bar, a few times a second at most."""
        self._hidden = record
        if time.monotonic() - self._shown_at > _REDRAW_S:
            self._show(record)

    def close(self) -> None:
        """Keep the last epoch in the notebook."""
        if self._hidden is not None:
            self._show(self._hidden)

    def _show(self, record: Mapping[str, Any]) -> None:
        self._shown_at, self._hidden = time.monotonic(), None
        self._handle.update(self._drawn(record["epoch"] + 1, brief_epoch(record)))

    def _drawn(self, done: int, text: str) -> Any:
        rate_s = (self._shown_at - self._begun) / max(done - self._first, 1)
        left = f"{rate_s * (self._num_epochs - done):.0f} s left  " if text else ""
        share = 100 * done // max(self._num_epochs, 1)
        return self._display.HTML(
            f'<progress value="{done}" max="{self._num_epochs}"></progress> '
            f"<code>{done}/{self._num_epochs} {share}% {left}{html.escape(text)}</code>"
        )


def brief_epoch(record: Mapping[str, Any], room: int = 80) -> str:
    """Return the figures of an epoch for a live line: loss, metric, traffic.

    Args:
        record: Line of metrics.jsonl of the epoch.
        room: Most characters; figures that do not fit are left out.
    """
    parts = [f"loss {record['loss']:.4f}"]
    split = next((s for s in ("val", "test", "train") if record.get(f"{s}_metric") is not None), "")
    if split:
        parts.append(f"{split} {record[f'{split}_metric']:.4f}")
    elif record.get(SCREENED) is not None:
        parts.append(f"screened val {record[SCREENED]:.4f}")
    if record["halo_bytes_sent"]:
        parts.append(f"{human_bytes(record['halo_bytes_sent'])}/epoch")
    while len(parts) > 1 and len("  ".join(parts)) > room:
        parts.pop()
    return "  ".join(parts)


def choose_progress(
    *, rank: int, num_epochs: int, done: int = 0, is_quiet: bool = False, every: int = 0
) -> Progress:
    """Choose how to show progress: a live line where somebody looks, else lines.

    A terminal is that of standard error, or that of the launcher which forwards it. It needs rich.

    Args:
        rank: Only rank 0 shows anything.
        num_epochs: Number of epochs of the run.
        done: Number of epochs done before it was resumed.
        is_quiet: Whether to show only warnings.
        every: Number of epochs from line to line; 0 for about 20 lines a run.

    Returns:
        The display.
    """
    if rank != 0:
        return Silent()
    if is_quiet:
        return Quiet()
    if _is_notebook():
        return NotebookBar(num_epochs, done)
    if importlib.util.find_spec("rich") is not None:
        if sys.stderr.isatty():
            return Bar(num_epochs, done)
        width = launcher_width()
        if width is not None:
            return Bar(num_epochs, done, width)
    return Lines(every or max(-(-num_epochs // _NUM_LINES), 1))


def _is_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


def launcher_width(first: int | None = None) -> int | None:
    """Return the columns of the terminal to which a launcher of this machine forwards our lines.

    mpirun gives each rank a pipe for its standard error. What reaches its own is what a person
    sees, and is asked for in /proc.

    Args:
        first: Process to begin with; None for the parent of this one.

    Returns:
        The columns; None where no mpirun is above this process, or it writes to no terminal.
    """
    process = os.getppid() if first is None else first
    for _ in range(_MOST_ANCESTORS):
        folder = Path(f"/proc/{process}")
        try:
            words = (folder / "stat").read_text().rpartition(")")
            name = words[0].partition("(")[2]
            if name in _LAUNCHERS:
                return _terminal_width(folder / "fd/2")
            process = int(words[2].split()[1])
        except (OSError, IndexError, ValueError):
            return None
    return None


def _terminal_width(stream: Path) -> int | None:
    """Return the columns of an open file that is a terminal; else None."""
    if not str(stream.readlink()).startswith(("/dev/pts/", "/dev/tty")):
        return None
    opened = os.open(stream, os.O_RDONLY | os.O_NOCTTY)
    try:
        return os.get_terminal_size(opened).columns
    finally:
        os.close(opened)
