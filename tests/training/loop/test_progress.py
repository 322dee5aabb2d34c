"""Lines that a person sees of a run."""

from __future__ import annotations

import importlib.util
import io
import sys

import pytest

from distgnn.training.loop.progress import Bar, Lines, Silent, choose_progress, describe_epoch

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


def test_a_terminal_without_rich_gets_lines(monkeypatch):
    terminal = use_terminal(monkeypatch)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "rich" else find(n))
    progress = choose_progress(rank=0, num_epochs=2)
    assert isinstance(progress, Lines)
    progress.epoch(RECORD)
    assert terminal.getvalue().startswith("epoch    7  loss 1.2346")
