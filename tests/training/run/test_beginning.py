"""The beginning of a run in a directory that another job may have used meanwhile."""

from __future__ import annotations

import pytest
from training import make_config

from distgnn.datasets import InputError
from distgnn.training.run.beginning import prepare
from distgnn.training.run.directory import CONFIG, MODEL, RunDirectory


def begun(config):
    return {"task": "single-label", "graph": "g", "train": config.to_json()}


@pytest.fixture
def other(tmp_path):
    """A run that another job has made since this one looked."""
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    run.write_config(begun(make_config(epochs=3)))
    (run.path / MODEL).write_bytes(b"weights")
    return run


def test_a_run_that_another_job_has_made_meanwhile_stays(other):
    config = make_config(epochs=3, lr=0.5)
    words = {"config": config, "begin": begun(config)}
    with pytest.raises(InputError, match=r"already holds a run; continue it with --resume"):
        prepare(other, **words, is_resuming=False, overwrites=False)
    with pytest.raises(InputError, match=r"cannot resume '.*' with other settings: lr"):
        prepare(other, **words, is_resuming=True, overwrites=False)
    words["config"] = make_config(epochs=3)
    words["begin"] = {**begun(words["config"]), "graph": "h"}
    with pytest.raises(InputError, match=r"cannot resume '.*' with other settings: graph"):
        prepare(other, **words, is_resuming=True, overwrites=False)
    assert (other.path / MODEL).read_bytes() == b"weights"
    assert other.read_config()["train"]["lr"] == make_config(epochs=3).lr
    other.lock.release()


def test_whoever_may_overwrite_begins_anew(other):
    config = make_config(epochs=3, lr=0.5)
    prepare(other, config, begun(config), is_resuming=False, overwrites=True)
    assert sorted(file.name for file in other.path.glob("[!.]*")) == [CONFIG]
    assert other.read_config()["train"]["lr"] == 0.5
    other.lock.release()
