"""Ranks as forks of one process that has imported everything: they start in a tenth of a second.

Import this before anything else: the parent may run no kernel, as a fork would then hang in its
first one. A rank may be put on a host of the lab: in its namespaces of processes, files, network.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"

import distgnn.api.training
import distgnn.api.verbs
import distgnn.comm.transports.gloo
import distgnn.training.data.inputs
import distgnn.training.loop.graphs
import distgnn.training.loop.trainer  # noqa: F401
from distgnn.cli import main

_M_MMAP_THRESHOLD = -3
_NAMESPACES = ("mnt", "uts", "ipc", "net", "pid")


class Rank(NamedTuple):
    """A rank that was started; `parent` ends with its status.

    Attributes:
        pid: Process id of the rank.
        parent: Process id of the child of this process to wait for; the same on this host.
    """

    pid: int
    parent: int


def start(
    words: list[str], environ: dict[str, str], out: Path, host_pid: int | None = None
) -> Rank:
    """Start `distgnn` with these words.

    Args:
        words: The verb and what follows.
        environ: Added to the environment: who the rank is.
        out: File that output and errors are added to.
        host_pid: First process of a host of the lab; None stays on this one.
    """
    sys.stdout.flush()
    told, tell = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.close(told)
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(file, 1)
            os.dup2(file, 2)
            os.environ.update(environ)
            if (threshold := environ.get("MALLOC_MMAP_THRESHOLD_")) is not None:
                # The C library has read its environment long ago.
                ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, int(threshold))
            if host_pid is not None:
                _enter(host_pid, tell)
            else:
                os.write(tell, f"{os.getpid()}".encode())
            os.close(tell)
            status = main(words)
        except BaseException as error:  # noqa: BLE001 - nothing may reach the parent's code
            status = 1
            if isinstance(error, SystemExit):
                status = error.code if isinstance(error.code, int) else 1
            else:
                os.write(2, f"Traceback: {type(error).__name__}: {error}\n".encode())
        # An error here would go on in the code of the parent; a log may be full.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(int(status))
    os.close(tell)
    pid = int(os.read(told, 20))
    os.close(told)
    return Rank(pid, parent)


def _enter(host_pid: int, tell: int) -> None:
    """Go to a host; returns in a process of its own there, whose status this one relays."""
    libc, folder = ctypes.CDLL(None, use_errno=True), Path.cwd()
    files = [os.open(f"/proc/{host_pid}/ns/{name}", os.O_RDONLY) for name in _NAMESPACES]
    for name, file in zip(_NAMESPACES, files, strict=True):
        if libc.setns(file, 0):
            raise OSError(ctypes.get_errno(), f"cannot enter namespace {name}")
        os.close(file)
    os.chdir(folder)
    child = os.fork()
    if child:
        os.write(tell, f"{child}".encode())
        os.close(tell)
        status = os.waitpid(child, 0)[1]
        os._exit(os.waitstatus_to_exitcode(status) & 0x7F if os.WIFEXITED(status) else 137)


def statuses(ranks: list[Rank], limit_s: float) -> list[int]:
    """Wait for ranks; what each ended with, negative for a signal.

    Raises:
        TimeoutError: If one does not end in time; all are killed then.
    """
    found: dict[int, int] = {}
    deadline_s = time.monotonic() + limit_s
    while len(found) < len(ranks):
        for rank in ranks:
            if rank.parent not in found and (ended := os.waitpid(rank.parent, os.WNOHANG))[0]:
                found[rank.parent] = os.waitstatus_to_exitcode(ended[1])
        if time.monotonic() > deadline_s:
            for rank in ranks:
                if rank.parent not in found:
                    os.kill(rank.pid, 9)
                    os.waitpid(rank.parent, 0)
            raise TimeoutError(f"a rank ran for more than {limit_s:g} s")
        time.sleep(0.005)
    return [found[rank.parent] for rank in ranks]
