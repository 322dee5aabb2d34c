"""Words of the command line that say how ranks are started, and started again."""

from __future__ import annotations

import pytest

from distgnn.cli.restarts import _hosts_of, _without_flags
from distgnn.comm.launch import SINGLE, detect, without_launcher
from distgnn.datasets.errors import InputError


def test_ranks_have_all_words_but_those_about_ranks():
    words = ["train", "parts", "--restarts", "3", "--run=r", "--hosts=a,b", "--mpirun", "mpirun -q"]
    assert _without_flags(words) == ["train", "parts", "--run=r"]


def test_hosts_have_a_rank_each_or_as_many_as_they_say():
    assert _hosts_of(None) == {}
    assert _hosts_of("a:2,b,10.0.0.1") == {"a": 2, "b": 1, "10.0.0.1": 1}


@pytest.mark.parametrize("text", ["", "a,,b", "a:0", "a,a:2", "a b", "-x"])
def test_other_texts_of_hosts_are_refused(text):
    with pytest.raises(InputError, match="--hosts must be different names between commas"):
        _hosts_of(text)


def test_ranks_that_were_started_already_are_refused(distgnn, monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("distgnn.comm.early.begin", lambda: None)
    monkeypatch.setattr("distgnn.comm.early.tell", lambda sentence: "")
    done = distgnn("train", "cora", "--run", "run", "--restarts", "1")
    assert done.sentence.startswith("--restarts starts the ranks itself, but 2 were started")


def test_a_run_cannot_be_replaced_each_time(distgnn):
    done = distgnn("train", "cora", "--run", "run", "--restarts", "1", "--overwrite")
    assert done.sentence == (
        "--restarts continues what it began, but --overwrite would begin again each time; remove "
        "'run' and leave --overwrite out"
    )


@pytest.mark.parametrize("flag", ["--mpirun", "--hosts"])
def test_how_ranks_start_needs_restarts(distgnn, flag):
    done = distgnn("train", "cora", "--run", "run", flag, "a")
    assert done.sentence.startswith(f"{flag} says how --restarts starts ranks, which is not given")


def test_a_process_of_a_rank_can_be_no_rank():
    ranked = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    other = {"OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1", "SLURM_PROCID": "1", "PMI_RANK": "1"}
    left = without_launcher({**ranked, **other, "HOME": "/", "OMPI_ALLOW_RUN_AS_ROOT": "1"})
    assert left == {"HOME": "/", "OMPI_ALLOW_RUN_AS_ROOT": "1"}
    assert detect(left) == SINGLE
