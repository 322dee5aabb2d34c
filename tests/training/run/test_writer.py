"""Files of a run whose disk is full, whose weights diverge, or that somebody ends."""

from __future__ import annotations

import json
import math
import resource

import pytest
import torch
from graphs import cut, make_graph
from training import ends_of, make_config, run

from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.training.loop.progress import Silent
from distgnn.training.loop.stop import StoppedError
from distgnn.training.loop.trainer import Trainer
from distgnn.training.run.directory import METRICS, SUMMARY, RunDirectory
from distgnn.training.run.lock import NAME
from distgnn.training.run.writer import train


class Script(Silent):
    """Does something after an epoch, and remembers the warnings of all ranks."""

    def __init__(self, **actions):
        self.actions = {int(name.removeprefix("after_")): act for name, act in actions.items()}
        self.warnings = []


class OnRank(Silent):
    """A script on one rank."""

    def __init__(self, script, group):
        self._script, self._group = script, group

    def epoch(self, record):
        act = self._script.actions.get(record["epoch"])
        if act is not None:
            self._group.barrier()  # rank 0 has written the epoch
            act()
            self._group.barrier()

    def warn(self, line):
        self._script.warnings.append(line)


def trained(folder, config, script, *, num_ranks=1, prepare=None):
    """Return what each rank's run returned or raised."""
    graph = make_graph()
    parts = cut(graph, num_ranks)
    folder.mkdir(exist_ok=True)

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        if prepare is not None:
            prepare(trainer)
        try:
            return train(trainer, RunDirectory(folder), OnRank(script, group), records=[])
        except (InputError, StoppedError) as error:
            return error

    return run_ranks(num_ranks, on_rank)


def lines(folder):
    return [record["epoch"] for record in RunDirectory(folder).read_metrics()]


def names_in(folder):
    return sorted(item.name for item in folder.iterdir())


class FullDisk:
    """Lets the system refuse every byte, as a full disk does."""

    def __init__(self):
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, self._before[1]))

    def empty(self):
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


@pytest.fixture
def disk():
    made = FullDisk()
    yield made
    made.empty()


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_training_goes_on_while_the_disk_is_full_and_loses_no_line(num_ranks, disk, tmp_path):
    config = make_config(epochs=8, checkpoint_every=2)
    script = Script(after_2=disk.fill, after_5=disk.empty)
    results = trained(tmp_path, config, script, num_ranks=num_ranks)
    assert [summary["num_epochs"] for summary in results] == [8] * num_ranks
    assert lines(tmp_path) == list(range(8))
    assert names_in(tmp_path / "checkpoints") == ["epoch-000006", "epoch-000008"]
    told = sorted(set(script.warnings), key=script.warnings.index)
    checkpoint = next(line for line in told if "epoch-000004" in line)
    assert "epoch-000004.tmp/" in checkpoint
    assert checkpoint.endswith(
        "File too large; the older checkpoints are as they were; training continues: the next "
        "checkpoint is due 2 epochs from now"
    )
    (metrics,) = (line for line in told if METRICS in line)
    assert metrics.startswith(f"cannot write '{tmp_path / METRICS}': File too large; ")
    assert metrics.endswith("; training continues, and keeps the lines until then")


def test_a_disk_that_is_full_at_the_end_is_an_error_and_the_run_can_go_on(disk, tmp_path):
    config = make_config(epochs=5, checkpoint_every=2)
    results = trained(tmp_path, config, Script(after_2=disk.fill), num_ranks=2)
    disk.empty()
    for error in results:
        with pytest.raises(InputError, match=rf"cannot write '.*{METRICS}': File too la.*--resume"):
            raise error
    assert names_in(tmp_path) == ["checkpoints", METRICS]
    assert names_in(tmp_path / "checkpoints") == ["epoch-000002"]
    assert lines(tmp_path) == [0, 1, 2]
    graph = make_graph()
    (tmp_path / "config.json").write_text("{}")
    resumed = run(tmp_path, graph, cut(graph, 2), config, resume=True)
    assert resumed[0].summary["num_epochs"] == 5
    assert lines(tmp_path) == list(range(5))


def test_a_last_checkpoint_that_does_not_fit_costs_no_results(tmp_path):
    config = make_config(epochs=3, checkpoint_every=0)
    tmp_path.joinpath("checkpoints").write_text("in the way")
    script = Script()
    (summary,) = trained(tmp_path, config, script)
    assert summary["num_epochs"] == 3
    assert (tmp_path / SUMMARY).exists()
    (warning,) = script.warnings
    assert warning.endswith("training continues: its results do not need this one")


def test_a_pause_needs_a_checkpoint_to_go_on_from(tmp_path):
    tmp_path.joinpath("checkpoints").write_text("in the way")

    def pause(trainer):
        trainer.until = 2

    config = make_config(epochs=3, checkpoint_every=0)
    (error,) = trained(tmp_path, config, Script(), prepare=pause)
    with pytest.raises(InputError, match=r", and a paused run cannot go on from one of them; make"):
        raise error
    assert not (tmp_path / SUMMARY).exists()


def spoil(trainer):
    """Let the gradient of epoch 3 be infinite, where the loss was finite."""
    step = trainer.optimizer.step

    def step_too_far():
        step()
        if trainer.num_epochs == 3:
            with torch.no_grad():
                next(trainer.model.parameters())[0, 0] = math.nan

    trainer.optimizer.step = step_too_far


def test_weights_that_are_not_finite_are_never_written(tmp_path):
    config = make_config(epochs=8, checkpoint_every=2, eval_every=8)
    results = trained(tmp_path, config, Script(), num_ranks=2, prepare=spoil)
    for error in results:
        with pytest.raises(
            InputError,
            match=r"the weights are not finite after epoch 3, after a loss of [\d.]+ in epoch 3, "
            r"and the checkpoint of epoch 2 is kept; lower --lr, scale the input with --feature",
        ):
            raise error
    assert names_in(tmp_path / "checkpoints") == ["epoch-000002"]


class Asked:
    """A rank that is asked to stop in an epoch."""

    def __init__(self, trainer, *, rank, epoch):
        self._is_here = trainer.group.rank == rank
        self._trainer, self._epoch = trainer, epoch

    @property
    def signal_number(self):
        return 15 if self._is_here and self._trainer.num_epochs >= self._epoch else 0


def ask(rank, epoch):
    def prepare(trainer):
        trainer.stop = Asked(trainer, rank=rank, epoch=epoch)

    return prepare


@pytest.mark.parametrize(("num_ranks", "rank"), [(1, 0), (3, 0), (3, 2)])
def test_one_rank_that_is_asked_stops_all_after_the_epoch_with_a_checkpoint(
    num_ranks, rank, tmp_path
):
    config = make_config(epochs=9, checkpoint_every=0)
    results = trained(tmp_path, config, Script(), num_ranks=num_ranks, prepare=ask(rank, 4))
    for error in results:
        assert error.exit_status == 128 + 15
        with pytest.raises(
            StoppedError,
            match=rf"rank {rank} \(.+\) was asked to stop by SIGTERM: the checkpoint of epoch 5 is "
            "written; continue with the same command and --resume",
        ):
            raise error
    assert names_in(tmp_path) == ["checkpoints", METRICS]
    graph = make_graph()
    parts = cut(graph, num_ranks)
    straight = run(tmp_path / "straight", graph, parts, config)[0]
    (tmp_path / "config.json").write_text("{}")
    resumed = run(tmp_path, graph, parts, config, resume=True)[0]
    assert [r["loss"] for r in resumed.records] == [r["loss"] for r in straight.records]


def test_a_run_that_is_asked_in_its_last_epoch_ends_as_ever(tmp_path):
    config = make_config(epochs=5)
    (summary,) = trained(tmp_path, config, Script(), prepare=ask(0, 4))
    assert summary["num_epochs"] == 5
    assert "stop_number" not in RunDirectory(tmp_path).read_metrics()[-1]


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_job_that_was_followed_writes_nothing_more(is_asked, tmp_path, monkeypatch):
    """It stood still, and another job has trained on from its checkpoint."""
    newer = tmp_path / "run/checkpoints/epoch-000009"
    newer.mkdir(parents=True)
    run_dir = RunDirectory(tmp_path / "run")
    run_dir.lock.take()
    config = make_config(epochs=8, checkpoint_every=0)
    graph = make_graph()
    parts = cut(graph, 1)

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[0], group)

        def follow():
            content = json.loads((run_dir.path / NAME).read_text())
            (run_dir.path / NAME).write_text(json.dumps({**content, "token": "other"}))
            if is_asked:
                trainer.stop.signal_number = 15
            else:
                run_dir.lock.is_lost = True

        script = OnRank(Script(after_2=follow), group)
        with pytest.raises(InputError, match=r"was taken over by a job on host .* while this job"):
            train(trainer, run_dir, script, records=[])

    run_ranks(1, on_rank)
    assert newer.is_dir()
    assert lines(run_dir.path) == [0, 1, 2] + [3] * is_asked
    run_dir.lock.release()


def test_all_ranks_end_where_the_weights_of_one_are_not_finite():
    """Models of their own may differ; the others would wait for it, and be started again."""
    config = make_config(weights="every(8)+mean")
    graph = make_graph()
    parts = cut(graph, 2)

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        if group.rank == 1:
            with torch.no_grad():
                next(trainer.model.parameters()).fill_(math.inf)
        with pytest.raises(InputError, match="rank 1: the weights are not finite after epoch"):
            trainer.check_weights()

    run_ranks(2, on_rank)
