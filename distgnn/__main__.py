"""The program, as `distgnn` and as `python -m distgnn`: what holds while its modules are loaded.

That takes seconds, in which the user may interrupt and the system may refuse memory. A module of
the standard library that is loaded here is loaded where it is needed, as the working directory may
hold one of the same name.
"""

from __future__ import annotations

import os
import sys

# A library is mapped in pieces of about this size.
_PIECE = 64 << 20
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def main() -> int:
    """Run one command; see `distgnn.cli.main`.

    Returns:
        Exit status.
    """
    import signal

    _open_closed_streams()
    # What `kill -INT` finds in a job in the background stays: to ignore it.
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_heard:
        signal.signal(signal.SIGINT, _interrupted)
    try:
        from distgnn.cli import main as run

        if is_heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = run()
        if is_heard:  # once more: whatever is left would print the exception
            signal.signal(signal.SIGINT, _interrupted)
        from distgnn.comm.process import expect_end

        expect_end(status)
        return status
    except Exception as error:
        if not (_is_of_loading(error) and _is_memory_refused()):
            raise
        return _end(
            f"there is not enough memory to load the program ({type(error).__name__}); raise the "
            "limit of the process (ulimit -v), start fewer ranks on this host, or use another one",
            2,
        )


def _open_closed_streams() -> None:
    """Let nothing else have the numbers of streams that the caller has closed, as by `2>&-`.

    A file that is opened next would have the number, and be written to by whoever warns.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
        setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - it stays


def _interrupted(number: int, frame: object) -> None:
    """End at once: an exception would be lost in a module that is half loaded, or be printed."""
    del number, frame
    is_speaker = all(os.environ.get(name, "0") == "0" for name in _RANKS)
    os._exit(_end("interrupted" if is_speaker else "", 130))


def _end(sentence: str, status: int) -> int:
    """Say why the program ends, with as little as that takes."""
    if sentence:
        os.write(2, f"distgnn: {sentence}\n".encode(errors="replace"))
    return status


def _is_of_loading(error: Exception) -> bool:
    """Whether an error comes from a module that is being loaded, or from memory as such."""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "<module>" or code.co_filename.startswith("<frozen importlib"):
            return True
        trace = trace.tb_next
    # The interpreter takes its own frames out of these.
    return isinstance(error, (ImportError, SyntaxError, MemoryError, SystemError))


def _is_memory_refused() -> bool:
    """Whether the system refuses this process memory.

    Modules that are not loaded for that raise all kinds of errors, syntax errors among them.
    """
    try:
        from mmap import mmap

        mmap(-1, _PIECE).close()
    except (ImportError, MemoryError, OSError, SystemError):
        return True
    return False


def _leave_out_working_directory() -> None:
    """Find no module in the working directory, which `python -m` puts first; `distgnn` does not."""
    try:
        working = os.getcwd()  # noqa: PTH109 - pathlib loads modules of its own
    except OSError:  # it was removed, so that nothing is found in it
        return
    if sys.path and sys.path[0] == working != __file__.rsplit(os.sep, 2)[0]:
        del sys.path[0]


if __name__ == "__main__":
    _leave_out_working_directory()
    raise SystemExit(main())
