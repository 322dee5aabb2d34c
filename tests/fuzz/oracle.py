"""Checks of every outcome: a result, or one sentence that can be printed, in time."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_S = 60
"""Seconds after which a draw counts as one that hangs."""


class HangError(Exception):
    """A draw that took too long."""


def add_note(error: BaseException, text: str) -> None:
    """Say beside an error how to draw it again.

    Args:
        error: The error, which the caller raises again.
        text: Seed and choices.
    """
    if sys.version_info >= (3, 11):
        error.add_note(text)
    else:
        # Errors take no notes before; pytest shows what was printed.
        sys.stderr.write(f"{text}\n")


def draws(name: str, count: int) -> Iterator[tuple[int, random.Random]]:
    """Yield seeds and sources of choices: a fixed number, or for as long as DISTGNN_FUZZ_S says.

    Args:
        name: Name of the fuzzer, which its seeds depend on.
        count: Number of draws where no time is given.
    """
    budget = float(os.environ.get("DISTGNN_FUZZ_S", "0"))
    end = time.monotonic() + budget
    first = int(os.environ.get("DISTGNN_FUZZ_SEED", "0"))
    seed = first
    while time.monotonic() < end if budget else seed < first + count:
        yield seed, random.Random(f"{name} {seed}")  # no secrets
        seed += 1


@contextmanager
def in_time(seconds: int = LONGEST_S) -> Iterator[None]:
    """End what takes too long: by an exception, and a minute later the process with its stacks."""

    def ring(number: int, frame: object) -> None:
        del number, frame
        raise HangError(f"still busy after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    faulthandler.dump_traceback_later(seconds + 60, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check_sentence(sentence: str) -> None:
    """Check that a sentence can be printed: one line, not long, no control characters."""
    assert sentence.strip()
    assert len(sentence) <= 500, sentence
    assert sentence.isprintable(), repr(sentence)
    assert "unsafe" not in sentence
    assert "allow_pickle" not in sentence
    assert "Traceback" not in sentence
