"""Calls of libraries in a process of their own, which begins with the same state every time.

In one process the outcome of a call depends on those before it, whatever the seed. A library that
dies takes no work with it. The files between the processes have no names, so that none is left
behind whoever is killed, and the process ends with the one that asked for it.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError

_PR_SET_PDEATHSIG = 1
_RUNNING: set[subprocess.Popen[str]] = set()
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

# Python puts the working directory first, which may hold a module of any name. Its -P, which
# leaves the directory out, came with 3.11.
_PROGRAM = """
import sys
if sys.path[0] == "":
    del sys.path[0]
from distgnn.partition.methods.library_process import main
main()
"""


class LibraryFailedError(InputError):
    """A library is installed and could not finish; another may place the parts all the same."""


def parts_by(
    library: str,
    module: str,
    write: Callable[[IO[bytes]], None],
    *,
    size: int,
    without: str,
    request: dict[str, Any],
) -> NDArray[np.int32]:
    """Have a library cut what is written to a file.

    Args:
        library: Its name, for messages.
        module: The module of this folder whose function `cut` calls it. It is given the request
            with the file as "graph", a number.
        write: Writes the file.
        size: Parts that are expected.
        without: How a user goes on without the library, for messages.
        request: JSON values for the process.

    Returns:
        (size,) int32. The parts.

    Raises:
        LibraryFailedError: If the file cannot be written, or the process cannot start or dies.
    """
    with ExitStack() as files:
        try:
            graph, out = (files.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            write(graph)
            graph.flush()
        except OSError as error:
            raise LibraryFailedError(
                f"cannot write the graph for {library} to '{tempfile.gettempdir()}': "
                f"{error.strerror or error}; name a folder with room by TMPDIR, or {without}"
            ) from error
        about = {"parent": os.getpid(), "graph": graph.fileno(), "out": out.fileno()}
        _run(library, {**request, **about, "module": module}, without)
        out.seek(0)
        found: NDArray[np.int32] = np.fromfile(out, np.int32)
    if found.size != size:
        raise LibraryFailedError(
            f"{library} wrote {found.size} parts for {size} vertices; make room in "
            f"'{tempfile.gettempdir()}', or {without}"
        )
    return found


@contextmanager
def ended_together() -> Iterator[None]:
    """End all processes of libraries, of any thread, where one of them fails or at an interrupt."""
    try:
        yield
    except BaseException:
        for process in tuple(_RUNNING):
            process.kill()
        raise


def main() -> None:
    """Do what the request says that the command line holds, in the process of the library."""
    # A library's own code would hold back an exception until it returns. Background jobs of a shell
    # ignore interrupts, and so does what they start.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    request = json.loads(sys.argv[1])
    _end_with(request["parent"])
    parts = import_module(f"distgnn.partition.methods.{request['module']}").cut(request)
    with os.fdopen(request["out"], "wb") as file:
        np.array(parts, np.int32).tofile(file)


def _run(library: str, request: dict[str, Any], without: str) -> None:
    """Run `main` in a process; the two files are open in it under the same numbers."""
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps(request, default=np.generic.item)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            pass_fds=(request["graph"], request["out"]),
        )
    except OSError as error:
        raise LibraryFailedError(
            f"cannot start a process for {library}: {error.strerror or error}; free memory, or "
            f"{without}"
        ) from error
    with process:
        _RUNNING.add(process)
        try:
            _, said = process.communicate()
        except BaseException:
            process.kill()
            raise
        finally:
            _RUNNING.discard(process)
    if process.returncode == 0:
        return
    end = f"ended with status {process.returncode}"
    if process.returncode < 0:
        end = f"was ended by signal {-process.returncode} ({signal.strsignal(-process.returncode)})"
    lines = _COLOUR.sub("", said).splitlines()
    last = "".join(f": {line}" for line in lines[-1:] if line.strip())
    raise LibraryFailedError(f"{library} {end}{last}; free memory, or {without}")


def _end_with(parent: int) -> None:
    """Have the system end this process when its parent ends, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # It ended before the request.
            sys.exit(1)
