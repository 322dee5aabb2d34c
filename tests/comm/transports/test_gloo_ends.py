"""The first and the last moment of a group, when a watchdog has no word yet or no more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch.distributed as dist

from distgnn.comm import rendezvous
from distgnn.comm.errors import PeerError
from distgnn.comm.launch import Launch
from distgnn.comm.transports.gloo import GlooGroup

SECOND = """
import os, pathlib, sys, time
import torch.distributed as dist
from distgnn.comm.transports.gloo import GlooGroup
from distgnn.comm.transports.torch_store import TorchStore
from distgnn.comm.launch import Launch
from distgnn.comm.rendezvous import meet
from distgnn.comm.watchdog import Watchdog

launch = Launch("openmpi", 1, 2, 1, 2)
meeting = meet(launch, os.environ, interface=None, timeout_s=60)
if sys.argv[1] == "ends at once":
    os.environ["GLOO_SOCKET_IFNAME"] = meeting.interface
    store = TorchStore(meeting.store, "gloo/")
    dist.init_process_group("gloo", store=store, rank=1, world_size=2)
    os._exit(0)
if sys.argv[1] == "ends without leaving":
    # The thread that talks to the store is in a call of it nearly always.
    talk_once = Watchdog._talk_once
    Watchdog._talk_once = lambda watchdog: [talk_once(watchdog) for _ in range(1000)]
group = GlooGroup(launch, meeting, timeout_s=60)
if sys.argv[1] == "ends without leaving":
    group._watchdog._wake.set()
    time.sleep(0.1)
    sys.exit(3)
if sys.argv[1] == "ends as it closes":
    def end(key, number):
        time.sleep(3)  # the heart says that this rank closes, and it is not counted
        os._exit(0)
    group._store.add = end
    group.close()
if sys.argv[1] == "leaves":
    group.close()
    names = [file.read_text().strip() for file in pathlib.Path("/proc/self/task").glob("*/comm")]
    sys.exit(sum("gloo" in name for name in names))
time.sleep(60)
"""


class Job(NamedTuple):
    meeting: rendezvous.Meeting
    second: subprocess.Popen[bytes]


@pytest.fixture
def first(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Job]:
    """The meeting of rank 0, while rank 1 does in a process of its own what the test asks for."""
    environ = {"XDG_RUNTIME_DIR": str(tmp_path), "PMIX_NAMESPACE": "job@1"}
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # so that it is as before afterwards
    # torch numbers the groups of a process, and those that tests before tried to make count: ranks
    # meet under the number.
    monkeypatch.setattr(dist.distributed_c10d._world, "group_count", 0)
    if request.param == "ends at once":
        # Not before both have connected, however late rank 0 is.
        monkeypatch.setenv("TORCH_DIST_INIT_BARRIER", "1")
    meeting = rendezvous.meet(Launch("openmpi", 0, 2, 0, 2), environ, interface=None, timeout_s=60)
    second = subprocess.Popen(
        [sys.executable, "-c", SECOND, request.param], env={**os.environ, **environ}
    )
    yield Job(meeting, second)
    second.kill()
    second.wait()
    meeting.remove_file()
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("first", ["ends at once"], indirect=True)
def test_a_rank_that_ends_in_start_up_is_told(first: Job) -> None:
    with pytest.raises(
        PeerError, match=r"rank 0 \(.*\) lost the other ranks in start-up \(.*; see"
    ):
        GlooGroup(Launch("openmpi", 0, 2, 0, 2), first.meeting, timeout_s=60)
    assert not dist.is_initialized()


@pytest.mark.parametrize("first", ["ends as it closes"], indirect=True)
def test_a_rank_that_ends_before_it_is_counted_is_named_and_all_is_freed(first: Job) -> None:
    group = GlooGroup(Launch("openmpi", 0, 2, 0, 2), first.meeting, timeout_s=60)
    group._patience_s = 40
    with pytest.raises(PeerError, match=rf"rank 1 \(.*, pid {first.second.pid}\) died, last seen"):
        group.close()
    group.close()
    assert not dist.is_initialized()


@pytest.mark.parametrize("first", ["stays"], indirect=True)
def test_a_rank_that_never_closes_is_not_waited_for(
    first: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distgnn.comm.watchdog._DIAGNOSIS_S", 0.2)
    group = GlooGroup(Launch("openmpi", 0, 2, 0, 2), first.meeting, timeout_s=60)
    group._patience_s = 0.1
    with pytest.raises(
        PeerError, match=r"no rank is known to be dead: not all ranks closed within"
    ):
        group.close()
    assert group._watchdog is not None
    group._watchdog.stop()


@pytest.mark.parametrize("first", ["ends without leaving"], indirect=True)
def test_an_interpreter_that_ends_before_its_group_ends_in_order(first: Job) -> None:
    group = GlooGroup(Launch("openmpi", 0, 2, 0, 2), first.meeting, timeout_s=60)
    assert first.second.wait(60) == 3
    assert group._watchdog is not None
    group._watchdog.stop()


@pytest.mark.parametrize("first", ["leaves"], indirect=True)
def test_a_group_that_was_left_has_no_threads(first: Job) -> None:
    group = GlooGroup(Launch("openmpi", 0, 2, 0, 2), first.meeting, timeout_s=60)
    group.close()
    assert first.second.wait(60) == 0
