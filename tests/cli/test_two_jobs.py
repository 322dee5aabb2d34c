"""Jobs that meet on one port, and strangers at the ports of a job: refused, and without effect."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from rank_jobs import Hold, free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads the kernel's tables"),
]

PROGRAM = str(Path(sys.executable).parent / "distgnn")
# A job is met by the other one before its second rank comes, however long that takes.
MODEL = ["--hidden", "16", "--backend", "gloo", "--quiet", "--start-timeout", "240"]
# For a whole test, below what pytest gives it.
LIMIT_S = 240


class Deadline:
    """The end of a test."""

    def __init__(self):
        self._end_s = time.monotonic() + LIMIT_S

    @property
    def left_s(self):
        return max(0.1, self._end_s - time.monotonic())

    @property
    def is_over(self):
        return time.monotonic() >= self._end_s

    def ends_of(self, ranks):
        said = [rank.communicate(timeout=self.left_s) for rank in ranks]
        return [rank.returncode for rank in ranks], [err for _, err in said]

    def wait_until_listening(self, process):
        while not listening(process) and process.poll() is None and not self.is_over:
            time.sleep(0.02)
        if process.poll() is not None:
            pytest.fail(f"the rank ended with {process.returncode}: {process.communicate()[1]}")
        assert listening(process)


@pytest.fixture
def deadline(parts):
    return Deadline()


@pytest.fixture
def start(parts, tmp_path):
    """Starts a rank of a job that torchrun would have started."""
    port = free_port()
    others = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "TORCHELASTIC_")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(others)}
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    place |= {"OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": str(tmp_path)}
    started = []

    def begin(job, rank, *words, local_size=2, **variables):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank % local_size), "TORCHELASTIC_RUN_ID": job}
        own["LOCAL_WORLD_SIZE"] = str(local_size)
        command = [PROGRAM, "train", str(parts), "--run", str(tmp_path / job), *MODEL, *words]
        environ = {**inherited, **place, **own, **variables}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, env=environ, **pipes))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def losses(run):
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_two_jobs_of_one_host_with_one_port_train_side_by_side(start, tmp_path, deadline):
    first = start("one", 0, "--epochs", "3")
    deadline.wait_until_listening(first)
    others = [start("two", rank, "--epochs", "3", "--seed", "7") for rank in (1, 0)]
    statuses, errors = deadline.ends_of(others)
    assert statuses == [0, 0], errors
    assert first.poll() is None
    statuses, errors = deadline.ends_of([first, start("one", 1, "--epochs", "3")])
    assert statuses == [0, 0], errors
    assert losses(tmp_path / "one") != losses(tmp_path / "two")


def test_ranks_of_another_job_on_the_port_are_refused(start, tmp_path, deadline):
    words = ("--epochs", "3", "--interface", "lo")
    first = start("one", 0, *words, local_size=1)
    deadline.wait_until_listening(first)
    # Before the second rank of the first job has come.
    others = [start("two", rank, *words, "--seed", "7", local_size=1) for rank in (1, 0)]
    statuses, errors = deadline.ends_of(others)
    assert statuses == [2, 2], errors
    assert "another job's or another user's" in errors[0], errors
    assert "Traceback" not in "".join(errors)
    assert first.poll() is None
    statuses, errors = deadline.ends_of([first, start("one", 1, *words, local_size=1)])
    assert statuses == [0, 0], errors
    assert len(losses(tmp_path / "one")) == 3
    assert not (tmp_path / "two").exists()


def test_strangers_at_every_open_port_change_nothing(start, tmp_path, deadline):
    words = ("--epochs", "150", "--eval-every", "10", "--checkpoint-every", "50")
    hold = Hold(tmp_path / "hold")
    hold.at(50)
    undisturbed = [start("one", rank, *words) for rank in range(2)]
    statuses, errors = deadline.ends_of(undisturbed)
    assert statuses == [0, 0], errors
    ranks = [start("two", rank, *words, **hold.environ) for rank in range(2)]
    # What a rank says fits into its pipe.
    met = strangers_at(ranks, random.Random(0), deadline, hold)
    statuses, errors = deadline.ends_of(ranks)
    assert statuses == [0, 0], errors
    assert losses(tmp_path / "two") == losses(tmp_path / "one")
    assert met


def strangers_at(ranks, draw, deadline, hold):
    """Send bytes to each port that ranks listen on, until a rank has ended; the ports."""
    met, kept = set(), []
    while all(rank.poll() is None for rank in ranks) and not deadline.is_over:
        if met and hold.is_held:
            hold.end()
        for rank in ranks:
            for address, port in listening(rank):
                with suppress(OSError):
                    guest = socket.create_connection((address, port), 1)
                    met.add(port)
                    kept.append(guest)
                    guest.settimeout(0.05)
                    guest.sendall(draw.randbytes(draw.choice((0, 1, 4, 32, 64, 100, 5000))))
                    if draw.random() < 0.5:
                        guest.shutdown(socket.SHUT_WR)
                        guest.recv(100)
        # Some stay for a while.
        while len(kept) > 20:
            kept.pop(0).close()
        time.sleep(0.01)
    for guest in kept:
        guest.close()
    return met


def listening(rank):
    """Addresses that a process listens on, IPv4 and IPv6."""
    inodes = set()
    with suppress(OSError):
        for entry in Path(f"/proc/{rank.pid}/fd").iterdir():
            with suppress(OSError):
                inodes.add(str(entry.readlink()))
    found = []
    for table, host in (("tcp", "127.0.0.1"), ("tcp6", "::1")):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                found.append((host, int(fields[1].rpartition(":")[2], 16)))
    return found
