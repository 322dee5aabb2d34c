"""How far delays may go in a run that begins."""

from __future__ import annotations

import re

import pytest


def train(distgnn, ring, *words):
    return distgnn("train", ring, "--run", "r", "--hidden", 4, "--quiet", "--json", *words)


@pytest.mark.parametrize("again", [(), ("--resume",), ("--overwrite",)])
def test_a_run_that_begins_with_too_many_bins_is_refused(again, distgnn, ring, here):
    outcome = train(distgnn, ring, "--algorithm", "cd-5000", "--epochs", 9000, *again)
    assert outcome.sentence.startswith("--algorithm cd-5000 deals rows among 5000 bins, but at mos")
    assert not (here / "r").exists()


def test_too_many_bins_are_refused_where_nothing_is_trained(distgnn, ring_parts):
    outcome = distgnn("inspect", ring_parts, "--algorithm", "cd-2", "--bins", 4097)
    assert outcome.sentence == "--bins must be from 1 to 4096, got 4097"


@pytest.mark.parametrize(
    ("words", "given", "most", "least"),
    [
        ("--algorithm cd-4000000 --bins 2 --delay-cache off --warm-up-epochs 3", "", 2, 4000004),
        ("--algorithm cd-6", "", 5, 7),
        ("--algorithm cd-2 --delay 6 --smoothing 0.5", "--delay 6", 5, 7),
        ("--algorithm cd-2 --delay 1 --warm-up-epochs 5", "--delay 1", 0, 7),
    ],
)
@pytest.mark.parametrize("again", [(), ("--resume",)])
def test_a_delay_after_which_a_run_that_begins_is_over_is_refused(
    again, words, given, most, least, distgnn, ring, here
):
    outcome = train(distgnn, ring, "--epochs", 6, *words.split(), *again)
    given = given or " ".join(words.split()[:2])
    assert re.fullmatch(
        rf"{given} uses rows \d+ epochs after they were sent, when --epochs 6.* are over; "
        rf"use --delay {most} or less, or --epochs {least} or more",
        outcome.sentence,
    )
    assert not (here / "r").exists()


def test_the_longest_delay_that_is_of_use_trains(distgnn, ring):
    words = ("--algorithm", "cd-2", "--delay", 2, "--warm-up-epochs", 3, "--epochs", 6)
    assert train(distgnn, ring, *words).status == 0


def test_a_run_may_go_on_with_epochs_that_its_delay_outlasts(distgnn, ring, here):
    assert train(distgnn, ring, "--algorithm", "cd-4", "--epochs", 5).status == 0
    again = ("--algorithm", "cd-4", "--resume", "--epochs", 4)
    assert train(distgnn, ring, *again).json["num_epochs"] == 5
