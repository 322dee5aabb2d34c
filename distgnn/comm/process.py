"""Processes of this machine: who they are, whether they live, and how this one ends."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import select
import signal
import socket
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.comm.daemon import DaemonThread
from distgnn.comm.errors import EXIT_RETRY
from distgnn.comm.launch import SUPERVISED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_PR_SET_PDEATHSIG = 1
_NUM_LOOKS = 40
# Longest wait for the last words of a process that ends.
_LAST_S = 2.0
_SERVERS = "PMIX_SERVER_URI"
# Files that any program may have open, in the usual limit.
_FILES = 256
_LAUNCHER_LOOK_S = 1.0
_ORPHANED = "the launcher has ended; start the job again"
# What takes the children of a process that has ended.
_INITS = frozenset({"systemd", "init", "tini", "docker-init", "dumb-init", "catatonit", "launchd"})
_LAUNCHERS = frozenset(
    {
        "hydra_pmi_proxy",
        "pmi_proxy",
        "prterun",
        "prted",
        "orted",
        "mpirun",
        "mpiexec",
        "mpiexec.hydra",
        "slurmstepd",
        "pt_elastic",
    }
)


@dataclass(frozen=True)
class ProcessId:
    """A process, told apart from a later one that was given the same number.

    Attributes:
        machine: Boot and process namespace; equal for processes that can see each other.
        pid: Process number in that namespace.
        start: Start time in clock ticks since boot; 0 where the system does not tell.
    """

    machine: str
    pid: int
    start: int


def this_process() -> ProcessId:
    """Return the identity of the calling process."""
    return process_id(os.getpid())


def process_id(pid: int) -> ProcessId:
    """Return the identity of a process of this machine.

    Args:
        pid: Its number.
    """
    stat = _stat(pid)
    return ProcessId(machine(), pid, int(stat[19]) if stat else 0)


def machine() -> str:
    """Return a string that is equal for exactly the processes that see the same numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return socket.gethostname()
    return f"{boot} {namespace}"


def is_alive(process: ProcessId) -> bool:
    """Whether a process of this machine still runs; a zombie does not.

    Args:
        process: A process whose machine is this one.
    """
    is_foreign = False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        is_foreign = True
    if not Path("/proc/self/stat").exists():
        return True
    try:
        stat = _read_stat(process.pid)
    except OSError:  # of this process, as without a free file: no sign of the other's end
        return True
    if stat is None:  # it has ended just now, or the system hides processes of other users
        return is_foreign
    return stat[0] not in "ZX" and int(stat[19]) == process.start


def is_stopped(process: ProcessId) -> bool:
    """Whether a process of this machine is stopped, as after SIGSTOP.

    Args:
        process: A process whose machine is this one.
    """
    stat = _stat(process.pid)
    return stat is not None and stat[0] == "T" and int(stat[19]) == process.start


def launcher_process() -> ProcessId:
    """Return the process that started the ranks of this machine.

    That is the nearest ancestor with the name of a launcher, because a rank may be started
    through a wrapper such as a shell or ``time``, and else the parent.
    """
    pid = os.getppid()
    for _ in range(16):
        stat = _stat(pid)
        if stat is None or pid <= 1:
            break
        if _name(pid) in _LAUNCHERS:
            return process_id(pid)
        pid = int(stat[1])
    return process_id(os.getppid())


def die_with_parent() -> None:
    """Have this process end when its parent dies, or the launcher above a wrapper such as `time`.

    Without it the ranks of a killed launcher run on. Does nothing where the kernel is not Linux.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel knew
        os.kill(os.getpid(), signal.SIGKILL)
    launcher = launcher_process()
    if launcher.pid != parent and not _WATCHING:
        _WATCHING.append(launcher)
        _end_with(launcher)


_WATCHING: list[ProcessId] = []


def _end_with(launcher: ProcessId) -> None:
    """End this process once its launcher has, of which the kernel tells only a child."""
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(_LAUNCHER_LOOK_S):
            if not is_alive(launcher):
                print_last(_ORPHANED)
                _try(_flush)
                os._exit(EXIT_RETRY)

    thread = DaemonThread(look, name="distgnn-launcher")

    def stop() -> None:
        is_over.set()
        thread.join()

    with suppress(RuntimeError, MemoryError):  # then nothing is watched
        thread.start()
        atexit.register(stop)


def allow_files(num_files: int) -> None:
    """Let this process open more files at once, as far as the system lets it.

    Args:
        num_files: Files that it opens beside those of any program.
    """
    import resource

    wanted = num_files + _FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with suppress(OSError, ValueError):
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(most, soft), hard))


def end_orphan(environ: Mapping[str, str]) -> None:
    """End this process if its launcher died before the kernel could be told to watch it.

    Args:
        environ: The environment of this process.
    """
    # Open MPI 5 gives the address of its server on this host, Hydra an open socket of its proxy.
    servers = " ".join(value for name, value in environ.items() if name.startswith(_SERVERS))
    address = re.search(r"tcp4://127\.0\.0\.1:(\d+)", servers)
    is_orphan = False
    if address is not None:
        try:
            socket.create_connection(("127.0.0.1", int(address[1])), timeout=5).close()
        except ConnectionRefusedError:
            is_orphan = True
        except OSError:  # slow, not gone
            return
    elif known := re.fullmatch(r"(\d+):(\d+)", environ.get(SUPERVISED, "")):
        is_orphan = not is_alive(ProcessId(machine(), int(known[1]), int(known[2])))
    elif "TORCHELASTIC_RUN_ID" in environ:
        is_orphan = _name(os.getppid()) in _INITS
    elif environ.get("PMI_FD", "").isdecimal():
        look = select.poll()
        look.register(int(environ["PMI_FD"]), select.POLLHUP)
        is_orphan = any(event & (select.POLLHUP | select.POLLNVAL) for _, event in look.poll(0))
    if is_orphan:
        sys.stderr.write(f"distgnn: {_ORPHANED}\n")
        sys.stderr.flush()
        os._exit(EXIT_RETRY)


def end_process(exit_code: int) -> None:
    """Flush the standard streams and end this process without waiting for any peer.

    Args:
        exit_code: The exit status of the process.
    """
    _try(_flush)
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        # MPI_Finalize waits for the peers; Abort ends the whole job on every launcher.
        mpi.COMM_WORLD.Abort(exit_code)
    os._exit(exit_code)


_ENDS: list[int] = []


def expect_end(status: int) -> None:
    """Say that this process does nothing more but end, as all ranks of its job do now.

    Args:
        status: Its exit status.
    """
    _ENDS.append(status)


def is_end_near() -> bool:
    """Return whether the process has said so."""
    return bool(_ENDS)


@contextmanager
def limited(limit_s: float, sentence: str) -> Iterator[None]:
    """End this process if the block, which waits in a library, does not come back in time.

    Args:
        limit_s: Longest time. A process that is stopped meanwhile has that much more.
        sentence: Why it ends. Its status is that of a lost rank, unless it has one already.
    """
    is_over = threading.Event()

    def look() -> None:
        # Looks are counted, not seconds: a process that was stopped looked at nothing.
        for _ in range(_NUM_LOOKS):
            if is_over.wait(limit_s / _NUM_LOOKS):
                return
        print_last(sentence)
        _try(_flush)
        # Not MPI_Abort: it may wait for the call that waits.
        os._exit(max([0, *_ENDS]) or EXIT_RETRY)

    # Python 3.12 starts no thread once it ends, and memory may be refused: then nothing is limited.
    thread = DaemonThread(look, name="distgnn-limit")
    with suppress(RuntimeError, MemoryError):
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        if thread.is_alive():
            thread.join()


def print_last(sentence: str) -> None:
    """Print a sentence on standard error, from any thread, before this process ends.

    Args:
        sentence: Why it ends.
    """
    _try(lambda: os.write(2, f"distgnn: {sentence}\n".encode(errors="replace")))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # The reader of a pipe may be gone, as `head` is, and a disk full.
        with suppress(OSError, ValueError):
            stream.flush()


def _try(action: Callable[[], object]) -> None:
    """Do something that may fail, or block for as long as nobody reads a pipe."""

    def act() -> None:
        with suppress(OSError, ValueError):
            action()

    thread = DaemonThread(act, name="distgnn-last")
    try:
        thread.start()
    except (RuntimeError, MemoryError):  # an interpreter that ends may start none
        act()
    else:
        thread.join(_LAST_S)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str] | None:
    """Fields of a process, as `_read_stat` returns them; None if they cannot be read."""
    try:
        return _read_stat(pid)
    except OSError:
        return None


def _read_stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state (0) on: parent is 1, start time is 19.

    Returns:
        The fields; None if there is no such process.

    Raises:
        OSError: If this process may open no more files.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The name may hold spaces and parentheses, so count from the last parenthesis.
    return text.rpartition(")")[2].split()
