"""Variables of the environment that torch and OpenMP read when they are loaded."""

from __future__ import annotations

import os


def prepare_environment() -> None:
    """Set what makes epochs fast and errors short, unless the user has chosen.

    It has its full effect in a process that has not loaded torch yet.
    """
    _let_waiting_threads_sleep()
    _use_huge_pages()
    _keep_torch_quiet()


def _let_waiting_threads_sleep() -> None:
    """Have OpenMP's threads sleep while they wait, unless the user has chosen.

    By default they spin. Where cores are shared, with other jobs or with more ranks than cores, a
    spinning thread holds the core of the thread that it waits for. On two cores with a load of 5,
    an epoch of 5 ms took 750 ms. The OpenMP runtime reads this when torch loads it.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["OMP_WAIT_POLICY"] = "passive"


def _use_huge_pages() -> None:
    """Have torch ask for huge pages for its tensors, unless the user has chosen.

    Every epoch allocates its activations again. Their page faults were a third of an epoch of
    GraphSAGE 3 x 256 on 150,000 vertices. torch reads this at its first allocation.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def _keep_torch_quiet() -> None:
    """Have torch's transports log errors only, unless the user has chosen.

    Their warnings about a lost store are pages of stack; the watchdog says it in a sentence. torch
    reads this when it is loaded.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
