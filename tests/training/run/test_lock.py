"""One job owns a RUN directory; a second one is refused, and a dead owner is followed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from distgnn.cli import main
from distgnn.comm import process
from distgnn.datasets import InputError
from distgnn.training.run import lock as module
from distgnn.training.run.lock import NAME, RunLock

HOLDER = """
import sys, time
from pathlib import Path
from distgnn.training.run.lock import RunLock
lock = RunLock(Path(sys.argv[1]))
lock.take()
print("taken", flush=True)
sys.stdin.read()
lock.release()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that owns the directory."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout.readline() == b"taken\n"
        yield started
        started.kill()


def write(folder, **changed):
    me = process.this_process()
    content = {"host": "node7", "machine": me.machine, "pid": me.pid, "start": me.start}
    (folder / NAME).write_text(json.dumps({**content, "job": "", "token": "t", **changed}))


def wait_until(condition):
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_second_job_is_refused_by_name_until_the_first_has_ended(holder, tmp_path):
    host = re.escape(socket.gethostname())
    sentence = rf"is in use by a job on host {host} \(pid {holder.pid}.*\); wait until"
    with pytest.raises(InputError, match=sentence):
        RunLock(tmp_path).take()
    holder.communicate(b"", timeout=60)
    with RunLock(tmp_path) as lock:
        lock.take()
        lock.take()
        assert [file.name for file in tmp_path.iterdir()] == [NAME]
    assert list(tmp_path.iterdir()) == []


def test_an_owner_that_was_killed_is_followed_at_once(holder, tmp_path):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    notes = []
    with RunLock(tmp_path, notes.append) as lock:
        lock.take()
        assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()
    assert notes == []  # it waited for nothing


def test_a_number_that_belongs_to_another_process_by_now_is_no_owner(tmp_path):
    write(tmp_path, start=process.this_process().start + 1)
    with RunLock(tmp_path) as lock:
        lock.take()


def test_an_owner_on_another_host_lives_as_long_as_its_heart_beats(tmp_path, monkeypatch):
    write(tmp_path, machine="elsewhere", pid=17, job="SLURM_JOB_ID=5")
    is_over = threading.Event()

    def beat():
        while not is_over.wait(0.05):
            os.utime(tmp_path / NAME)

    beats = threading.Thread(target=beat)
    beats.start()
    notes = []
    with pytest.raises(InputError, match=r"job on host node7 \(pid 17, SLURM_JOB_ID=5\); wait"):
        RunLock(tmp_path, notes.append).take()
    is_over.set()
    beats.join()
    assert re.match(r"waiting 20 s to see whether a job on host node7", notes[0])
    monkeypatch.setattr(module, "_STALE_S", 0.2)
    with RunLock(tmp_path) as lock:
        lock.take()


def test_the_heart_of_an_owner_beats(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_BEAT_S", 0.02)
    with RunLock(tmp_path) as lock:
        lock.take()
        os.utime(tmp_path / NAME, (1, 1))
        wait_until(lambda: (tmp_path / NAME).stat().st_mtime >= 2)


def test_an_owner_that_stood_still_and_was_followed_notices(tmp_path):
    with RunLock(tmp_path) as lock:
        lock.take()
        write(tmp_path, machine="elsewhere", pid=17)
        with pytest.raises(InputError, match=r"was taken over by a job on host node7 \(pid 17\)"):
            lock.check()
    assert (tmp_path / NAME).exists()  # it is the other job's


def test_the_heart_of_an_owner_that_was_followed_notices_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_BEAT_S", 0.02)
    with RunLock(tmp_path) as lock:
        lock.take()
        assert not lock.is_lost
        write(tmp_path, machine="elsewhere", pid=17)
        wait_until(lambda: lock.is_lost)


def test_an_owner_notices_that_who_followed_it_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_BEAT_S", 0.02)
    folder = tmp_path / "run"
    folder.mkdir()
    with RunLock(folder) as lock:
        lock.take()
        (folder / NAME).unlink()
        with pytest.raises(InputError, match=r"'.*/\.lock' is gone: .*; continue with --resume"):
            lock.check()
        wait_until(lambda: lock.is_lost)
        folder.rmdir()
        wait_until(lambda: not lock.is_lost)
        lock.check()  # what it writes into will fail by itself


def test_a_lock_that_is_given_back_while_it_is_watched_is_free(tmp_path, monkeypatch):
    write(tmp_path, machine="elsewhere", pid=17)
    monkeypatch.setattr(time, "sleep", lambda _: (tmp_path / NAME).unlink(missing_ok=True))
    with RunLock(tmp_path) as lock:
        lock.take()


def test_an_owner_that_the_system_hides_lives(tmp_path, monkeypatch):
    def is_denied(pid, number):
        raise PermissionError(1, "Operation not permitted")

    write(tmp_path)
    monkeypatch.setattr(os, "kill", is_denied)
    monkeypatch.setattr(process, "_stat", lambda pid: None)
    with pytest.raises(InputError, match=r"is in use by a job on host node7"):
        RunLock(tmp_path).take()


def test_of_many_jobs_that_find_a_dead_owner_one_succeeds(tmp_path):
    write(tmp_path, start=1)
    locks, taken = [RunLock(tmp_path) for _ in range(8)], []

    def race(lock):
        try:
            lock.take()
            taken.append(lock)
        except InputError:
            pass

    threads = [threading.Thread(target=race, args=(lock,)) for lock in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1
    taken[0].release()
    assert list(tmp_path.iterdir()) == []


def test_a_mark_whose_job_died_is_cleared(tmp_path):
    write(tmp_path, start=1)
    dead = (tmp_path / NAME).read_text()
    marks = [module._mark_of(tmp_path / NAME, "t")]
    marks.append(module._mark_of(marks[0], "u"))  # who removed that one died, too
    for mark, token in zip(marks, "uv", strict=True):
        mark.write_text(json.dumps({**json.loads(dead), "token": token}))
    with RunLock(tmp_path) as lock:
        lock.take()
        assert [file.name for file in tmp_path.iterdir()] == [NAME]


def test_a_mark_whose_job_sleeps_is_kept(holder, tmp_path, monkeypatch):
    """Else it would remove the file of a third job when it wakes up."""
    monkeypatch.setattr(module, "_STALE_S", 0.05)
    sleeper = json.loads((tmp_path / NAME).read_text())
    write(tmp_path, start=1)
    mark = module._mark_of(tmp_path / NAME, "t")
    mark.write_text(json.dumps(sleeper))
    sleeps = []

    def sleep(seconds):
        sleeps.append(mark.exists())
        if len(sleeps) == 50:
            mark.unlink()
        threading.Event().wait(seconds)

    monkeypatch.setattr(module.time, "sleep", sleep)
    with RunLock(tmp_path) as lock:
        lock.take()
    assert sleeps == [True] * 50


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[1]", '{"pid": 1, "start": "x"}', '{"pid": -1}', "[" * 200_000),
        json.dumps({"machine": process.machine(), "pid": 10**20}),
    ],
)
def test_a_damaged_file_is_nobodys(text, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_STALE_S", 0.1)
    (tmp_path / NAME).write_text(text)
    with RunLock(tmp_path) as lock:
        lock.take()


def test_a_pipe_in_place_of_the_file_is_told(tmp_path):
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(InputError, match="it is a named pipe, not a file; choose another with --r"):
        RunLock(tmp_path).take()


def test_a_run_in_use_is_not_trained_and_a_run_that_ended_is_free(tmp_path, capsys):
    run = tmp_path / "run"
    words = ["train", "cora", "--run", str(run), "--epochs", "1", "--quiet"]
    assert main(words) == 0
    assert not (run / NAME).exists()
    write(run)
    assert main([*words, "--overwrite"]) == 2
    assert "is in use by a job on host node7" in capsys.readouterr().err
    assert (run / "summary.json").exists()
    write(run, start=1)
    assert main([*words, "--overwrite"]) == 0
    assert main([*words, "--lr", "-1"]) == 2
    assert not (run / NAME).exists()


@pytest.mark.parametrize(
    "words", [["train", "--seeds", "2"], ["tune", "--search", "lr=choice(0.1,0.2)"]]
)
def test_a_series_and_a_study_have_one_owner_too(words, holder, tmp_path, capsys):
    verb, *more = words
    command = [verb, "synthetic:path", "--run", str(tmp_path), "--epochs", "2", "--quiet", *more]
    assert main([*command, "--threads", "1"]) == 2
    assert f"is in use by a job on host {socket.gethostname()}" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == [NAME]
    holder.communicate(b"", timeout=60)
    assert main([*command, "--threads", "1"]) == 0
    assert not (tmp_path / NAME).exists()


def test_a_series_needs_a_directory_that_can_be_made(tmp_path, capsys):
    (tmp_path / "file").touch()
    words = ["train", "synthetic:path", "--run", str(tmp_path / "file"), "--seeds", "2"]
    assert main([*words, "--threads", "1"]) == 2
    assert "cannot make series directory" in capsys.readouterr().err
