"""The command line: `distgnn VERB ...`, one module a verb."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from distgnn import __version__
from distgnn.api.environment import prepare_environment
from distgnn.api.job import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_RETRY, ending_process, say
from distgnn.cli.evaluate_verb import is_series
from distgnn.cli.help import Parser, parse
from distgnn.cli.restarts import is_supervised, supervise
from distgnn.comm import early
from distgnn.comm.collective import as_input_error
from distgnn.comm.errors import PeerError
from distgnn.comm.launch import detect
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

VERBS = (
    "partition",
    "repartition",
    "inspect",
    "train",
    "tune",
    "evaluate",
    "predict",
    "embed",
    "export",
    "report",
    "datasets",
    "doctor",
    "plan",
    "bench",
)
# Each rank would do all the work, and print it.
_IN_ONE_PROCESS = ("inspect", "export", "report", "datasets", "plan", "bench")


def build_parser(known: Sequence[str] = VERBS) -> Parser:
    """Build the parser of the command line.

    Args:
        known: Verbs that it knows: all, unless the one that is given is known to be one.
    """
    parser = Parser(
        prog="distgnn",
        description="Full-batch training of graph neural networks on clusters of CPU sockets.",
    )
    parser.add_argument("--version", action="version", version=f"distgnn {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name in known:
        module = importlib.import_module(f"distgnn.cli.{name}_verb")
        # No abbreviations: a script that uses one would break with the next flag.
        verb = verbs.add_parser(
            name,
            help=module.HELP,
            description=f"{module.HELP}.".capitalize(),
            epilog=getattr(module, "EPILOG", None),
            usage=getattr(module, "USAGE", None),
            examples=getattr(module, "EXAMPLES", ""),
            common=getattr(module, "COMMON", ()),
            allow_abbrev=False,
        )
        module.add_arguments(verb)
        verb.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments after the program's name; those of the process if None.

    Returns:
        Exit status: 0; 2 for bad input; 75 if another rank died; 130 if interrupted.
    """
    is_speaker = True
    prepare_environment()
    try:
        is_speaker = detect().rank == 0
        early.begin()
        from distgnn.cli.recipes import expanded

        given = sys.argv[1:] if argv is None else argv
        # The other verbs are not loaded: each rank would wait for their modules and flags.
        known = given[:1] if given and given[0] in VERBS else VERBS
        arguments = parse(build_parser(known), expanded(given))
        if is_supervised(arguments):
            return supervise(given, arguments)
        _check_alone(arguments.verb)
        _come(arguments)
        with _insistent_interrupts(), ending_process():
            return int(arguments.run(arguments))
    except BrokenPipeError:
        # The reader of our output went away, as `head` does: not a mistake.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        said, status = "interrupted", EXIT_INTERRUPTED
    except Exception as error:
        found = _sentence_of(error)
        if found is None:
            raise
        said, status = found
    if status == EXIT_BAD_INPUT:
        early.tell(said, say)
    elif is_speaker or status == EXIT_RETRY:
        say(said)
    return status


def _check_alone(verb: str) -> None:
    """Refuse several processes for a verb that runs in one."""
    size = detect().size
    if verb in _IN_ONE_PROCESS and size > 1:
        raise InputError(
            f"distgnn {verb} runs in one process, but {size} were started; run it without mpirun"
        )


def _come(arguments: argparse.Namespace) -> None:
    """Meet the other ranks before torch is loaded, if the command is a job of several."""
    # What rank 0 does alone ends at once on the others, whom a late rank would take for dead.
    is_alone = getattr(arguments, "print_strategy", False) or is_series(arguments)
    if hasattr(arguments, "start_timeout") and not is_alone:
        early.come(timeout_s=arguments.start_timeout, stale_s=arguments.heartbeat_timeout)


def _sentence_of(error: Exception) -> tuple[str, int] | None:
    """Return the sentence and the exit status of an error; None if it is a bug of ours."""
    # A module that is not loaded has raised nothing, and memory may be refused to load it.
    stopped: Any = getattr(sys.modules.get("distgnn.training.loop.stop"), "StoppedError", ())
    if isinstance(error, stopped):
        return str(error), int(error.exit_status)
    if isinstance(error, PeerError):
        return str(error), EXIT_RETRY
    shown = as_input_error(error)
    return None if shown is None else (str(shown), EXIT_BAD_INPUT)


@contextmanager
def _insistent_interrupts() -> Iterator[None]:
    """Repeat an interrupt until it gets through.

    Python drops an exception that is raised while it frees an object or runs a callback of another
    language. An epoch spends much of its time there, so that Ctrl-C would do nothing. The interrupt
    is therefore raised again after each half second of work, until somebody has caught it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        del number, frame
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.5)
        raise KeyboardInterrupt

    kinds = [signal.SIGINT, signal.SIGVTALRM]
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # In the background of a script the job is to live on.
        kinds.remove(signal.SIGINT)
    before = [signal.signal(kind, interrupt) for kind in kinds]
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)
