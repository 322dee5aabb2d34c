"""Signals that a scheduler sends: the run ends in order, or at once if it is asked twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from distgnn.training.run import signals

LIMIT_S = 240


@contextmanager
def started(ring, run, *words):
    """A run that goes on for longer than any test."""
    command = [sys.executable, "-m", "distgnn", "train", str(ring), "--run", str(run), *words]
    with subprocess.Popen(
        [*command, "--quiet", "--checkpoint-every", "0", "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        wait_for(lambda: (run / "metrics.jsonl").exists() or job.poll() is not None)
        try:
            yield job
        finally:
            job.kill()


def wait_for(condition):
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_run_that_is_told_to_end_writes_a_checkpoint_and_says_so(number, distgnn, ring, here):
    run = here / "r"
    with started(ring, run, "--epochs", "1000000") as job:
        job.send_signal(number)
        out, err = job.communicate(timeout=LIMIT_S)
    assert (job.returncode, out) == (128 + number, "")
    num_epochs = len((run / "metrics.jsonl").read_text().splitlines())
    assert err.startswith("distgnn: rank 0 (")
    assert err.endswith(
        f") was asked to stop by {number.name}: the checkpoint of epoch {num_epochs} is written; "
        "continue with the same command and --resume\n"
    )
    assert not (run / "summary.json").exists()
    more = num_epochs + 2
    outcome = distgnn("train", ring, "--run", run, "--epochs", more, "--resume", "--json")
    assert outcome.json["num_epochs"] == more
    assert f"resuming from epoch {num_epochs}\n" in outcome.err


HEARS = """
import os, signal, sys, time
from distgnn.training.run import signals
signals.ECHO_S = float(sys.argv[1])
with signals.StopSignals().heard() as stop:
    for number in (signal.SIGUSR1, signal.SIGTERM):
        os.kill(os.getpid(), number)
        while not stop.signal_number:
            time.sleep(0.01)
    if signals.ECHO_S == 0.0:
        time.sleep(240)
print(stop.signal_number)
"""


def test_a_second_signal_ends_the_run_at_once():
    done = subprocess.run(
        [sys.executable, "-c", HEARS, "0"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "")
    assert done.stderr == "distgnn: ended at once by a second SIGTERM\n"


def test_a_signal_that_comes_in_two_ways_is_one():
    """A service manager signals all processes, of which the one that started ranks passes it on."""
    done = subprocess.run(
        [sys.executable, "-c", HEARS, "1e9"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{signal.SIGUSR1:d}\n"


def test_the_first_signal_is_remembered_and_the_handlers_come_back():
    before = [signal.getsignal(kind) for kind in signals.KINDS]
    with signals.StopSignals().heard() as stop:
        assert stop.signal_number == 0
        os.kill(os.getpid(), signal.SIGTERM)
        wait_for(lambda: stop.signal_number)
        assert stop.signal_number == signal.SIGTERM
    assert [signal.getsignal(kind) for kind in signals.KINDS] == before


def test_other_threads_than_the_main_one_leave_signals_alone():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def listen():
        with signals.StopSignals().heard():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert seen == [before]
