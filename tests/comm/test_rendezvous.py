from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from distgnn.comm import network, process, rendezvous, store
from distgnn.comm.errors import PeerError
from distgnn.comm.launch import Launch
from distgnn.comm.rendezvous import master_address, meet_remotely, reach
from distgnn.comm.transports.gloo import GlooGroup
from distgnn.datasets import InputError

FIRST = Launch("openmpi", 0, 2, 0, 2)
SECOND = Launch("openmpi", 1, 2, 1, 2)
REMOTE = Launch("openmpi", 0, 4, 0, 2)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_RUNTIME_DIR": str(tmp_path), "PMIX_NAMESPACE": "job@1"}


def test_a_rank_that_meets_nobody_gives_up(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # so that it is as before afterwards
    meeting = rendezvous.meet(FIRST, environ, interface=None, timeout_s=60)
    meeting.store._timeout_s = 0.5
    with pytest.raises(PeerError, match=r"rank 0 \(.*\) could not connect to the other 1 ranks"):
        GlooGroup(FIRST, meeting, timeout_s=0.5)
    meeting.remove_file()


def test_ranks_of_one_machine_meet_on_loopback_and_leave_no_file(
    environ: dict[str, str], tmp_path: Path
) -> None:
    first = rendezvous.meet(FIRST, environ, interface=None, timeout_s=5)
    second = rendezvous.meet(SECOND, environ, interface=None, timeout_s=5)
    first.store.set("key", "value")
    assert second.store.get("key") == b"value"
    assert second.client(5).get("key") == b"value"
    assert first.interface == second.interface == network.loopback_interface()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((_other_address(), first.port), timeout=1)
    first.remove_file()
    assert list((tmp_path / "distgnn").iterdir()) == []


def test_a_full_disk_is_told_where_the_ranks_meet_and_nothing_is_left(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(path: Path, *_: object, **__: object) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", is_full)
    said = r"rank 0 cannot write '.*rendezvous-.*', by .* \(No space left on device\); free space"
    with pytest.raises(InputError, match=said):
        rendezvous.meet(FIRST, environ, interface=None, timeout_s=60)
    assert list((tmp_path / "distgnn").iterdir()) == []


def test_a_rank_leaves_a_store_whose_server_has_ended() -> None:
    """Rank 0 was killed after all had said that they are done."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    served = [store.serve_store(listener, "127.0.0.1", 1, b"secret")]
    client = store.connect_store("127.0.0.1", port, 1, b"secret")
    served.clear()
    with pytest.raises(RuntimeError):
        client.add("anything", 1)
    store.leave_store(client, 1, 2)


def _other_address() -> str:
    """An address of this machine other than the one the store listens on."""
    found = [a for _, a in network.addresses() if not network.is_loopback(a) and ":" not in a]
    return found[0] if found else "127.0.0.2"


@pytest.mark.parametrize("stale", ["dead owner", "other boot", "half a file"])
def test_a_file_left_by_a_dead_job_does_not_mislead(
    stale: str, environ: dict[str, str], tmp_path: Path
) -> None:
    me = process.this_process()
    content = {"port": 1, "token": "t", "pid": me.pid, "start": me.start, "machine": me.machine}
    content |= {"dead owner": {"start": me.start + 1}, "other boot": {"machine": "x"}}.get(
        stale, {}
    )
    text = json.dumps(content)
    folder = tmp_path / "distgnn"
    folder.mkdir(mode=0o700)
    file = folder / f"rendezvous-{rendezvous.job_key(SECOND, environ)}.json"
    file.write_text(text[: len(text) // 2] if stale == "half a file" else text)
    with pytest.raises(PeerError, match=r"rank 1 waited 0\.1 s on this machine for rank 0"):
        rendezvous.meet(SECOND, environ, interface=None, timeout_s=0.1)


def test_files_of_killed_jobs_are_removed_and_those_of_others_stay(
    environ: dict[str, str], tmp_path: Path
) -> None:
    me = process.this_process()
    content = {"port": 1, "token": "t", "pid": me.pid, "start": me.start, "machine": me.machine}
    folder = tmp_path / "distgnn"
    folder.mkdir(mode=0o700)
    for name, changed in {
        "rendezvous-killed.json": {"start": me.start + 1},
        "rendezvous-killed.7.tmp": {"start": me.start + 1},
        "rendezvous-lives.json": {},
        "rendezvous-elsewhere.json": {"machine": "x", "start": 1},
    }.items():
        (folder / name).write_text(json.dumps({**content, **changed}))
    (folder / "rendezvous-half.json").write_text("{")
    meeting = rendezvous.meet(FIRST, environ, interface=None, timeout_s=5)
    meeting.remove_file()
    left = sorted(path.stem for path in folder.iterdir())
    assert left == ["rendezvous-elsewhere", "rendezvous-half", "rendezvous-lives"]


def test_a_directory_of_others_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, private = tmp_path / "shared", tmp_path / "temporary"
    (shared / "distgnn").mkdir(parents=True, mode=0o755)
    private.mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(private))
    chosen = rendezvous.private_directory({"XDG_RUNTIME_DIR": str(shared)})
    assert chosen == private / f"distgnn-{os.getuid()}"
    assert chosen.stat().st_mode & 0o077 == 0
    chosen.rmdir()
    chosen.symlink_to(tmp_path)
    with pytest.raises(InputError, match="is not a directory that only this user can open"):
        rendezvous.private_directory({})


def test_a_machine_without_a_temporary_directory_says_so(tmp_path, monkeypatch) -> None:
    def finds_none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", finds_none)
    runtime = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert rendezvous.private_directory(runtime) == tmp_path / "distgnn"
    with pytest.raises(
        InputError, match="because no temporary directory can be written; make room"
    ):
        rendezvous.private_directory({})


@pytest.mark.parametrize("name", ["a..b", "a" * 64])
def test_a_name_that_no_host_can_have_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"MASTER_ADDR must be the name or address of the host"):
        rendezvous.reach(name, 29500, rank=1, timeout_s=60)
    with pytest.raises(InputError, match=r"the host of rank 0 must have an address, got '.*'"):
        rendezvous._places(REMOTE, name, 29500)


def test_the_key_of_a_job_is_shared_by_its_ranks_only(environ: dict[str, str]) -> None:
    hydra = Launch("mpich", 0, 2, 0, 2)
    torchrun = Launch("torchrun", 0, 2, 0, 2)
    attempt = {"TORCHELASTIC_RUN_ID": "a", "MASTER_PORT": "1", "TORCHELASTIC_RESTART_COUNT": "0"}
    step = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0"}
    keys = [
        rendezvous.job_key(FIRST, environ),
        rendezvous.job_key(FIRST, {"PMIX_NAMESPACE": "job@2"}),
        rendezvous.job_key(hydra, {}),
        rendezvous.job_key(torchrun, attempt),
        rendezvous.job_key(torchrun, {**attempt, "TORCHELASTIC_RESTART_COUNT": "1"}),
        rendezvous.job_key(Launch("srun", 0, 2, 0, 2), step),
        rendezvous.job_key(Launch("srun", 0, 2, 0, 2), {**step, "SLURM_STEP_ID": "1"}),
    ]
    assert len(set(keys)) == len(keys)
    assert rendezvous.job_key(SECOND, environ) == keys[0]
    assert rendezvous.job_key(Launch("mpich", 1, 2, 1, 2), {}) == keys[2]


def test_rank_0_is_where_the_environment_says() -> None:
    srun = Launch("srun", 0, 4, 0, 2)
    step = {"SLURM_STEP_NODELIST": "gpu[003-007,9]", "SLURM_JOB_ID": "5", "SLURM_STEP_ID": "2"}
    assert master_address(srun, step) == ("gpu003", 20322)
    assert master_address(srun, {**step, "MASTER_PORT": "77"}) == ("gpu003", 77)
    assert master_address(REMOTE, {"MASTER_ADDR": "a"}) == ("a", 29500)
    assert master_address(REMOTE, {}) is None
    with pytest.raises(InputError, match=r"MASTER_PORT must be a port in 1\.\.65535, got '0'"):
        master_address(REMOTE, {"MASTER_PORT": "0"})
    with pytest.raises(InputError, match="MASTER_ADDR is not set, but RANK and WORLD_SIZE are"):
        master_address(Launch("torchrun", 0, 2, 0, 1), {})


def test_several_hosts_without_any_address_ask_for_mpi4py_or_master_addr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(InputError, match=r"install distgnn\[mpi\], or set MASTER_ADDR"):
        meet_remotely(REMOTE, {}, interface=None, timeout_s=60)


def test_an_error_of_mpi_before_the_ranks_have_met_is_no_traceback(monkeypatch) -> None:
    class MpiError(RuntimeError):
        pass

    def fails(*_: object) -> None:
        raise MpiError("MPI_ERR_PROC_FAILED: Process Failure\nand its stack")

    mpi = SimpleNamespace(Exception=MpiError)
    monkeypatch.setattr("distgnn.comm.rendezvous._load_mpi", lambda _: mpi)
    monkeypatch.setattr("distgnn.comm.rendezvous._agree_through_mpi", fails)
    sentence = r"rank 0 \(.*\) lost another rank, or the link to it, .* \(MPI_ERR.*Failure\); see"
    with pytest.raises(PeerError, match=sentence):
        meet_remotely(REMOTE, {}, interface=None, timeout_s=60)


@pytest.mark.mpi
def test_mpirun_of_another_library_is_told() -> None:
    code = (
        "from distgnn.comm.launch import Launch; from distgnn.comm.rendezvous import meet_remotely;"
        "meet_remotely(Launch('openmpi', 0, 4, 0, 2), {}, interface=None, timeout_s=60)"
    )
    # Tried in a process of its own: importing it starts MPI.
    tried = subprocess.run(
        [sys.executable, "-c", "import mpi4py.MPI"], capture_output=True, check=False
    )
    if tried.returncode != 0:
        pytest.skip("mpi4py is not installed, or finds no MPI library beside this Python")
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "started 4 ranks, but the MPI library of mpi4py sees 1; use the mpirun" in result.stderr


def test_a_rank_0_that_never_comes_is_given_up() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # nobody listens, and nobody else can
        port = reserved.getsockname()[1]
        sentence = rf"waited 0 s for rank 0 at 127.0.0.1 port {port} \(.*ref"
        with pytest.raises(PeerError, match=sentence):
            reach("127.0.0.1", port, rank=1, timeout_s=0)


def test_a_port_in_use_and_a_host_without_address_are_told() -> None:
    with socket.create_server(("", 0)) as taken:
        environ = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken.getsockname()[1])}
        with pytest.raises(InputError, match=r"rank 0 cannot listen on 127.0.0.1 port .* in use"):
            meet_remotely(REMOTE, environ, interface="lo", timeout_s=1)
    with pytest.raises(InputError, match=r"must have an address, got 'no\.invalid'"):
        meet_remotely(REMOTE, {"MASTER_ADDR": "no.invalid"}, interface="lo", timeout_s=1)


def test_every_address_leads_to_the_interface_that_has_it() -> None:
    for name, address in network.addresses():
        assert network.interface_towards(address) == name
    assert network.interface_towards("127.0.1.1") == network.loopback_interface()


def test_a_process_dies_with_its_parent() -> None:
    child = (
        "import time; from distgnn.comm.process import die_with_parent\n"
        "die_with_parent(); print('ready', flush=True); time.sleep(200)"
    )
    parent = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(child.pid, flush=True); time.sleep(200)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        orphan = process.process_id(int(started.stdout.readline()))
        assert process.is_alive(orphan)
        assert not process.is_alive(process.ProcessId(orphan.machine, orphan.pid, orphan.start + 1))
        os.kill(started.pid, signal.SIGKILL)
        deadline = time.monotonic() + 100
        while process.is_alive(orphan) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not process.is_alive(orphan)


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        zombie = process.process_id(started.pid)
        assert process.is_alive(zombie)
        os.kill(started.pid, signal.SIGKILL)
        deadline = time.monotonic() + 100
        while process.is_alive(zombie) and time.monotonic() < deadline:
            time.sleep(0.01)
        state = Path(f"/proc/{started.pid}/stat").read_text()
        assert re.search(r"\) Z ", state)
        assert not process.is_alive(zombie)
