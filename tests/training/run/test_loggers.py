"""Logs of other tools are read back by their own readers, where these are installed."""

from __future__ import annotations

import importlib.util

import pytest

import distgnn as dg
from distgnn import InputError
from distgnn.training.run import loggers
from distgnn.training.run.loggers import Logged, check_log, numbers_of

pytestmark = pytest.mark.filterwarnings("ignore")


def trained(folder, **more):
    settings = {"model": "gcn", "hidden": 4, "quiet": True, "threads": 1, **more}
    return dg.train("cora", out=folder / "run", **settings)


def test_events_of_tensorboard_are_those_of_the_metrics(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = trained(tmp_path, epochs=3, log="tensorboard")
    run = trained(tmp_path, epochs=5, log="tensorboard", resume=True)
    found = EventAccumulator(str(run.path / "tensorboard")).Reload()
    for name in ("loss", "val_metric", "epoch_s", "halo_bytes_sent"):
        events = found.Scalars(name)
        assert [event.step for event in events] == [0, 1, 2, 3, 4]
        wanted = [record[name] for record in run.metrics]
        assert [event.value for event in events] == pytest.approx(wanted)
    # A run that is replaced takes its events along.
    run = trained(tmp_path, epochs=2, log="tensorboard", overwrite=True)
    found = EventAccumulator(str(run.path / "tensorboard")).Reload()
    assert [event.step for event in found.Scalars("loss")] == [0, 1]


def test_a_run_of_mlflow_has_the_metrics_and_the_settings(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    run = trained(tmp_path, epochs=3, log="mlflow")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{run.path / 'mlflow/mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'distgnn'")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["hidden"] == "4"
    history = client.get_metric_history(found.info.run_id, "loss")
    assert [metric.step for metric in history] == [0, 1, 2]
    wanted = [record["loss"] for record in run.metrics]
    assert [metric.value for metric in history] == pytest.approx(wanted)


def test_wandb_is_written_offline(tmp_path):
    pytest.importorskip("wandb")
    run = trained(tmp_path, epochs=3, log="wandb")
    assert list((run.path / "wandb").rglob("*.wandb"))


class Shown:
    """Progress and log that remember what they are told."""

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        return lambda *values: self.told.append((name, *values))


def test_what_is_shown_is_also_logged_without_what_is_no_number():
    shown, log = Shown(), Shown()
    logged = Logged(shown, log)
    record = {"epoch": 3, "loss": 1, "val_metric": None, "confirmed": {}}
    logged.epoch(record)
    logged.note("a")
    logged.warn("b")
    logged.close()
    assert shown.told == [("epoch", record), ("note", "a"), ("warn", "b"), ("close",)]
    assert log.told == [("log", {"loss": 1.0}, 3)]
    assert numbers_of(record) == {"loss": 1.0}


class Away:
    """A log whose server is away."""

    def log(self, values, epoch):
        raise ConnectionError("no route\nto the server")

    def close(self, *, has_ended):
        raise ConnectionError("no route")


def test_a_log_that_fails_ends_no_run(tmp_path, monkeypatch):
    monkeypatch.setattr(loggers, "open_log", lambda *words: Away())
    monkeypatch.setattr("distgnn.training.run.loggers.check_log", lambda name: None)
    shown = Shown()
    run = trained(tmp_path, epochs=3, log="tensorboard", progress=shown)
    assert len(run.metrics) == 3
    (warning,) = [told[1] for told in shown.told if told[0] == "warn"]
    assert warning == (
        "--log failed (ConnectionError: no route); training continues, and metrics.jsonl has all "
        "epochs"
    )


def test_events_of_earlier_epochs_stay_where_the_records_were_lost(tmp_path, monkeypatch):
    firsts = []
    monkeypatch.setattr(loggers, "open_log", lambda *words: firsts.append(words[-1]) or Shown())
    monkeypatch.setattr("distgnn.training.run.loggers.check_log", lambda name: None)
    run = trained(tmp_path, epochs=3, log="tensorboard")
    (run.path / "metrics.jsonl").unlink()
    trained(tmp_path, epochs=5, log="tensorboard", resume=True)
    assert firsts == [0, 3]


def test_a_package_that_is_missing_is_named_before_any_work(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        loggers.importlib.util, "find_spec", lambda name: None if name == "wandb" else find(name)
    )
    with pytest.raises(
        InputError, match=r"needs the package wandb; pip install 'distgnn\[wandb\]'"
    ):
        trained(tmp_path, epochs=3, log="wandb")
    assert not (tmp_path / "run").exists()
    check_log("none")
