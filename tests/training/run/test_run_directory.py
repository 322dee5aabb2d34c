"""The run directory: written whole or not at all, and never in the place of anything else."""

from __future__ import annotations

import json
import resource

import pytest
import torch

from distgnn.datasets import InputError
from distgnn.training.run.directory import CONFIG, METRICS, SUMMARY, RunDirectory
from distgnn.training.run.tensors import read_tensors


def names_in(folder):
    return sorted(item.name for item in folder.iterdir())


def an_epoch(number, **values):
    """The line of an epoch, with what a summary reads of it."""
    names = ("epoch_s", "eval_s", "halo_bytes_sent", "eval_halo_bytes_sent", "weight_bytes_sent")
    metrics = dict.fromkeys(("train_metric", "val_metric", "test_metric"))
    rest = {"loss": 0.5, "max_staleness": 0, **dict.fromkeys(names, 1), **metrics}
    return {"epoch": number, **rest, **values}


def begun(path):
    """A directory in which a run was begun."""
    run = RunDirectory(path)
    run.create()
    run.write_json(CONFIG, {"train": {}})
    return run


def test_a_new_directory_is_made_with_its_parents_and_left_empty(tmp_path):
    run = RunDirectory(tmp_path / "a" / "b")
    assert not run.has_run()
    run.create()
    assert names_in(run.path) == []
    assert not run.has_run()


def test_an_empty_directory_and_one_with_a_run_are_taken(tmp_path):
    run = begun(tmp_path)
    run.write_json(SUMMARY, {})
    (tmp_path / "notes.txt").write_text("mine")
    run.create()
    assert run.has_run()
    assert names_in(tmp_path) == [CONFIG, "notes.txt", SUMMARY]


def test_hidden_files_are_in_nobodys_way(tmp_path):
    (tmp_path / f".{CONFIG}.17.tmp").write_text("{")
    RunDirectory(tmp_path).create()


def test_a_directory_of_other_files_is_left_alone(tmp_path):
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).write_text("mine")
    expected = (
        r"holds files that are not a run's, such as 'a.txt'; choose an empty or new directory"
    )
    with pytest.raises(InputError, match=expected):
        RunDirectory(tmp_path).create()
    assert names_in(tmp_path) == ["a.txt", "b.txt"]


@pytest.mark.parametrize("name", ["taken", "taken/run"])
def test_a_place_that_cannot_be_written_is_named_before_training(name, tmp_path):
    (tmp_path / "taken").write_text("")
    expected = rf"cannot write run directory '.*{name}': .*; choose another with --run"
    with pytest.raises(InputError, match=expected):
        RunDirectory(tmp_path / name).create()


def test_clearing_removes_what_a_run_left_and_nothing_else(tmp_path):
    run = begun(tmp_path)
    run.append_metrics([{"epoch": 0}])
    run.write_json(SUMMARY, {})
    run.write_model({"w": torch.ones(1)})
    (run.checkpoints / "epoch-000001").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("mine")
    run.clear()
    assert names_in(tmp_path) == ["notes.txt"]
    run.clear()


def test_what_cannot_be_cleared_is_named_and_the_run_stays_one(tmp_path):
    run = begun(tmp_path)
    # Checkpoints that stayed would be resumed from as if they were the new run's.
    run.checkpoints.write_text("")
    expected = r"cannot remove '.*checkpoints' of an earlier run: .*; remove it or choose another"
    with pytest.raises(InputError, match=expected):
        run.clear()
    assert run.has_run()


def test_json_comes_back_as_it_was_written(tmp_path):
    run = begun(tmp_path)
    run.write_json(SUMMARY, {"best_epoch": None, "loss": 0.1})
    assert run.read_json(SUMMARY) == {"best_epoch": None, "loss": 0.1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"{", r"config.json' is not JSON; train again or restore the file"),
        (b"\xff\xfe\x01", r"config.json' is not JSON; train again or restore the file"),
        (b"[" * 100_000, r"config.json' is not JSON; train again or restore the file"),
        (b"[1]", r"config.json' is not a JSON object; train again or restore the file"),
    ],
)
def test_a_damaged_file_is_named(text, expected, tmp_path):
    (tmp_path / CONFIG).write_bytes(text)
    with pytest.raises(InputError, match=expected):
        RunDirectory(tmp_path).read_json(CONFIG)


def test_a_directory_without_a_run_cannot_be_read(tmp_path):
    expected = r"' is not a run directory: it has no config.json; give the --run of a training run"
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InputError, match=expected):
            RunDirectory(path).read_json(CONFIG)
    (tmp_path / CONFIG).mkdir()
    with pytest.raises(InputError, match=r"cannot read '.*config.json': Is a directory"):
        RunDirectory(tmp_path).read_json(CONFIG)


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing_behind(tmp_path):
    run = RunDirectory(tmp_path)
    for name in (SUMMARY, METRICS, "model.safetensors"):
        (tmp_path / name).mkdir()
    hint = "Is a directory; put that right and continue with the same command and --resume"
    with pytest.raises(InputError, match=rf"cannot write '.*{SUMMARY}': {hint}"):
        run.write_json(SUMMARY, {})
    with pytest.raises(InputError, match=rf"cannot write '.*{METRICS}': {hint}"):
        run.append_metrics([{"epoch": 0}])
    with pytest.raises(InputError, match=rf"cannot write '.*model.safetensors': {hint}"):
        run.write_model({"w": torch.ones(1)})
    with pytest.raises(InputError, match=rf"cannot read '.*{METRICS}': Is a directory"):
        run.read_metrics()
    with pytest.raises(InputError, match=rf"cannot read '.*{METRICS}': Is a directory"):
        run.keep_metrics(1)
    assert names_in(tmp_path) == [METRICS, "model.safetensors", SUMMARY]


def test_a_full_disk_is_named_with_the_bytes_that_are_missing(tmp_path):
    run = begun(tmp_path)
    (tmp_path / METRICS).symlink_to("/dev/full")
    expected = rf"cannot write '.*{METRICS}': No space left on device \(26 bytes are needed\); put"
    with pytest.raises(InputError, match=expected):
        run.append_metrics([{"epoch": 0}, {"epoch": 1}])


def test_lines_that_do_not_fit_leave_the_file_as_it_was(tmp_path):
    run = begun(tmp_path)
    run.append_metrics([{"epoch": 0}])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
    try:
        with pytest.raises(
            InputError, match=r"cannot write '.*metrics.jsonl': (File too|No space)"
        ):
            run.append_metrics([{"epoch": 1}, {"epoch": 2}])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / METRICS).read_text() == '{"epoch": 0}\n'


def test_the_model_is_a_safetensors_file(tmp_path):
    run = begun(tmp_path)
    run.write_model({"w": torch.arange(3.0)})
    assert read_tensors(run.model_path)["w"].tolist() == [0, 1, 2]


def test_metrics_are_one_line_an_epoch(tmp_path):
    run = begun(tmp_path)
    records = [an_epoch(epoch, loss=1 / 3 + epoch) for epoch in range(4)]
    for record in records:
        run.append_metrics([record])
    lines = (tmp_path / METRICS).read_text().splitlines()
    assert [json.loads(line) for line in lines] == records
    assert run.read_metrics() == records


def test_epochs_that_are_trained_again_are_dropped(tmp_path):
    run = begun(tmp_path)
    for epoch in range(5):
        run.append_metrics([an_epoch(epoch)])
    assert run.keep_metrics(3) == [an_epoch(0), an_epoch(1), an_epoch(2)]
    run.append_metrics([an_epoch(3)])
    assert [record["epoch"] for record in run.read_metrics()] == [0, 1, 2, 3]


def test_lines_that_a_killed_run_left_unfinished_are_dropped(tmp_path):
    run = begun(tmp_path)
    whole = [json.dumps(an_epoch(number)) for number in range(2)]
    damaged = [json.dumps(an_epoch(2, loss="0")), whole[1].replace("eval_s", "eval_r")]
    lines = [whole[0], '{"epo', "7", '{"loss": 1}', '{"epoch": null}', *damaged, whole[1]]
    text = "\n".join([*lines, '{"epoch": 1, "lo'])
    (tmp_path / METRICS).write_bytes(text.encode() + b"\xff")
    assert run.keep_metrics(9) == [an_epoch(0), an_epoch(1)]
    assert (tmp_path / METRICS).read_text() == f"{whole[0]}\n{whole[1]}\n"


def test_there_are_no_metrics_before_the_first_epoch(tmp_path):
    run = begun(tmp_path)
    assert run.read_metrics() == []
    assert run.keep_metrics(3) == []
