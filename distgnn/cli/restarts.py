"""Ranks that are started here, and started again when one of them is lost."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from distgnn.api.job import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_RETRY
from distgnn.cli.flags import whole
from distgnn.comm import watchdog
from distgnn.comm.daemon import DaemonThread
from distgnn.comm.launch import SUPERVISED, detect
from distgnn.comm.process import this_process
from distgnn.datasets.errors import InputError
from distgnn.machine.facts import command_words, find_mpirun

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

_FLAGS = ("--restarts", "--mpirun", "--hosts")
# The last one comes as a terminal is closed; an mpirun that did not hear of it would run on.
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
# An end that somebody asked for, or that would come again.
_FINAL = (EXIT_BAD_INPUT, EXIT_INTERRUPTED, *(128 + number for number in _FORWARDED))
_TRACEBACK = 1
# Of a run that came to its end. Open MPI's mpirun ends with 0 if a host goes with its daemon.
_RESULTS = ("summary.json", "series.json")
# Launchers can label lines: [1,0]<stdout>:results, [0] results, 0: results.
_LABEL = rb"^(?:[^\n{]*[\]>:] ?)?"
_LAST_WORDS = re.compile(_LABEL + rb"(results |\{)", re.MULTILINE)
_FIRST_WORD = re.compile(_LABEL + rb"distgnn: ")
# Of the last ranks, once the first has failed: mpirun itself may hang when a host is lost. A rank
# with bad input ends, with a status that is final, only after the others have said so.
_GRACE_S = watchdog.GRACE_S + 3.0
# Of the others, once rank 0 has come to its end.
_LEAVING_S = 60.0
# From there on mpirun seems to hang.
_HANG_S = 2.0
_ANSWER_S = 15.0
_POLL_S = 0.05
# Longest wait for the last words of ranks, while the pipe is empty and while there is something in
# it; a process that mpirun left behind may hold it.
_WORDS_S = 2.0
_ALL_WORDS_S = 60.0
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*(?::[1-9]\d{0,4})?")


def add_restart_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the arguments about ranks that are started here.

    Args:
        group: Arguments of `distgnn train`.
    """
    add = group.add_argument
    add(
        "--restarts",
        type=whole(1),
        metavar="N",
        help="start the ranks here, one for each part of SOURCE, and start them again from the "
        "last checkpoint, at most N times, when one is lost; run it without mpirun",
    )
    add(
        "--mpirun",
        metavar="COMMAND",
        help="what --restarts starts ranks with, such as 'mpirun --bind-to socket' (default: "
        "processes of this machine)",
    )
    add(
        "--hosts",
        metavar="H1,H2,...",
        help="where --restarts starts ranks by mpirun: names, H:S for S ranks; a host that does "
        "not answer is left out, and the parts are merged to as many as there are ranks",
    )


def is_supervised(arguments: argparse.Namespace) -> bool:
    """Whether the ranks of a command are to be started, and started again, here.

    Args:
        arguments: Parsed arguments of any verb.

    Raises:
        InputError: If options say how to start ranks, but not that they are.
    """
    if getattr(arguments, "restarts", None) is not None:
        # That takes one process, and no time.
        return not arguments.print_strategy
    for name in ("mpirun", "hosts"):
        if getattr(arguments, name, None) is not None:
            raise InputError(
                f"--{name} says how --restarts starts ranks, which is not given; add --restarts N, "
                f"or leave --{name} out"
            )
    return False


def supervise(words: Sequence[str], arguments: argparse.Namespace) -> int:
    """Train on ranks that are started here, until they end or were lost too often.

    Args:
        words: Command line, after the name of the program.
        arguments: The same, parsed.

    Returns:
        Exit status of the last ranks.

    Raises:
        InputError: If the options contradict each other, or too few hosts answer.
    """
    size = detect().size
    if size > 1:
        raise InputError(
            f"--restarts starts the ranks itself, but {size} were started; leave mpirun out and "
            "name it with --mpirun, or use the restarts of the launcher with --resume "
            "--merge-parts in place of --restarts"
        )
    if arguments.overwrite:
        raise InputError(
            f"--restarts continues what it began, but --overwrite would begin again each time; "
            f"remove '{arguments.run_dir}' and leave --overwrite out"
        )
    from distgnn.api.source import num_parts_of
    from distgnn.api.use import write_note

    hosts = _hosts_of(arguments.hosts)
    parts = num_parts_of(arguments.source)
    mpirun = _mpirun_of(arguments.mpirun, is_needed=bool(hosts))
    own = _without_flags(words)
    # What was in RUN before is not this job's to continue: the ranks refuse it.
    resumes = not arguments.resume and _is_free(arguments.run_dir)
    with _forwarding() as asked:
        for attempt in range(arguments.restarts + 1):
            if asked.number:
                return 128 + asked.number
            num_ranks = min(parts, sum(hosts.values())) if hosts else parts
            if num_ranks < parts and arguments.cuts is not None:
                raise InputError(
                    f"--hosts gives {num_ranks} of the {parts} ranks that the parts need, and "
                    "those of --cuts are not merged; name more hosts, and continue with --resume"
                )
            if attempt:
                write_note(
                    f"restart {attempt} of {arguments.restarts}, on {num_ranks} "
                    f"{'rank' if num_ranks == 1 else 'ranks'}"
                )
            more = ["--merge-parts"] * (num_ranks < parts and "--merge-parts" not in own)
            more += ["--resume"] * (attempt > 0 and resumes)
            command = [sys.executable, "-m", "distgnn", *own, *more]
            job = _Job(command, num_ranks, mpirun, hosts, arguments.run_dir)
            status = job.run(asked)
            if status is None:
                write_note(job.what_failed())
            if status is not None or attempt == arguments.restarts:
                job.end_probe()
                break
            hosts = job.answering()
    return EXIT_RETRY if status is None else status


def _hosts_of(text: str | None) -> dict[str, int]:
    """Return the ranks of each host."""
    if text is None:
        return {}
    words = text.split(",")
    names = [word.partition(":")[0] for word in words]
    if not all(_HOST.fullmatch(word) for word in words) or len(set(names)) < len(names):
        raise InputError(
            f"--hosts must be different names between commas, each perhaps with a number of ranks, "
            f"such as node1:2,node2, got {text!r}"
        )
    return {name: int(word.partition(":")[2] or 1) for name, word in zip(names, words, strict=True)}


def _mpirun_of(text: str | None, *, is_needed: bool) -> list[str]:
    """Return the words that start ranks; none for processes of this machine.

    Raises:
        InputError: If the command of the user cannot be split, or there is no mpirun.
    """
    if text is not None:
        return command_words("--mpirun", text)
    if not is_needed:
        return []
    found = find_mpirun()
    if found is None:
        raise InputError(
            "--hosts needs mpirun, which is not installed; pip install 'distgnn[mpi]', or name "
            "another launcher with --mpirun"
        )
    return [found]


def _is_free(folder: str | None) -> bool:
    """Return whether a directory holds nothing yet, but for hidden files."""
    return folder is None or next(Path(folder).glob("[!.]*"), None) is None


def _results_in(folder: str | None) -> set[tuple[str, int, int]]:
    """Return the results in the directory of a run, each time they are written another set."""
    found = set()
    for name in _RESULTS if folder else ():
        with suppress(OSError):
            facts = Path(str(folder), name).stat()
            found.add((name, facts.st_ino, facts.st_mtime_ns))
    return found


def _without_flags(words: Sequence[str]) -> list[str]:
    """Leave out the options that the ranks must not have, with their values."""
    kept: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if word in _FLAGS:
            next(waiting, None)
        elif not word.startswith(tuple(f"{flag}=" for flag in _FLAGS)):
            kept.append(word)
    return kept


def _print(said: bytes) -> None:
    """Print what ranks printed, which another encoding of the output may not be able to hold."""
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(said.decode(errors="replace"))
    else:
        sys.stdout.flush()
        buffer.write(said)
    sys.stdout.flush()


class _Probe:
    """Attempt to start something on each host, to learn which ones are left.

    Args:
        mpirun: Command that starts ranks.
        hosts: Ranks of each host.
    """

    def __init__(self, mpirun: list[str], hosts: Mapping[str, int]) -> None:
        self._hosts = hosts
        self._tried: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for name in hosts:
                self._tried[name] = subprocess.Popen(
                    [*mpirun, "-n", "1", "--host", name, "true"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        except OSError:
            self.end()
            raise

    def end(self) -> None:
        """Kill what still tries."""
        for process in self._tried.values():
            _kill(process)

    def answering(self) -> dict[str, int]:
        """Return the hosts that answer, with their ranks.

        Raises:
            InputError: If none does.
        """
        from distgnn.api.use import write_note

        # From now on: the job that was lost may have held the slots of its hosts until now.
        deadline_s = time.monotonic() + _ANSWER_S
        found: dict[str, int] = {}
        for name, process in self._tried.items():
            with suppress(subprocess.TimeoutExpired):
                if process.wait(max(0.0, deadline_s - time.monotonic())) == 0:
                    found[name] = self._hosts[name]
        self.end()
        lost = [name for name in self._hosts if name not in found]
        if not found:
            raise InputError(
                f"none of the hosts {', '.join(self._hosts)} answers mpirun within "
                f"{_ANSWER_S:g} s; see whether they are up, and continue with the same "
                "command and --resume"
            )
        if lost:
            write_note(f"without {', '.join(lost)}, on which nothing could be started")
        return found


@dataclass
class _Asked:
    """Request of a signal to end.

    Attributes:
        number: Signal; 0 for none.
        processes: Processes that it is passed on to.
    """

    number: int
    processes: list[subprocess.Popen[bytes]]


@contextmanager
def _forwarding() -> Iterator[_Asked]:
    """Pass signals on to the ranks, which have a session of their own."""
    asked = _Asked(0, [])

    def forward(number: int, frame: object) -> None:
        del frame
        asked.number = asked.number or number
        for process in asked.processes:
            with suppress(ProcessLookupError):
                process.send_signal(number)

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    # Under nohup, and in the background of a script, the job is to live on.
    deaf = [
        kind for kind in (signal.SIGHUP, signal.SIGINT) if signal.getsignal(kind) is signal.SIG_IGN
    ]
    kinds = [kind for kind in _FORWARDED if kind not in deaf]
    before = [signal.signal(kind, forward) for kind in kinds]
    try:
        yield asked
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)


class _Job:
    """Ranks that are started together once.

    Args:
        command: Command of a rank.
        num_ranks: Number of ranks.
        mpirun: Command that starts them; empty for processes of this machine.
        hosts: Ranks of each host; empty for this machine.
        run_dir: Directory of the run, which this host may see later than the ranks, or never.
    """

    def __init__(
        self,
        command: list[str],
        num_ranks: int,
        mpirun: list[str],
        hosts: Mapping[str, int],
        run_dir: str | None = None,
    ) -> None:
        self._command = command
        self._num_ranks = num_ranks
        self._mpirun = mpirun
        self._hosts = hosts
        self._run_dir = run_dir
        self._codes: list[int] = []
        self._is_cut_off = False
        self._probe: _Probe | None = None
        self._has_spoken = threading.Event()
        self._listener: threading.Thread | None = None

    def run(self, asked: _Asked) -> int | None:
        """Start the ranks, wait for them, and print what they print unless one was lost.

        Args:
            asked: Request to end.

        Returns:
            Exit status; None if the ranks are to be started again.
        """
        # What ranks print that are then lost would be printed twice.
        with tempfile.TemporaryFile() as printed:
            before = _results_in(self._run_dir)
            started: list[subprocess.Popen[bytes]] = []
            try:
                # One by one: the system may refuse a process after the first ones have begun.
                self._start(printed, started)
                asked.processes[:] = started
                if asked.number:  # it came before there was anybody to pass it on to
                    for process in started:
                        process.send_signal(asked.number)
                self._wait(started, asked)
            finally:
                for process in started:
                    _kill(process)
                asked.processes[:] = []
            printed.seek(0)
            said = printed.read()
            has_ended = _LAST_WORDS.search(said) or _results_in(self._run_dir) - before
            self._is_cut_off = bool(self._mpirun) and not has_ended
            status = self._status(asked.number)
            if status is not None:
                _print(said)
            return status

    def answering(self) -> dict[str, int]:
        """Return the hosts that are left, with their ranks.

        Raises:
            InputError: If there are none.
        """
        if not self._hosts:
            return {}
        self._ask()
        assert self._probe is not None, "it was made just now"
        return self._probe.answering()

    def _ask(self) -> None:
        """Begin to ask which hosts are left, unless that was begun."""
        if self._hosts and self._probe is None:
            self._probe = _Probe(self._mpirun, self._hosts)

    def end_probe(self) -> None:
        """Ask no further which hosts are left."""
        if self._probe is not None:
            self._probe.end()

    def what_failed(self) -> str:
        """Return which ranks were lost, as far as this process knows."""
        if self._mpirun:
            how = "" if self._codes[0] else ", but rank 0 did not come to its end"
            return f"mpirun ended with {_end_of(self._codes[0])}{how}"
        return ", ".join(
            f"rank {rank} ended with {_end_of(code)}"
            for rank, code in enumerate(self._codes)
            if code
        )

    def _start(self, printed: IO[bytes], started: list[subprocess.Popen[bytes]]) -> None:
        """Start the ranks, and add each process to a list as it begins."""
        if self._mpirun:
            places = ",".join(f"{name}:{ranks}" for name, ranks in self._hosts.items())
            words = [*self._mpirun, "-n", str(self._num_ranks)]
            words += ["--host", places] * bool(places)
            process = subprocess.Popen(
                [*words, *self._command],
                stdout=printed,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            started.append(process)
            self._listener = DaemonThread(self._relay, (process,))
            self._listener.start()
            return
        me = this_process()
        # As torchrun does it, so that the ranks meet in a file that is this job's alone.
        job = {
            "TORCHELASTIC_RUN_ID": uuid.uuid4().hex,
            "TORCHELASTIC_RESTART_COUNT": "0",
            SUPERVISED: f"{me.pid}:{me.start}",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
            "WORLD_SIZE": str(self._num_ranks),
            "LOCAL_WORLD_SIZE": str(self._num_ranks),
        }
        for rank in range(self._num_ranks):
            process = subprocess.Popen(
                self._command,
                env={**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=printed,
                start_new_session=True,
            )
            started.append(process)

    def _relay(self, process: subprocess.Popen[bytes]) -> None:
        """Pass on what ranks say, and notice that one has failed even if mpirun does not end."""
        assert process.stderr is not None, "it was asked for"
        with process.stderr as lines:
            for line in lines:
                # A log that is full is no reason to end: mpirun waits for whoever reads.
                with suppress(OSError):
                    sys.stderr.write(line.decode(errors="replace"))
                    sys.stderr.flush()
                if _FIRST_WORD.match(line):
                    self._has_spoken.set()

    def _wait(self, started: list[subprocess.Popen[bytes]], asked: _Asked) -> None:
        """Wait until all have ended; kill those that have not soon after the first has failed."""
        from distgnn.api.use import write_note

        deadline_s = float("inf")
        killed: list[subprocess.Popen[bytes]] = []
        while None in (codes := [process.poll() for process in started]):
            if any(codes) or self._has_spoken.is_set():
                deadline_s = min(deadline_s, time.monotonic() + _GRACE_S)
            elif codes[0] == 0:  # the results are written, and another rank may be stopped
                deadline_s = min(deadline_s, time.monotonic() + _LEAVING_S)
            left_s = deadline_s - time.monotonic()
            if left_s < _GRACE_S - _HANG_S and not asked.number:
                # A lost host answers late or never: ask while mpirun waits for it, too.
                self._ask()
            if left_s < 0:
                if codes[0] == 0:
                    late = [str(rank) for rank, code in enumerate(codes) if code is None]
                    write_note(f"rank {', '.join(late)} did not end after rank 0, and is ended")
                killed = [process for process in started if process.poll() is None]
                for process in killed:
                    _kill(process)
            time.sleep(_POLL_S)
        # Ranks that were killed here say nothing about the failure; an mpirun hangs after one.
        self._codes = [
            0 if process in killed and not self._mpirun else int(process.wait())
            for process in started
        ]
        if self._listener is not None:
            _hear_out(self._listener, started[0].stderr)

    def _status(self, asked: int) -> int | None:
        if not any(self._codes) and not self._is_cut_off:
            return 0
        if asked:
            return 128 + asked
        for code in self._codes:
            if code in _FINAL:
                return code
        # mpirun ends so for reasons of its own, too.
        is_ours = not self._mpirun and all(code >= 0 for code in self._codes)
        return _TRACEBACK if is_ours and _TRACEBACK in self._codes else None


def _hear_out(listener: threading.Thread, pipe: IO[bytes] | None) -> None:
    """Wait until a thread that reads a pipe has passed on what is in it."""
    deadline_s = time.monotonic() + _ALL_WORDS_S
    while listener.is_alive() and time.monotonic() < deadline_s:
        listener.join(_WORDS_S)
        try:
            # At its end, too: the thread may not have been scheduled to see it.
            if pipe is None or not select.select([pipe], [], [], 0)[0]:
                return
        except ValueError:  # the thread has closed it
            return


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _end_of(code: int) -> str:
    if code >= 0:
        return f"status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
