"""Settings that all ranks share: how they are compared before a graph is opened."""

from __future__ import annotations

import os

from distgnn.api.identity import of_source
from distgnn.api.source import SourceOptions
from distgnn.partition.directory.store import MANIFEST_NAME


def test_a_pipe_in_place_of_a_manifest_is_left_to_who_opens_the_graph(tmp_path):
    os.mkfifo(tmp_path / MANIFEST_NAME)
    found = of_source(SourceOptions(str(tmp_path)))
    assert found["source"] == str(tmp_path)
    assert "partition" not in found
