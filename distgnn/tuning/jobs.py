"""Trials as processes of their own, several at once, each with ranks, threads and cores."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from distgnn.api.job import EXIT_RETRY
from distgnn.api.settings import config_of
from distgnn.datasets.errors import InputError
from distgnn.machine.facts import command_words, find_mpirun
from distgnn.settings.fields import flag_of, settings_of
from distgnn.training.run.directory import RunDirectory
from distgnn.tuning.in_job import METRIC, clone_run, followed, read_curve, read_losses
from distgnn.tuning.trial import StintResult, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from distgnn.training.config.settings import TrainConfig

MOST_DEATHS = 5
"""Deaths of a job without a new checkpoint after which its trial has failed."""
LOGS = "logs"
# A launcher may report the signal that ended a rank as its own status.
_RETRIED = (EXIT_RETRY, 128 + signal.SIGKILL, 128 + signal.SIGTERM)
_SAID = "distgnn: "
_LOOK_S = 0.05
_PATIENCE_S = 30.0


@dataclass(frozen=True)
class JobSlots:
    """Processes of a study.

    Attributes:
        jobs: Number of trials that are trained at once.
        ranks: Ranks of a trial.
        threads: Threads of a rank; None for an equal share of the cores.
        launcher: Words that start the ranks of a trial, such as "srun -n 4"; None for mpirun, or
            for a plain process where a trial has one rank.
    """

    jobs: int
    ranks: int = 1
    threads: int | None = None
    launcher: str | None = None

    def check(self) -> list[list[int]]:
        """Return the cores of each slot.

        Returns:
            For each slot the numbers of its cores; nothing where a launcher of the user's own
            chooses machines and cores.

        Raises:
            InputError: If there are too few cores, or the launcher is no command.
        """
        cores = sorted(os.sched_getaffinity(0))
        if self.launcher is not None:
            command_words("--launcher", self.launcher)
            return []
        share = len(cores) // self.jobs if self.threads is None else self.ranks * self.threads
        if share < self.ranks or share * self.jobs > len(cores):
            threads = self.threads or 1
            needed = self.jobs * self.ranks * threads
            raise InputError(
                f"--jobs {self.jobs} needs {self.jobs} x --ranks {self.ranks} x --threads "
                f"{threads} = {needed} cores, but this machine has {len(cores)}; ask for fewer, "
                "or give a --launcher that chooses the machines"
            )
        return [cores[slot * share : (slot + 1) * share] for slot in range(self.jobs)]

    def words(self, cores: Sequence[int]) -> list[str]:
        """Return the words before `distgnn train`.

        Args:
            cores: Cores of the slot; none to leave the choice to the launcher.

        Raises:
            InputError: If there is no mpirun to start several ranks.
        """
        words = []
        if cores and shutil.which("taskset"):
            words += ["taskset", "-c", ",".join(map(str, cores))]
        if self.launcher is not None:
            return [*words, *command_words("--launcher", self.launcher)]
        if self.ranks > 1:
            mpirun = find_mpirun()
            if mpirun is None:
                raise InputError(
                    f"--ranks {self.ranks} needs mpirun, which is not installed; pip install "
                    "'distgnn[mpi]', or give a --launcher"
                )
            # The ranks share the cores of the slot, which mpirun would not know.
            words += [mpirun, "-n", str(self.ranks), "--oversubscribe", "--bind-to", "none"]
        return words


@dataclass
class _Running:
    trial: Trial
    epochs: int
    slot: int
    process: subprocess.Popen[bytes]
    begun: float
    deaths: int
    seen: int


class Jobs:
    """Runs several jobs at once, each as `distgnn train`.

    A trial whose process dies is started again from its checkpoint; what happens to it does not
    touch the others. The output of each trial is kept below logs.

    Args:
        slots: Processes of the study.
        folder: Directory of the study.
        words: Words of `distgnn train` that all trials share: the source, and flags.
        objective: Name of what is compared.
        config_of: Returns the configuration for settings of a trial; by default that of these
            settings alone.
    """

    def __init__(
        self,
        slots: JobSlots,
        folder: Path,
        words: Sequence[str],
        objective: str = METRIC,
        config_of: Callable[[Mapping[str, Any]], TrainConfig] = config_of,
    ) -> None:
        self._objective = objective
        self._config_of = config_of
        self.num_slots = slots.jobs
        self._slots = slots
        self._cores = slots.check()
        # Processes are found again by the path of their run, wherever the study is continued.
        self._folder = folder.resolve()
        self._words = list(words)
        self._waiting: list[tuple[Trial, int]] = []
        self._running: list[_Running] = []

    def start(self, trial: Trial, epochs: int) -> None:
        """Start a process, or put the stint into the queue; see `Trainable`."""
        self._waiting.append((trial, epochs))
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self.num_slots:
            taken = {running.slot for running in self._running}
            slot = next(slot for slot in range(self.num_slots) if slot not in taken)
            trial, epochs = self._waiting.pop(0)
            self._running.append(
                _Running(
                    *(trial, epochs, slot, self._launch(trial, epochs, slot)),
                    begun=time.perf_counter(),
                    deaths=0,
                    seen=self._num_checkpointed(trial),
                )
            )

    def _launch(self, trial: Trial, epochs: int, slot: int) -> subprocess.Popen[bytes]:
        cores = self._cores[slot] if self._cores else []
        threads = self._slots.threads or max(1, len(cores) // self._slots.ranks)
        run = f"--run={self._folder / trial.name}"
        words = [
            *self._slots.words(cores),
            *(sys.executable, "-m", "distgnn", "train", *self._words),
            *words_of(trial.settings),
            *(run, f"--pause-after={epochs}", "--resume", "--quiet"),
            *([] if self._slots.launcher and not self._slots.threads else [f"--threads={threads}"]),
        ]
        end_left(run)
        with self._open_log(trial, words) as log:
            try:
                # A group of its own, so that all ranks of a trial can be ended.
                return subprocess.Popen(
                    words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
                )
            except OSError as error:
                raise InputError(
                    f"cannot start '{words[0]}': {error.strerror}; check --launcher"
                ) from error

    def _open_log(self, trial: Trial, words: Sequence[str]) -> BinaryIO:
        """Open the log of a trial, and begin it with the command that is started."""
        logs = self._folder / LOGS
        try:
            logs.mkdir(exist_ok=True)
            log = (logs / f"{trial.name}.log").open("ab")
            log.write(f"$ {shlex.join(words)}\n".encode())
            log.flush()
        except OSError as error:
            raise InputError(
                f"cannot write '{logs}': {error.strerror}; put that right and continue with "
                "the same command and --resume, or choose another --run"
            ) from error
        return log

    def _num_checkpointed(self, trial: Trial) -> int:
        names = sorted(RunDirectory(self._folder / trial.name).checkpoints.glob("epoch-*"))
        return int(names[-1].name.partition("-")[2]) if names else 0

    def wait(self) -> tuple[int, StintResult]:
        """Wait for a process to end; see `Trainable`."""
        try:
            while True:
                for running in self._running:
                    outcome = self._outcome(running)
                    if outcome is not None:
                        self._running.remove(running)
                        self._fill()
                        return running.trial.number, outcome
                time.sleep(_LOOK_S)
        except BaseException:
            self.close()
            raise

    def _outcome(self, running: _Running) -> StintResult | None:
        code = running.process.poll()
        if code is None:
            return None
        folder = RunDirectory(self._folder / running.trial.name)
        seconds = time.perf_counter() - running.begun
        if code == 0:
            curve = read_curve(folder, self._objective)
            return StintResult(curve, None, seconds, read_losses(folder))
        if code < 0 or code in _RETRIED:
            now = self._num_checkpointed(running.trial)
            running.deaths = 0 if now > running.seen else running.deaths + 1
            running.seen = now
            if running.deaths < MOST_DEATHS:
                running.process = self._launch(running.trial, running.epochs, running.slot)
                return None
        return StintResult([], self._why(running.trial, code), seconds)

    def _why(self, trial: Trial, code: int) -> str:
        """Return the sentence of the error that ended a trial, or where to look for it."""
        log = self._folder / LOGS / f"{trial.name}.log"
        # Each start begins with its command; what was said before belongs to an earlier one.
        said = log.read_text(errors="replace").rpartition("\n$ ")[2]
        lines = [line.strip() for line in said.splitlines()]
        sentences = [line for line in lines if line.startswith(_SAID)]
        if sentences:
            return sentences[-1].removeprefix(_SAID)
        return f"it ended with status {code}; see '{log}'"

    def close(self) -> None:
        """End all processes; their trials continue from their checkpoints later."""
        for running in self._running:
            if running.process.poll() is None:
                os.killpg(running.process.pid, signal.SIGTERM)
        for running in self._running:
            try:
                running.process.wait(timeout=_PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(running.process.pid, signal.SIGKILL)
                running.process.wait()
        self._running = []

    def clone(self, parent: Trial, child: Trial) -> None:
        """Copy a run; see `Trainable`."""
        settings = followed(child.settings, self._config_of(child.settings))
        clone_run(self._folder / parent.name, self._folder / child.name, settings)


def end_left(run: str) -> None:
    """End the processes of a trial that a killed study or launcher left behind.

    Args:
        run: Word of their command lines that no others have: the path of the run.
    """
    begun, asked = time.monotonic(), set[int]()
    while left := set(_processes_with(run)):
        waited_s = time.monotonic() - begun
        if waited_s > 2 * _PATIENCE_S:
            return  # not ours to end; the lock of the run names its owner
        is_late = waited_s > _PATIENCE_S
        # A second SIGTERM would interrupt what the first one asked for, such as a checkpoint.
        for number in left if is_late else left - asked:
            # It may have ended by itself just before.
            with suppress(OSError):
                os.kill(number, signal.SIGKILL if is_late else signal.SIGTERM)
        asked |= left
        time.sleep(_LOOK_S)


def _processes_with(word: str) -> list[int]:
    """List the processes of this machine that run and have a word in their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        # It may end while it is looked at. That of a process that ended is empty.
        with suppress(OSError):
            if word.encode() in (process / "cmdline").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def words_of(settings: Mapping[str, Any]) -> list[str]:
    """Return settings of a model and its training as flags of `distgnn train`.

    Args:
        settings: Values by name.
    """
    from distgnn.nn.config import ModelConfig
    from distgnn.training.config.settings import TrainConfig

    known = {s.name: s for owner in (ModelConfig, TrainConfig) for s in settings_of(owner)}
    words = []
    for name, value in settings.items():
        if value is None:
            continue
        if known[name].is_plain:
            words.append(flag_of(name) if value else f"--no-{flag_of(name)[2:]}")
        elif known[name].kind is bool:
            words.append(f"{flag_of(name)}={'on' if value else 'off'}")
        else:
            words.append(f"{flag_of(name)}={value}")
    return words
