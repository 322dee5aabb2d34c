"""Checkpoints: whole or not at all, the same on all ranks, and damage is never trained on."""

from __future__ import annotations

import errno
import json
import resource
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from training import check_same_values

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.training.run.checkpoint import Checkpoints
from distgnn.training.run.tensors import read_tensors

STATE = {"model.weight": torch.arange(4.0), "optimizer.0.step": torch.tensor(3.0)}


def rows_of(rank):
    return {"epoch": torch.tensor([rank])}


def write_some(folder, epochs, *, num_ranks=2, has_rows=True):
    """Checkpoints of these epochs, whose weights say which."""

    def on_rank(group):
        checkpoints = Checkpoints(folder, group)
        for epoch in epochs:
            state = {**STATE, "model.weight": torch.full((4,), float(epoch))}
            progress = {"best_epoch": epoch, "metric": float("-inf"), "loss": float("inf")}
            rows = rows_of(group.rank) if has_rows else {}
            checkpoints.write(epoch, progress, state, rows)

    run_ranks(num_ranks, on_rank)


def read_on_ranks(folder, num_ranks=2):
    def on_rank(group):
        checkpoints = Checkpoints(folder, group)
        return checkpoints.read_newest(), checkpoints.damaged

    return run_ranks(num_ranks, on_rank)


def names_in(folder):
    return sorted(item.name for item in folder.iterdir())


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_every_rank_reads_what_it_wrote(num_ranks, tmp_path):
    write_some(tmp_path, [5], num_ranks=num_ranks)
    for rank, (found, damaged) in enumerate(read_on_ranks(tmp_path, num_ranks)):
        assert (found.num_epochs, damaged) == (5, [])
        assert found.progress == {"best_epoch": 5, "metric": -torch.inf, "loss": torch.inf}
        check_same_values(found.rows, rows_of(rank))
        assert found.state["model.weight"].tolist() == [5.0] * 4
        assert found.state["optimizer.0.step"].shape == ()


def test_there_is_no_checkpoint_in_a_folder_that_is_empty_or_missing(tmp_path):
    assert read_on_ranks(tmp_path) == [(None, []), (None, [])]
    assert read_on_ranks(tmp_path / "missing") == [(None, []), (None, [])]


def test_only_the_last_two_are_kept_and_nothing_else_is_touched(tmp_path):
    for name in ("epoch-000001-copy", "epoch-1", "notes"):
        (tmp_path / name).mkdir(parents=True)
    write_some(tmp_path, [1, 2, 3, 999_999, 1_000_000])
    kept = ["epoch-000001-copy", "epoch-1", "epoch-1000000", "epoch-999999", "notes"]
    assert names_in(tmp_path) == kept
    assert read_on_ranks(tmp_path)[0][0].num_epochs == 1_000_000


def test_a_checkpoint_is_replaced_by_one_of_the_same_epoch(tmp_path):
    write_some(tmp_path, [2, 4], has_rows=False)
    write_some(tmp_path, [4])
    assert names_in(tmp_path) == ["epoch-000002", "epoch-000004"]
    assert read_on_ranks(tmp_path)[1][0].rows == rows_of(1)


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def alter(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


MANIFEST = "checkpoint.json"
UNREADABLE = rf"checkpoint '.*epoch-000004' has no readable {MANIFEST}; remove the folder"
ALTERED = r"checkpoint '.*epoch-000004' was altered; remove the folder"
FILE_ALTERED = "' was altered or cut off; remove the checkpoint's folder"
FILE_MISSING = "' is missing; remove the checkpoint's folder"
DAMAGES = {
    "state cut off": ("state.safetensors", cut_off, FILE_ALTERED),
    "state flipped": ("state.safetensors", flip, FILE_ALTERED),
    "state missing": ("state.safetensors", lambda path: path.unlink(), FILE_MISSING),
    "rows of rank 0 cut off": ("rows-0000.safetensors", cut_off, FILE_ALTERED),
    "rows of rank 1 flipped": ("rows-0001.safetensors", flip, FILE_ALTERED),
    "rows of rank 1 missing": ("rows-0001.safetensors", lambda p: p.unlink(), FILE_MISSING),
    "manifest missing": (MANIFEST, lambda path: path.unlink(), UNREADABLE),
    "manifest cut off": (MANIFEST, cut_off, UNREADABLE),
    "manifest empty": (MANIFEST, lambda path: path.write_text(""), UNREADABLE),
    "manifest a list": (MANIFEST, lambda path: path.write_text("[]"), UNREADABLE),
    "manifest a number": (MANIFEST, lambda path: path.write_text("4"), UNREADABLE),
    "manifest nested": (MANIFEST, lambda path: path.write_text("[" * 100_000), UNREADABLE),
    "manifest not text": (MANIFEST, lambda path: path.write_bytes(b"\xff\x00\xfe"), UNREADABLE),
    "manifest without digest": (MANIFEST, lambda path: path.write_text("{}"), UNREADABLE),
    "other files": (MANIFEST, lambda path: alter(path, files={}), ALTERED),
    "other progress": (MANIFEST, lambda path: alter(path, progress={}), ALTERED),
    "other number of ranks": (MANIFEST, lambda path: alter(path, num_ranks=7), ALTERED),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_checkpoint_is_reported_and_the_older_one_used_on_all_ranks(case, tmp_path):
    name, damage, expected = DAMAGES[case]
    write_some(tmp_path, [2, 4])
    damage(tmp_path / "epoch-000004" / name)
    results = read_on_ranks(tmp_path)
    for found, damaged in results:
        assert found.num_epochs == 2
        assert found.state["model.weight"].tolist() == [2.0] * 4
        assert damaged == results[0][1]
        assert len(damaged) == 1
        with pytest.raises(InputError, match=expected):
            raise InputError(damaged[0])


def test_a_renamed_checkpoint_is_damaged(tmp_path):
    write_some(tmp_path, [2, 3])
    (tmp_path / "epoch-000003").rename(tmp_path / "epoch-000004")
    found, damaged = read_on_ranks(tmp_path)[0]
    assert found.num_epochs == 2
    with pytest.raises(InputError, match=ALTERED):
        raise InputError(damaged[0])


def test_no_byte_of_a_manifest_can_change_unnoticed(tmp_path):
    write_some(tmp_path, [4], num_ranks=1)
    path = tmp_path / "epoch-000004" / MANIFEST
    content = path.read_bytes()
    for position in range(0, len(content), 5):
        # Upper to lower case and a digit to another, which often stays JSON.
        changed = bytearray(content)
        changed[position] ^= 1 if changed[position : position + 1].isdigit() else 32
        path.write_bytes(changed)
        with pytest.raises(InputError, match=r"altered|no readable|missing"):
            Checkpoints(tmp_path, SingleGroup()).read_newest()


def test_if_all_are_damaged_every_rank_says_so(tmp_path):
    write_some(tmp_path, [2, 4])
    cut_off(tmp_path / "epoch-000002" / MANIFEST)
    cut_off(tmp_path / "epoch-000004" / "rows-0001.safetensors")

    def on_rank(group):
        with pytest.raises(InputError, match=rf"epoch-000004/rows-0001.safetensors{FILE_ALTERED}"):
            Checkpoints(tmp_path, group).read_newest()

    run_ranks(2, on_rank)


def test_a_run_killed_before_the_rename_leaves_nothing_that_is_taken_for_whole(tmp_path):
    write_some(tmp_path, [2, 4])
    shutil.copytree(tmp_path / "epoch-000004", tmp_path / ".epoch-000005.tmp")
    assert read_on_ranks(tmp_path)[0][0].num_epochs == 4
    write_some(tmp_path, [6])
    assert names_in(tmp_path) == ["epoch-000004", "epoch-000006"]


def test_a_run_killed_while_it_removed_an_old_checkpoint_is_no_worse_off(tmp_path):
    write_some(tmp_path, [2, 4])
    (tmp_path / "epoch-000002" / "state.safetensors").unlink()
    assert read_on_ranks(tmp_path)[0][0].num_epochs == 4


def check_cannot_write(folder, expected):
    def on_rank(group):
        with pytest.raises(InputError, match=expected):
            Checkpoints(folder, group).write(6, {}, STATE, rows_of(group.rank))

    run_ranks(3, on_rank)


def test_all_ranks_hear_that_the_folder_cannot_be_written(tmp_path):
    (tmp_path / "taken").write_text("")
    hint = "the older checkpoints are as they were"
    check_cannot_write(tmp_path / "taken", rf"cannot write '.*taken': .*; {hint}")
    check_cannot_write(tmp_path / "taken" / "deep", rf"cannot write '.*': Not a directory; {hint}")

    def on_rank(group):
        with pytest.raises(
            InputError, match=r"cannot read checkpoints '.*taken': Not a direc.*--r"
        ):
            Checkpoints(tmp_path / "taken", group).read_newest()

    run_ranks(2, on_rank)


@pytest.mark.parametrize("name", ["epoch-000006", ".epoch-000006.tmp"])
def test_a_file_in_the_way_leaves_the_older_checkpoints_as_they_are(name, tmp_path):
    write_some(tmp_path, [2, 4], num_ranks=3)
    (tmp_path / name).write_text("")
    check_cannot_write(tmp_path, rf"rank 0: cannot write '.*{name}'")
    assert names_in(tmp_path) == sorted(["epoch-000002", "epoch-000004", name])
    (tmp_path / name).unlink()
    assert read_on_ranks(tmp_path, 3)[2][0].num_epochs == 4


def test_a_checkpoint_that_cannot_take_its_place_leaves_the_one_that_is_there(
    tmp_path, monkeypatch
):
    write_some(tmp_path, [2, 4])
    rename = Path.rename

    def refuse(path, target):
        if path.name == ".epoch-000004.tmp":
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        with pytest.raises(InputError, match="Input/output error; the older checkpoints are as th"):
            write_some(tmp_path, [4])
    assert names_in(tmp_path) == ["epoch-000002", "epoch-000004"]
    assert read_on_ranks(tmp_path)[1][0].num_epochs == 4


@contextmanager
def files_of_at_most(num_bytes):
    """Let the system refuse longer files, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_up_on_one_rank_leaves_the_older_checkpoints_as_they_are(tmp_path):
    write_some(tmp_path, [2, 4], num_ranks=3)

    def on_rank(group):
        rows = {"large": torch.zeros(10_000)} if group.rank == 2 else rows_of(group.rank)
        expected = r"rank 2: cannot write '.*\.epoch-000006.tmp/rows-0002.safetensors': File too"
        with pytest.raises(InputError, match=expected):
            Checkpoints(tmp_path, group).write(6, {}, STATE, rows)

    with files_of_at_most(4000):
        run_ranks(3, on_rank)
    assert names_in(tmp_path) == ["epoch-000002", "epoch-000004"]
    assert read_on_ranks(tmp_path, 3)[2][0].num_epochs == 4


def test_a_checkpoint_holds_no_pickle(tmp_path):
    write_some(tmp_path, [4])
    files = ["checkpoint.json", "rows-0000.safetensors", "rows-0001.safetensors"]
    assert names_in(tmp_path / "epoch-000004") == [*files, "state.safetensors"]
    assert read_tensors(tmp_path / "epoch-000004" / "state.safetensors").keys() == STATE.keys()
