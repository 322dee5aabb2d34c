"""Lines that a person sees of a run."""

from __future__ import annotations

import fcntl
import importlib.util
import io
import os
import re
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from distgnn.training.loop import progress as module
from distgnn.training.loop.progress import (
    Bar,
    Lines,
    NotebookBar,
    Silent,
    brief_epoch,
    choose_progress,
    describe_epoch,
    launcher_width,
)

RECORD = {
    "epoch": 7,
    "loss": 1.23456,
    "train_metric": 0.5,
    "val_metric": 0.25,
    "test_metric": 1.0,
    "epoch_s": 0.0125,
    "exchange_wait_s": 0.002,
    "halo_bytes_sent": 3 * 2**19,
}
LINE = (
    "epoch    7  loss 1.2346  train 0.5000  val 0.2500  test 1.0000  "
    "epoch_s 0.013  wait_s 0.002  sent_MiB 1.50"
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def use_terminal(monkeypatch):
    """Not a fixture: pytest puts its own stream back between the phases of a test."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    return stream


def test_a_line_has_units_in_its_names():
    assert describe_epoch({**RECORD, "epoch_s": 0.0126}) == LINE


def test_an_epoch_without_evaluation_shows_no_metric():
    record = {**RECORD, **{f"{split}_metric": None for split in ("train", "val", "test")}}
    expected = "epoch    7  loss 1.2346  epoch_s 0.013  wait_s 0.002  sent_MiB 1.50"
    assert describe_epoch({**record, "epoch_s": 0.0126}) == expected


def test_a_screened_evaluation_is_shown_as_one():
    record = {**RECORD, **{f"{split}_metric": None for split in ("train", "val", "test")}}
    line = describe_epoch({**record, "screened_val_metric": 0.5})
    assert line.startswith("epoch    7  loss 1.2346  screened val 0.5000  epoch_s ")


def test_a_pipe_gets_one_line_an_epoch_on_standard_error(capsys):
    progress = choose_progress(rank=0, num_epochs=2)
    assert isinstance(progress, Lines)
    for _ in range(2):
        progress.epoch({**RECORD, "epoch_s": 0.0126})
    progress.close()
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"{LINE}\n{LINE}\n")


@pytest.mark.parametrize(("rank", "is_quiet"), [(1, False), (0, True), (3, True)])
def test_other_ranks_and_quiet_runs_show_nothing(rank, is_quiet, monkeypatch):
    terminal = use_terminal(monkeypatch)
    progress = choose_progress(rank=rank, num_epochs=2, is_quiet=is_quiet)
    assert isinstance(progress, Silent)
    progress.epoch(RECORD)
    progress.close()
    assert terminal.getvalue() == ""


def test_a_terminal_gets_a_bar_that_counts_from_where_the_run_was_resumed(monkeypatch):
    terminal = use_terminal(monkeypatch)
    progress = choose_progress(rank=0, num_epochs=10, done=3)
    assert isinstance(progress, Bar)
    progress.epoch(RECORD)
    progress.close()
    last = terminal.getvalue()
    assert "4/10" in last
    assert "loss 1.2346" in last
    assert "\x1b[?25h" in last, "the cursor is shown again"


def test_a_terminal_that_goes_away_ends_no_run(monkeypatch):
    terminal = use_terminal(monkeypatch)
    bar = Bar(num_epochs=10, done=0)

    def is_gone(text=""):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(terminal, "write", is_gone)
    monkeypatch.setattr(terminal, "flush", is_gone)
    bar.epoch(RECORD)
    bar.note("a line")
    bar.close()


@pytest.mark.parametrize("columns", [80, 60, 200])
def test_the_live_line_keeps_its_bar_and_its_percentage_on_one_line(columns, monkeypatch):
    terminal = use_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    bar = Bar(num_epochs=200, done=0)
    for epoch in range(100):
        bar.epoch({**RECORD, "epoch": epoch, "loss": 12345.678})
    bar.close()
    last = [line for line in plain(terminal.getvalue()).split("\r") if "100/200" in line][-1]
    # 16 columns of a bar, half of them done.
    assert re.fullmatch(r"100/200 \S{16} +50% \S+ +loss 12345\.6780.*\s*", last.rstrip("\n"))
    assert len(last.rstrip()) <= columns
    assert ("val 0.2500" in last) == (columns > 60)


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_the_figures_of_a_live_line_end_where_the_terminal_does():
    assert brief_epoch(RECORD) == "loss 1.2346  val 0.2500  1.5 MiB/epoch"
    assert brief_epoch(RECORD, 30) == "loss 1.2346  val 0.2500"
    assert brief_epoch(RECORD, 3) == "loss 1.2346"
    alone = {**RECORD, "halo_bytes_sent": 0, "val_metric": None}
    assert brief_epoch(alone) == "loss 1.2346  test 1.0000"


@pytest.mark.parametrize(("given", "epochs"), [(0, [10, 20, 23]), (7, [7, 14, 21, 23]), (1, None)])
def test_a_file_gets_a_line_every_so_many_epochs_and_the_last(given, epochs, monkeypatch, capsys):
    monkeypatch.setattr(module, "_NUM_LINES", 3)
    progress = choose_progress(rank=0, num_epochs=30, every=given)
    for epoch in range(23):  # it ends before the last epoch, as with --patience
        progress.epoch({**RECORD, "epoch": epoch})
    progress.close()
    lines = capsys.readouterr().err.splitlines()
    assert [int(line.split()[1]) + 1 for line in lines] == (epochs or list(range(1, 24)))


def test_a_pipe_of_mpirun_gets_a_live_line_where_mpirun_writes_to_a_terminal(monkeypatch):
    monkeypatch.setattr(module, "launcher_width", lambda: 100)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    progress = choose_progress(rank=0, num_epochs=10)
    assert isinstance(progress, Bar)
    progress.epoch(RECORD)
    progress.close()
    assert "\x1b[" in stream.getvalue()
    assert "1/10" in plain(stream.getvalue())


def test_the_terminal_of_a_launcher_is_found_above_this_process(tmp_path, monkeypatch):
    # A process of the name of a launcher, whose standard error is a terminal, or a pipe.
    program = tmp_path / "mpirun"
    program.symlink_to("/bin/sleep")
    main, other = os.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 97, 0, 0))
    for stream, width in ((other, 97), (subprocess.PIPE, None)):
        with subprocess.Popen([program, "60"], stderr=stream) as launcher:
            try:
                wait_for_name(launcher.pid, "mpirun")
                assert launcher_width(launcher.pid) == width
            finally:
                launcher.kill()
    os.close(main)
    os.close(other)
    assert launcher_width(1) is None
    assert launcher_width(2**22 + 1) is None


def wait_for_name(pid, name):
    for _ in range(6000):
        if f"({name})" in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} is not {name}")


class ZMQInteractiveShell:
    """A kernel of a notebook, by the name of its class."""


def test_a_notebook_gets_a_bar_that_is_redrawn(monkeypatch):
    drawn = []

    def display(content, *, display_id):
        drawn.append(content)
        return SimpleNamespace(update=drawn.append)

    package = ModuleType("IPython")
    package.get_ipython = ZMQInteractiveShell
    package.display = ModuleType("IPython.display")
    package.display.HTML, package.display.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", package.display)
    progress = choose_progress(rank=0, num_epochs=10, done=4)
    assert isinstance(progress, NotebookBar)
    for epoch in range(4, 8):
        progress.epoch({**RECORD, "epoch": epoch})
    progress.close()
    assert '<progress value="4" max="10">' in drawn[0]
    assert "8/10 80%" in drawn[-1]
    assert "loss 1.2346  val 0.2500" in drawn[-1]
    assert len(drawn) == 2, "not in every epoch of a few milliseconds"


def test_a_terminal_without_rich_gets_lines(monkeypatch):
    terminal = use_terminal(monkeypatch)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "rich" else find(n))
    progress = choose_progress(rank=0, num_epochs=2)
    assert isinstance(progress, Lines)
    progress.epoch(RECORD)
    assert terminal.getvalue().startswith("epoch    7  loss 1.2346")


class Full:
    """A log on a disk that is full."""

    def write(self, text):
        raise OSError(28, "No space left on device")


def test_a_log_that_cannot_be_written_ends_no_run(monkeypatch):
    from distgnn.api.job import say

    monkeypatch.setattr("sys.stderr", Full())
    Lines().note("a note")
    say("a sentence")
