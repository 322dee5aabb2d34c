from __future__ import annotations

import re

import pytest

from distgnn.partition.directory.store import read_manifest


def test_parts_are_merged_and_split_without_the_source(distgnn, ring_parts):
    done = distgnn("repartition", ring_parts, "--parts", 5, "--out", "q", "--json")
    assert done.json["num_parts"] == 5
    assert done.json["method"] == "repartition"
    assert done.json["options"]["from_parts"] == 3
    assert re.search(r"^memory: about .*B at the peak, of .*B that are free$", done.err, re.M)
    back = distgnn("repartition", "q", "--parts", 2, "--out", "r", "--refine", "off")
    assert "repartition, 2 parts, seed 0" in back.out
    assert "wrote r in" in back.out
    assert read_manifest("r").num_edges == read_manifest(ring_parts).num_edges


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--parts", 99], "more parts than vertices: 99 are asked for, but graph 'ring' has 12"),
        (["--parts", 0], "--parts must be a whole number from 1"),
        (["--parts", 2, "--imbalance", 1.1, "--refine", "off"], "--imbalance takes no effect with"),
        (["--parts", 2, "--imbalance", 0.5], "--imbalance must be at least 1"),
        (["--parts", 2, "--order", "best"], "--order must be one of auto, source"),
    ],
)
def test_what_cannot_be_is_one_sentence(words, sentence, distgnn, ring_parts):
    outcome = distgnn("repartition", ring_parts, "--out", "q", *words)
    said = outcome.err.splitlines()[-1].removeprefix("distgnn: ")
    assert (outcome.status, outcome.out) == (2, "")
    assert said.startswith(sentence)


def test_a_partition_that_is_there_is_replaced_only_if_asked(distgnn, ring_parts):
    words = ("repartition", ring_parts, "--parts", 2, "--out", "q")
    assert distgnn(*words).status == 0
    assert distgnn(*words).sentence.startswith("'q' already holds a partition; replace it with")
    assert distgnn(*words, "--overwrite").status == 0


def test_it_runs_in_one_process(distgnn, ring_parts, monkeypatch):
    monkeypatch.setattr("distgnn.comm.early._TELL_S", 0.1)  # The other rank never comes.
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    sentence = distgnn("repartition", ring_parts, "--parts", 2, "--out", "q").sentence
    assert sentence.startswith("distgnn repartition runs in one process, but 2 were started")
