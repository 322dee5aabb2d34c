"""Threads whose start fails where Python's own would wait for ever."""

from __future__ import annotations

import threading

import pytest

from distgnn.comm import daemon
from distgnn.comm.daemon import DaemonThread


def test_it_does_its_work_and_does_not_keep_the_interpreter():
    found = []
    thread = DaemonThread(found.append, (3,), "distgnn-test")
    thread.start()
    thread.join(60)
    assert (found, thread.daemon, thread.name) == ([3], True, "distgnn-test")
    assert DaemonThread(print).name.startswith("Thread-")


def test_a_thread_that_finds_no_memory_for_its_first_steps_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(daemon, "_LOOK_S", 0.01)
    # What the new thread runs first, and where it ends without a word.
    monkeypatch.setattr(threading.Thread, "_bootstrap", lambda _: None)
    thread = DaemonThread(print)
    with pytest.raises(MemoryError, match="a new thread did not begin"):
        thread.start()
    assert not thread.is_alive()


def test_a_thread_that_was_given_up_does_nothing_when_it_begins_late(monkeypatch):
    monkeypatch.setattr(daemon, "_LOOK_S", 0.01)
    found = []
    monkeypatch.setattr(threading.Thread, "_bootstrap", lambda _: None)
    thread = DaemonThread(found.append, (3,))
    with pytest.raises(MemoryError, match="did not begin"):
        thread.start()
    thread.run()
    assert found == []
