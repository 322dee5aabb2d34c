"""A run that does not fit into memory is refused before its first epoch."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from ring import ring_arrays

from distgnn.cli.output import note
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.machine import memory_check
from distgnn.machine.memory_check import check_memory
from distgnn.training.loop.metrics import peak_rss_bytes, resident_bytes

MIB, GIB = 2**20, 2**30


@pytest.fixture
def free(monkeypatch):
    """Let the machine have 10 GiB free."""
    monkeypatch.setattr(memory_check, "available_by_pool", lambda: {"machine": 10 * GIB})


def check(group, gib, *, is_forced=False):
    check_memory(group, int(gib * GIB), what="training", is_forced=is_forced, say=note)


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


def short_of(*needs):
    """Who is said to be short of memory, of ranks that need and have left so many GiB."""
    rows = [
        memory_check.Need(rank, host, gib * GIB, {name: left * GIB for name, left in pools.items()})
        for rank, (host, gib, pools) in enumerate(needs)
    ]
    found = memory_check._problems(rows, "training")
    return [line.removeprefix("training needs about ") for line in found]


def test_each_machine_is_asked_for_itself():
    assert short_of(
        ("a", 9, {"one": 10}),
        ("b", 6, {"two": 10}),
        ("b", 5, {"two": 10}),
        ("c", 5, {"three": 4}),
    ) == [
        "11.0 GiB more memory on b for ranks 1, 2 together, but 10.0 GiB are free",
        "5.0 GiB more memory on c for rank 3, but 4.0 GiB are free",
    ]


def test_ranks_of_a_machine_with_limits_of_their_own_are_not_summed_against_one_of_them():
    assert short_of(("a", 3, {"one": 64, "x": 4}), ("a", 3, {"one": 64, "y": 4})) == []
    # The limits together promise more than the machine has.
    assert short_of(("a", 3, {"one": 5, "x": 4}), ("a", 3, {"one": 5, "y": 4})) == [
        "6.0 GiB more memory on a for ranks 0, 1 together, but 5.0 GiB are free"
    ]
    assert short_of(("a", 3, {"one": 64, "x": 4}), ("a", 5, {"one": 64, "y": 4})) == [
        "5.0 GiB more memory on a for rank 1, but 4.0 GiB are free"
    ]


def test_ranks_share_each_limit_that_is_around_them():
    job = {"one": 64, "job": 8}
    assert short_of(("a", 3, {**job, "x": 4}), ("a", 6, {**job, "y": 7})) == [
        "9.0 GiB more memory on a for ranks 0, 1 together, but 8.0 GiB are free"
    ]
    assert short_of(("a", 3, {"one": 64, "x": 4}), ("a", 2, {"one": 64, "x": 4})) == [
        "5.0 GiB more memory on a for ranks 0, 1 together, but 4.0 GiB are free"
    ]


@pytest.mark.usefixtures("free")
def test_force_turns_the_refusal_into_one_warning(capsys):
    run_ranks(2, lambda group: check(group, 6, is_forced=True))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: training needs about 12.0 GiB more memory on ")
    assert line.endswith("but 10.0 GiB are free; trying nevertheless")


def test_the_memory_of_a_device_is_shared_by_its_ranks(monkeypatch):
    device = torch.device("cuda", 0)
    own = {"memory_reserved": 3 * GIB, "memory_allocated": 2 * GIB, "mem_get_info": (GIB, 8 * GIB)}
    for name, value in own.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    uuids = SimpleNamespace(uuid="one")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: uuids)

    def on_rank(group, gib):
        needed = int(gib * GIB)
        check_memory(group, needed, what="training", is_forced=False, say=note, device=device)

    run_ranks(2, lambda group: on_rank(group, 0.9))
    with pytest.raises(
        InputError,
        match=r"training needs about 2\.2 GiB more memory on cuda:0 of .+ for ranks 0, 1 together, "
        r"but 2\.0 GiB are free; use more parts on more devices, --recompute",
    ):
        run_ranks(2, lambda group: on_rank(group, 1.1))


def test_train_asks_before_it_writes_anything(distgnn, ring, here, monkeypatch):
    monkeypatch.setattr(memory_check, "available_by_pool", lambda: {"machine": 0})
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
    monkeypatch.setattr(memory_check, "available_by_pool", lambda: {"machine": 200 * MIB})
    outcome = distgnn("train", ring, "--run", "r", "--epochs", 2, "--quiet")
    assert (outcome.status, outcome.err) == (0, "")


def test_features_are_asked_for_as_they_are_stored_in_memory(distgnn, here, monkeypatch):
    num_features = 400
    ring = ring_arrays(features=np.ones((12, num_features), dtype=np.float32))
    np.savez(here / "wide.npz", **ring)
    assert distgnn("partition", "wide.npz", "--parts", 1, "--out", "parts").status == 0
    wide_bytes = 12 * num_features * 4
    # Room for half of them with the weights of the model, but not for all.
    free = {"machine": wide_bytes * 15 // 16}
    monkeypatch.setattr(memory_check, "available_by_pool", lambda: free)
    train = ("train", "parts", "--run", "r", "--epochs", 1, "--model", "gcn", "--hidden", 1)
    train += ("--quiet",)
    half = (*train, "--features-dtype", "bf16")
    refused = "reading features needs about "
    assert distgnn(*train).sentence.startswith(refused)
    # Both are there at once while the wide ones are normalised.
    assert distgnn(*half, "--feature-norm", "row").sentence.startswith(refused)
    outcome = distgnn(*half)
    assert (outcome.status, outcome.err) == (0, "")
    # With labels in them, training and evaluation read rows of their own.
    assert distgnn(*half, "--overwrite", "--labels-as-input", 0.5).sentence.startswith(refused)


@pytest.mark.parametrize(("norm", "helps"), [("none", True), ("row", False)])
def test_features_that_do_not_fit_are_refused_with_what_helps(
    distgnn, parts_of_one, monkeypatch, norm, helps
):
    monkeypatch.setattr(memory_check, "available_by_pool", lambda: {"machine": 1})
    done = distgnn("train", parts_of_one, "--run", "r", "--feature-norm", norm)
    advice = ", --features-dtype bf16" * helps
    assert done.status == 2
    assert done.err.splitlines()[-1].endswith(
        f"are free; use more parts on more machines{advice}, or --force to try nevertheless"
    )


@pytest.fixture
def parts_of_one(distgnn):
    """A partition in one part, with dense features."""
    arguments = ("synthetic:arxiv@1/128", "--parts", 1, "--out", "p")
    assert distgnn("partition", *arguments).status == 0
    return "p"
