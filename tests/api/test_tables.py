"""Files of predictions and embeddings that cannot be written whole."""

from __future__ import annotations

import os

import numpy as np
import pytest

from distgnn.api import link_predictions
from distgnn.api.tables import write_table
from distgnn.datasets import InputError


class Table:
    def array(self):
        return np.zeros(300)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError("300 requested and 10 written"),
            "not all of it could be written, as where",
        ),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_a_full_disk_is_told_and_nothing_is_left(tmp_path, monkeypatch, error, said):
    def save(*_, **__):
        raise error

    monkeypatch.setattr(np, "save", save)
    with pytest.raises(InputError, match=rf"cannot write '.*out\.npy': {said}.*; choose another"):
        write_table(tmp_path / "out.npy", Table())
    assert list(tmp_path.iterdir()) == []


def test_a_table_of_pairs_takes_no_more_memory_than_its_names(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("a,b\n0,1\n" + "x" * 5000 + ",3\n")
    with pytest.raises(
        InputError, match=r"line 3 of .* has a name of 5000 characters, but at most"
    ):
        link_predictions._read(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(
        InputError, match=r"cannot read .*: .*it is a named pipe, not a file.*; giv"
    ):
        link_predictions._read(path)
