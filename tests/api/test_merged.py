"""Parts that are merged for fewer ranks."""

from __future__ import annotations

import subprocess

import pytest
from graphs import make_graph

import distgnn as dg
from distgnn.api.merged import merged
from distgnn.api.source import SourceOptions
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError


@pytest.mark.parametrize("is_other", [False, True])
def test_parts_that_another_job_merges_meanwhile_are_taken(tmp_path, monkeypatch, is_other):
    parts = tmp_path / "parts"
    dg.partition_graph(make_graph("features"), 4, parts, method="random")
    started = subprocess.run

    def come_second(words, **options):
        if is_other:
            dg.partition_graph(make_graph("features"), 2, words[words.index("--out") + 1])
        else:
            started(words, **options)
        return started(words, **options)

    monkeypatch.setattr("distgnn.api.merged.subprocess.run", come_second)
    source = SourceOptions(source=str(parts)).open(print)

    def on_rank(group):
        return merged(source, group, print).num_parts

    if is_other:
        with pytest.raises(InputError, match=r"cannot be merged to 2: .*already holds a partition"):
            run_ranks(2, on_rank)
        return
    assert run_ranks(2, on_rank) == [2, 2]
