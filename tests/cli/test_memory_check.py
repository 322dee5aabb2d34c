"""A run that does not fit into memory is refused before its first epoch."""

from __future__ import annotations

import numpy as np
import pytest
from ring import ring_arrays

from distgnn.cli import memory_check
from distgnn.cli.memory_check import check_memory
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.train.metrics import peak_rss_bytes, resident_bytes

MIB, GIB = 2**20, 2**30


@pytest.fixture
def free(monkeypatch):
    """Let the machine have 10 GiB free."""
    monkeypatch.setattr(memory_check, "available_memory", lambda: 10 * GIB)


def check(group, gib, *, is_forced=False):
    check_memory(group, int(gib * GIB), what="training", is_forced=is_forced)


@pytest.mark.usefixtures("free")
def test_ranks_of_one_machine_share_its_memory(capsys):
    run_ranks(3, lambda group: check(group, 3.3))

    def on_rank(group):
        with pytest.raises(
            InputError,
            match=r"training needs about 10\.2 GiB more memory on .+ for ranks 0, 1, 2 together, "
            r"but 10\.0 GiB are free; use more parts on more machines, --recompute, a smaller "
            r"--hidden, fewer --layers, or --force to try nevertheless",
        ):
            check(group, 3.4)

    run_ranks(3, on_rank)
    assert capsys.readouterr().err == ""


def test_each_machine_is_asked_for_itself():
    needs = [
        memory_check.Need(0, "a", "one", 9 * GIB, 10 * GIB),
        memory_check.Need(1, "b", "two", 6 * GIB, 10 * GIB),
        memory_check.Need(2, "b", "two", 5 * GIB, 10 * GIB),
        memory_check.Need(3, "c", "three", 5 * GIB, 4 * GIB),
    ]
    found = list(memory_check._problems(needs, "training"))
    assert [line.split(", but")[0] for line in found] == [
        "training needs about 11.0 GiB more memory on b for ranks 1, 2 together",
        "training needs about 5.0 GiB more memory on c for rank 3",
    ]


@pytest.mark.usefixtures("free")
def test_force_turns_the_refusal_into_one_warning(capsys):
    run_ranks(2, lambda group: check(group, 6, is_forced=True))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: training needs about 12.0 GiB more memory on ")
    assert line.endswith("but 10.0 GiB are free; trying nevertheless")


def test_train_asks_before_it_writes_anything(distgnn, ring, here, monkeypatch):
    monkeypatch.setattr(memory_check, "available_memory", lambda: 0)
    command = ("train", ring, "--run", "r", "--epochs", 2, "--quiet")
    sentence = distgnn(*command).sentence
    assert sentence.startswith("training needs about ")
    assert not (here / "r").exists()
    outcome = distgnn(*command, "--force")
    assert (outcome.status, outcome.err.count("trying nevertheless")) == (0, 1)


def test_an_earlier_peak_of_the_process_is_not_asked_for_again(distgnn, ring, monkeypatch):
    once = np.ones(600 * MIB, dtype=np.uint8)
    del once
    assert peak_rss_bytes() - resident_bytes() > 400 * MIB
    monkeypatch.setattr(memory_check, "available_memory", lambda: 200 * MIB)
    outcome = distgnn("train", ring, "--run", "r", "--epochs", 2, "--quiet")
    assert (outcome.status, outcome.err) == (0, "")


def test_features_are_asked_for_as_they_are_stored_in_memory(distgnn, here, monkeypatch):
    num_features = 400
    ring = ring_arrays(features=np.ones((12, num_features), dtype=np.float32))
    np.savez(here / "wide.npz", **ring)
    assert distgnn("partition", "wide.npz", "--parts", 1, "--out", "parts").status == 0
    wide_bytes = 12 * num_features * 4
    monkeypatch.setattr(memory_check, "available_memory", lambda: wide_bytes * 3 // 4)
    train = ("train", "parts", "--run", "r", "--epochs", 1, "--hidden", 1, "--quiet")
    half = (*train, "--features-dtype", "bf16")
    refused = "reading features needs about "
    assert distgnn(*train).sentence.startswith(refused)
    # Both are there at once while the wide ones are normalised.
    assert distgnn(*half, "--feature-norm", "row").sentence.startswith(refused)
    outcome = distgnn(*half)
    assert (outcome.status, outcome.err) == (0, "")
