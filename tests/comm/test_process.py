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


@pytest.mark.parametrize(
    ("limit_s", "status", "said"), [(0.5, 75, "distgnn: no MPI\n"), (600, 0, "")]
)
def test_a_wait_in_a_library_is_limited(limit_s, status, said):
    code = (
        "import time\nfrom distgnn.comm.process import limited\n"
        f"with limited({limit_s}, 'no MPI'):\n    time.sleep({3600 * (status > 0)})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (status, said)


@pytest.mark.parametrize(
    "waits",
    [
        # Where rank 0 is known through MPI alone, and where the ranks have met and load it.
        (
            "rendezvous._load_mpi = forever\n"
            "rendezvous.meet_remotely(launch, {}, interface=None, timeout_s=0.5)"
        ),
        (
            "opened.load_mpi = forever\n"
            "roster = SimpleNamespace(hearing=nullcontext)\n"
            "opened.choose_backend('mpi', launch, None, roster, interface=None, timeout_s=0.5)"
        ),
    ],
)
def test_mpi_that_never_starts_ends_a_rank_by_name(waits):
    code = (
        "import time\nfrom contextlib import nullcontext\nfrom types import SimpleNamespace\n"
        "from distgnn.comm import open as opened, rendezvous\n"
        "from distgnn.comm.launch import Launch\n"
        "forever = lambda *_: time.sleep(3600)\n"
        "launch = Launch('openmpi', rank=1, size=4, local_rank=0, local_size=1)\n" + waits
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 75, done.stderr
    assert "distgnn: rank 1 (" in done.stderr
    assert "waited 0.5 s for MPI to start on all ranks: a host cannot be reached" in done.stderr


@pytest.mark.parametrize(
    ("is_near", "limit_s", "wait_s", "status"),
    [(True, 0.5, 3600, 75), (True, 600, 0, 0), (False, 0.5, 3, 0)],
)
def test_an_end_of_mpi_that_never_comes_is_waited_for_by_scripts_only(
    is_near, limit_s, wait_s, status
):
    code = (
        "import ctypes, time\nfrom types import SimpleNamespace as Fake\n"
        "from distgnn.comm import mpi_library\nfrom distgnn.comm.process import expect_end\n"
        f"is_near, mpi_library._FINALIZE_S = {is_near}, {limit_s}\n"
        "mpi = Fake(Is_finalized=lambda: False, SUCCESS=0, __file__='libmpi.so')\n"
        "mpi_library._STARTED.append(mpi)\n"
        f"end = lambda: time.sleep({wait_s}) or 0\n"
        "ctypes.CDLL = lambda name: Fake(MPI_Finalize=end)\n"
        "print('results')\n"
        "if is_near:\n    expect_end(0)\n"
        "mpi_library.finalize_mpi(mpi, 2)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (status, "results\n"), done.stderr
    said = "waited 0.5 s for all ranks to end MPI: a host cannot be reached, or a rank ended before"
    assert (said in done.stderr) == (status > 0)


def test_no_process_is_dead_because_no_file_is_free():
    script = """
import resource
from dataclasses import replace
from distgnn.comm.process import is_alive, this_process
me = this_process()
gone = replace(me, pid=2**22 - 1)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
try:
    open("/proc/self/stat")
except OSError:
    print(is_alive(me), is_alive(gone))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.stdout == "True False\n", done.stderr
