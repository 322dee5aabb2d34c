"""The end of a process whose output goes nowhere."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Another thread ends the process, as a watchdog does.
_ENDS = """
import os, sys, threading, time
from distgnn.comm.process import end_process, print_last
def end():
    {first}
    print_last("rank 1 died")
    end_process(75)
sys.stdout.write("some words")
threading.Thread(target=end).start()
{main}
time.sleep(3600)
"""


def ended(first, main, **files):
    command = [sys.executable, "-c", _ENDS.format(first=first, main=main)]
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, env=environ, **files) as process:
        try:
            return process.wait(60)
        finally:
            process.kill()


def test_a_process_ends_though_nobody_reads_its_output():
    reader, writer = os.pipe()
    os.close(reader)
    assert ended("", "", stdout=writer, stderr=writer) == 75
    os.close(writer)


def test_a_process_ends_though_its_disk_is_full():
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        assert ended("", "", stdout=full, stderr=full) == 75


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_process_ends_though_a_pipe_is_full(name):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, bytes(4096))
    except BlockingIOError:
        os.set_blocking(writer, True)
    # Its main thread hangs in a write.
    main = f"sys.{name}.write('x' * 100000); sys.{name}.flush()"
    assert ended("time.sleep(0.2)", main, **{name: writer}) == 75
    os.close(reader)
    os.close(writer)
