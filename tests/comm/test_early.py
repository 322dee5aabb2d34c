"""Flaws that are told before the ranks have met, as the command line does it."""

from __future__ import annotations

import socket

import pytest

from distgnn.comm import early
from distgnn.datasets import InputError


@pytest.fixture(autouse=True)
def _begin(monkeypatch):
    monkeypatch.setattr(early, "_START", early._Start())


def as_rank(monkeypatch, rank, **more):
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, **more}
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_cannot_meet_says_its_flaw_itself(monkeypatch, rank):
    """The other ranks know nothing of a host without mpi4py."""
    as_rank(monkeypatch, rank)
    monkeypatch.setattr(early, "meets_without_help", lambda launch, environ: False)

    def meet(*place, **limits):
        raise InputError("there is no mpi4py")

    monkeypatch.setattr(early, "meet", meet)
    said = []
    with pytest.raises(InputError, match="there is no mpi4py"):
        early.open_meeting(early.detect(), interface=None, timeout_s=5, stale_s=5)
    early.tell("there is no mpi4py", said.append)
    name = f"rank 1 ({socket.gethostname()}): "
    assert said == [f"{name if rank else ''}there is no mpi4py"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_flaw_that_is_found_after_the_ranks_have_met_is_said_by_rank_0(monkeypatch, rank):
    as_rank(monkeypatch, rank)
    early.end()
    said = []
    early.tell("no such file", said.append)
    assert said == ([] if rank else ["no such file"])


def test_variables_that_contradict_each_other_are_said_by_each(monkeypatch):
    as_rank(monkeypatch, 5)
    said = []
    early.tell("the variables contradict each other", said.append)
    assert said == ["the variables contradict each other"]
